"""Clauses that explain a question: "X refers to col = 'v'", "rate = `a` / `b`", "A15 stands for …", "(event_name app_open)"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache

from stef_core.lexicon import words
from stef_core.records import Hint, Value

MAX_EVIDENCE, MAX_CLAUSES, MAX_CLAUSE = (
    8_000,
    60,
    400,
)  # characters, clauses, characters: patterns look back and forth in a clause

# a word or a gap is tried at its first character alone, as from each one it would take the square of its length
_NAME = r"""(?:`[^`]{1,80}`|"[A-Za-z_][\w ./%()-]{0,80}"|(?<![\w.])[A-Za-z_][\w.]*)"""
_LITERAL = r"""(?:'(?:[^']|'(?=\w))*'|"[^"]*"|‘[^’]*’|[-+]?\d[\d,]*(?:\.\d+)?%?|[A-Za-z_][\w-]*)"""
_OPERATOR = (
    r"(?:<=|>=|!=|<>|==|=|<|>|\bNOT\s+LIKE\b|\bLIKE\b|\bIS\s+NOT\s+NULL\b|\bIS\s+NULL\b|\bNOT\s+IN\b|\bIN\b|\bBETWEEN\b)"
)
_NULL = re.compile(rf"(?P<col>{_NAME})\s+(?P<op>IS\s+NOT\s+NULL|IS\s+NULL)\b", re.IGNORECASE)
_LIST = re.compile(
    rf"(?P<col>{_NAME})\s+(?P<op>NOT\s+IN|IN)\s*+(?:\(\s*+)?(?P<list>{_LITERAL}(?:\s*,\s*{_LITERAL})+)\s*\)?", re.IGNORECASE
)
_RANGE = re.compile(rf"(?P<col>{_NAME})\s+BETWEEN\s+(?P<low>{_LITERAL})\s+AND\s+(?P<high>{_LITERAL})", re.IGNORECASE)
_CALL = re.compile(
    rf"(?P<func>(?<!\w)[A-Za-z]\w*)\s*\(\s*(?P<col>{_NAME})\s*\)\s*(?P<op><=|>=|!\s?=|<>|==|=|<|>)\s*(?P<value>{_LITERAL})",
    re.IGNORECASE,
)
_COMPARE = re.compile(
    rf"(?P<col>{_NAME})\s*(?P<op><\s?=|>\s?=|!\s?=|<>|==|=|<|>|\bNOT\s+LIKE\b|\bLIKE\b)\s*(?P<value>{_LITERAL})(?![\w(.])",
    re.IGNORECASE,
)
_SPLIT = re.compile(r";|\n|(?<=[\w'\"`)]{2})\.\s+(?=[A-Z`'\"])|,\s+(?=[^,;]{1,60}?\s(?:refers?\s+to|stands\s+for|means?)\s)")
_VERB = re.compile(
    r"(?<!\s)\s+(?:refers?\s+to|referes\s+to|refer|stands?\s+for|means?(?:\s+that)?|represents?|denotes?|indicates?|implies|signifies|"
    r"corresponds?\s+to|is\s+(?:the\s+same\s+as|defined\s+as|calculated\s+as|equal\s+to))\s*:?\s+",
    re.IGNORECASE,
)
_IS = re.compile(r"(?<!\s)\s+(?:is|are)\s+(?:the\s+|a\s+|an\s+)?", re.IGNORECASE)
_AGGREGATE = re.compile(r"\b(MAX|MIN|COUNT|SUM|AVG)\s*\(", re.IGNORECASE)
_ARITHMETIC = re.compile(
    r"\b(?:DIVIDE|MULTIPLY|SUBTRACT|ADD)\s*\(|[\w`)\]]\s*[/*]\s*[\w`(]|[\w`)]\s+[-+]\s+[\w`(]", re.IGNORECASE
)
_BARE = re.compile(rf"^{_NAME}$")
_NAMING = re.compile(r"(?:full\s+|first\s+|last\s+)?(?:name|title|id|code|surname)\b", re.IGNORECASE)
_STRFTIME = re.compile(
    rf"strftime\s*\(\s*'%(?P<part>[Ymd])'\s*,\s*(?P<col>{_NAME})\s*\)\s*(?P<op>[<>!]?\s?=|[<>])\s*(?P<value>{_LITERAL})"
)
_SAYING = frozenset(("refer", "mean", "stand", "represent", "denote", "indicate", "imply", "name", "value"))
_QUOTES = "'\"`‘’"
_DATE_PART = {"year": "year", "month": "month", "day": "day"}
_STOP_COLUMNS = frozenset("and or not where when if then the of in is to a an as with by for from than".split())


def read_hints(text: str, question: str) -> tuple[Hint, ...]:
    """The clauses of an explanation.

    Args:
        text: Evidence, or the bracketed part of a question.
        question: The question it explains; a clause whose phrase shares no lemma with it is not relevant.
    """
    if not text or not text.strip():
        return ()
    asked = frozenset(words(question))
    out: list[Hint] = []
    for clause in _pieces(text[:MAX_EVIDENCE])[:MAX_CLAUSES]:
        clause = " ".join(clause.split()).strip(" .,;")[:MAX_CLAUSE]
        if clause:
            out.extend(_clause(clause, asked))
    known = asked.union(*(words(h.text) for h in out if h.relevant)) - _SAYING
    return tuple(dict.fromkeys(h if h.relevant or known.isdisjoint(words(h.text)) else replace(h, relevant=True) for h in out))


def _pieces(text: str) -> list[str]:
    """The clauses of a text; a separator inside double quotes separates nothing."""
    out: list[str] = []
    for piece in _SPLIT.split(text):
        if out and out[-1].count('"') % 2:
            out[-1] += f", {piece}"
        else:
            out.append(piece)
    return out


def _clause(clause: str, asked: frozenset[str]) -> Iterable[Hint]:
    verb = _VERB.search(clause)
    if verb:
        left, right = clause[: verb.start()].strip(), clause[verb.end() :].strip()
        if _COMPARE.search(left) or _NULL.search(left):
            left, right = right, left  # "label = '+' means carcinogenic"
        elif (
            _is_column(left)
            and not _COMPARE.search(right)
            and not _is_column(right)
            and verb.group().strip().startswith("stand")
        ):
            left, right = right, left  # "A15 stands for the number of crimes"
        return _explained(left, right, clause, asked)
    statement = _IS.search(clause)
    if statement and not _COMPARE.search(clause):
        left, right = clause[: statement.start()].strip(), clause[statement.end() :].strip()
        named = left[:1].isupper() and _NAMING.match(right)
        if left[:1] in _QUOTES or left[-1:] in _QUOTES or any(c.isdigit() for c in left) or named:
            column = right.split(" of ")[0].strip(_QUOTES)
            if len(column) <= 60:
                return [_hint(left.strip(_QUOTES), asked, clause, column=_column(column), op="=", value=_value(left))]
        return _explained(left, right, clause, asked)
    equals = re.match(r"^([^=<>!'\"`]{3,80}?)\s=\s(.+)$", clause)
    if equals and (_ARITHMETIC.search(equals[2]) or _AGGREGATE.search(equals[2]) or " " in equals[1].strip()):
        if not _plain_literal(equals[2]):
            return _explained(equals[1].strip(), equals[2].strip(), clause, asked)
        return [_hint(equals[1].strip(), asked, clause, column=_column(equals[1]), op="=", value=_value(equals[2].strip()))]
    return _explained("", clause, clause, asked)


def _explained(phrase: str, meaning: str, clause: str, asked: frozenset[str]) -> list[Hint]:
    out: list[Hint] = []
    arithmetic = bool(_ARITHMETIC.search(meaning))
    aggregate = _AGGREGATE.search(meaning)
    if arithmetic or aggregate:
        func = aggregate.group(1).lower() if aggregate else None
        inside = (
            re.search(rf"\(\s*(?:DISTINCT\s+)?({_NAME})", meaning[aggregate.start() :], re.IGNORECASE) if aggregate else None
        )
        column = _column(inside.group(1)) if inside and not arithmetic else None
        comparison = re.search(r"\)\s*(<=|>=|!=|<>|=|<|>)\s*([-+]?\d[\d,]*(?:\.\d+)?)\s*$", meaning)
        op = _op(comparison.group(1)) if comparison and not arithmetic else None
        value = _value(comparison.group(2)) if comparison and op else None
        out.append(
            _hint(phrase, asked, clause, column=column, op=op, value=value, agg=func, expression=" ".join(meaning.split()))
        )
        if arithmetic or op:
            return out
    taken: list[tuple[int, int]] = []

    def free(match: re.Match[str]) -> bool:
        return not any(match.start() < b and a < match.end() for a, b in taken)

    for match in _STRFTIME.finditer(meaning):
        taken.append(match.span())
        part = {"Y": "year", "m": "month", "d": "day"}[match["part"]]
        column, value = _column(match["col"]), _value(match["value"].strip(_QUOTES))
        out.append(
            _hint(phrase, asked, clause, column=column, op=_op(match["op"]), value=value, expression=f"{part}({column})")
        )
    for pattern in (_NULL, _RANGE, _LIST, _CALL, _COMPARE):
        for match in pattern.finditer(meaning):
            column = _column(match["col"])
            if not free(match) or column in _STOP_COLUMNS:
                continue
            taken.append(match.span())
            found = match.groupdict()
            if pattern is _NULL:
                op, value = ("is_not_null" if "not" in match["op"].lower() else "is_null"), None
            elif pattern is _RANGE:
                op, value = "between", (_value(found["low"]), _value(found["high"]))
            elif pattern is _LIST:
                items = tuple(_value(v) for v in re.findall(_LITERAL, found["list"]))
                op, value = ("not_in" if "not" in match["op"].lower() else "in"), items
            else:
                op, value = _op(match["op"]), _value(found["value"])
            expression = None
            if pattern is _CALL:
                expression = " ".join(match.group().split())
                if match["func"].lower() in _DATE_PART:
                    expression = f"{match['func'].lower()}({column})"
            if isinstance(value, str) and pattern is _COMPARE and _names_column(found["value"]):
                expression, op, value = " ".join(match.group().split()), None, None  # one column equal to another
            out.append(_hint(phrase, asked, clause, column=column, op=op, value=value, expression=expression))
    if out:
        return out
    bare = meaning.strip(" .")
    listed = re.split(r"(?<!\s)\s*(?:,|\band\b|\bor\b)\s*", bare)
    if 1 < len(listed) <= 6 and all(_BARE.match(p.strip()) for p in listed):
        return [_hint(phrase, asked, clause, column=_column(p)) for p in listed]
    if _is_column(bare) or (len(bare.split()) <= 3 and re.fullmatch(r"[\w .`]+", bare)):
        return [_hint(phrase, asked, clause, column=_column(bare))]
    return [_hint(phrase, asked, clause, expression=None)] if phrase else [_hint(clause, asked, clause)]


def _hint(
    phrase: str,
    asked: frozenset[str],
    clause: str,
    *,
    column: str | None = None,
    op: str | None = None,
    value: Value = None,
    agg: str | None = None,
    expression: str | None = None,
) -> Hint:
    said = frozenset(words(phrase)) or frozenset(words(clause))
    return Hint(
        phrase=phrase,
        column=column or None,
        op=op,
        value=value,
        agg=agg,
        expression=expression,
        text=clause,
        relevant=bool(said & asked) or not said,
    )


def _is_column(text: str) -> bool:
    text = text.strip()
    return bool(_BARE.match(text)) and (
        text[:1] in "`" or "_" in text or any(c.isdigit() for c in text) or text != text.lower()
    )


def _names_column(literal: str) -> bool:
    return bool(re.fullmatch(r"[A-Za-z_]\w*", literal)) and ("_" in literal or literal.lower() in ("id",))


def _plain_literal(text: str) -> bool:
    return bool(re.fullmatch(_LITERAL, text.strip()))


@lru_cache(maxsize=8_192)
def _column(text: str) -> str:
    bare = text.strip().strip(_QUOTES).split("(")[0].strip()
    if "." in bare and " " not in bare:
        bare = bare.rsplit(".", 1)[1]
    return "_".join(bare.casefold().split()) if "`" not in text and '"' not in text else " ".join(bare.casefold().split())


def _op(text: str) -> str:
    low = "".join(text.split()).lower() if text[:1] in "<>!=" else "_".join(text.lower().split())
    return {"<>": "!=", "==": "="}.get(low, low)


def _value(text: str) -> Value:
    text = text.strip()
    bare = text.strip(_QUOTES)
    plain = bare.replace(",", "").rstrip("%")
    if text[:1] not in _QUOTES or re.fullmatch(r"-?\d+(\.\d+)?", bare):
        try:
            figure = float(plain)
        except ValueError:
            return " ".join(bare.casefold().split())
        if len(plain) > 1 and plain[0] == "0" and plain[1] != ".":
            return plain
        return int(figure) if figure.is_integer() and abs(figure) < 1e15 else figure
    return " ".join(bare.casefold().split())


def bracket_hints(contents: list[str], question: str) -> tuple[Hint, ...]:
    """Pairs in round brackets: "(event_name app_open, platform android)", "(stock quantity 0)", "(no payment date)"."""
    out: list[Hint] = []
    for content in contents:
        for part in re.split(r"\s*[,;]\s*", content):
            hint = _pair(part.strip())
            if hint is not None:
                out.append(hint)
            elif _COMPARE.search(part) or _VERB.search(part):
                out.extend(read_hints(part, question))
    return tuple(out)


def _pair(part: str) -> Hint | None:
    absent = re.fullmatch(r"(?:no|without(?: an?)?|missing)\s+([A-Za-z][\w ]{1,40})", part, re.IGNORECASE)
    if absent:
        return Hint(phrase=part, column=_column(absent[1]), op="is_null", text=part)
    pieces = part.split()
    if len(pieces) < 2 or len(pieces) > 4 or not all(re.fullmatch(r"[\w.'\"-]+", p) for p in pieces):
        return None
    value = pieces[-1]
    column = " ".join(pieces[:-1])
    snake = "_" in column or "_" in value
    figure = re.fullmatch(r"-?\d+(\.\d+)?", value)
    if not (snake or figure) and len(pieces) != 2:
        return None
    if not (snake or figure or value[:1] in _QUOTES):
        return None
    if re.match(r"(?i)(in|of|the|at|from|since|before|after|over|under|about|between|to|by|for|with)\b", column):
        return None
    return Hint(phrase=part, column=_column(column), op="=", value=_value(value), text=part)
