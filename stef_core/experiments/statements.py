"""SQL as text with its tokens marked: statements told apart, and the order and limit of a query found.

Nothing here writes SQL anew from a tree: what reaches a database is the author's text, or a cut of it, with its quotes and
letters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType

from stef_core.dialects import sqlglot_dialect
from stef_core.extract.sql_text import MAX_CHARS, too_large

KEY_NAME = "stef_order_key"

_QUERY_STARTS = frozenset({"SELECT", "WITH", "VALUES", "FROM", "TABLE"})
_WRITES = (exp.Insert, exp.Update, exp.Delete, exp.Merge, exp.Create, exp.Drop, exp.Alter, exp.Command, exp.Into)
_WRITE_WORDS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE"})
_OPEN = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE})
_CLOSE = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE})
_SET_WORDS = frozenset({"UNION", "INTERSECT", "EXCEPT"})
_AFTER_ORDER = frozenset({"LIMIT", "OFFSET", "FETCH", "FOR"})
_AFTER_SELECT = frozenset(
    {"FROM", "WHERE", "GROUP BY", "HAVING", "WINDOW", "QUALIFY", "ORDER BY", "LIMIT", "OFFSET", "FETCH", "FOR"}
)
_MAX_CHOICES = 6
_LITERALS = (TokenType.STRING, TokenType.IDENTIFIER)


@dataclass(frozen=True, slots=True)
class KeyedQuery:
    """A query without its LIMIT that shows what it is ordered by.

    Args:
        sql: The query; keys that were no output are further columns at its end.
        places: For each key its column, counted from 0; None for the keys that were added, in their order.
    """

    sql: str
    places: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Ordering:
    """The order and limit of the outermost query.

    Args:
        keys: Texts of its ORDER BY, without direction; empty if it has none.
        limited: It has a LIMIT, an OFFSET or a FETCH that may cut rows which tie.
        offset: Rows that are left out at the start.
        with_keys: Queries to try in turn for the rows and keys without the limit; empty where none can be told from the text.
    """

    keys: tuple[str, ...]
    limited: bool
    offset: int
    with_keys: tuple[KeyedQuery, ...]


def split_statements(sql: str, dialect: str | None) -> list[str]:
    """The statements of a text, each as it was written; a text that cannot be read stays one."""
    tokens = _tokens(sql, dialect)
    if tokens is None:
        return [sql]
    pieces = []
    start, full = 0, False
    for token in tokens:
        if token.token_type is TokenType.SEMICOLON:
            if full:
                pieces.append(sql[start : token.start].strip())
            start, full = token.end + 1, False
        else:
            full = True
    return [*pieces, sql[start:].strip()] if full else pieces


def spelled_out(sql: str, dialect: str | None) -> list[str]:
    """The queries that a text with ``{a, b}`` stands for: every choice of at least one of these columns is accepted.

    ``{}`` repeats the choice, as in ``SELECT {u.id, u.name}, count(*) … GROUP BY {}``. Gold of defog's sql-eval is written so.
    A text without braces, or in DuckDB's SQL where braces are a value, stands for itself.
    """
    tokens = _tokens(sql, dialect) if "{" in sql and sqlglot_dialect(dialect) != "duckdb" else None
    pairs = [
        (opening, closing)
        for opening, closing in zip(
            (token for token in tokens or () if token.token_type is TokenType.L_BRACE),
            (token for token in tokens or () if token.token_type is TokenType.R_BRACE),
            strict=False,
        )
    ]
    inside = [[t for t in tokens or () if opening.start < t.start < closing.start] for opening, closing in pairs]
    chosen = next((items for tokens_between in inside if (items := _items(tokens_between))), None)
    if chosen is None or len(chosen) > _MAX_CHOICES:
        return [sql]
    columns = [_text(sql, item) for item in chosen]
    queries = []
    for size in range(1, len(columns) + 1):
        for some in combinations(columns, size):
            text, at = "", 0
            for (opening, closing), between in zip(pairs, inside, strict=True):
                if between and between[0].start != chosen[0][0].start:
                    return [sql]  # several different choices in one text: not that notation
                text, at = text + sql[at : opening.start] + ", ".join(some), closing.end + 1
            queries.append(text + sql[at:])
    return queries


def why_not_one_query(sql: str, dialect: str | None) -> str | None:
    """Why a text is not one query that only reads, or None if it may be run.

    WITH … SELECT, brackets, leading comments and a trailing semicolon are part of a query. What sqlglot cannot read may still
    be SQL of its engine, so only its tokens have to show a single query: the engine has the last word.
    """
    if len(sql) > MAX_CHARS:
        return f"it is {len(sql):,} characters long; at most {MAX_CHARS:,} are run"
    if "\0" in sql:
        return "it holds a NUL byte"
    tokens = _tokens(sql, dialect)
    if tokens is None:
        return "it cannot be read: a literal, a name or a comment is never closed"
    count = len(split_statements(sql, dialect))
    if count == 0:
        return "there is no SQL in it"
    if count > 1:
        return f"it holds {count} statements, not one query"
    words = [_word(token) for token in tokens if token.token_type is not TokenType.L_PAREN]
    if not words or words[0] not in _QUERY_STARTS:
        return f"it is no query: it starts with {(words or ['a bracket'])[0][:40]}"
    written = words[0] == "WITH" and next(
        (_word(verb) for (last, depth), (verb, _) in pairwise(_with_depth(tokens)) if depth == 1 and _closes_cte(last, verb)),
        None,
    )
    return f"it is no query that only reads: it holds {written}" if written else _writing_node(sql, dialect)


def ordering(sql: str, dialect: str | None) -> Ordering | None:
    """The ORDER BY and LIMIT of the outermost query, not of subqueries, CTEs or windows; None if the text cannot be read."""
    tokens = _tokens(sql, dialect)
    if tokens is None:
        return None
    tokens = _unwrapped([token for token in tokens if token.token_type is not TokenType.SEMICOLON])
    top = [k for k, (_, depth) in enumerate(_with_depth(tokens)) if depth == 0]
    words = {k: _word(tokens[k]) for k in top}
    order = next((k for k in top if words[k] == "ORDER BY"), None)
    end = next(
        (k for k in top if words[k] in _AFTER_ORDER and (order is None or k > order) and _ends(words, k, top)), len(tokens)
    )
    keys = [] if order is None else [_undirected(item) for item in _items(tokens[order + 1 : end])]
    limited, offset = _limit(tokens[end:])
    if offset is None:
        return Ordering(tuple(_text(sql, key) for key in keys), False, 0, ())
    queries = _keyed(sql, tokens, top, words, keys, end) if keys or limited else ()
    return Ordering(tuple(_text(sql, key) for key in keys), limited, offset, queries)


def _tokens(sql: str, dialect: str | None) -> list[Token] | None:
    try:
        return sqlglot.tokenize(sql, read=sqlglot_dialect(dialect) or None)
    except SqlglotError:
        return None


def _word(token: Token) -> str:
    """A keyword in capitals, blanks between its words single; literals and quoted names are no words."""
    return "" if token.token_type in _LITERALS else " ".join(token.text.upper().split())


def _with_depth(tokens: Sequence[Token]) -> Iterator[tuple[Token, int]]:
    depth = 0
    for token in tokens:
        if token.token_type in _CLOSE:
            depth -= 1
        yield token, depth + (token.token_type in _CLOSE)
        if token.token_type in _OPEN:
            depth += 1


def _closes_cte(last: Token, verb: Token) -> bool:
    return last.token_type is TokenType.R_PAREN and _word(verb) in _WRITE_WORDS


def _writing_node(sql: str, dialect: str | None) -> str | None:
    if too_large(sql) is not None:
        return None  # the parser's stack would not hold it; the engine decides
    try:
        trees = sqlglot.parse(sql, read=sqlglot_dialect(dialect) or None)
        node = next((node for tree in trees if tree is not None for node in tree.find_all(*_WRITES)), None)
    except (SqlglotError, RecursionError, TypeError, ValueError, AttributeError, KeyError, IndexError):
        return None
    return None if node is None else f"it is no query that only reads: it holds {node.key.upper()}"


def _unwrapped(tokens: list[Token]) -> list[Token]:
    """Without brackets around the whole."""
    while len(tokens) > 1 and tokens[0].token_type is TokenType.L_PAREN:
        depths = [depth for _, depth in _with_depth(tokens)]
        if tokens[-1].token_type is not TokenType.R_PAREN or any(depth == 0 for depth in _inner(tokens)) or len(depths) < 3:
            break
        tokens = tokens[1:-1]
    return tokens


def _inner(tokens: Sequence[Token]) -> list[int]:
    """Depths after each token but the last, under the first bracket; 0 where that bracket closes early."""
    out, depth = [], 0
    for token in tokens[:-1]:
        depth += (token.token_type in _OPEN) - (token.token_type in _CLOSE)
        out.append(depth)
    return out


def _ends(words: dict[int, str], k: int, top: Sequence[int]) -> bool:
    """Whether a word such as OFFSET or FOR ends the query here, and is not a column of that name."""
    following = next((words[n] for n in top if n > k), "")
    return words[k] in ("LIMIT", "FETCH") or following not in ("", ",", ".", "AS", "FROM", "=")


def _items(tokens: Sequence[Token]) -> list[list[Token]]:
    items: list[list[Token]] = [[]]
    for token, depth in _with_depth(tokens):
        if depth == 0 and token.token_type is TokenType.COMMA:
            items.append([])
        else:
            items[-1].append(token)
    return [item for item in items if item]


def _undirected(item: list[Token]) -> list[Token]:
    """An order key without ASC, DESC, NULLS FIRST, NULLS LAST."""
    words = [_word(token) for token in item]
    if len(words) > 2 and words[-2:] in (["NULLS", "FIRST"], ["NULLS", "LAST"]):
        item, words = item[:-2], words[:-2]
    elif len(words) > 1 and words[-1] in ("NULLS FIRST", "NULLS LAST"):
        item, words = item[:-1], words[:-1]
    return item[:-1] if len(words) > 1 and words[-1] in ("ASC", "DESC") else item


def _limit(tokens: Sequence[Token]) -> tuple[bool, int | None]:
    """Whether rows are cut off, and how many at the start; None where that cannot be told."""
    words = [_word(token) for token in tokens]
    if not words or words[0] == "FOR":
        return False, 0
    offset = 0
    if "OFFSET" in words:
        text = words[words.index("OFFSET") + 1] if words.index("OFFSET") + 1 < len(words) else ""
        if not text.isdigit():
            return True, None
        offset = int(text)
    if words[0] == "LIMIT" and len(words) == 4 and words[2] == ",":  # SQLite and MySQL: LIMIT offset, count
        if not words[1].isdigit():
            return True, None
        offset = int(words[1])
    if words[-2:] == ["WITH", "TIES"] or words[:2] in (["LIMIT", "ALL"], ["LIMIT", "NULL"]):
        return offset > 0, offset
    return True, offset


def _text(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end + 1] if tokens else ""


def _keyed(
    sql: str, tokens: list[Token], top: list[int], words: dict[int, str], keys: list[list[Token]], end: int
) -> tuple[KeyedQuery, ...]:
    """The query without its limit and with its order keys in sight: as it stands, and with output names spelled out."""
    start, stop = tokens[0].start, tokens[end - 1].end + 1
    selects = [k for k in top if words[k] == "SELECT"]
    several = any(words[k] in _SET_WORDS for k in top)
    if not keys:
        return (KeyedQuery(sql[start:stop], ()),)
    if not selects or any(words[k] == "FROM" for k in top if k < selects[0]):
        return ()
    first, distinct = selects[0] + 1, False
    if words.get(first) in ("ALL", "DISTINCT"):
        distinct = words[first] == "DISTINCT"
        first += 1
        if words.get(first) == "ON":  # DISTINCT ON (…) lets further columns be
            closing = next(
                k
                for k, (token, depth) in enumerate(_with_depth(tokens))
                if k > first and depth == 1 and token.token_type is TokenType.R_PAREN
            )
            first, distinct = closing + 1, False
    last = next((k for k in top if k > first and (words[k] in _AFTER_SELECT or words[k] in _SET_WORDS)), len(tokens))
    outputs = [_output(sql, item) for item in _items(tokens[first:last])]
    found = [_place(sql, key, outputs) for key in keys]
    if any(text == "ALL" for text in (_text(sql, key).upper() for key in keys)):
        return ()
    added = [k for k, place in enumerate(found) if place is None]
    if not added:
        return (KeyedQuery(sql[start:stop], tuple(found)),)
    if distinct or several:
        return ()
    at = tokens[last - 1].end + 1
    queries = []
    for spelled in (False, True):
        texts = [_spelled(sql, keys[k], outputs) if spelled else _text(sql, keys[k]) for k in added]
        more = "".join(f", {text} AS {KEY_NAME}_{n}" for n, text in enumerate(texts))
        queries.append(KeyedQuery(sql[start:at] + more + sql[at:stop], tuple(found)))
    return tuple(dict.fromkeys(queries))


@dataclass(frozen=True, slots=True)
class _Output:
    name: str | None  # folded
    text: str  # the expression as written
    shape: tuple[str, ...]
    star: bool


def _output(sql: str, item: list[Token]) -> _Output:
    words = [_word(token) for token in item]
    star = item[-1].token_type is TokenType.STAR or "COLUMNS" in words or TokenType.STAR in (item[0].token_type,)
    expression, name = item, None
    if len(item) > 2 and words[-2] == "AS":
        expression, name = item[:-2], item[-1].text
    elif len(item) == 1 or (len(item) > 2 and item[-2].token_type is TokenType.DOT):
        name = item[-1].text
    elif len(item) > 1 and item[-1].token_type in (TokenType.VAR, TokenType.IDENTIFIER):
        expression, name = item[:-1], item[-1].text
    return _Output(None if name is None or star else name.casefold(), _text(sql, expression), _shape(expression), star)


def _shape(tokens: Sequence[Token]) -> tuple[str, ...]:
    """Tokens to compare: literals as they are, names and keywords folded."""
    return tuple(token.text if token.token_type is TokenType.STRING else token.text.casefold() for token in tokens)


def _place(sql: str, key: list[Token], outputs: Sequence[_Output]) -> int | None:
    """Which output an order key is, or None if it is another expression or stands after a ``*``."""
    if len(key) == 1 and key[0].token_type is TokenType.NUMBER and key[0].text.isdigit():
        return int(key[0].text) - 1
    found: int | None = None
    if len(key) == 1:
        found = next((k for k, output in enumerate(outputs) if output.name == key[0].text.casefold()), None)
    if found is None:
        shape = _shape(key)
        found = next((k for k, output in enumerate(outputs) if output.shape == shape and not output.star), None)
    return None if found is None or any(output.star for output in outputs[:found]) else found


def _spelled(sql: str, key: list[Token], outputs: Sequence[_Output]) -> str:
    """An order key with the names of outputs replaced by what they stand for."""
    named = {output.name: output.text for output in outputs if output.name is not None}
    text, at = "", key[0].start
    for k, token in enumerate(key):
        alone = (k == 0 or key[k - 1].token_type is not TokenType.DOT) and (
            k + 1 == len(key) or key[k + 1].token_type not in (TokenType.DOT, TokenType.L_PAREN)
        )
        if alone and token.token_type in (TokenType.VAR, TokenType.IDENTIFIER) and token.text.casefold() in named:
            text += sql[at : token.start] + f"({named[token.text.casefold()]})"
            at = token.end + 1
    return text + sql[at : key[-1].end + 1]


def called_functions(sql: str, dialect: str | None) -> set[str]:
    """Names that stand before a bracket, folded: functions, table functions, and the keywords that look like them."""
    tokens = _tokens(sql, dialect) or []
    named = (name for name, bracket in pairwise(tokens) if bracket.token_type is TokenType.L_PAREN)
    return {name.text.casefold() for name in named if name.token_type is not TokenType.STRING}


def tables_named_by_text(sql: str, dialect: str | None) -> list[str]:
    """Text literals that stand where a table belongs, as in ``FROM 'file.csv'``."""
    tokens = _tokens(sql, dialect) or []
    return [
        text.text for word, text in pairwise(tokens) if _word(word) in ("FROM", "JOIN") and text.token_type is TokenType.STRING
    ]
