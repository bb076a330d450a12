"""Comparisons and figures of a question: "more than 5", "at least 3 orders", "between 10 and 20", "priority 1"."""

from __future__ import annotations

import re

from stef_core.extract.question_dates import UNITS as TIME_UNITS
from stef_core.extract.question_draft import Draft
from stef_core.lexicon import attribute_groups
from stef_core.records import Column, Filter, ScalarQuery
from stef_core.vocabulary import ENTITY_NOUNS, MEASURE_NOUNS, UNITS, VALUE_NOUNS, word_set

_ADJECTIVES = {
    "more": "", "greater": "", "grater": "", "larger": "", "higher": "", "bigger": "", "better": "", "above": "", "over": "",
    "less": "", "fewer": "", "smaller": "", "lower": "", "worse": "",
    "older": "age", "younger": "age", "longer": "length", "shorter": "length", "taller": "height", "heavier": "weight",
    "lighter": "weight", "faster": "speed", "slower": "speed", "cheaper": "price", "later": "date", "earlier": "date",
}  # fmt: skip
_DOWN = word_set("less fewer smaller lower worse younger shorter lighter slower cheaper earlier")
_COMPARATORS: list[tuple[tuple[str, ...], str]] = sorted(
    [
        *(((word, "than"), "<" if word in _DOWN else ">") for word in _ADJECTIVES),
        *(((word, "than", "or", "equal", "to"), "<=" if word in _DOWN else ">=") for word in _ADJECTIVES),
        *(((no, word, "than"), ">=" if word in _DOWN else "<=") for word in _ADJECTIVES for no in ("no", "not")),
        *(((word, "or", "equal", "to"), "<=" if word in _DOWN else ">=") for word in _ADJECTIVES),
        (("more", "expensive", "than"), ">"), (("less", "expensive", "than"), "<"),
        (("over",), ">"), (("above",), ">"), (("exceeding",), ">"), (("exceeds",), ">"), (("exceed",), ">"),
        (("exceeded",), ">"),
        (("in", "excess", "of"), ">"), (("beyond",), ">"), (("upwards", "of"), ">="), (("surpassing",), ">"),
        (("surpass",), ">"),
        (("not", "exceed"), "<="), (("not", "exceeding"), "<="), (("not", "over"), "<="), (("not", "above"), "<="),
        (("under",), "<"), (("below",), "<"), (("not", "under"), ">="), (("not", "below"), ">="),
        (("at", "least"), ">="), (("a", "minimum", "of"), ">="), (("minimum", "of"), ">="), (("at", "minimum"), ">="),
        (("at", "most"), "<="), (("up", "to"), "<="), (("a", "maximum", "of"), "<="), (("at", "max"), "<="),
        (("exactly",), "="), (("equal", "to"), "="), (("equals",), "="), (("equal",), "="), (("not", "equal", "to"), "!="),
        ((">",), ">"), (("<",), "<"), ((">=",), ">="), (("<=",), "<="), (("=",), "="), (("!=",), "!="), (("<>",), "!="),
        (("≥",), ">="), (("≤",), "<="), (("≠",), "!="),
    ],
    key=lambda entry: -len(entry[0]),
)  # fmt: skip
_BY_FIRST: dict[str, list[tuple[tuple[str, ...], str]]] = {}
for _phrase, _op in _COMPARATORS:
    _BY_FIRST.setdefault(_phrase[0], []).append((_phrase, _op))
