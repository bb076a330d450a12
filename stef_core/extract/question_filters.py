"""Values that a question sets: quoted strings, names, adjectives such as "open", dates; and how not, or and nor join them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stef_core.extract.question_dates import Period, between_periods, date_column, period_filters, with_year
from stef_core.extract.question_draft import COMMANDS, Draft, Found
from stef_core.extract.question_tokens import Token
from stef_core.lexicon import attribute_groups, attribute_of
from stef_core.records import AllOf, AnyOf, Column, Condition, Filter
from stef_core.vocabulary import ENTITY_NOUNS, GENERIC_WORDS, STOP_WORDS, SURE_VALUE_NOUNS, VALUE_NOUNS, word_set

_PEOPLE = word_set(
    """player driver customer student employee person singer user patient author artist actor director client member teacher
    tourist visitor guest worker passenger rider coach scientist writer composer conductor"""
)
_LABELS = word_set("plan tier segment category channel queue")
_VALUED = word_set("name title id type value code status label category word text surname")
_NAMED = frozenset(("named", "called", "titled", "entitled", "nicknamed", "labeled", "labelled", "tagged"))
_PLACE = word_set("in from of to at within outside into on by for with under than through")
_BE = word_set("is are was were be been being remain remains still currently as became")
_SOFT = word_set("still currently now already not also actually been being the a an all only")
_ADJECTIVE_GROUPS = word_set("status priority channel gender platform colour tier segment country")
_CHANNEL_ROWS = word_set("order sale purchase customer booking transaction signup visit ticket payment")
_QUANTIFIERS = frozenset(
    """same each every different own which what whichever largest smallest biggest highest lowest oldest newest
    latest first last
    second third top bottom all both any single whole entire other another given respective particular certain
    specific most least
    more only new old following current main average total following this that these those best worst correct wrong no
    corresponding distinct unique various overall maximum minimum whose and or""".split()
)
_NEGATIONS = (
    ("other", "than"), ("rather", "than"), ("except", "for"), ("excluding",), ("except",), ("outside", "of"), ("outside",),
    ("not",), ("neither",), ("nor",), ("without",), ("but", "not"), ("apart", "from"), ("aside", "from"), ("besides",),
    ("isn't",), ("aren't",), ("wasn't",), ("weren't",), ("doesn't",), ("don't",), ("didn't",), ("never",), ("nothing", "but"),
)  # fmt: skip
_NEGATION_ENDS = frozenset(phrase[-1] for phrase in _NEGATIONS)
_NEGATORS = frozenset(p[-1] for p in _NEGATIONS if p[-1] not in ("than", "of", "for", "from", "but"))
_LIKE = {
    ("contains",): "%{}%", ("contain",): "%{}%", ("containing",): "%{}%", ("including",): "%{}%", ("includes",): "%{}%",
    ("include",): "%{}%", ("has", "the", "word"): "%{}%", ("with", "the", "word"): "%{}%", ("substring",): "%{}%",
    ("contains", "the", "word"): "%{}%", ("contain", "the", "word"): "%{}%", ("containing", "the", "word"): "%{}%",
    ("starts", "with"): "{}%", ("start", "with"): "{}%", ("starting", "with"): "{}%", ("begins", "with"): "{}%",
    ("begin", "with"): "{}%", ("beginning", "with"): "{}%", ("started", "with"): "{}%",
    ("ends", "with"): "%{}", ("end", "with"): "%{}", ("ending", "with"): "%{}", ("ends", "in"): "%{}", ("end", "in"): "%{}",
    ("ending", "in"): "%{}",
}  # fmt: skip
_LIKE_ENDS = frozenset(phrase[-1] for phrase in _LIKE)
_LIKE_LINKS = word_set("the a an word words letter letters string phrase substring character prefix text keyword term")
_DIRECTIONS = {
    "before": "before", "after": "after", "since": "since", "until": "until", "till": "until", "through": "until",
    "from": "in", "by": "until",
}  # fmt: skip


def text_value(text: str) -> str:
    """A text value in canonical form: folded, white space collapsed."""
    return " ".join(text.casefold().split())


def negation_before(draft: Draft, i: int) -> bool:
    """Whether the words just before a position say no: "not", "other than", "excluding", "neither"."""
    j = i
    while j > 0 and draft.low(j - 1) in (
        "the",
        "a",
        "an",
        "in",
        "from",
        "by",
        "of",
        "with",
        "to",
        "have",
        "any",
        "being",
        "been",
        "at",
    ):
        j -= 1
    if draft.low(j - 1) not in _NEGATION_ENDS:
        return False
    for phrase in _NEGATIONS:
        start = j - len(phrase)
        if start >= 0 and draft.matches(start, phrase):
            return draft.low(start - 1) not in ("or", "whether") or phrase != ("not",)
    return False


# --- dates --------------------------------------------------------------------------------------------------------------


def read_dates(draft: Draft) -> None:
    """Periods with their direction, on a column guessed from the verb or noun before them."""
    i = 0
    while i < len(draft.tokens):
        period = draft.tokens[i].value
        if draft.tokens[i].kind == "d" and isinstance(period, Period) and not draft.used[i]:
            i = _date(draft, i, period)
        else:
            i += 1


def _date(draft: Draft, i: int, period: Period) -> int:
    lead = i
    while lead > 0 and draft.low(lead - 1) in (
        "the",
        "year",
        "years",
        "month",
        "of",
        "date",
        "day",
        "start",
        "season",
        ",",
        "on",
    ):
        if draft.low(lead - 1) == "of" and draft.low(lead - 2) not in (
            "month",
            "year",
            "date",
            "day",
            "start",
            "beginning",
            "end",
        ):
            break
        if draft.low(lead - 1) == "," and not (draft.kind(lead) == "d" and draft.kind(lead - 2) != "d"):
            break
        if draft.low(lead - 1) == ",":
            break
        lead -= 1
    word = draft.low(lead - 1)
    after = i + 1
    column = _date_column(draft, lead - 1 if word in _DIRECTIONS or word in _PLACE or word in ("during", "between") else lead)
    text_start = lead - 1 if word in _DIRECTIONS or word in _PLACE or word in ("during", "between") else lead
    if draft.low(after) in ("and", "to", "until", "through", "till", "-", "–") and draft.kind(_past(draft, after + 1)) == "d":
        end = _past(draft, after + 1)
        other = draft.tokens[end].value
        if isinstance(other, Period):
            period = with_year(period, other)
        joined = word in ("between", "from") or draft.low(after) in ("to", "through", "until", "till", "-", "–")
        if isinstance(other, Period) and joined and period.start and other.start:
            text = draft.text(text_start, end + 1)
            draft.add(text_start, end + 1, between_periods(period, other, column, text))
            return end + 1
    direction = _DIRECTIONS.get(word, "in")
    if word in ("from", "by") and draft.low(after) not in ("on", "onwards", "onward"):
        direction = "in" if word == "from" or period.unit in ("month_of_year",) else direction
    if (
        draft.low(after) in ("onwards", "onward")
        or draft.matches(after, ("or", "later"))
        or draft.matches(after, ("and", "later"))
    ):
        direction, after = "since", after + (1 if draft.low(after).startswith("onward") else 2)
    elif draft.matches(after, ("or", "earlier")) or (
        draft.matches(after, ("or", "before")) and draft.kind(_past(draft, after + 2)) != "d"
    ):
        direction, after = "until", after + 2
    elif word == "than" and draft.low(lead - 2) in ("later", "earlier"):
        direction, text_start = ("after" if draft.low(lead - 2) == "later" else "before"), lead - 2
    if word == "since" or (draft.low(lead) == "start" and word in ("the", "since")):
        direction = "since"
    if direction in ("before", "after") and draft.low(lead - 2) in ("or", "and") and draft.low(lead - 3) in ("in", "on"):
        direction, text_start = ("until" if direction == "before" else "since"), lead - 3
    before = lead - 1 if word in _PLACE | {"during"} else lead
    contrast = draft.matches(before - 2, ("but", "not"))  # "in 2023 but not in 2024": another set, not another filter
    negated = not contrast and negation_before(draft, before)
    text = draft.text(text_start, after)
    for condition in period_filters(period, column, direction, text, negated=negated):
        draft.found.append(Found(text_start, after, replace(condition, certain=not contrast)))
    draft.use(text_start, after)
    return after


def _entity_before(draft: Draft, i: int) -> str | None:
    return next((draft.lemma(k) for k in range(i - 1, max(-1, i - 6), -1) if draft.lemma(k) in ENTITY_NOUNS), None)


def _past(draft: Draft, i: int) -> int:
    while draft.low(i) in ("the", "year", "in", "on"):
        i += 1
    return i


def _date_column(draft: Draft, i: int) -> str:
    """The date column that the words before a period speak of."""
    j = i - 1
    noun: str | None = None
    steps = 0
    while j >= 0 and steps < 6:
        low, base = draft.low(j), draft.lemma(j)
        if draft.kind(j) == "p" and low in (".", ";", "?"):
            break
        if base in ("date", "birthday", "time", "datetime", "timestamp", "year") and draft.kind(j) == "w":
            start, end = draft.phrase_before(j + 1)
            return draft.column(start, end) or base
        if draft.low(j) == "up" and draft.lemma(j - 1) == "sign":
            return "signup_date"
        if (
            draft.kind(j) == "w"
            and draft.is_verb(j)
            and low not in COMMANDS
            and low not in ("have", "has", "had", "do", "did", "does", "was", "were", "is", "are")
        ):
            if not attribute_groups(low) or draft.kind(j + 1) != "w" or draft.low(j + 1) in _PLACE | STOP_WORDS:
                return date_column(base, noun or _entity_before(draft, j))
        elif noun is None and base in ENTITY_NOUNS:
            noun = base
        j -= 1
        steps += 1
    if noun is None:
        k = i
        while k < min(len(draft.tokens), i + 8):
            if draft.kind(k) == "w" and draft.lemma(k) in ENTITY_NOUNS:
                noun = draft.lemma(k)
                break
            k += 1
    return date_column(None, noun)


# --- quoted strings and names ----------------------------------------------------------------------------------------------


def read_quoted(draft: Draft) -> None:
    """Quoted strings, with the column that the words before or after them name."""
    for i, token in enumerate(draft.tokens):
        if token.kind != "q" or draft.used[i]:
            continue
        value = text_value(str(token.value))
        pattern = _pattern(draft, i)
        negated = negation_before(draft, pattern[1] if pattern else i)
        column, start, end, sure = _quoted_column(draft, pattern[1] if pattern else i, i)
        inside = _inside(draft, i)
        if pattern is None and inside is not None:
            pattern, column, end = ("%{}%", start), inside[0], inside[1]
        if pattern:
            made = pattern[0].format(value) if "%" not in value else value
            draft.add(start, end, Filter(column=column, op="not_like" if negated else "like", value=made), negated=negated)
        else:
            draft.add(
                start, end, Filter(column=column, op="!=" if negated else "=", value=value, certain=sure), negated=negated
            )


def _inside(draft: Draft, i: int) -> tuple[Column, int] | None:
    """``'Hey' in its title`` after "the word": the column that a string is part of."""
    if (
        draft.low(i - 1) not in _LIKE_LINKS
        or draft.low(i + 1) != "in"
        or draft.low(i + 2) not in ("its", "their", "the", "his", "her")
    ):
        return None
    first, last = draft.phrase_after(i + 2)
    return (draft.column(first, last), last) if last > first else None


def _pattern(draft: Draft, i: int) -> tuple[str, int] | None:
    j = i
    while j > 0 and draft.low(j - 1) in _LIKE_LINKS:
        j -= 1
    if draft.low(j - 1) not in _LIKE_ENDS:
        return None
    for phrase, pattern in _LIKE.items():
        start = j - len(phrase)
        if start >= 0 and draft.matches(start, phrase):
            return pattern, start
    return None


def _quoted_column(draft: Draft, start: int, i: int) -> tuple[Column | None, int, int, bool]:
    if draft.low(start - 1) in _NAMED or (draft.low(start - 1) == "as" and draft.low(start - 2) in ("known",)):
        return "name", start - 1, i + 1, True
    j = start
    while j > 0 and draft.low(j - 1) in _BE | {"of", "=", ":", "equals", "to", "equal", "the", "not", "a"} and start - j < 4:
        j -= 1
    first, last = draft.phrase_before(j)
    if last > first:
        noun = draft.lemma(last - 1)
        of = "of" in (draft.low(k) for k in range(j, start))
        if (noun in ENTITY_NOUNS and noun not in VALUE_NOUNS) or (of and noun not in _VALUED):
            return None, start, i + 1, not _is_person(draft.tokens[i])
        return draft.column(first, last), first, i + 1, True
    first, last = draft.phrase_after(i + 1)
    if last > first and first == i + 1 and draft.lemma(last - 1) in VALUE_NOUNS:
        return draft.column(first, last), start, last, True
    return None, start, i + 1, not _is_person(draft.tokens[i])


def _is_person(token: Token) -> bool:
    """Two or three capitalised words: a person perhaps, whose name is stored in parts."""
    parts = str(token.value).split()
    return 2 <= len(parts) <= 3 and all(p[:1].isupper() and p.isalpha() for p in parts)


def read_names(draft: Draft, protected: frozenset[str] = frozenset()) -> None:
    """Capitalised names in the middle of a sentence, and e-mail endings and codes after a like-phrase."""
    i = 0
    while i < len(draft.tokens):
        token = draft.tokens[i]
        if draft.used[i] or token.kind != "w":
            i += 1
            continue
        pattern = _pattern(draft, i)
        if (
            pattern
            and token.low not in STOP_WORDS
            and token.low not in _LIKE_LINKS
            and (token.code or token.capital or token.text[0] in ".@" or len(token.text) <= 2)
        ):
            column, start, end, _ = _quoted_column(draft, pattern[1], i)
            draft.add(start, end, Filter(column=column, op="like", value=pattern[0].format(token.low)))
            i = end
            continue
        if not token.capital and draft.low(i - 1) in _NAMED and token.low not in STOP_WORDS:
            draft.add(i - 1, i + 1, Filter(column="name", op="=", value=token.low, certain=False))
        if not token.capital or _starts_sentence(draft, i):
            i += 1
            continue
        if token.code and token.low[-1].isalnum() and any(c.isdigit() for c in token.low):
            i += 1  # a code: read with the figures
            continue
        end = name_end(draft.tokens, draft.used, i)
        if draft.kind(end + 1) == "n" and draft.low(end) in ("is", "are", "was", "=", "of"):
            i = end  # "the Low Grade is 9" names a column
            continue
        _name(draft, i, end)
        i = end


def name_end(tokens: Sequence[Token], used: Sequence[bool], i: int) -> int:
    """One past the last token of the capitalised run that starts at a position."""
    end = i + 1
    first = tokens[i]
    if (
        first.text.isupper()
        and first.text.isalpha()
        and len(first.text) <= 4
        and end < len(tokens)
        and (tokens[end].code or tokens[end].kind == "n")
    ):
        return end  # "SKU AB_1": a column and its value
    while end < len(tokens):
        token = tokens[end]
        if token.kind in ("w", "n") and not used[end] and (token.capital or (token.kind == "n" and token.text.isdigit())):
            end += 1
        elif token.low in ("of", "de", "di", "del", "da", "van", "von", "the", "la", "and") and end + 1 < len(tokens):
            after = tokens[end + 1]
            if token.low in ("and", "the") or not after.capital or used[end + 1] or (token.low == "of" and end - i < 1):
                break
            if token.low == "of" and tokens[end - 1].low not in _HEADS:
                break
            end += 2
        elif token.low == "." and end + 1 < len(tokens) and len(tokens[end - 1].text) == 1 and tokens[end + 1].capital:
            end += 1
        else:
            break
    return end


_HEADS = frozenset(
    "university college school republic department board bank house city island church institute duke bay".split()
)


def _starts_sentence(draft: Draft, i: int) -> bool:
    if i == 0:
        return not (draft.tokens[0].code or attribute_groups(draft.tokens[0].low)) or draft.kind(1) == "w"
    return draft.low(i - 1) in (".", "?", "!", ":", ";") and draft.kind(i - 1) == "p" and not draft.tokens[i].code


def _name(draft: Draft, start: int, end: int) -> None:
    tokens = draft.tokens[start:end]
    value = text_value(" ".join(t.text for t in tokens).replace(" .", "."))
    low = value
    if all(t.text.isupper() and t.text.isalpha() and len(t.text) <= 4 for t in tokens) and not attribute_groups(low):
        return  # an acronym is as often a column
    if any(t.low in STOP_WORDS and t.low not in ("of", "the", "and", "us", "in") for t in tokens[:1]):
        return
    if all(t.lemma in GENERIC_WORDS or t.lemma in ENTITY_NOUNS for t in tokens):
        return  # "the Package Id", "TV Channels": columns and rows in capitals
    before = draft.low(start - 1)
    negated = negation_before(draft, start)
    op = "!=" if negated else "="

    def keep(column: Column | None, a: int, b: int, sure: bool) -> None:
        draft.add(a, b, Filter(column=column, op=op, value=value, certain=sure), negated=negated)

    last_low = tokens[-1].lemma
    if len(tokens) > 1 and last_low in SURE_VALUE_NOUNS and tokens[-1].text.islower():
        return
    if before in _NAMED:
        keep("name", start - 1, end, True)
        return
    groups = attribute_groups(low)
    after, noun = draft.low(end), draft.lemma(end)
    if (
        draft.kind(end) == "w"
        and noun in VALUE_NOUNS
        and after == noun
        and not draft.used[end]
        and draft.low(end + 1) not in ("id",)
    ):
        keep(draft.column(end, end + 1), start, end + 1, noun in SURE_VALUE_NOUNS)
        return
    link = start
    while (
        link > 0
        and draft.low(link - 1) in ("is", "are", "was", "were", "of", "=", ":", "called", "named", "the", "not")
        and start - link < 3
    ):
        link -= 1
    first, last = draft.phrase_before(link)
    if last > first and draft.low(first - 1) in ("what", "which") and link < start:
        last = first  # "what region is Kabul in": the noun is asked for, not set
    if last > first and draft.lemma(last - 1) in VALUE_NOUNS and draft.low(last - 1) == draft.lemma(last - 1):
        if (
            draft.low(link) in ("of", "the")
            and draft.lemma(last - 1) in ENTITY_NOUNS
            and draft.lemma(last - 1) not in ("city", "country", "state")
        ):
            keep(None, start, end, False)
            return
        keep(draft.column(last - 1, last), last - 1, end, True)
        return
    if last > first and draft.lemma(last - 1) in ("name", "title", "surname", "nickname", "code", "label") and link < start:
        keep(draft.column(first, last), first, end, True)
        return
    if (
        last > first
        and link == start
        and before not in ("the", "of")
        and draft.low(first - 1) in ("in", "from", "at", "within")
        and draft.lemma(last - 1) == draft.low(last - 1)
        and draft.lemma(last - 1) not in ENTITY_NOUNS | GENERIC_WORDS | _PEOPLE
    ):
        keep(draft.column(first, last), first, end, False)  # "in building Delta"
        return
    if groups and groups[0] in ("weekday", "month"):
        keep(attribute_of(low)[0], start, end, False)
        return
    if len(groups) == 1 and groups[0] in ("country", "state", "city", "continent"):
        keep(
            attribute_of(low)[0],
            start,
            end,
            before in ("in", "from", "outside", "or", "and", ",", "nor", "than", "within") or noun in ENTITY_NOUNS,
        )
        return
    if groups == ("country", "language") and (noun in _PEOPLE or (after in ("or", "and") and draft.lemma(end + 2) in _PEOPLE)):
        keep(attribute_of(low)[0], start, end, True)
        return
    if groups:
        spoken = (
            groups and "language" in groups and any(draft.lemma(k) in ("language", "speak") for k in range(len(draft.tokens)))
        )
        column = "language" if spoken else attribute_of(low)[0] if len(groups) == 1 else None
        keep(column, start, end, len(groups) == 1 and before in _PLACE)
        return
    keep(None, start, end, False)


# --- adjectives and value nouns --------------------------------------------------------------------------------------------


def read_value_nouns(draft: Draft) -> None:
    """Values that a noun after or before them explains: "in the garden category", "with status open", "the pro plan"."""
    for i, token in enumerate(draft.tokens):
        if token.kind != "w" or token.lemma not in VALUE_NOUNS or draft.used[i]:
            continue
        if token.low == token.lemma:
            _value_after(draft, i) or _value_before(draft, i)
        elif draft.low(i - 1) not in STOP_WORDS:
            _value_before(draft, i)


def _value_after(draft: Draft, i: int) -> bool:
    j = i + 1
    while draft.low(j) in ("is", "=", "of", ":", "equals", "are", "was"):
        j += 1
    negated = draft.low(j) == "not" or draft.matches(j, ("other", "than"))
    j += 2 if draft.low(j) == "other" else negated
    token = draft.tokens[j] if j < len(draft.tokens) else None
    if token is None or token.kind != "w" or draft.used[j]:
        return False
    ends = j + 1 == len(draft.tokens) or draft.kind(j + 1) == "p" or draft.low(j + 1) in _PLACE | {"and", "or", "that", "who"}
    named = j == i + 1 and draft.low(i - 1) in ("in", "from", "within") and ends and draft.is_noun(j)  # "in region west"
    if _stated(draft, i, j):
        column = draft.column(*_noun_span(draft, i))
        while _stated(draft, i, j):  # "with status frozen, suspended or expired"
            found = Filter(column=column, op="!=" if negated else "=", value=text_value(draft.tokens[j].text))
            draft.add(i if j == i + 1 else j, j + 1, found, negated=negated)
            j += 1
            while draft.low(j) in (",", "or"):
                j += 1
        return True
    if not (token.code or attribute_groups(token.low) or (named and draft.lemma(j) not in GENERIC_WORDS)):
        return False
    if draft.lemma(j) in ENTITY_NOUNS and not token.code:
        return False
    column = draft.column(*_noun_span(draft, i))
    draft.add(i, j + 1, Filter(column=column, op="!=" if negated else "=", value=text_value(token.text)), negated=negated)
    return True


def _stated(draft: Draft, i: int, j: int) -> bool:
    """Whether a plain word at ``j`` is a status that "with status", "have the status" at ``i`` announces."""
    lead = i - 1 - (draft.low(i - 1) in ("the", "a"))
    if draft.lemma(i) != "status" or draft.low(lead) not in ("with", "have", "has", "having", "had", "in"):
        return False
    token = draft.tokens[j] if j < len(draft.tokens) else None
    if token is None or token.kind != "w" or draft.used[j] or token.low in STOP_WORDS | _PLACE or token.lemma in VALUE_NOUNS:
        return False
    if j > i + 1 and draft.low(j - 1) not in (",", "or"):
        return False
    return j + 1 == len(draft.tokens) or draft.kind(j + 1) == "p" or draft.low(j + 1) in ("or", *_PLACE)


def _noun_span(draft: Draft, i: int) -> tuple[int, int]:
    start = i
    while start > 0 and draft.is_noun(start - 1) and i - start < 2:
        start -= 1
    return start, i + 1


def _value_before(draft: Draft, i: int) -> bool:
    """The words between a determiner and the noun, if a preposition or "have" leads them."""
    plural = draft.low(i) != draft.lemma(i)
    start = i
    while start > 0 and draft.kind(start - 1) == "w" and not draft.used[start - 1] and i - start < 4:
        low = draft.low(start - 1)
        if low in STOP_WORDS or low in _QUANTIFIERS or draft.is_verb(start - 1):
            break
        start -= 1
    if start == i or draft.low(i + 1) in ("name", "names", "id", "ids", "code", "codes", "number", "numbers"):
        return False
    if draft.low(start - 1) in _QUANTIFIERS and draft.low(start - 1) not in ("and", "or"):
        return False
    lead = start - 1
    determined = draft.low(lead) in ("the", "a", "an", "our")
    if determined:
        lead -= 1
    joined = draft.low(lead) in ("or", "and", "nor", ",")
    value_tokens = draft.tokens[start:i]
    if draft.lemma(i) in ENTITY_NOUNS and draft.lemma(i) not in SURE_VALUE_NOUNS and not any(t.capital for t in value_tokens):
        return False  # "gold customers" are customers
    entity = len(value_tokens) == 1 and value_tokens[0].lemma in ENTITY_NOUNS and not value_tokens[0].capital
    if entity and not attribute_groups(draft.low(start)) and draft.lemma(i) not in _LABELS:
        return False  # "the customer city" is a column, "the team plan" a value
    known = bool(attribute_groups(text_value(" ".join(t.text for t in value_tokens))))
    led = draft.low(lead) in (
        "in",
        "on",
        "of",
        "from",
        "at",
        "for",
        "through",
        "via",
        "to",
        "under",
        "with",
        "within",
    ) or draft.lemma(lead) in (
        "have",
        "use",
    )
    beside = _joined_before(draft, start) if joined else None
    if beside is not None and draft.low(beside - 1) in ("the", "our"):
        led, determined, lead = True, True, beside - 2  # "in the legal or finance department"
    follows = draft.kind(i + 1) == "w" and draft.lemma(i + 1) in ENTITY_NOUNS
    if not (led or joined or known or follows):
        return False
    if plural and not known and not joined:
        return False
    noun = draft.lemma(i)
    sure = noun in SURE_VALUE_NOUNS and (
        known
        or (led and determined and draft.low(lead) not in ("of", "for", "with", "to"))
        or (led and draft.low(lead) in ("in", "on"))
    )
    if not known and all(t.text.isupper() and len(t.text) <= 3 and not t.code for t in value_tokens):
        return False  # "the TV channel" is one noun
    if not known and not sure and not any(t.capital for t in value_tokens):
        return False
    value = text_value(" ".join(t.text for t in value_tokens))
    negated = negation_before(draft, start)
    draft.add(start, i + 1, Filter(column=noun, op="!=" if negated else "=", value=value, certain=sure), negated=negated)
    previous = _joined_before(draft, start)
    if previous is not None:
        word = draft.low(previous)
        draft.add(
            previous, previous + 1, Filter(column=noun, op="!=" if negated else "=", value=word, certain=sure), negated=negated
        )
    return True


def _joined_before(draft: Draft, start: int) -> int | None:
    """The single word that "or" puts beside a value: "the web or the app channel"."""
    j = start - 1
    if draft.low(j) in ("the", "a"):
        j -= 1
    if draft.low(j) not in ("or", "and"):
        return None
    k = j - 1
    if k < 0 or draft.kind(k) != "w" or draft.used[k] or draft.low(k) in STOP_WORDS | _QUANTIFIERS or draft.is_verb(k):
        return None
    led = k - 1 - (draft.low(k - 1) in ("the", "a"))
    return k if draft.low(led) in _PLACE else None


def read_workplaces(draft: Draft) -> None:
    """A department named without the noun: "who work in sales or marketing"."""
    for i, token in enumerate(draft.tokens):
        if token.lemma != "work" or draft.low(i + 1) not in ("in", "for") or draft.used[i]:
            continue
        j = i + 2 + (draft.low(i + 2) == "the")
        names: list[str] = []
        while draft.is_noun(j) if j < len(draft.tokens) else False:
            names.append(draft.low(j))
            draft_end = j + 1
            j += 1
            if draft.low(j) not in ("or", "and", ","):
                break
            j += 1
        if not names or (draft.kind(draft_end) == "w" and draft.is_noun(draft_end)) or attribute_groups(names[0]):
            continue
        value = names[0] if len(names) == 1 else tuple(names)
        negated = negation_before(draft, i)
        op = ("!=" if negated else "=") if len(names) == 1 else "not_in" if negated else "in"
        draft.add(i, draft_end, Filter(column="department", op=op, value=value))


def read_absences(draft: Draft) -> None:
    """Perhaps a value that is not there: "have not been paid", "were never sold", "have no email"."""
    for i, token in enumerate(draft.tokens):
        if token.low == "no" and draft.low(i - 1) in ("have", "has", "had", "with"):
            first, last = draft.phrase_after(i + 1)
            if last > first and draft.lemma(last - 1) not in ENTITY_NOUNS and draft.low(last - 1) == draft.lemma(last - 1):
                draft.add(first, last, Filter(column=draft.column(first, last), op="is_null", certain=False))
        if token.low not in ("not", "never") or draft.low(i - 1) not in ("have", "has", "had", "was", "were"):
            continue
        j = i + 1 + (draft.low(i + 1) in ("been", "yet"))
        if j < len(draft.tokens) and not draft.used[j] and draft.is_verb(j) and draft.low(j) != draft.lemma(j):
            draft.add(j, j + 1, Filter(column=date_column(draft.lemma(j), None), op="is_null", certain=False))


def read_adjectives(draft: Draft) -> None:
    """Words whose attribute is known: "urgent tickets", "are still open", "neither red nor blue"."""
    for i, token in enumerate(draft.tokens):
        if draft.used[i] or token.kind != "w" or (token.capital and i > 0):
            continue
        groups = attribute_groups(token.low)
        if not groups or not _ADJECTIVE_GROUPS & set(groups):
            continue
        group = next(g for g in groups if g in _ADJECTIVE_GROUPS)
        place = _placed(draft, i, group)
        if place is None:
            continue
        sure = len(groups) == 1 and place and not draft.ratio  # a share counts the value, it need not filter by it
        if draft.low(i - 1) in ("been", "yet") or (
            draft.low(i - 1) in ("not", "never") and draft.low(i - 2) in ("were", "was")
        ):
            sure = False  # "have never been cancelled": the status, or a date that is not there
        if group == "gender" and token.low in ("men", "women", "man", "woman", "males", "females"):
            sure = False
        column: Column | None = attribute_of(token.low)[0] if len(groups) == 1 or group == "colour" else None
        negated = negation_before(draft, i) or _nor(draft, i)
        value = text_value(token.text)
        draft.add(i, i + 1, Filter(column=column, op="!=" if negated else "=", value=value, certain=sure), negated=negated)


def _placed(draft: Draft, i: int, group: str) -> bool | None:
    """True: surely a value here; False: perhaps; None: no value."""
    after = draft.lemma(i + 1) if draft.kind(i + 1) == "w" else ""
    if group in ("tier", "segment"):
        return False if after in ENTITY_NOUNS else None
    if after in ENTITY_NOUNS and draft.low(i + 1) not in STOP_WORDS:
        low = draft.low(i)
        if group == "channel" and (after not in _CHANNEL_ROWS or low in ("email",)):
            return None
        if group == "status" and draft.low(i - 1) in ("to", "will", "can"):
            return None
        return not (i + 2 < len(draft.tokens) and draft.is_noun(i + 2))  # "black card borders" are borders
    if (
        after
        and (draft.low(i + 1) in ("and", "or", "nor", "but") or attribute_groups(draft.low(i + 1)))
        and _row_after(draft, i + 1)
    ):
        return group != "channel" or _row_after(draft, i + 1) in _CHANNEL_ROWS
    j = i
    while j > 0 and draft.low(j - 1) in _SOFT | {"or", "and", "either", "neither", "nor"} | {
        t.low for t in draft.tokens[max(0, i - 4) : i] if attribute_groups(t.low)
    }:
        j -= 1
    if draft.low(j - 1) in _BE or (j < i and draft.low(j) in _BE):
        tail = draft.low(i + 1)
        if group == "status" and draft.kind(i + 1) == "d":
            return False  # "closed last week" sets a date
        if group in ("status",) and tail in ("by", "to", "for", "in", "on", "from", "with", "since", "after", "before"):
            return False
        return group != "channel"
    lead = i - 1 - (draft.low(i - 1) in ("the", "our"))
    if draft.low(lead) in ("from", "via", "through", "on", "by") and group in ("channel", "platform"):
        return group == "platform" or (draft.kind(i + 1) != "w" and any(t.lemma in _CHANNEL_ROWS for t in draft.tokens[:i]))
    if group == "gender":
        return False
    if group == "colour" and draft.low(i - 1) in ("in", "with", "have", "color", "colour"):
        return False
    return None


def _row_after(draft: Draft, i: int) -> str | None:
    for k in range(i, min(i + 4, len(draft.tokens))):
        if draft.lemma(k) in ENTITY_NOUNS:
            return draft.lemma(k)
        if draft.kind(k) != "w" or not (attribute_groups(draft.low(k)) or draft.low(k) in ("and", "or", "nor", "the")):
            return None
    return None


def _nor(draft: Draft, i: int) -> bool:
    return draft.low(i - 1) in ("nor", "neither") or (draft.low(i - 1) == "or" and negation_before(draft, i - 2) and i >= 2)


def is_negated(draft: Draft) -> bool:
    """Whether the question asks for what does not exist: "never", "without", "no", "do not have"."""
    for i, token in enumerate(draft.tokens):
        low = token.low
        if low == "without" and draft.low(i + 1) in (
            "repeats",
            "repetition",
            "duplicates",
            "duplication",
            "repeating",
            "regard",
        ):
            continue
        if low in ("never", "without", "neither", "nobody") or (
            low == "no" and draft.low(i + 1) not in ("less", "more", "fewer", ".")
        ):
            return True
        if low == "not" or low.endswith("n't"):
            if draft.low(i + 1) in ("more", "less", "only", "over", "under", "above", "below"):
                continue
            return True
    return False


# --- joining ------------------------------------------------------------------------------------------------------------


def join_conditions(draft: Draft) -> tuple[Condition, ...]:
    """All conditions in order, those that "or" joins made one: ``in`` on one column, `AnyOf` across columns."""
    found = sorted(draft.found, key=lambda f: (f.start, f.end))
    out: list[Found] = []
    for item in found:
        last = out[-1] if out else None
        word = _connector(draft, last.end, item.start) if last is not None else None
        if last is None or word is None:
            out.append(item)
            continue
        merged = _merge(last.condition, item.condition, word)
        if merged is None:
            out.append(item)
        else:
            out[-1] = Found(last.start, item.end, merged)
    return tuple(dict.fromkeys(_tidy(f.condition) for f in out))


def _connector(draft: Draft, start: int, end: int) -> str | None:
    """``or``, ``and`` or ``nor`` when nothing but light words stands between two conditions."""
    words = [t.low for t in draft.tokens[start:end]]
    if not words or len(words) > 5:
        return None
    key = [w for w in words if w in ("or", "and", "nor", ",", "&")]
    rest = [w for w in words if w not in ("or", "and", "nor", ",", "&")]
    light = {"the", "a", "an", "either", "in", "from", "of", "have", "has", "been", "are", "is", "was", "were", "with",
        "that", "who"} | {
        "which", "on", "by", "at", "to", "whose", "through", "did", "not", "for", "had", "be",
    }  # fmt: skip
    verbs = {draft.low(k) for k in range(start, end) if draft.is_verb(k)} if "or" in key else set()
    if not key or any(w not in light and w not in verbs for w in rest):
        return None
    return "or" if "or" in key else "nor" if "nor" in key else "and" if "and" in key or "&" in key else ","


def _values(f: Filter) -> tuple[object, ...]:
    return f.value if isinstance(f.value, tuple) else (f.value,)


def _merge(left: Condition, right: Condition, word: str) -> Condition | None:
    if isinstance(left, Filter) and isinstance(right, Filter):
        alike = left.column == right.column or None in (left.column, right.column)
        positive = left.op in ("=", "in") and right.op in ("=", "in")
        negative = left.op in ("!=", "not_in") and right.op in ("=", "!=")
        same_kind = isinstance(_values(left)[0], str) == isinstance(_values(right)[0], str)
        if alike and same_kind and left.agg == right.agg is None and (positive or negative):
            if word in ("and", ",") and left.column is None and right.column is None:
                return None
            if not isinstance(_values(left)[0], str) and word in ("and", ","):
                return None
            column = left.column if left.column is not None else right.column
            values = tuple(dict.fromkeys((*_values(left), *_values(right))))
            return replace(
                left,
                column=column,
                op="in" if positive else "not_in",
                value=values,  # type: ignore[arg-type]
                text=f"{left.text} {word} {right.text}",
                certain=left.certain and right.certain,
            )
        if word == "or" and left.op not in ("!=", "not_in"):
            return AnyOf(conditions=(left, right))
    if isinstance(left, AnyOf) and isinstance(right, Filter) and word == "or":
        return AnyOf(conditions=(*left.conditions, right))
    return None


def _tidy(condition: Condition) -> Condition:
    if isinstance(condition, AnyOf | AllOf):
        return condition
    if condition.op in ("in", "not_in") and isinstance(condition.value, tuple) and len(condition.value) == 1:
        return replace(condition, op="=" if condition.op == "in" else "!=", value=condition.value[0])
    return condition
