"""Everything the project knows of words: lemmas, likeness of column names, and what a value is a value of.

The only module that imports simplemma and rapidfuzz. Pure and cached; a warm call costs about a microsecond.
"""

from __future__ import annotations

import math
import re
import unicodedata
from functools import lru_cache

from rapidfuzz.distance import JaroWinkler
from simplemma import is_known, lemmatize

from stef_core.records import Column, DatePart, DateTrunc
from stef_core.vocabulary import (
    ABBREVIATIONS,
    ATTRIBUTES,
    COUNTRIES,
    DEMONYMS,
    GENERIC_WORDS,
    STOP_WORDS,
    SYNONYMS,
    VALUE_ATTRIBUTES,
    VALUE_SPELLINGS,
)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_NOUNS_IN_ING = _listed(
    "reading building booking meeting ranking shipping listing painting recording opening earning saving wedding "
    "setting offering "
    "landing training holding rating filing posting rating crossing housing spending"
)
# where the lemma list has another word in mind than a question about data has
_LEMMAS = {
    "cancelled": "cancel",
    "canceled": "cancel",
    "people": "person",
    "media": "media",
    "criteria": "criterion",
    "worst": "bad",
    "better": "good",
    "url": "url",
    "urls": "url",
    "ids": "id",
    "skus": "sku",
    "data": "data",
    "further": "far",
    "less": "less",
    "genders": "gender",
    "born": "born",
    "spent": "spend",
    "saw": "see",
    "found": "find",
    "founded": "found",
    "rated": "rate",
    "rating": "rating",
    "ratings": "rating",
    "axes": "axis",
    "reopened": "reopen",
    "refunded": "refund",
    "overdue": "overdue",
    "sales": "sale",
    **{f"{w}{s}": w for w in _NOUNS_IN_ING for s in ("", "s")},
    "colours": "colour",
    "colour": "colour",
}
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)?", re.UNICODE)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|(?<=[A-Za-z])(?=\d)|(?<=\d)(?=[A-Za-z])")
_SPLIT = re.compile(r"[\W_]+", re.UNICODE)
_SUFFIXES = ("date", "name", "code", "number", "time", "type", "count", "address", "status", "price", "size")
_SHORT_HEADS = frozenset(_listed("zip job pay tax due end net sex"))
_WHOLE = frozenset(_listed("candidate mandate surname runtime prototype genotype discount viscount lifetime sometime overtime"))
_ALIAS = {"birthday": ("birth", "date"), "birthdate": ("birth", "date"), "dob": ("birth", "date"), "surname": ("last", "name")}
_NUMBER_WORDS = {
    **{w: i for i, w in enumerate(_listed("zero one two three four five six seven eight nine ten eleven twelve"))},
    **{w: i + 13 for i, w in enumerate(_listed("thirteen fourteen fifteen sixteen seventeen eighteen nineteen"))},
    **{w: 10 * (i + 2) for i, w in enumerate(_listed("twenty thirty forty fifty sixty seventy eighty ninety"))},
    "hundred": 100,
    "thousand": 1000,
    "million": 1_000_000,
    "dozen": 12,
}
_GROUPS: dict[str, frozenset[int]] = {}
for _index, _group in enumerate(SYNONYMS):
    for _member in _group:
        _GROUPS[_member] = _GROUPS.get(_member, frozenset()) | {_index}


@lru_cache(maxsize=65_536)
def lemma(word: str) -> str:
    """The dictionary form of an English word, lower-case."""
    low = word.casefold().replace("’", "'").removesuffix("'s").removesuffix("'")
    known = _LEMMAS.get(low)
    if known is not None:
        return known
    if len(low) < 3 or not low.isalpha() or not low.isascii():
        return low
    return str(lemmatize(low, lang="en")).casefold()


@lru_cache(maxsize=16_384)
def _words(text: str) -> tuple[str, ...]:
    found = (w.group() for w in _WORD.finditer(text))
    return tuple(lemma(w) for w in found if w.casefold() not in STOP_WORDS)


