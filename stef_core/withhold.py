"""What of a statement a model is shown: no comment, and no literal or name that addresses the reader of the statement."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from stef_core.dialects import dialect_of, sqlglot_dialect
from stef_core.extract.sql import REMEMBERED
from stef_core.extract.sql_text import unpack
from stef_core.injection import suspected, suspected_name, visible

_TEXTS = frozenset(t for t in TokenType if t.name.endswith("STRING") and t.name not in ("BIT_STRING", "HEX_STRING"))
_NAMES = frozenset({TokenType.IDENTIFIER, TokenType.VAR})
_WRITTEN = _TEXTS | _NAMES
_PAIRING = frozenset({TokenType.EQ, TokenType.ALIAS})
PLAIN_MAX, PLAIN_WORDS, PLAIN_LETTERS = 120, 12, 11  # what may stand in a literal as it is; letters of a word without a message
PIECES_MAX = 200  # from which on they are not looked for one by one
_OURS = frozenset("filter_status enrichment parse_status reader code dimension severity stage op".split())
_PLACEHOLDER = re.compile(r"\[withheld \d+, \d+ characters\]")
_VERDICT = re.compile(r"\W*(?:verdict|confidence)\W*", re.IGNORECASE)
_ANSWER = re.compile(r"\W*(?:verdict|grade|confidence|reasons)\W*", re.IGNORECASE)  # keys of a judge's answer
# quoted text (kept) or a comment (not); for SQL that the tokenizer of its dialect does not read
_PIECES = re.compile(r"('(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`)|--[^\n]*|/\*.*?(?:\*/|\Z)", re.DOTALL)


@dataclass(frozen=True)
class Withheld:
    """The literals and names of one statement that are not shown."""

    pieces: tuple[str, ...] = ()

    def text(self, text: str) -> str:
        """A text with every piece replaced, and replaced as a whole where it still addresses the reader.

        Where there are very many pieces, no text with room for a message is looked at: all are replaced.
        """
        if len(self.pieces) > PIECES_MAX:
            return f"[withheld, {len(text)} characters]" if _speaks(text) else text
        if self._pattern is not None:
            text = self._pattern.sub(lambda match: self._placeholder(match.group()), text)
        return f"[withheld, {len(text)} characters]" if _speaks(text) and suspected_name(text) else text

    def json(self, data: Any) -> Any:
        """A JSON value with its strings as `text` gives them; keys stay, and so do words that no author of a row chooses."""
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, list | tuple):
            return [self.json(item) for item in data]
        if isinstance(data, Mapping):
            return {key: value if key in _OURS and isinstance(value, str) else self.json(value) for key, value in data.items()}
        return data

    def token(self, token: Token, piece: str) -> str:
        """A token of the statement, `piece` as it is written; equal texts have equal placeholders, and it still parses."""
        if token.token_type in _TEXTS and _folded(token.text) in self._numbers:
            return f"'{self._placeholder(token.text)}'"
        if token.token_type in _NAMES and _folded(token.text) in self._numbers:
            quote = "" if piece == token.text else piece[0]
            return f"{quote}withheld_{self._numbers[_folded(token.text)]}{quote.replace('[', ']')}"
        return piece

    def _placeholder(self, piece: str) -> str:
        number = self._numbers.get(_folded(piece))
        return piece if number is None else f"[withheld {number}, {len(self.pieces[number - 1])} characters]"

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {_folded(piece): number for number, piece in reversed(list(enumerate(self.pieces, 1)))}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        forms = {form for piece in self.pieces for form in (piece, unicodedata.normalize("NFKC", piece)) if form.strip()}
        if not forms:
            return None
        ordered = sorted(forms, key=lambda form: (-len(form), form))
        bodies = [r"\s+".join(re.escape(word) for word in form.split()) for form in ordered]
        return re.compile(r"(?<!\w)(?:" + "|".join(bodies) + r")(?!\w)", re.IGNORECASE)


def without_comments(sql: str, dialect: str | None = None) -> str:
    """SQL without its comments and hints, otherwise as written; a markdown fence and the prose around it go too."""
    sql = visible(unpack(sql).sql)
    tokens = _tokens(sql, dialect)
    if tokens is None:
        return _PIECES.sub(lambda match: match.group(1) or " ", sql).strip()
    return _written(sql, tokens, lambda _, piece: piece)


def shown_statement(sql: str, dialect: str | None, shown: Iterable[str | None] = ()) -> tuple[str, Withheld]:
    """A statement as a model may see it.

    Args:
        sql: The text as the agent wrote it.
        dialect: sqlglot's name of its dialect, or one that logs use.
        shown: Texts that the model sees anyway; a long literal that stands in one of them is no secret.

    Returns:
        The statement without comments, and what was withheld of it: what addresses the reader, and literals that are prose.
    """
    bare = visible(unpack(sql).sql)
    tokens = _tokens(bare, dialect)
    if tokens is None:
        stripped = without_comments(sql, dialect)
        pieces = [match.group(1)[1:-1] for match in _PIECES.finditer(stripped) if match.group(1)]
        held = Withheld(tuple(dict.fromkeys(p for p in pieces if suspected_name(p) or _is_prose(p))))
        return held.text(stripped), held
    known = _known(shown)
    held = Withheld(tuple(dict.fromkeys((*_addressing(tokens, known), *_prose(tokens, known)))))
    return _written(bare, tokens, held.token), held


def disarmed(sql: str | None, dialect: str | None, shown: Iterable[str | None] = ()) -> str | None:
    """The statement with placeholders for what addresses its reader, comments left out; None where nothing does.

    Args:
        sql: The text as the agent wrote it.
        dialect: sqlglot's name of its dialect, or one that logs use.
        shown: What is asked; a literal that stands there is a value, whatever it makes with others.
    """
    bare = visible(unpack(sql or "").sql)
    tokens = _tokens(bare, dialect)
    held = Withheld(tuple(dict.fromkeys(_addressing(tokens, _known(shown))))) if tokens else Withheld()
    return _written(bare, tokens, held.token) if tokens and held.pieces else None


def is_placeholder(text: str) -> bool:
    """Whether a literal stands for one that is withheld."""
    return _PLACEHOLDER.fullmatch(text) is not None


def addressed(sql: str | None, dialect: str | None) -> Sequence[tuple[str, str]]:
    """Where a statement addresses the evaluator: the place, and what stands there on one line.

    Args:
        sql: The text as the agent wrote it.
        dialect: sqlglot's name of its dialect, or one that logs use.
    """
    if not sql:
        return ()
    return _addressed_once(sql, dialect) if len(sql) <= REMEMBERED else tuple(_addressed(sql, dialect))


@lru_cache(maxsize=4_096)
def _addressed_once(sql: str, dialect: str | None) -> tuple[tuple[str, str], ...]:
    return tuple(_addressed(sql, dialect))


def _addressed(sql: str, dialect: str | None) -> Iterator[tuple[str, str]]:
    bare = unpack(sql).sql
    tokens = _tokens(bare, dialect)
    around = sql.replace(bare, " ") if "```" in sql else ""
    if tokens is None:
        if suspected(sql):
            yield "the SQL", _line(sql)
        return
    remarks = [*_remarks(bare, tokens), *([around] if around.strip() else ())]
    if told := [remark for remark in remarks if suspected(remark)]:
        yield "a comment of the SQL", _line(" ".join(told))
    found = list(dict.fromkeys(_addressing(tokens)))
    texts = {token.text for token in tokens if token.token_type in _TEXTS} if found else set()
    literals, names = [p for p in found if p in texts], [p for p in found if p not in texts]
    if literals:
        yield "a literal of the SQL", _line(" ".join(literals))
    if names:
        yield "a name in the SQL", _line(", ".join(names))


def _addressing(tokens: list[Token], known: Sequence[str] = ()) -> Iterator[str]:
    """Literals and names that address the reader: alone, put together, or as a pair of name and value."""
    written = [token for token in tokens if token.token_type in _WRITTEN]
    texts = [token.text for token in written if token.token_type in _TEXTS]
    alone = {token.text for token in written if _speaks(token.text) and suspected_name(token.text)}
    if alone:
        yield from (token.text for token in tokens if token.text in alone)
    if len(texts) > 1 and not alone & set(texts) and any(suspected(joint.join(texts)) for joint in ("", " ")):
        yield from (text for text in texts if not any(_folded(text) in other for other in known))
    paired = False
    for value, sign, name in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if sign.token_type not in _PAIRING:
            continue
        if sign.token_type == TokenType.EQ:
            if not _VERDICT.fullmatch(value.text):
                continue
            value, name = name, value
        if value.text in alone or value.token_type not in _TEXTS | {TokenType.NUMBER}:
            continue
        if suspected_name(f"{name.text}: {value.text}"):
            paired = True
            yield name.text
            if value.token_type in _TEXTS:
                yield value.text
    if paired:
        yield from (t.text for t in tokens if t.token_type in _NAMES and _ANSWER.fullmatch(t.text))


def _known(shown: Iterable[str | None]) -> list[str]:
    return [_folded(text) for text in shown if text]


def _prose(tokens: list[Token], known: Sequence[str]) -> Iterator[str]:
    for token in tokens:
        if token.token_type in _TEXTS or (token.token_type == TokenType.IDENTIFIER and len(token.text) > 1):
            text = token.text
            if _is_prose(text) and not any(_folded(text).strip("%") in other for other in known):
                yield text


def _is_prose(text: str) -> bool:
    braced = re.search(r"[{}]", text) is not None and re.search(r"\s|:", text) is not None
    return "\n" in text.strip() or braced or len(text) > PLAIN_MAX or len(text.split()) > PLAIN_WORDS


def _speaks(text: str) -> bool:
    """Whether a piece has room for a message; one short word has not."""
    return len(text) > PLAIN_LETTERS or not text.isascii() or not text.isalnum()


def _remarks(sql: str, tokens: list[Token]) -> Iterator[str]:
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        if gap.strip():
            yield gap
        if token.token_type == TokenType.HINT:
            yield sql[token.start : token.end + 1]
        end = token.end + 1
    if sql[end:].strip():
        yield sql[end:]


def _written(sql: str, tokens: list[Token], piece_of: Callable[[Token, str], str]) -> str:
    out: list[str] = []
    end = 0
    for token in tokens:
        gap = sql[end : token.start]
        piece = sql[token.start : token.end + 1]
        out += [" " if gap.strip() else gap, " " if token.token_type == TokenType.HINT else piece_of(token, piece)]
        end = token.end + 1
    return "".join(out).strip()


def _tokens(sql: str, dialect: str | None) -> list[Token] | None:
    try:
        return dialect_of(sqlglot_dialect(dialect)).tokenize(sql)
    except (SqlglotError, ValueError):
        return None


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _line(text: str) -> str:
    return " ".join(visible(text).split())
