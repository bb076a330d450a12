"""Groups asked for against groups formed, with the grain of dates."""

from __future__ import annotations

import re

from stef_core.comparison.common import (
    Comparison,
    base_name,
    harmless_id,
    leaves,
    owner_of,
)
from stef_core.comparison.production import benign_group_by
from stef_core.lexicon import identifier_words
from stef_core.records import (
    Column,
    DatePart,
    DateTrunc,
    Filter,
)
from stef_core.wording import column_text


def compare_grouping(c: Comparison) -> None:
    """Groups asked for against groups formed, with the grain of dates."""
    sql, question = c.sql, c.question
    groups: list[Column] = [*sql.group_by, *(p for w in sql.windows for p in w.partition_by)]
    shown: list[Column] = [*groups, *sql.projections]
    for wanted in question.group_by:
        best = max((c.similar(wanted, g, owner_of(sql, g)) for g in groups), default=0.0)
        dated = [g for g in groups if isinstance(g, DatePart | DateTrunc)]
        if isinstance(wanted, DatePart | DateTrunc):
            grain = wanted.part if isinstance(wanted, DatePart) else wanted.unit
            if _names_something_else(c, grain):
                continue
            have = [g.part if isinstance(g, DatePart) else g.unit for g in dated]
            if have and grain not in have and not any(grain in identifier_words(base_name(g) or "") for g in groups):
                c.note(
                    "wrong_group_by",
                    f"Groups are asked for each {grain}; the SQL forms them for each {have[0]}.",
                    question_part=f"per {grain}",
                    sql_part=have[0],
                    kind="wrong_grain",
                )
                continue
            if have or groups:
                c.found("group_found")
                continue
        elif best >= 0.5:
            c.found("group_found")
            continue
        name = column_text(wanted)
        if groups and any(harmless_id(g) for g in groups):
            continue  # grouped by the id of what was asked for
        if not groups and (any(c.similar(wanted, p) >= 0.5 for p in shown) and not sql.aggregations):
            continue
        if groups:
            shown_only = bool(sql.group_by) and wanted in set(sql.projections) - set(sql.group_by)
            coarser = len(sql.group_by) < len(question.group_by) and not sql.inner_groups and not sql.windows
            c.note(
                "wrong_group_by",
                f"Groups are asked for each {name}; the SQL forms them by {', '.join(column_text(g) for g in groups[:3])}.",
                question_part=name,
                sql_part=column_text(groups[0]),
                kind="wrong_group_by",
                strength=1.0 if coarser or shown_only else 0.5,
                severity="critical" if coarser or shown_only else None,
            )
        elif question.aggregations or sql.aggregations:
            c.note(
                "missing_group_by",
                f"A row for each {name} is asked for; the SQL forms no groups.",
                question_part=f"per {name}",
                kind="missing_group_by",
            )
    _extra_groups(c, groups)


def _names_something_else(c: Comparison, grain: str) -> bool:
    """ "Yearly Kickoff", "weekly issuance" that the reformulation explains, a monthly average as a twelfth: no groups."""
    word = "daily" if grain == "day" else f"{grain}ly"
    mentions = c.question.mentions
    if any(word in name.casefold() for name in (*mentions.names, *mentions.quoted)):
        return True
    if any(word in clause.casefold() for clause in c.clauses):
        return True
    return any(re.search(r"/ (12|52|365|4)\b", expression) for expression in c.sql.expressions)


def _extra_groups(c: Comparison, groups: list[Column]) -> None:
    sql, question = c.sql, c.question
    if question.language != "en" or not sql.aggregations:
        return
    pinned = set(benign_group_by(sql))
    free = []
    for group in sql.group_by:
        name = base_name(group) or ""
        if group in pinned or harmless_id(group):
            continue
        if any(c.similar(w, group, owner_of(sql, group)) >= 0.5 for w in (*question.group_by, *question.projections)):
            continue
        parts = set(identifier_words(name)) - {"name", "id"}
        if isinstance(group, DatePart | DateTrunc):
            parts |= {group.part if isinstance(group, DatePart) else group.unit}
        if parts & question.mentions.lemmas or (not parts and question.group_by):
            continue
        free.append(group)
    if not free:
        return
    if any(f.agg for f in leaves(sql.filters)) or any(k.agg for k in sql.order_by):
        return  # a condition or an order on an aggregate needs its groups
    picked = question.superlative is not None or question.asks_limit
    whole = bool(question.aggregations) and not question.group_by and not question.projections and not picked
    splits = bool(question.group_by) and len(sql.group_by) > len(question.group_by)
    c.note(
        "extra_group_by",
        f"Nobody asked for groups by {', '.join(column_text(g) for g in free)}; they split the result.",
        sql_part=", ".join(column_text(g) for g in free),
        kind="extra_group_splits" if whole or splits else "extra_group_by",
        strength=1.0 if whole or splits else 0.5,
        severity="critical" if whole or splits else None,
    )


def compare_grouped_total(c: Comparison) -> None:
    """One total is asked for and a row for each group comes out, though the question names the grouped column."""
    sql, question = c.sql, c.question
    if not question.aggregations or question.group_by or question.projections or question.superlative or question.asks_limit:
        return
    if any(f.agg for f in leaves(sql.filters)) or any(k.agg for k in sql.order_by):
        return
    pinned = set(benign_group_by(sql))
    unpinned = [g for g in sql.group_by if g not in pinned]
    named = question.mentions.lemmas
    shown = [g for g in unpinned if g in sql.projections and not set(identifier_words(base_name(g) or "")) & named]
    if shown and question.language == "en" and not any(f.code == "extra_group_by" for f in c.findings):
        several = [
            f
            for f in sql.filters
            if isinstance(f, Filter) and f.op == "in" and isinstance(f.value, tuple) and f.column in shown
        ]
        c.note(
            "extra_group_by",
            f"One figure is asked for; the SQL gives one for each {column_text(shown[0])}.",
            sql_part=column_text(shown[0]),
            kind="extra_group_splits" if several else "grouped_total",
            strength=1.0 if several else 0.6,
            severity="critical" if several else None,
        )
