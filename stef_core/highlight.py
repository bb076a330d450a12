"""Where a question and its SQL part: the places of a text that its findings speak of."""

from __future__ import annotations

import re
from collections.abc import Iterable

PLACES = 12  # a text all of marks shows nothing
_LONGEST_PART, _MOST_TOKENS, _MOST_WORDS = 300, 24, 4
_TOKEN = re.compile(r"<=|>=|<>|!=|\w+|[^\w\s]")
_QUOTES = frozenset("'\"`[]")
_SAME_OPERATOR = {"≠": "<>", "!=": "<>", "≤": "<=", "≥": ">="}
_OPERATORS = {"<>": r"(?:<>|!=|≠)", "<=": r"(?:<=|≤)", ">=": r"(?:>=|≥)"}
# every count is bounded: texts come from strangers
_GAP = r"[\s\"'`\[\]]{0,8}"
_QUALIFIER = r"(?:\w{1,64}[\"`\]]?\s?\.\s?[\"`\[]?)?"
_CALL = re.compile(r"(?<!\w)\w+(?=\s?\()")
_IDLE = frozenset(
    "a an and as asc at between by desc distinct each every exists for from group having in into is like limit not null of on "
    "or order per select some the to where with".split()
)


def places(text: str, parts: Iterable[str | None]) -> tuple[tuple[int, int], ...]:
    """The ranges of a text that hold parts of it, as findings name them.

    A part is looked for as it stands, whatever its case, spaces, quotes and table names; else the sides of its equation the
    other way round; else its names and values one by one. Each is marked where it first stands.

    Args:
        text: A question or SQL.
        parts: `Finding.question_part` or `Finding.sql_part` of its findings; None and unfound ones are left out.

    Returns:
        Disjoint half-open ranges, in order, at most `PLACES`.
    """
    found: list[tuple[int, int]] = []
    for part in dict.fromkeys(part for part in parts if part and part.strip()):
        found += _places_of(text, part.strip()[:_LONGEST_PART])
    return tuple(_merged(text, found)[:PLACES])


def _places_of(text: str, part: str) -> list[tuple[int, int]]:
    spelled = [token for token in _TOKEN.findall(part) if token not in _QUOTES][:_MOST_TOKENS]
    tokens = _unqualified(spelled)
    attempts = [spelled, tokens]
    if tokens.count("=") == 1:
        at = tokens.index("=")
        attempts.append([*tokens[at + 1 :], "=", *tokens[:at]])
    for attempt in attempts:
        if attempt and (match := re.search(_pattern(attempt), text, re.IGNORECASE)):
            return [match.span()]
    calls = {name.lower() for name in _CALL.findall(part)}
    words = [t for t in tokens if re.match(r"\w", t) and t.lower() not in _IDLE | calls and (len(t) > 1 or t.isdigit())]
    matches = (re.search(_pattern([word], ending=_ending(word)), text, re.IGNORECASE) for word in words[:_MOST_WORDS])
    return [match.span() for match in matches if match]


def _unqualified(tokens: list[str]) -> list[str]:
    """Tokens without the tables before columns: SQL may call them otherwise."""
    kept: list[str] = []
    for token in tokens:
        # t.column, but not 3.14
        if kept[-1:] == ["."] and len(kept) > 1 and re.match(r"[^\W\d]", token) and re.match(r"[^\W\d]", kept[-2]):
            del kept[-2:]
        kept.append(token)
    return kept


def _ending(word: str) -> str:
    """What may follow a word of the same meaning: dogs, ordered."""
    return r"\w{0,2}" if len(word) > 3 else "s?" if len(word) == 3 else ""


def _pattern(tokens: list[str], ending: str = "") -> str:
    words = [_OPERATORS.get(_SAME_OPERATOR.get(t, t)) or re.escape(t).replace("_", r"[\s_-]") for t in tokens]
    spelled = _GAP.join((_QUALIFIER if re.match(r"[^\W\d]", t) else "") + word for t, word in zip(tokens, words, strict=True))
    # scripts without spaces have no word ends to ask for
    start = r"(?<![A-Za-z0-9_])" if re.match(r"[A-Za-z0-9_]", tokens[0]) else ""
    end = r"(?![A-Za-z0-9_])" if re.search(r"[A-Za-z0-9_]$", tokens[-1]) else ""
    return f"{start}{spelled}{ending}{end}"


def _merged(text: str, ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(_closed(text, *each) for each in ranges):
        # 2026-01-02 and a.b are one place, though found word by word
        if merged and (start <= merged[-1][1] or re.fullmatch(r"[^\w\s]", text[merged[-1][1] : start])):
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _closed(text: str, start: int, end: int) -> tuple[int, int]:
    """A range with the quotes of the literals or names at its ends."""
    quote = text[end : end + 1]
    if quote not in _QUOTES:
        return start, end
    if text.count(quote, start, end) % 2:
        return start, end + 1
    return (start - 1, end + 1) if start and text[start - 1] == quote else (start, end)