_MORE = word_set("more above higher over older later up greater longer larger better bigger")
_FEWER = word_set("less fewer below lower under younger earlier smaller shorter down")
_VERB_COLUMNS = {
    "earn": "salary", "cost": "price", "weigh": "weight", "last": "duration", "spend": "amount", "score": "score",
    "pay": "amount",
    "live": "population", "price": "price", "worth": "amount", "value": "amount", "rate": "rating",
}  # fmt: skip
_MONEY_ROWS = word_set("order invoice sale payment transaction purchase donation deal booking")
_LINKS = word_set("is are was were of value being be as that which has a the had been")
_AGGREGATES = {"average": "avg", "mean": "avg", "total": "sum", "maximum": "max", "minimum": "min", "avg": "avg"}
_HAVE = word_set("have has had with having of owns own possess possesses containing contain")
_MEASURED = {"tall": "height", "old": "age", "long": "length", "heavy": "weight", "wide": "width", "deep": "depth"}
RATIO_WORDS = frozenset(("percentage", "percent", "ratio", "proportion", "fraction", "share", "rate", "pct"))
_SPAN = re.compile(r"(\d{1,9})[-–](\d{1,9})")
_TIMES = {"once": 1, "twice": 2, "thrice": 3}
_NUMBER_LINKS = word_set("is are was were = of equals : being number no # as to")


def read_comparisons(draft: Draft) -> None:
    """Comparisons with a figure or with an aggregate, and closed ranges."""
    i = 0
    while i < len(draft.tokens):
        i = max(i + 1, _between(draft, i) or _comparison(draft, i) or _suffixed(draft, i))


def _figure(draft: Draft, i: int) -> int | float | None:
    token = draft.tokens[i] if 0 <= i < len(draft.tokens) else None
    if token is None or draft.used[i] or token.kind != "n" or token.ordinal or not isinstance(token.value, int | float):
        return None
    return token.value


def _between(draft: Draft, i: int) -> int:
    low = draft.low(i)
    offset = 2 if low == "in" and draft.matches(i, ("in", "the")) and draft.low(i + 2) == "range" else 0
    if low in ("between", "from", "ranging") or offset:
        j = i + 1 + offset
        while draft.low(j) in ("from", "of", "between", "the", "$"):
            j += 1
        first = _figure(draft, j)
        k = j + 1
        if draft.low(k) in UNITS | {"%"}:
            k += 1
        if first is None or draft.low(k) not in ("and", "to", "-", "–", "through"):
            return 0
        if low == "from" and draft.low(k) not in ("to", "through", "-", "–"):
            return 0
        k += 1 + (draft.low(k + 1) == "$")
        second = _figure(draft, k)
        if second is None:
            return 0
        end = k + 1
        start, column, agg, _ = _subject(draft, i, end, "", between=True)
        if low == "from" and column is None:
            return 0
        not_there = draft.low(i - 1) in ("not", "outside")
        op = "not_between" if not_there else "between"
        draft.add(start, end, Filter(column=column, op=op, value=(first, second), agg=agg))
        return end
    return 0


def _comparison(draft: Draft, i: int) -> int:
    phrases = _BY_FIRST.get(draft.low(i))
    match = next((m for m in phrases if draft.matches(i, m[0])), None) if phrases and draft.kind(i) != "q" else None
    if match is None:
        return 0
    phrase, op = match
    end = i + len(phrase)
    if op not in ("=", "!=") and draft.low(i - 1) == "not" and phrase[0] not in ("not", "no"):
        op = {">": "<=", "<": ">=", ">=": "<", "<=": ">"}[op]
    j = end
    while draft.low(j) in ("the", "a", "an", "$", "€", "£", "or", "equal", "to", "=", "number", "value", "of", "year"):
        j += 1
    if draft.low(j) in _TIMES and draft.kind(j) == "w":
        start = _counted_verb(draft, i)
        if start is None:
            draft.add(i, j + 1, Filter(column="*", op=op, value=_TIMES[draft.low(j)], agg="count", certain=False))
            return j + 1
        draft.add(start, j + 1, Filter(column=f"{draft.lemma(start)}_count", op=op, value=_TIMES[draft.low(j)]))
        return j + 1
    value = _figure(draft, j)
    if (
        value is None
        and draft.kind(j) == "w"
        and _figure(draft, j + 1) is not None
        and draft.low(j) == draft.lemma(j)
        and draft.is_noun(j)
    ):
        draft.add(i, j + 2, Filter(column=draft.lemma(j), op=op, value=_figure(draft, j + 1)))  # "above age 20"
        return j + 2
    if value is None:
        return _against_aggregate(draft, i, j, op, phrase)
    if op == "=" and draft.low(i) == "exactly" and draft.lemma(j + 1) in ENTITY_NOUNS and draft.low(i - 1) not in _HAVE:
        return 0
    if op == ">=" and value == 1 and draft.kind(j + 1) == "w":
        draft.use(i, j + 1)  # "at least one order": that there is one
        return j + 1
    k = j + 1
    if draft.low(k) == "%":
        k += 1
    relative = draft.low(k) == "of" and draft.low(k + 1) in ("the", "all", "its", "their")  # "80% of the average"
    start, column, agg, tail = _subject(draft, i, k, _ADJECTIVES.get(phrase[0], ""))
    draft.add(
        start,
        tail,
        Filter(column=column, op=op, value=value, agg=agg, table=_entity_of(draft, k) if agg else None, certain=not relative),
    )
    for n in range(k, tail):
        if attribute_groups(draft.low(n)):
            draft.used[n] = False  # "more than 10 open tickets" says something of the tickets too
    return tail