def words(text: str) -> list[str]:
    """Lower-case lemmas of a text in order, stop words left out."""
    return list(_words(text))


@lru_cache(maxsize=32_768)
def identifier_words(name: str) -> tuple[str, ...]:
    """The words of a column or table name, abbreviations written out: ``CustQty`` is ``("customer", "quantity")``."""
    parts: list[str] = []
    for piece in _SPLIT.split(name):
        if piece:
            parts.extend([piece] if piece.isupper() else _CAMEL.split(piece))
    out: list[str] = []
    for part in parts:
        low = part.casefold()
        out.extend(_compound(ABBREVIATIONS.get(low, low)))
    return tuple(lemma(w) for w in out)


def _compound(word: str) -> tuple[str, ...]:
    if word in _ALIAS:
        return _ALIAS[word]
    if word in _WHOLE:
        return (word,)
    for suffix in _SUFFIXES:
        head = word.removesuffix(suffix)
        if head != word and (head in _SHORT_HEADS or (len(head) > 3 and is_known(head, lang="en"))):
            return (head, suffix)
    return (word,)


@lru_cache(maxsize=65_536)
def word_similarity(left: str, right: str) -> float:
    """Likeness of two lemmas in 0-1: 1 the same, 0.9 synonyms, 0.8 one spelling of the other, 0 unrelated."""
    if left == right:
        return 1.0
    if _GROUPS.get(left, frozenset()) & _GROUPS.get(right, frozenset()):
        return 0.9
    short, long = sorted((left, right), key=len)
    if len(short) >= 4 and long.startswith(short) and len(long) - len(short) <= 7:
        return 0.8
    if len(short) >= 5 and short[0] == long[0] and JaroWinkler.normalized_similarity(short, long) >= 0.93:
        return 0.8
    return 0.0


@lru_cache(maxsize=65_536)
def _column_words(name: str) -> tuple[str, ...]:
    text = name.casefold() if "(" in name else name
    parts = [w for w in identifier_words(text) if w not in ("the", "of", "a", "an", "is", "has")]
    if len(parts) > 1 and parts[-1] in ("at", "on"):
        parts[-1] = "date"  # created_at, paid_on
    if len(parts) > 1 and "sign" in parts and "up" in parts:
        parts = ["signup", *(p for p in parts if p not in ("sign", "up"))]
    return tuple(p for p in parts if len(parts) == 1 or p not in STOP_WORDS or p in ("no", "all")) or tuple(parts)


@lru_cache(maxsize=131_072)
def _name_similarity(left: str, right: str) -> float:
    if left == right:
        return 1.0
    a, b = _column_words(left), _column_words(right)
    if not a or not b:
        return 0.0
    if set(a) == set(b) or "".join(a) == "".join(b):
        return 1.0
    forward, loose_a = _coverage(a, b)
    backward, loose_b = _coverage(b, a)
    score = 0.6 * max(forward, backward) + 0.4 * min(forward, backward)
    if loose_a and loose_b:
        score *= 0.5  # each side names something that the other does not: first_name, last_name
    return round(score, 3) if score >= 0.3 else 0.0


def _coverage(left: tuple[str, ...], right: tuple[str, ...]) -> tuple[float, bool]:
    total = got = 0.0
    loose = False
    for word in left:
        weight = 0.4 if word in GENERIC_WORDS and len(left) > 1 else 1.0
        best = max(word_similarity(word, other) for other in right)
        total += weight
        got += weight * best
        loose = loose or (best == 0.0)
    return got / total, loose


def column_similarity(phrase: Column, column: Column) -> float:
    """Likeness of two columns, or of a phrase and a column, in 0-1.

    1: the same words. Above 0.85: synonyms or one generic word more (``customer``, ``customer_id``). About 0.7: one contains
    the other (``date``, ``order_date``). Below 0.5: some word in common. 0: unrelated. A date part is like its
    column, and like a
    column that is called after the part.
    """
    if isinstance(phrase, str) and isinstance(column, str):
        return _name_similarity(phrase, column)
    if isinstance(phrase, str):
        return column_similarity(column, phrase)
    unit = phrase.part if isinstance(phrase, DatePart) else phrase.unit
    base = phrase.column
    if isinstance(column, str):
        return max(0.95 * _name_similarity(base, column), 0.9 * _name_similarity(unit, column))
    other = column.part if isinstance(column, DatePart) else column.unit
    alike = 1.0 if unit == other else 0.6
    kin = 1.0 if isinstance(phrase, DatePart) == isinstance(column, DatePart) else 0.9
    return alike * kin * _name_similarity(base, column.column)


