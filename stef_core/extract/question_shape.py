"""The shape of the answer that a question asks for: outputs, aggregates, groups, order and number of rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from stef_core.extract.question_dates import UNITS as TIME_UNITS
from stef_core.extract.question_dates import date_column
from stef_core.extract.question_draft import COMMANDS, Draft, entity_key
from stef_core.extract.question_numbers import RATIO_WORDS
from stef_core.lexicon import attribute_groups
from stef_core.records import Aggregation, Column, DatePart, DateTrunc, OrderKey
from stef_core.vocabulary import ENTITY_NOUNS, MEASURE_NOUNS, STOP_WORDS, word_set

Direction = Literal["asc", "desc"]

_FUNCTIONS = {
    "average": "avg", "mean": "avg", "avg": "avg", "total": "sum", "sum": "sum", "combined": "sum", "cumulative": "sum",
    "maximum": "max", "max": "max", "minimum": "min", "min": "min",
}  # fmt: skip
_EXTREMES = {
    "highest": "max", "largest": "max", "maximum": "max", "max": "max",
    "lowest": "min", "smallest": "min", "minimum": "min", "min": "min",
}  # fmt: skip
# superlative: (column it speaks of, "" for the noun that follows, and the end of the order)
_SUPERLATIVES: dict[str, tuple[str, Direction]] = {
    **dict.fromkeys(("highest", "largest", "biggest", "greatest", "most", "max", "maximum"), ("", "desc")),
    **dict.fromkeys(("lowest", "smallest", "least", "fewest", "minimum", "min"), ("", "asc")),
    "oldest": ("age", "desc"), "eldest": ("age", "desc"), "youngest": ("age", "asc"), "longest": ("length", "desc"),
    "shortest": ("length", "asc"), "tallest": ("height", "desc"), "heaviest": ("weight", "desc"), "lightest": ("weight", "asc"),
    "cheapest": ("price", "asc"), "priciest": ("price", "desc"), "latest": ("date", "desc"), "newest": ("date", "desc"),
    "earliest": ("date", "asc"), "fastest": ("speed", "desc"), "slowest": ("speed", "asc"), "best": ("rating", "desc"),
    "worst": ("rating", "asc"), "richest": ("amount", "desc"), "poorest": ("amount", "asc"), "strongest": ("strength", "desc"),
    "top": ("", "desc"), "bottom": ("", "asc"),
}  # fmt: skip
_WITH_MOST: dict[str, tuple[str, Direction]] = {
    "expensive": ("price", "desc"), "recent": ("date", "desc"), "popular": ("*", "desc"), "common": ("*", "desc"),
    "frequent": ("*", "desc"), "frequently": ("*", "desc"), "populous": ("population", "desc"), "often": ("*", "desc"),
    "costly": ("price", "desc"),
}  # fmt: skip
_ORDER_VERBS = word_set("sorted ordered ranked sort order rank arranged arrange sequenced")
_DESC = frozenset(("descending", "desc", "decreasing", "reverse", "descend"))
_ASC = frozenset(("ascending", "asc", "increasing", "ascend"))
_FROM_TO: dict[str, Direction] = {
    **dict.fromkeys(("oldest", "highest", "largest", "biggest", "most", "longest", "newest", "latest", "best", "high",
        "heaviest"), "desc"),
    **dict.fromkeys(("youngest", "lowest", "smallest", "least", "shortest", "earliest", "fewest", "low", "cheapest",
        "a"), "asc"),
}  # fmt: skip
_PRONOUNS = word_set("them these those they it all us me one there")
_LEADS = (
    COMMANDS
    | _PRONOUNS
    | word_set("please can could you what is are were was what's which out i would to want down in the all for")
)
_BOUNDARY = frozenset(
    """of for from in with whose that which who where having by per at on to during when has have had is are was were as than
    between over under above below within without into if belonging belong among since before after not using via
    sorted ordered ranked""".split()
)
_NOT_GROUPS = frozenset(
    """sorted ordered ranked order sort rank made written produced directed created owned played taught published followed
    sponsored divided multiplied hosted won given placed signed issued led driven headed managed held designed conducted
    used paid posted sung released built founded manufactured authored handled caused multiply divide increased decreased
    associated""".split()
)
_ATTRIBUTES = frozenset(
    """name id title number address email age date price amount code type status description phone salary weight height color
    colour gender sex country city population rating score time year url location budget capacity nationality
    hometown theme""".split()
)
_FREQUENCIES = {
    "daily": "day",
    "weekly": "week",
    "monthly": "month",
    "quarterly": "quarter",
    "yearly": "year",
    "annual": "year",
    "annually": "year",
}


# --- grouping -------------------------------------------------------------------------------------------------------------


def read_groups(draft: Draft) -> None:
    """Groups: "per", "for each", "by" after an aggregate, "each year"."""
    for i, token in enumerate(draft.tokens):
        if token.kind != "w" or draft.used[i]:
            continue
        low = token.low
        if low == "per" and not (
            draft.lemma(i + 1) in TIME_UNITS and draft.lemma(i - 1) in ("mile", "km", "kilometer", "gallon")
        ):
            if draft.low(i + 1) in ("gallon", "capita", "hour", "cent", "minute", "second", "square", "mile", "person", "unit"):
                continue
            if not draft.matches(i - 2, ("one", "row")):
                _group(draft, i, i + 1)
        elif low in ("each", "every") and draft.low(i - 1) not in ("beside",):
            if draft.low(i + 1) == "of" or draft.low(i + 1) in ("one", "other", "time", "single", "once"):
                continue
            if draft.low(i - 1) in COMMANDS and not _aggregates(draft):
                continue
            _group(draft, i, i + 1, date_part=True)
        elif low in ("grouped", "broken", "split", "group", "aggregated") and draft.low(i + 1) in ("by", "down"):
            _group(draft, i, i + 2 + (draft.low(i + 2) == "by"))
        elif low == "by" and draft.low(i - 1) not in _NOT_GROUPS and _aggregates(draft) and not _order_context(draft, i):
            if (
                draft.low(i + 1) in ("the", "a", "an")
                or draft.tokens[min(i + 1, len(draft.tokens) - 1)].capital
                or draft.is_verb(i - 1)
            ):
                continue
            _group(draft, i, i + 1)
        elif low in _FREQUENCIES and _aggregates(draft) and draft.lemma(i + 1) not in ("", "basis"):
            unit = _FREQUENCIES[low]
            draft.group_by.append(DateTrunc(unit=unit, column=_date(draft, i)))


def _aggregates(draft: Draft) -> bool:
    words = {t.low for t in draft.tokens}
    return bool(words & _FUNCTIONS.keys()) or bool(
        words & {"many", "number", "count", "much", "highest", "lowest", "largest", "revenue", "share"}
    )


def _order_context(draft: Draft, i: int) -> bool:
    for k in range(max(0, i - 6), i):
        if draft.low(k) in ("top", "bottom") or (
            draft.low(k) in _ORDER_VERBS and draft.low(k) not in ("order", "sort", "rank")
        ):
            return True
        if draft.low(k) in ("order", "sort", "rank") and (
            k == 0 or draft.low(k - 1) in ("in", "and", ",", "please") or draft.low(k + 1) == "by"
        ):
            return True
    return False


def _date(draft: Draft, i: int) -> str:
    for k in range(i - 1, max(-1, i - 7), -1):
        if (
            draft.kind(k) == "w"
            and draft.is_verb(k)
            and draft.low(k) not in ("have", "has", "had", "were", "was", "is", "are", "did")
        ):
            return date_column(draft.lemma(k), None)
    noun = next((t.lemma for t in draft.tokens if t.kind == "w" and t.lemma in ENTITY_NOUNS), None)
    return date_column(None, noun)


def _group(draft: Draft, i: int, start: int, *, date_part: bool = False) -> None:
    j = start
    while draft.low(j) in ("the", "a", "of", "these", "different", "such", "their", "individual", "distinct", "given"):
        j += 1
    unit = TIME_UNITS.get(draft.low(j))
    if unit and not (unit in ("hour", "minute") and draft.low(i) == "per"):
        name = _date(draft, i)
        column: Column = DatePart(part="year", column=name) if unit == "year" else DateTrunc(unit=unit, column=name)
        draft.group_by.append(column)
        draft.use(i, j + 1)
        return
    first, last = draft.phrase_after(j)
    if last == first:
        return
    column = draft.column(first, last)
    noun = draft.lemma(last - 1)
    if draft.low(last - 1) != noun and draft.low(i) in ("each", "every"):
        return
    if column not in draft.group_by:
        draft.group_by.append(column)
    draft.use(i, last)
    while (
        draft.low(last) in ("and", ",")
        and draft.low(i) in ("per", "by", "each", "for")
        and not draft.low(last + 1).endswith("ing")
    ):
        step = last + 1 + (draft.low(last + 1) in ("by", "per", "each", "for"))
        step += draft.low(step) in ("each", "every")
        first, end = draft.phrase_after(step)
        if (
            end == first
            or end - first > 3
            or draft.low(end) in ("for", "of")
            or draft.is_verb(end)
            or draft.low(step) in COMMANDS
        ):
            return
        if draft.low(first) in _FUNCTIONS or draft.low(first) in _SUPERLATIVES:
            return
        draft.group_by.append(draft.column(first, end))
        draft.use(last, end)
        last = end


# --- order and number of rows ------------------------------------------------------------------------------------------------


def read_order(draft: Draft) -> None:
    """Explicit orders: "sorted by", "in descending order of", "alphabetically", "from oldest to newest"."""
    tokens = draft.tokens
    everywhere: Direction = "desc" if any(t.low in _DESC for t in tokens) else "asc"
    for i, token in enumerate(tokens):
        if token.kind != "w" or draft.used[i]:
            continue
        low = token.low
        if low in _ORDER_VERBS and (
            draft.low(i + 1) in ("by", "them", "the", "results", "result", "according", "based")
            or (
                draft.low(i + 1) in ("in", "from")
                and (draft.low(i + 2) in _DESC | _ASC | _FROM_TO.keys() or draft.low(i + 3) in ("order", "to"))
            )
        ):
            j = _after_order_word(draft, i + 1)
            if j is not None:
                _order_list(draft, i, j, everywhere)
        elif low == "order" and (draft.low(i - 1) in _DESC | _ASC or draft.low(i + 1) == "of"):
            draft.asks_order = True
            start = i - 1
            if draft.low(i - 1) in ("alphabetical", "alphabetic", "lexicographic", "lexicographical"):
                draft.order_by.append(OrderKey(column="name", dir="asc", certain=False, text=draft.text(i - 1, i + 1)))
            elif draft.low(i + 1) in ("of", "by"):
                _order_list(draft, max(0, start), i + 2, everywhere)
            elif not draft.order_by:
                draft.order_by.append(
                    OrderKey(dir="desc" if everywhere == "desc" else "asc", certain=False, text=draft.text(i - 1, i + 1))
                )
            draft.use(max(0, start), i + 1)
        elif low in ("alphabetically", "lexicographically", "alphabetical", "lexicographical", "alphabetic"):
            draft.asks_order = True
            if not draft.order_by:
                draft.order_by.append(OrderKey(column="name", dir="asc", certain=False, text=low))
            draft.use(i, i + 1)
        elif low in ("chronologically", "chronological"):
            draft.asks_order = True
            draft.order_by.append(OrderKey(column="date", dir="asc", text=low))
        elif low == "from" and (draft.low(i + 1 + (draft.low(i + 1) == "the")) in _FROM_TO or draft.low(i + 1) == "a"):
            _from_to(draft, i)


def _after_order_word(draft: Draft, j: int) -> int | None:
    for k in range(j, min(j + 6, len(draft.tokens))):
        if (draft.low(k) in ("by", "of", "on") and draft.low(k + 1) not in ("the",)) or (
            draft.low(k) in ("by", "of") and draft.low(k + 1) == "the"
        ):
            return k + 1
        if draft.kind(k) == "p":
            break
    draft.asks_order = True
    return None


def _order_list(draft: Draft, i: int, j: int, everywhere: Direction) -> None:
    draft.asks_order = True
    while True:
        while draft.low(j) in ("the", "their", "its", "each"):
            j += 1
        end_first = _SUPERLATIVES.get(draft.low(j)) if draft.low(j + 1) == "first" else None
        if end_first and draft.order_by:
            draft.order_by[-1] = replace(draft.order_by[-1], dir=end_first[1])
            draft.use(j, j + 2)
            return
        agg, k = None, j
        if draft.low(j) in ("number", "count") and draft.low(j + 1) == "of":
            agg, k = "count", j + 2
        elif draft.low(j) in _FUNCTIONS:
            agg, k = _FUNCTIONS[draft.low(j)], j + 1 + (draft.low(j + 1) == "of")
        direction = everywhere
        if draft.low(j) in _DESC | _ASC:
            direction = "desc" if draft.low(j) in _DESC else "asc"
            j = k = j + 1
        first, last = draft.phrase_after(k)
        if last == first:
            return
        while last > first + 1 and draft.low(last - 1) in _DESC | _ASC | {"order"}:
            last -= 1
        near = {draft.low(k) for k in range(last, min(last + 4, len(draft.tokens)))}
        if (
            near & _DESC
            or draft.matches(last, ("from", "high"))
            or draft.matches(last, ("from", "highest"))
            or near & {"largest", "highest"}
        ):
            direction = "desc"
        elif near & _ASC or draft.matches(last, ("from", "low")) or draft.matches(last, ("from", "lowest")):
            direction = "asc"
        spelled = last + (draft.low(last) in (",", "from"))
        if draft.matches(spelled, ("z", "to", "a")) or draft.matches(spelled, ("a", "to", "z")):
            direction = "desc" if draft.low(spelled) == "z" else "asc"
            draft.use(spelled, spelled + 3)
        column: Column = "*" if agg == "count" else draft.column(first, last)
        draft.order_by.append(OrderKey(column=column, agg=agg, dir=direction, text=draft.text(i, last)))
        draft.use(i, last)
        if draft.low(last) in _DESC | _ASC:
            draft.use(last, last + 1)
            last += 1
        j = last
        if draft.low(j) == ",":
            j += 1
        if draft.low(j) in ("and", "then"):
            j += 1
        if j == last or draft.low(j) in COMMANDS:
            return
        j += draft.low(j) in ("by", "then")
        j += draft.low(j) == "by"


def _from_to(draft: Draft, i: int) -> None:
    start = i + 1 + (draft.low(i + 1) == "the")
    for k in range(start + 1, min(start + 6, len(draft.tokens))):
        if draft.low(k) == "to" and draft.low(k + 1 + (draft.low(k + 1) == "the")) in _FROM_TO.keys() | {"z"}:
            draft.asks_order = True
            word = draft.low(start)
            column = _SUPERLATIVES.get(word, ("", ""))[0] or ("name" if word == "a" else None)
            end = k + 2 + (draft.low(k + 1) == "the")
            if not draft.order_by:
                direction = _FROM_TO.get(word, "asc")
                draft.order_by.append(
                    OrderKey(column=column, dir=direction, text=draft.text(i, end), certain=column is not None)
                )
            draft.use(i, end)
            return


def read_superlatives(draft: Draft) -> None:
    """Top-k and superlatives: "top 5 X by Y", "the three oldest", "the most orders", "the highest salary"."""
    i = 0
    while i < len(draft.tokens):
        i = max(i + 1, _top(draft, i) or _superlative(draft, i))


def _count_at(draft: Draft, i: int) -> int | None:
    token = draft.tokens[i] if 0 <= i < len(draft.tokens) else None
    if token is None or token.kind != "n" or draft.used[i] or not isinstance(token.value, int) or token.ordinal:
        return None
    return token.value if 0 < token.value <= 1_000_000 else None


def _top(draft: Draft, i: int) -> int:
    low = draft.low(i)
    if low not in ("top", "bottom", "first", "last") or draft.used[i] or draft.kind(i) != "w":
        return 0
    count = _count_at(draft, i + 1)
    if count is None:
        return 0
    if low in ("first", "last") and draft.lemma(i + 2) in TIME_UNITS:
        return 0
    draft.limit, draft.asks_limit = count, True
    direction: Direction = "desc" if low in ("top", "last") else "asc"
    draft.superlative = draft.superlative or ("max" if direction == "desc" else "min")
    draft.use(i, i + 2)
    end = i + 2
    if draft.low(end) in _SUPERLATIVES:
        return 0
    for k in range(end, min(end + 12, len(draft.tokens))):
        if draft.low(k) in ("by", "of") and draft.low(k) == "by" and not draft.is_verb(k - 1):
            _order_list(draft, k, k + 1, direction)
            for n, key in enumerate(draft.order_by):
                if key.dir != direction and not {t.low for t in draft.tokens} & (_DESC | _ASC):
                    draft.order_by[n] = OrderKey(column=key.column, agg=key.agg, dir=direction, text=key.text)
            break
        if draft.low(k) in (".", "?", "each", "per"):
            break
    draft.asks_order = draft.asks_order or bool(draft.order_by)
    return end


def _superlative(draft: Draft, i: int) -> int:
    low = draft.low(i)
    entry = _SUPERLATIVES.get(low)
    if entry is None or draft.used[i] or draft.kind(i) != "w" or low in ("top", "bottom"):
        return 0
    if (
        low in _EXTREMES
        and draft.low(i + 1) in ("and", ",", "or")
        and draft.low(i + 2) in _EXTREMES.keys() | _FUNCTIONS.keys() | {"the"}
    ):
        return 0  # "the lowest and highest price": read as aggregates
    if low in _EXTREMES and draft.low(i - 1) in ("and", ",", "or") and draft.low(i - 2) in _EXTREMES.keys() | _FUNCTIONS.keys():
        return 0
    if low in ("most", "least") and (draft.low(i - 1) == "at" or draft.low(i + 1) == "of"):
        return 0
    column, direction = entry
    j = i + 1
    if low in ("most", "least"):
        with_most = _WITH_MOST.get(draft.low(j))
        if with_most:
            column, direction = with_most[0], with_most[1] if low == "most" else "asc"
            j += 1
    if draft.low(j) == "first":  # "newest first"
        draft.asks_order = True
        if draft.order_by:
            draft.order_by[-1] = replace(draft.order_by[-1], dir=direction)
        else:
            draft.order_by.append(
                OrderKey(column=column or None, dir=direction, text=draft.text(i, j + 1), certain=bool(column))
            )
        draft.use(i, j + 1)
        return j + 1
    count = _count_at(draft, i - 1)
    if count is None and draft.low(j) in ("number",) and draft.low(j + 1) == "of":
        column, j = "#", j + 2
    first, last = draft.phrase_after(j)
    noun = draft.lemma(last - 1) if last > first else ""
    plural = last > first and draft.low(last - 1) != noun
    end_of = "max" if direction == "desc" else "min"
    draft.superlative = draft.superlative or end_of
    text = draft.text(i, last)
    if count is not None and draft.low(i - 2) in (
        "the",
        "are",
        "top",
        "of",
        "find",
        "list",
        "show",
        "give",
        "is",
        "who",
        "",
        "and",
    ):
        draft.limit, draft.asks_limit = count, True
        draft.use(i - 1, i)
    elif _is_value(draft, i, last, noun, column):
        value: Column = ("amount" if noun in ENTITY_NOUNS else draft.column(first, last)) if last > first else column
        if noun in ENTITY_NOUNS and column not in ("", "#"):
            value = column
        draft.aggregations.append(Aggregation(func=end_of, column=value, text=text))
        draft.use(i, last)
        return last
    elif draft.limit is None and not (plural and column not in ("#", "*", "") and low not in ("most", "fewest", "least")):
        draft.limit, draft.asks_limit = _named_count(draft, i) or 1, True
    agg = None
    key: Column | None
    if column in ("#", "*") or (column == "" and low in ("most", "fewest", "least") and plural and noun not in MEASURE_NOUNS):
        agg, key = "count", "*"
    elif column:
        key = column
    elif last > first:
        key = draft.column(first, last) if noun not in ENTITY_NOUNS else "amount"
        agg = _FUNCTIONS.get(draft.low(i + 1)) if draft.low(i + 1) in ("average", "total", "mean") else None
    else:
        key = None
    draft.order_by.append(OrderKey(column=key, agg=agg, dir=direction, text=text, certain=key is not None))
    draft.use(i, last if column in ("", "#") else j)
    return j


def _named_count(draft: Draft, i: int) -> int | None:
    """The k of "the 3 clients with the largest loans"."""
    for k in range(max(1, i - 7), i):
        count = _count_at(draft, k)
        if (
            count is not None
            and draft.low(k - 1) in ("the", "those", "which", "list", "show", "give", "find")
            and draft.kind(k + 1) == "w"
        ):
            draft.use(k, k + 1)
            return count
    return None


def _is_value(draft: Draft, i: int, last: int, noun: str, column: str) -> bool:
    """Whether "the highest X" is itself the answer: a maximum, not a way to pick rows."""
    if last == i + 1 or column in ("#", "*"):
        return False
    j = i
    while j > 0 and draft.low(j - 1) in ("the", "a", "both"):
        j -= 1
    before = draft.low(j - 1)
    if draft.low(i) in ("maximum", "minimum", "max", "min") and before not in ("with", "has", "have", "had", "whose", "of"):
        return True
    if noun in ENTITY_NOUNS and column:
        return False
    if noun in ENTITY_NOUNS and noun not in (
        "order",
        "sale",
        "payment",
        "invoice",
        "transaction",
        "purchase",
        "bill",
        "donation",
    ):
        return False
    if noun in ENTITY_NOUNS and draft.low(0) not in ("what",):
        return False
    if draft.low(last) in ("and",) and draft.low(last + 1) in ("lowest", "smallest", "minimum", "average", "the"):
        return before not in ("with", "has", "have", "had", "whose", "of")
    if (
        before in ("is", "are", "was", "were", "show", "find", "give", "return", "list", "me", "calculate", "compute", "")
        or before in COMMANDS
    ):
        return draft.low(0) not in ("which", "who", "whose", "where", "when") and not (
            before in ("is", "are") and draft.low(0) not in ("what", "what's")
        )
    return before in ("and", ",", "each", ":") and bool(draft.aggregations or draft.group_by)


# --- aggregates ---------------------------------------------------------------------------------------------------------------


def read_aggregates(draft: Draft) -> None:
    """Aggregates in words: "how many", "number of", "total", "average", "sum of"."""
    i = 0
    while i < len(draft.tokens):
        i = max(i + 1, _count(draft, i) or _function(draft, i))


def _distinct_at(draft: Draft, i: int) -> int:
    return int(draft.low(i) in ("different", "distinct", "unique", "individual"))


def _count(draft: Draft, i: int) -> int:
    low = draft.low(i)
    if draft.used[i] or draft.kind(i) != "w":
        return 0
    sure = True
    if low == "how" and draft.low(i + 1) == "many":
        j = i + 2
        while draft.low(j) in ("of", "the", "these", "those", "total", "more"):
            j += 1
    elif low in ("number", "count", "numbers") and draft.low(i + 1) == "of" and not (i > 0 and draft.is_noun(i - 1)):
        j = i + 2 + (draft.low(i + 2) in ("the", "all"))
        sure = i <= 1 or draft.low(i - 1) in ("total", "the", "show", "and") or bool(draft.group_by)
        if draft.low(i - 1) in ("with", "by", "a", "average", "max", "maximum", "minimum") or draft.lemma(j) in MEASURE_NOUNS:
            sure = False
    elif (low in ("count", "tally") and i == 0) or (low == "count" and draft.low(i - 1) in ("and", "please", "to")):
        j = i + 1 + (draft.low(i + 1) in ("the", "all"))
        if draft.low(j) in ("number", "of"):
            j += 1 + (draft.low(j + 1) == "of")
            j += draft.low(j) == "the"
    else:
        return 0
    distinct = bool(_distinct_at(draft, j))
    j += distinct
    first, last = draft.phrase_after(j)
    noun = draft.lemma(last - 1) if last > first else draft.lemma(j)
    if attribute_groups(noun) and draft.low(last) in ("or", "and", ","):
        noun = next((draft.lemma(k) for k in range(last, last + 4) if draft.lemma(k) in ENTITY_NOUNS), noun)
    if noun in MEASURE_NOUNS and low == "how":
        sure = noun in ENTITY_NOUNS
    if low == "how" and _counted_value(draft, first, last):
        sure = False
    if draft.target is None and noun and noun not in STOP_WORDS and last > first:
        draft.target = noun
    column: Column = "*"
    if distinct and last > first:
        column = entity_key(noun) if noun in ENTITY_NOUNS and noun not in _PLAIN else draft.column(first, last)
    draft.aggregations.append(
        Aggregation(func="count", column=column, distinct=distinct, text=draft.text(i, last), certain=sure)
    )
    draft.use(i, j)
    return j


_PLAIN = frozenset("country city region department category state colour color language type nationality".split())


def _counted_value(draft: Draft, first: int, last: int) -> bool:
    """ "how many goals did X score", "how many students does X have": the figure may be stored."""
    return draft.low(last) in ("does", "do", "did") and last > first and draft.lemma(last - 1) in MEASURE_NOUNS


def _function(draft: Draft, i: int) -> int:
    low = draft.low(i)
    if draft.used[i] or draft.kind(i) != "w":
        return 0
    func = _FUNCTIONS.get(low) or (_EXTREMES.get(low) if draft.low(i + 1) in ("and", ",", "or") else None)
    j = i + 1
    if low == "how" and draft.low(j) == "much":
        func, j = "sum", j + 1
        if draft.low(j) in ("did", "do", "does", "was", "is", "have", "has"):
            draft.aggregations.append(Aggregation(func="sum", column="amount", text=draft.text(i, j), certain=False))
            return j
    if func is None or (low == "total" and draft.low(i - 1) == "in"):
        return 0
    if (
        low == "total"
        and i > 0
        and draft.kind(i - 1) == "w"
        and draft.lemma(i - 1) in ENTITY_NOUNS
        and draft.low(i + 1) not in ("of", "number")
    ):
        draft.aggregations.append(Aggregation(func="sum", column="amount", text=draft.text(i - 1, i + 1), certain=False))
        draft.use(i, i + 1)
        return i + 1
    if draft.low(j) in ("number", "count") and draft.low(j + 1) == "of":
        if func == "sum":
            return 0  # "total number of" is a count
        first, last = draft.phrase_after(j + 2)
        noun = draft.lemma(last - 1) if last > first else ""
        column: Column = f"number_of_{noun}" if noun else "*"
        draft.aggregations.append(Aggregation(func=func, column=column, text=draft.text(i, last), certain=False))
        draft.use(i, last)
        return last
    if low in ("sum", "total", "average", "mean", "maximum", "minimum") and draft.low(j) == "of":
        j += 1
    elif draft.low(j) in ("and", ",", "or") and (
        draft.low(j + 1) in _FUNCTIONS or draft.low(j + 1) in _EXTREMES or draft.low(j + 1) == "the"
    ):
        return _shared(draft, i, func)
    while draft.low(j) in _FUNCTIONS and func == "avg":
        j += 1
    first, last = draft.phrase_after(j)
    if last == first:
        return 0
    column, last = _measure(draft, first, last)
    if low == "total" and column in ("sale", "payment", "donation", "spending"):
        column = "amount"
    sure = low != "total" or draft.low(i - 1) not in ("whose", "with", "have", "has", "had", "having")
    draft.aggregations.append(Aggregation(func=func, column=column, text=draft.text(i, last), certain=sure))
    draft.use(i, last)
    while draft.low(last) in ("and", ",") and low != "how":
        nxt = last + 1 + (draft.low(last + 1) == "and")
        nxt += draft.low(nxt) == "the"
        if (
            draft.low(nxt) in _FUNCTIONS
            or draft.low(nxt) in _SUPERLATIVES
            or draft.low(nxt) in COMMANDS
            or draft.low(nxt) in ("number", "how")
        ):
            break
        return last
    return last


def _shared(draft: Draft, i: int, func: str) -> int:
    """ "average, minimum and maximum price": one column for several functions."""
    funcs, j = [func], i + 1
    while draft.low(j) in _FUNCTIONS or draft.low(j) in (",", "and", "the", "or") or draft.low(j) in _EXTREMES:
        word = draft.low(j)
        if word in _FUNCTIONS or word in _EXTREMES:
            funcs.append(_FUNCTIONS.get(word) or _EXTREMES[word])
        j += 1
    j += draft.low(j) == "of"
    first, last = draft.phrase_after(j)
    if last == first:
        return 0
    column, last = _measure(draft, first, last)
    text = draft.text(i, last)
    draft.aggregations.extend(Aggregation(func=f, column=column, text=text) for f in funcs)
    draft.use(i, last)
    return last


def _measure(draft: Draft, first: int, last: int) -> tuple[Column, int]:
    """The column of a measure: "order amount" → amount, "stay in days" → stay_days, "revenue" → revenue."""
    if (
        draft.low(last) == "in"
        and draft.lemma(last + 1) in TIME_UNITS.keys() | {"night"}
        and draft.low(last + 1) != draft.lemma(last + 1)
    ):
        return f"{draft.column(first, last)}_{draft.low(last + 1)}", last + 2
    if draft.low(last) == "per" and draft.low(last + 1) in ("gallon", "capita", "hour", "minute", "second", "liter", "litre"):
        return f"{draft.text(first, last).lower().replace(' ', '_')}_per_{draft.low(last + 1)}", last + 2
    words = [draft.low(k) for k in range(first, last)]
    if len(words) == 2 and words[1] in ("days", "nights", "hours", "minutes", "months", "years"):
        return "_".join(words), last
    return draft.column(first, last), last


# --- outputs --------------------------------------------------------------------------------------------------------------


def read_outputs(draft: Draft) -> None:
    """What the question asks to see, and whose rows it is about."""
    i, length = _command_end(draft), len(draft.tokens)
    start = i
    items: list[tuple[int, int]] = []
    while i < length:
        while draft.low(i) in (
            "the",
            "a",
            "an",
            "all",
            "their",
            "its",
            "and",
            ",",
            "both",
            "also",
            "each",
            "every",
            "different",
            "distinct",
            "unique",
        ):
            i += 1
        end = i
        while end < length and draft.kind(end) == "w" and draft.is_noun(end) and draft.low(end) not in _BOUNDARY:
            end += 1
        if end == i:
            if i < length and draft.used[i] and draft.low(i) not in _BOUNDARY and draft.kind(i) == "w" and i < start + 12:
                i += 1  # an aggregate stands here
                continue
            break
        items.append((i, end))
        i = end
        if draft.low(i) in ("and", ",", "&") or (draft.low(i) == "as" and draft.matches(i, ("as", "well", "as"))):
            i += 3 if draft.low(i) == "as" else 1
            continue
        break
    follows = draft.low(i)
    if (
        draft.low(0) in ("which", "whose") or (draft.low(0) == "what" and draft.low(1) not in ("is", "are", "was", "were"))
    ) and items:
        _which(draft, items)
        return
    of = (follows in ("of", "for") and draft.kind(i + 1) != "d") or (follows in ("in", "from", "with") and len(items) > 1)
    for first, last in items:
        column, owner = draft.column(first, last), draft.lemma(last - 1)
        if attribute_groups(draft.low(last - 1)) and owner not in ENTITY_NOUNS:
            continue  # a value, not a column: "all gold and silver customers"
        attribute = owner in _ATTRIBUTES or of or len(items) > 1
        if not attribute or (owner in ENTITY_NOUNS and len(items) == 1 and not of):
            draft.target = draft.target or owner
            continue
        if column and not _is_aggregate(draft, column) and owner not in RATIO_WORDS:
            draft.projections.append(column)
            if owner in _ATTRIBUTES and last - first > 1 and draft.lemma(first) in ENTITY_NOUNS:
                draft.target = draft.target or draft.lemma(first)
    if draft.projections and str(draft.projections[-1]).endswith("_name"):
        draft.projections = [
            f"{p}_name" if p in ("first", "middle", "last", "given", "family") else p for p in draft.projections
        ]
    if of and draft.target is None:
        first, last = draft.phrase_after(i + 1)
        if last > first:
            draft.target = draft.lemma(last - 1)
    if draft.projections == ["id"] and draft.target and follows == "of":
        draft.projections = [entity_key(draft.target)]


def _is_aggregate(draft: Draft, column: str) -> bool:
    return any(a.column == column for a in draft.aggregations)


def _which(draft: Draft, items: list[tuple[int, int]]) -> None:
    noun = draft.lemma(items[0][1] - 1)
    if noun in ENTITY_NOUNS or draft.low(0) == "which":
        draft.target = draft.target or noun
    if noun not in RATIO_WORDS and (noun in _ATTRIBUTES or (draft.low(0) == "what" and noun not in ENTITY_NOUNS)):
        draft.projections.extend(draft.column(a, b) for a, b in items)


def _command_end(draft: Draft) -> int:
    """One past the words that only introduce a question: "Please list", "What are", "Give me", "Can you show"."""
    i = 0
    while i < len(draft.tokens) and draft.kind(i) == "w" and draft.low(i) in _LEADS:
        if i > 0 and draft.low(i) in ("name", "count", "state", "rank", "point"):
            break
        i += 1
    return i


def read_distinct(draft: Draft) -> None:
    """Whether repeats are unwanted: "different", "distinct", "unique", "without repeats"."""
    for i, token in enumerate(draft.tokens):
        low = token.low
        said = low in ("distinct", "unique", "deduplicated") or (
            low == "different" and draft.low(i + 1) not in ("from", "than", "to")
        )
        said = said or (low == "once" and draft.low(i - 1) in ("each", "only", "just"))
        if said and not (draft.low(i - 1) in ("many", "of") and any(a.distinct for a in draft.aggregations)):
            draft.distinct = True
        if low in ("without", "no") and draft.low(i + 1) in (
            "repeats",
            "repetition",
            "repetitions",
            "duplicates",
            "duplication",
            "repeat",
        ):
            draft.distinct = True