def _suffixed(draft: Draft, i: int) -> int:
    value = _figure(draft, i)
    if value is None:
        return 0
    j = i + 1
    if draft.kind(j) == "w" and draft.low(j) not in ("or", "and") and draft.low(j + 1) in ("or", "and"):
        j += 1  # "30 years or older"
    if draft.low(j) == "+" or (draft.low(j) in ("or", "and") and draft.low(j + 1) in _MORE):
        op = ">="
    elif draft.low(j) in ("or", "and") and draft.low(j + 1) in _FEWER:
        op = "<="
    else:
        return 0
    if draft.low(j) != "+" and draft.low(j + 2) in ("than",):
        return 0
    end = j + (1 if draft.low(j) == "+" else 2)
    adjective = _ADJECTIVES.get(draft.low(j + 1), "")
    start, column, agg, tail = _subject(draft, i, end if j == i + 1 else i + 1, adjective)
    draft.add(start, max(end, tail), Filter(column=column, op=op, value=value, agg=agg))
    return max(end, tail)


def _counted_verb(draft: Draft, i: int) -> int | None:
    return i - 1 if i > 0 and draft.is_verb(i - 1) and draft.low(i - 1) not in ("is", "are", "have", "has", "had") else None


def _against_aggregate(draft: Draft, i: int, j: int, op: str, phrase: tuple[str, ...]) -> int:
    func = _AGGREGATES.get(draft.low(j))
    if func is None or phrase[0] in ("exactly",):
        return 0
    start, column, _, _ = _subject(draft, i, j, _ADJECTIVES.get(phrase[0], ""))
    first, last = draft.phrase_after(j + 1 + (draft.low(j + 1) == "of"))
    inner: Column = draft.column(first, last) if last > first else (column or "*")
    if column is not None and last > first and draft.lemma(last - 1) in ENTITY_NOUNS:
        inner = column  # "worth more than the average order"
    subject = column if column is not None else inner
    sure = (
        column is not None
        and draft.low(last) not in ("of", "for", "in", "per")
        and phrase[0] in _ADJECTIVES | {"below": "", "under": ""}
    )
    value = ScalarQuery(func=func, column=inner)
    draft.add(start, max(last, j + 1), Filter(column=subject, op=op, value=value, certain=sure))
    return max(last, j + 1)