def same_concept(left: str, right: str) -> bool:
    """Whether two words or names are the same or synonyms, word by word."""
    return _name_similarity(left, right) >= 0.85


# --- values -------------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=16_384)
def attribute_groups(value: str) -> tuple[str, ...]:
    """The kinds of attribute that a value word belongs to; more than one means that it is ambiguous."""
    low = " ".join(value.casefold().replace("_", " ").split())
    found = VALUE_ATTRIBUTES.get(low)
    if found is None and " " not in low and low.endswith("s"):
        found = VALUE_ATTRIBUTES.get(lemma(low))
    return found or ()


@lru_cache(maxsize=16_384)
def attribute_of(value: str) -> tuple[str, ...]:
    """Column names that a value usually stands under, the likeliest first; empty where nothing is known.

    ``open`` gives ``("status", "state")``, ``Kenya`` gives ``("country", "nation", "nationality", "citizenship")``.
    """
    low = " ".join(value.casefold().split())
    names: list[str] = []
    for group in attribute_groups(value):
        known = ATTRIBUTES[group]
        if group == "country" and low in DEMONYMS:
            known = ("nationality", "country", "citizenship", "nation")
        names.extend(n for n in known if n not in names)
    return tuple(names)


def is_country(value: str) -> bool:
    """Whether a text is the English name of a country."""
    return " ".join(value.casefold().split()) in COUNTRIES


@lru_cache(maxsize=4_096)
def number_of(word: str) -> int | None:
    """The number that one English word stands for, up to a million; None for other words."""
    low = word.casefold()
    if low in _NUMBER_WORDS:
        return _NUMBER_WORDS[low]
    tens, dash, ones = low.partition("-")
    if (
        dash
        and tens in _NUMBER_WORDS
        and ones in _NUMBER_WORDS
        and 20 <= _NUMBER_WORDS[tens] < 100
        and _NUMBER_WORDS[ones] < 10
    ):
        return _NUMBER_WORDS[tens] + _NUMBER_WORDS[ones]
    return None


@lru_cache(maxsize=32_768)
def value_key(text: str) -> str:
    """One spelling for values that mean the same: folded, singular, countries for their peoples, figures for number words."""
    low = " ".join(unicodedata.normalize("NFKC", text).casefold().replace("_", " ").split()).strip(" .,;")
    low = VALUE_SPELLINGS.get(low, low)
    number = number_of(low)
    if number is not None:
        return str(number)
    try:
        figure = float(low.replace(",", "")) if low[:1].isdigit() or low[:1] in "-+." else None
    except ValueError:
        figure = None
    if figure is not None and math.isfinite(figure) and not (len(low) > 1 and low[0] == "0" and low[1].isdigit()):
        return _figure(figure)
    if any(c.isdigit() for c in low):
        return low
    return " ".join(VALUE_SPELLINGS.get(w, w) for w in (lemma(p) for p in low.replace("-", " ").split()))


def same_value(left: object, right: object) -> bool:
    """Whether two constants mean the same: case, spacing, plural, number words, yes/true and peoples of countries are let pass.

    A code with a leading zero equals only itself; true and 1 are not the same here.
    """
    if left is None or right is None:
        return left is right
    return _key(left) == _key(right)


def _key(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return _figure(value)
    return value_key(str(value))


def _figure(number: float) -> str:
    return str(int(number)) if abs(number) < 1e15 and number == int(number) else repr(number)


def base_column(column: Column) -> str:
    """The plain column under a date part or truncation."""
    return column.column if isinstance(column, DatePart | DateTrunc) else column
