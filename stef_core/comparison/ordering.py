"""Order, superlatives, and the number of rows."""

from __future__ import annotations

from stef_core.comparison.common import (
    EXTREMES,
    INVERTED,
    Comparison,
    aggregated,
    all_aggregates,
    base_name,
    key_text,
    leaves,
    relevant_hints,
)
from stef_core.lexicon import identifier_words
from stef_core.records import (
    OrderKey,
    ScalarQuery,
)
from stef_core.wording import column_text


def compare_order(c: Comparison) -> None:
    """Order asked for, its direction, and the direction of a superlative."""
    sql, question = c.sql, c.question
    keys = (
        list(sql.order_by)
        or [k for _, order in sql.inner_limits for k in order]
        or [k for w in sql.windows for k in w.order_by]
    )
    if question.asks_order:
        if not keys:
            c.note("missing_order", "An order is asked for and none is given.", kind="missing_order")
        else:
            c.found("order_found")
            _compare_keys(c, keys)
            wanted = question.order_by[0] if question.order_by else None
            if wanted is not None and wanted.column and not wanted.agg and not any(k.agg for k in keys):
                fit = max((c.similar(wanted.column, k.column) for k in keys if k.column is not None), default=1.0)
                if fit < 0.3:
                    c.note(
                        "wrong_order_direction",
                        f"Rows are asked for by {column_text(wanted.column)}; the SQL sorts by {key_text(keys[0])}.",
                        sql_part=key_text(keys[0]),
                        kind="order_key_other",
                        severity="minor",
                    )
        return
    if question.superlative and keys and (sql.limit is not None or sql.inner_limits or sql.windows):
        direction = EXTREMES[question.superlative]
        key = keys[0]
        name = set(identifier_words(base_name(key.column) or ""))
        if key.agg is None and name & INVERTED:
            return
        if c.question.mentions.lemmas & {"old", "oldest", "young", "youngest"} and "age" not in name:
            return  # the oldest by a date is its first day
        if key.dir != direction:
            c.note(
                "wrong_order_direction",
                f"The {question.superlative}imum is asked for; the SQL takes rows from the other end ({key_text(key)}).",
                sql_part=key_text(key),
                kind="superlative_direction",
            )
        else:
            c.found("superlative_found")


def _compare_keys(c: Comparison, keys: list[OrderKey]) -> None:
    for wanted in c.question.order_by:
        fits = [(c.similar(wanted.column, k.column), k) for k in keys]
        fit, key = max(fits, key=lambda pair: pair[0])
        if wanted.agg and key.agg and wanted.agg == key.agg:
            fit = 1.0
        if c.question.mentions.lemmas & {"old", "young"}:
            continue  # by age or by birth date: the words do not say which way
        if fit >= 0.5 and wanted.certain and wanted.dir != key.dir:
            c.note(
                "wrong_order_direction",
                f"Rows are asked for by {key_text(wanted)}; the SQL sorts by {key_text(key)}.",
                question_part=wanted.text or None,
                sql_part=key_text(key),
                kind="order_direction",
                severity="critical" if fit >= 0.9 and wanted.agg is None else None,
            )