def _subject(
    draft: Draft, i: int, after: int, adjective: str, *, between: bool = False
) -> tuple[int, Column | None, str | None, int]:
    """What a comparison at ``i`` is about: (first token, column, aggregate, one past the last token)."""
    start = i
    while (start > 0 and draft.low(start - 1) in _LINKS and draft.low(start - 1) not in ("of",)) or draft.low(
        start - 1
    ) == "not":
        start -= 1
    if start > 0 and draft.low(start - 1) == "of" and not draft.used[start - 1]:
        start -= 1
    counted = _counted(draft, after)
    if adjective and not (draft.lemma(after) in TIME_UNITS and adjective == "length"):
        first, last = draft.phrase_before(start)
        if last > first and draft.lemma(last - 1) not in ENTITY_NOUNS and adjective == "date":
            return first, draft.column(first, last), None, counted[1] if counted else after
        return i, adjective, None, after + (draft.low(after) in UNITS or draft.lemma(after) in UNITS)
    if adjective and draft.lemma(after) in TIME_UNITS:
        return i, "duration", None, after + 1
    verb = draft.lemma(start - 1)
    if verb in _VERB_COLUMNS and (draft.is_verb(start - 1) or verb in ("cost", "worth")):
        total = draft.matches(after, ("in", "total")) or draft.matches(after, ("altogether",))
        return start - 1, _VERB_COLUMNS[verb], "sum" if total else None, after + (2 if total else 0)
    if counted is not None and (draft.low(start - 1) in _HAVE or draft.low(i - 1) in _HAVE or start == i):
        noun, end = counted
        if noun in MEASURE_NOUNS or noun in UNITS:
            if noun not in UNITS:
                return i, noun, None, end
        elif not between:
            return i, "*", "count", end
    first, last = draft.phrase_before(start)
    if last > first and first > 0 and all(t.capital and not t.text.isupper() for t in draft.tokens[first:last]):
        rows = next((draft.lemma(k) for k in range(first - 1, max(-1, first - 4), -1) if draft.lemma(k) in ENTITY_NOUNS), "")
        return i, ("amount" if rows in _MONEY_ROWS else None), None, after  # "orders from Chile over 500"
    if last > first:
        agg = _AGGREGATES.get(draft.low(first - 1))
        noun = draft.lemma(last - 1)
        if noun in ENTITY_NOUNS and agg is None and draft.low(first - 1) not in ("whose", "where"):
            return start, ("amount" if noun in _MONEY_ROWS else None), None, after
        begin = first - 1 if agg else first
        if draft.low(first - 1) == "of" and draft.low(first - 2) in ("number", "amount", "count"):
            return (
                first - 2,
                "*" if noun in ENTITY_NOUNS else f"number_of_{noun}",
                "count" if noun in ENTITY_NOUNS else None,
                after,
            )
        return begin, draft.column(first, last), agg, after
    agg = _AGGREGATES.get(draft.low(start - 1))
    if agg == "sum" and start == i and draft.low(start - 2) in ("a", "the") and draft.low(start - 3) in ("with", "have", "has"):
        return start - 1, None, agg, after  # "with a total above 10000"
    return i, None, None, after


def _counted(draft: Draft, i: int) -> tuple[str, int] | None:
    """The noun that a figure just before ``i`` counts, and one past it: "5 car manufacturers"."""
    end = i
    while end < len(draft.tokens) and end - i < 3 and draft.is_noun(end):
        end += 1
    if end == i:
        return None
    low, noun = draft.low(end - 1), draft.lemma(end - 1)
    if low == noun and noun not in MEASURE_NOUNS and noun not in UNITS:
        return None
    return noun, end


def _entity_of(draft: Draft, i: int) -> str | None:
    counted = _counted(draft, i)
    return counted[0] if counted else None


def read_figures(draft: Draft) -> None:
    """Equality with a figure or a code: "priority 1", "postal code 02139", "with 8 cylinders"."""
    for i, token in enumerate(draft.tokens):
        if draft.used[i] or token.kind not in ("n", "w") or (token.kind == "w" and not token.code) or token.ordinal:
            continue
        if token.kind == "n" and token.spelled and draft.low(i - 1) not in ("is", "=", "equals"):
            continue
        span = _SPAN.fullmatch(token.low) if token.kind == "w" else None
        if span is not None:
            first, last = draft.phrase_before(i)
            if last > first:
                bounds = (int(span[1]), int(span[2]))
                draft.add(first, i + 1, Filter(column=draft.column(first, last), op="between", value=bounds, certain=False))
            continue
        value = token.value if token.kind == "n" else token.low
        _equality(draft, i, value)  # type: ignore[arg-type]


