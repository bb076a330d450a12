"""What is asked to be seen against what is output."""

from __future__ import annotations

from stef_core.comparison.common import (
    Comparison,
    base_name,
    in_expression,
    owner_of,
)
from stef_core.lexicon import column_similarity, identifier_words
from stef_core.records import (
    Column,
)
from stef_core.wording import column_text


def compare_outputs(c: Comparison) -> None:
    """Each thing asked to be seen against what is output."""
    asked = [p for p in c.question.projections if base_name(p)]
    if not asked or c.question.language != "en" or "*" in c.sql.projections:
        return
    outputs = list(c.sql.projections)
    texts = list(c.sql.expressions)
    found: set[int] = set()
    unmet: list[Column] = []
    for wanted in asked:
        scores = [c.similar(wanted, o, owner_of(c.sql, o)) for o in outputs]
        best = max(range(len(outputs)), key=scores.__getitem__, default=None)
        if best is not None and scores[best] >= 0.5:
            found.add(best)
        elif any(in_expression(wanted, t) for t in texts):
            continue
        else:
            unmet.append(wanted)
    free = [o for i, o in enumerate(outputs) if i not in found]
    if not unmet:
        c.found("outputs_found")
    for wanted in unmet:
        name = column_text(wanted)
        counted = any(a for a in c.sql.aggregations) and not c.question.aggregations
        if len(texts) < len(asked):
            c.note("missing_output", f"{name} is asked for and not output.", question_part=name, kind="missing_output")
        elif free and not counted and len(outputs) == len(texts):
            other = column_text(free[0])
            named = column_similarity(base_name(wanted) or "", base_name(free[0]) or "")
            c.note(
                "wrong_output",
                f"{name} is asked for; {other} is output.",
                question_part=name,
                sql_part=other,
                kind="wrong_output",
                strength=0.4 if named > 0.3 else 0.6,
            )
    if not unmet and len(texts) > len(asked) + len(c.question.aggregations) and not c.question.group_by:
        extra = [o for o in free if not _harmless_output(c, o)]
        if extra:
            c.note(
                "extra_output",
                f"Nobody asked to see {', '.join(column_text(o) for o in extra)}.",
                sql_part=", ".join(column_text(o) for o in extra),
                kind="extra_output",
                strength=min(1.0, 0.5 + 0.25 * len(extra)),
            )


def _harmless_output(c: Comparison, output: Column) -> bool:
    name = base_name(output) or ""
    if output in c.sql.group_by or "id" in identifier_words(name):
        return True
    return bool(set(identifier_words(name)) & c.question.mentions.lemmas)


def compare_output_count(c: Comparison) -> None:
    """Fewer outputs than things asked for, whatever they are called."""
    asked = len(c.question.projections)
    outputs = len(c.sql.expressions)
    if asked > outputs >= 1 and "*" not in c.sql.projections and asked >= 2:
        c.note(
            "missing_output",
            f"{asked} things are asked for and {outputs} are output.",
            kind="fewer_outputs",
            strength=0.7,
        )


def compare_ids(c: Comparison) -> None:
    """``gender_id`` is output where the gender was asked for."""
    if {"id", "identifier", "code", "key", "number", "uuid"} & c.question.mentions.lemmas or not c.question.projections:
        return
    for output in c.sql.projections:
        parts = identifier_words(base_name(output) or "")
        if len(parts) >= 2 and parts[-1] == "id":
            stem = "_".join(parts[:-1])
            if any(c.similar(p, stem) >= 0.8 for p in c.question.projections) and len(c.sql.expressions) == 1:
                c.note(
                    "wrong_output",
                    f"The {stem.replace('_', ' ')} is asked for; its id is output.",
                    sql_part=column_text(output),
                    kind="id_for_name",
                )
