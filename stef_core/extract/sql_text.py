"""SQL as it comes out of a log: unpacked from fences and stray characters, measured before it is parsed."""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_CHARS = 1_000_000
MAX_DEPTH = 200
NUL_NOTE = "NUL bytes were removed"

_INVISIBLE = re.compile("[\ufeff\u200b\u200c\u200d\u2060\u00ad]")
_FENCE = re.compile(r"```[ \t]*+([A-Za-z0-9_+-]*+)[ \t]*+\r?\n?(.*?)```", re.S)
_TOKEN = re.compile(
    r"'(?:[^']|'')*'"
    r'|"(?:[^"]|"")*"'
    r"|`[^`]*`"
    r"|\$([A-Za-z_]*)\$.*?\$\1\$"
    r"|--[^\n]*"
    r"|/\*.*?\*/"
    r"|[()\[\]{}]"
    r"|\b(?:case|end)\b"
    r"|['\"`]|/\*",
    re.S | re.I,
)
_ESCAPED_PIECE = re.compile(_TOKEN.pattern.replace(r"'(?:[^']|'')*'", r"'(?:[^'\\]|\\.|'')*'"), re.S | re.I)
_COMMENT = re.compile(r"--[^\n]*|/\*.*?\*/", re.S)
_PREFIXES = re.compile(r"(?:(?:\bnot\b|[-+~!])\s*){150}", re.I)
# typographic characters that editors and models put for the plain ones
_REPAIRS = str.maketrans(
    {
        "‘": "'",
        "’": "'",
        "‚": "'",
        "′": "'",
        "“": '"',
        "”": '"',
        "„": '"',
        "，": ",",
        "；": ";",
        "（": "(",
        "）": ")",
        "＝": "=",
        "＜": "<",
        "＞": ">",
        "＊": "*",
        "．": ".",
        "：": ":",
        "＇": "'",
        "＂": '"',
        "–": "-",
        "—": "-",
        "−": "-",
        "≠": "<>",
        "≤": "<=",
        "≥": ">=",
        "\u00a0": " ",
        "\u2003": " ",
        "\u2002": " ",
        "\u2009": " ",
        "\u202f": " ",
        "\u3000": " ",
    }
)
_REPAIRABLE = re.compile("[" + "".join(re.escape(chr(c)) for c in _REPAIRS) + "]")
# a query may not end with one of these: what follows was cut off
_OPEN_END = re.compile(
    r"(?:\b(?:select|from|where|and|or|not|in|on|by|group|order|having|join|inner|outer|cross|like|ilike|between|as|with|union"
    r"|intersect|except|case|when|then|else|distinct|limit|offset|using|is|over|partition|set|qualify|window|interval|exists)"
    r"|[,=<>+\-/(.|%])\s*$",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """SQL without its packaging, and what was taken off."""

    sql: str
    notes: tuple[str, ...] = ()
    repaired: bool = False
    error: str | None = None  # more than one fenced block: which is meant cannot be told


@dataclass(frozen=True, slots=True)
class Shape:
    """What can be told of a text before it is parsed."""

    depth: int
    unclosed: str | None  # what was opened and never closed
    surplus: bool  # closes more parentheses than it opens


def unpack(text: str) -> Unpacked:
    """Strip one markdown fence, invisible characters, NUL bytes, comments at the ends and trailing semicolons."""
    notes: list[str] = []
    if "\x00" in text:
        text = text.replace("\x00", "")
        notes.append(NUL_NOTE)
    if not text.isascii():
        cleaned = _INVISIBLE.sub("", text)
        if cleaned != text:
            text = cleaned
            notes.append("invisible characters were removed")
    if "```" in text:
        blocks = _FENCE.findall(text)
        if len(blocks) > 1:
            return Unpacked(
                text, tuple(notes), error=f"there are {len(blocks)} fenced blocks, which of them is the query cannot be told"
            )
        if blocks:
            outside = _FENCE.sub("", text).strip()
            text = _block(*blocks[0])
            notes.append(
                "the query was taken out of the one fenced block in prose" if outside else "a markdown fence was removed"
            )
        elif text.lstrip().startswith("```"):
            text = re.sub(r"^\s*```[ \t]*(?:[A-Za-z0-9_+-]*[ \t]*\r?\n)?", "", text)
            notes.append("an unclosed markdown fence was removed")
        else:
            text = text.rstrip().removesuffix("```")
    text = text.strip()
    if len(text) > 2 and text[0] == text[-1] == "`" and re.match(r"`\s*(select|with)\b", text, re.I) and text.count("`") == 2:
        text = text[1:-1].strip()
        notes.append("backticks around the query were removed")
    repaired = False
    if not text.isascii():
        mended = mend(text)
        if mended != text:
            text, repaired = mended, True
            notes.append("typographic quotes or full-width punctuation were read as the plain characters")
    return Unpacked(text, tuple(notes), repaired)


def _block(language: str, body: str) -> str:
    # ```SELECT 1``` on one line: the word after the fence belongs to the query
    return f"{language} {body}" if language.lower() in ("select", "with") else body


def mend(text: str) -> str:
    """Typographic characters outside text literals and comments as the plain ones they stand for."""
    if not _REPAIRABLE.search(text):
        return text
    out: list[str] = []
    at = 0
    for match in _TOKEN.finditer(text):
        piece = match.group(0)
        if len(piece) > 1 and not piece[0].isalpha():
            out += [text[at : match.start()].translate(_REPAIRS), piece]
            at = match.end()
    out.append(text[at:].translate(_REPAIRS))
    return "".join(out)


def shape(sql: str, *, backslash: bool = False) -> Shape:
    """Nesting depth of brackets and CASE, and what stays open, outside literals and comments."""
    depth = deepest = cases = 0
    surplus = False
    unclosed: str | None = None
    for match in (_ESCAPED_PIECE if backslash else _TOKEN).finditer(sql):
        piece = match.group(0)
        if piece in "([{":
            depth += 1
        elif piece in ")]}":
            depth -= 1
            surplus = surplus or depth < 0
        elif piece in ("'", '"', "`", "/*"):
            unclosed = "a comment" if piece == "/*" else f"a literal opened with {piece}"
            break
        elif len(piece) == 4 and piece.lower() == "case":
            cases += 1
        elif len(piece) == 3 and piece.lower() == "end" and cases:
            cases -= 1
        deepest = max(deepest, depth + cases)
    if unclosed is None and depth > 0:
        unclosed = "a parenthesis"
    return Shape(deepest, unclosed, surplus)


def too_large(sql: str) -> str | None:
    """Why a text is not parsed at all, or None. Deep nesting would exhaust the parser's stack, which ends the process."""
    if len(sql) > MAX_CHARS:
        return f"the SQL is {len(sql):,} characters long; at most {MAX_CHARS:,} are read"
    opened = sql.count("(") + sql.count("[") + sql.count("{")
    if (opened > MAX_DEPTH or len(sql) > 4 * MAX_DEPTH) and (opened > MAX_DEPTH or sql.lower().count("case") > MAX_DEPTH):
        depth = shape(sql).depth
        if depth > MAX_DEPTH:
            return f"the SQL is nested {depth:,} levels deep; at most {MAX_DEPTH} are read"
    if len(sql) > 300 and _PREFIXES.search(without_comments(sql)):
        return f"the SQL has a run of more than {MAX_DEPTH * 3 // 4} prefix operators; that many are not read"
    return None


def without_comments(sql: str, *, backslash: bool = False) -> str:
    """The text without comments; literals are kept, those with escaped quotes too where a `backslash` escapes."""
    if "--" not in sql and "/*" not in sql:
        return sql
    out: list[str] = []
    at = 0
    for match in (_ESCAPED_PIECE if backslash else _TOKEN).finditer(sql):
        piece = match.group(0)
        if _COMMENT.fullmatch(piece):
            out.append(sql[at : match.start()])
            at = match.end()
    return " ".join([*out, sql[at:]])


def cut_off(sql: str, *, backslash: bool = False) -> str | None:
    """Why a text looks cut off in the middle, or None."""
    measured = shape(sql, backslash=backslash)
    if measured.unclosed:
        return f"the SQL breaks off: {measured.unclosed} is never closed"
    if measured.surplus:
        return "the SQL closes a parenthesis that it never opened"
    bare = without_comments(sql).rstrip().rstrip(";").rstrip()
    match = _OPEN_END.search(bare)
    if match and not re.search(r"\bgroup\s+by\s+all\s*$", bare, re.I):
        return f"the SQL breaks off after {match.group(0).strip()!r}"
    return None


_CLAUSE = re.compile(
    _TOKEN.pattern + r"|\bselect\b|\bunion\b|\bintersect\b|\bexcept\b|\bminus\b|\bjoin\b|\bwhere\b"
    r"|\bgroup\s+by\b|\bhaving\b|\border\s+by\b|\blimit\b|;",
    re.S | re.I,
)
_RANKS = {"join": 1, "where": 2, "group by": 3, "having": 4, "order by": 5, "limit": 6}
_STEMS = ("join", "where", "group", "having", "order", "limit")  # of the clauses, in the order of their ranks
_RESETS = frozenset({"select", "union", "intersect", "except", "minus", ";"})


def misplaced_clause(sql: str) -> str | None:
    """A clause after one that it must precede, as in ``WHERE … JOIN``; parsers forgive it, databases do not."""
    if sql.isascii() and _in_order(sql.lower()):
        return None
    ranks = [(0, "")]
    for match in _CLAUSE.finditer(sql):
        piece = match.group(0)
        if piece in "([{":
            ranks.append((0, ""))
        elif piece in ")]}":
            if len(ranks) > 1:
                ranks.pop()
        else:
            word = " ".join(piece.lower().split())
            if word in _RESETS:
                ranks[-1] = (0, "")
            rank = _RANKS.get(word)
            if rank is not None:
                if rank < ranks[-1][0]:
                    return f"{word.upper()} after {ranks[-1][1].upper()}"
                ranks[-1] = (rank, word)
    return None


def _in_order(low: str) -> bool:
    """Whether clauses stand in their order wherever they stand, as in most queries: then no level has to be looked at."""
    end = -1
    for stem in _STEMS:
        first = low.find(stem)
        if first >= 0:
            if first < end:
                return False
            end = low.rfind(stem)
    return True