def _equality(draft: Draft, i: int, value: str | int | float) -> None:
    token = draft.tokens[i]
    j = i
    lead = i - 1 - (draft.low(i - 1) == "either")
    other = draft.low(i - 1) in ("or", "and") and draft.found and draft.found[-1].end == i - 1
    if draft.low(lead) == "aged" or (other and _column_of(draft) == "age"):
        draft.add(lead if draft.low(lead) == "aged" else i, i + 1, Filter(column="age", op="=", value=value))
        return
    while j > 0 and draft.low(j - 1) in _NUMBER_LINKS and i - j < 3:
        j -= 1
    first, last = draft.phrase_before(j)
    negated = draft.low(j) == "not" or draft.low(i - 1) == "not"
    op = "!=" if negated else "="
    if last > first:
        noun = draft.lemma(last - 1)
        linked = j < i
        plural = draft.low(last - 1) != noun
        if token.kind == "w" and linked and draft.low(j) == "of":
            draft.add(i, i + 1, Filter(column=None, op=op, value=value, certain=False))  # "the name of the AB_1 members"
            return
        if draft.low(i - 1) in ("to",) or (linked and draft.low(j) in ("of", "to") and plural and not token.code):
            return
        if noun in ENTITY_NOUNS and noun not in VALUE_NOUNS:
            numbered = draft.low(i - 1) in ("number", "no", "#")
            if plural or (linked and not numbered):
                if token.code:
                    draft.add(i, i + 1, Filter(column=None, op=op, value=value, certain=False))
                return
            name = f"{draft.column(last - 1, last)}_id" if token.kind == "n" else None
            draft.add(last - 1, i + 1, Filter(column=name, op=op, value=value))
            return
        if plural and token.kind == "n" and not linked:
            return
        draft.add(first, i + 1, Filter(column=draft.column(first, last), op=op, value=value))
        return
    if token.code and token.kind == "w":
        draft.add(i, i + 1, Filter(column=None, op=op, value=value, certain=False))
        return
    verb = _VERB_COLUMNS.get(draft.lemma(i - 1))
    measured = _MEASURED.get(draft.low(i + 1)) or _MEASURED.get(draft.low(i + 2)) if token.kind == "n" else None
    if verb or measured:
        end = i + 1 + (0 if verb else 1 if draft.low(i + 1) in _MEASURED else 2)
        draft.add(i - 1 if verb else i, end, Filter(column=verb or measured, op=op, value=value))
        return
    counted = _counted(draft, i + 1)
    if counted is not None and (draft.low(i - 1) in _HAVE or counted[0] in MEASURE_NOUNS) and counted[0] not in TIME_UNITS:
        sure = draft.low(i - 1) in ("with", "has", "have", "had", "having") and counted[0] in MEASURE_NOUNS
        draft.add(i, i + 1, Filter(column=counted[0], op=op, value=value, certain=sure))


def _column_of(draft: Draft) -> Column | None:
    condition = draft.found[-1].condition
    return condition.column if isinstance(condition, Filter) else None


def ratio_words(draft: Draft) -> bool:
    """Whether a share, percentage, rate or ratio is asked for."""
    for i, token in enumerate(draft.tokens):
        if token.kind == "w" and token.low in RATIO_WORDS:
            if token.low in ("share", "rate") and draft.low(i + 1) not in ("of",) and draft.low(i - 1) not in ("what", "the"):
                continue
            if token.low == "rate" and draft.low(i + 1) != "of":
                continue
            return True
    return any(t.kind == "p" and t.low == "%" for t in draft.tokens)