def compare_hinted_extremes(c: Comparison) -> None:
    """``MAX(cost)`` in the reformulation: the SQL orders by that column, or takes its maximum."""
    sql = c.sql
    keys = list(sql.order_by) or [k for _, order in sql.inner_limits for k in order]
    keys += [k for w in sql.windows for k in w.order_by]
    have = list(all_aggregates(sql))
    for hint in relevant_hints(c):
        if hint.agg is None or hint.column is None or "/" in (hint.expression or ""):
            continue
        fitting = [k for k in keys if c.similar(hint.column, k.column) >= 0.8]
        if hint.agg in EXTREMES:
            computed = any(a.func == hint.agg and c.similar(hint.column, a.column) >= 0.8 for a in have)
            summed = [k for k in keys if k.agg or aggregated(str(base_name(k.column)))]
            counted = any(k.dir == EXTREMES[hint.agg] for k in summed)
            if computed or counted or any(k.dir == EXTREMES[hint.agg] for k in fitting):
                c.found("hint_extreme_found")
            elif fitting and not set(identifier_words(hint.column)) & INVERTED:
                c.note(
                    "wrong_order_direction",
                    f"The reformulation means the {hint.agg}imum of {hint.column}; the SQL sorts from the other end.",
                    question_part=hint.text,
                    sql_part=key_text(fitting[0]),
                    kind="hint_extreme_direction",
                )
            elif not fitting:
                c.note(
                    "missing_aggregation",
                    f"The reformulation means the {hint.agg}imum of {hint.column}; the SQL takes none.",
                    question_part=hint.text,
                    kind="hint_extreme_absent",
                    severity="major",
                )
        elif hint.agg in ("sum", "avg", "count"):
            if any(a.func == hint.agg for a in have):
                c.found("hint_aggregate_found")
            else:
                c.note(
                    "missing_aggregation",
                    f"The reformulation computes {hint.agg}({hint.column}); the SQL does not.",
                    question_part=hint.text,
                    kind="hint_aggregate_absent",
                    severity="major",
                )
    wanted = c.question.order_by[0] if c.question.order_by else None
    if wanted is not None and wanted.column and wanted.certain and keys and not wanted.agg and not relevant_hints(c):
        fits = [c.similar(wanted.column, k.column) for k in keys]
        if max(fits) < 0.3 and not any(k.agg for k in keys):
            c.note(
                "wrong_order_direction",
                f"Rows are picked by {key_text(keys[0])}; the question speaks of {column_text(wanted.column)}.",
                sql_part=key_text(keys[0]),
                kind="order_column_other",
                severity="minor",
            )


def compare_limit(c: Comparison) -> None:
    """The number of rows asked for against the number that can come out."""
    sql, question, rules = c.sql, c.question, c.rules
    ranks = [f for f in leaves(sql.filters) if f.window and isinstance(f.value, int) and not isinstance(f.value, bool)]
    limit = sql.limit
    inner = sql.inner_limits[0][0] if sql.inner_limits else None
    rank = (ranks[0].value - 1 if ranks[0].op == "<" else ranks[0].value) if ranks and isinstance(ranks[0].value, int) else None
    effective = limit if limit is not None and limit < rules.safety_limit_min else rank if rank is not None else inner
    effective = limit if effective is None else effective
    if question.asks_limit and question.limit is not None:
        if effective == question.limit or question.limit in (limit, inner, rank):
            c.found("limit_found")
        elif effective is None:
            extreme = any(isinstance(f.value, ScalarQuery) and f.value.func in EXTREMES for f in leaves(sql.filters)) or bool(
                {a.func for a in sql.aggregations} & set(EXTREMES)
            )
            if question.limit == 1 and extreme:
                c.found("limit_found")
            elif question.limit == 1 and (sql.one_row or question.aggregations):
                return
            else:
                c.note(
                    "missing_limit",
                    f"{_rows(question.limit)} asked for; the SQL returns all.",
                    question_part=str(question.limit),
                    kind="missing_limit",
                    strength=0.6 if question.limit == 1 else 1.0,
                )
        else:
            c.note(
                "wrong_limit",
                f"{_rows(question.limit)} asked for; the SQL returns up to {effective}.",
                question_part=str(question.limit),
                sql_part=f"limit {effective}",
                kind="wrong_limit",
            )
        return
    if limit is None or limit >= rules.safety_limit_min or (limit == 1 and sql.one_row) or question.language != "en":
        return
    if limit in question.mentions.numbers:
        return
    soft = bool(c.spoken & _PICKING) or question.superlative is not None
    soft = soft or any(h.agg in EXTREMES for h in relevant_hints(c))
    if soft and limit == 1:
        return
    c.note(
        "unrequested_limit",
        f"Only {limit} {'row comes' if limit == 1 else 'rows come'} out though nobody asked for a number of rows.",
        sql_part=f"limit {limit}",
        kind="unrequested_limit_soft" if soft else "unrequested_limit",
    )


_PICKING = frozenset(
    "most least max maximum min minimum high low large small big long short old young new late early first last top best good "
    "bad worst fast slow recent heavy light cheap expensive great common popular main major majority champion winner "
    "single one tall few".split()
)


def _rows(number: int) -> str:
    return "1 row is" if number == 1 else f"{number} rows are"
