"""Tokens of a question: words with lemmas, numbers, dates, quoted strings and capitalised names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from stef_core.lexicon import lemma, number_of
from stef_core.vocabulary import STOP_WORDS

_TOKEN = re.compile(
    r"""(?P<plain>[A-DFH-TV-Za-z][\w@]*(?:[-'’./&:+](?=\w)[\w@]*)*)  # most words: begins as no other kind, no currency does
    | (?P<q>"[^"]{1,200}" | “[^”]{1,200}” | ‘[^’]{1,200}’(?!\w) | `[^`]{1,120}` | «[^»]{1,200}»
            | (?<![\w])'(?:[^']|'(?=\w)){1,200}'(?!\w))
    | (?P<t>\d{4}[-/]\d{1,2}[-/]\d{1,2}(?:[T ]\d{1,2}:\d{2}(?::\d{2})?(?:\.\d+)?)?(?![\w/-])
            | \d{1,2}/\d{1,2}/\d{4}(?:\ \d{1,2}:\d{2}(?::\d{2})?(?:\ [AP]M)?)?(?!\w))
    | (?P<n>(?<![\w.])[-−]?(?:[$€£]|USD|EUR|GBP)?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?
            (?:%|(?:st|nd|rd|th|k|K|M|bn|cm|kg|km|mm|lbs?|USD|EUR|usd|eur|hp|mph|GB|MB)\b|(?![\w]|-\w|[.:/]\d)))
    | (?P<w>(?:[@#]|(?<=\s)\.(?=[a-z]))?[^\W_][\w@]*(?:[-'’./&:+](?=\w)[\w@]*)*)
    | (?P<p><=|>=|!=|<>|[^\s\w])""",
    re.VERBOSE,
)
_NUMERO = re.compile(r"\b[Nn][or]\.\s*(?=\d)")
_FIGURE = re.compile(r"([-−]?)(?:[$€£]|USD|EUR|GBP)?([\d,]+(?:\.\d+)?)(%|st|nd|rd|th|k|K|M|bn|[A-Za-z]{2,3})?$")
_ALSO_NAMES = frozenset(("may", "us", "will"))  # function words that are names when capitalised
_SCALE = {"k": 1_000, "K": 1_000, "M": 1_000_000, "bn": 1_000_000_000}
_BIG = {"hundred": 100, "thousand": 1_000, "million": 1_000_000, "billion": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class Token:
    """One token. ``kind``: w word, n number, q quoted string, d date or period, p punctuation."""

    kind: str
    text: str
    low: str
    lemma: str
    value: object = None
    ordinal: bool = False
    spelled: bool = False  # a number in words
    capital: bool = False
    code: bool = False  # letters with digits or underscores, or figures that are no number


def tokenize(text: str) -> list[Token]:
    """Split a text into tokens; number words and figures both become numbers."""
    out: list[Token] = []
    for match in _TOKEN.finditer(_NUMERO.sub("number ", text)):
        kind, piece = match.lastgroup or "p", match.group()
        if kind in ("plain", "w"):
            out.append(_word(piece))
        elif kind == "n":
            out.append(_number(piece))
        elif kind == "q":
            inner = piece[1:-1].strip()
            out.append(
                Token("q", piece, inner.casefold(), inner.casefold(), value=inner) if inner else Token("p", piece, piece, piece)
            )
        elif kind == "t":
            out.append(Token("t", piece, piece, piece, value=piece))
        else:
            out.append(_sign(piece))
    return _join_numbers(out)


def _number(piece: str) -> Token:
    match = _FIGURE.match(piece)
    if match is None:
        return Token("w", piece, piece.casefold(), piece.casefold(), code=True)
    sign, digits, tail = match.groups()
    plain = digits.replace(",", "")
    if len(plain) > 1 and plain[0] == "0" and plain.isdigit():
        return Token("w", piece, piece, piece, code=True)  # a code, not a number
    figure: int | float = float(plain) if "." in plain else int(plain[:200])
    if tail in _SCALE:
        figure *= _SCALE[tail]
    if sign:
        figure = -figure
    return Token("n", piece, piece.casefold(), piece.casefold(), value=figure, ordinal=tail in ("st", "nd", "rd", "th"))


@lru_cache(maxsize=16_384)  # a log has few words: a question's tokens are mostly those of other questions
def _word(piece: str) -> Token:
    low = piece.casefold().replace("’", "'")
    low = low.removesuffix("'s") if low not in ("'s",) else low
    low = low.rstrip("'")
    code = any(c.isdigit() for c in low) or "_" in low or "@" in low
    capital = piece[0].isupper() and (low not in STOP_WORDS or low in _ALSO_NAMES)
    number = number_of(low)
    if number is not None and not capital:
        return Token("n", piece, low, low, value=number, spelled=True)
    return Token("w", piece, low, low if code else lemma(low), capital=capital, code=code)


@lru_cache(maxsize=1_024)
def _sign(piece: str) -> Token:
    return Token("p", piece, piece, piece)


def _join_numbers(tokens: list[Token]) -> list[Token]:
    out: list[Token] = []
    for token in tokens:
        last = out[-1] if out else None
        if last is not None and last.kind == "n" and isinstance(last.value, int | float) and not last.ordinal:
            scale = _BIG.get(token.low)
            if scale and token.kind in ("n", "w") and abs(last.value) < 1e15:
                out[-1] = Token("n", f"{last.text} {token.text}", last.low, last.lemma, value=last.value * scale)
                continue
            if (
                token.kind == "n"
                and token.spelled
                and last.spelled
                and isinstance(token.value, int)
                and last.value >= 20 > token.value
            ):
                total = last.value + token.value
                out[-1] = Token("n", f"{last.text} {token.text}", last.low, last.lemma, value=total, spelled=True)
                continue
        out.append(token)
    return out


def is_content(token: Token) -> bool:
    """Whether a token is a word that says something."""
    return token.kind == "w" and token.low not in STOP_WORDS
