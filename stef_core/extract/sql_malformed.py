"""SQL that no database accepts: told from SQL that only this reader cannot read, once every dialect has failed.

The agent's faults lower Φ, the evaluator's faults lower coverage (method.md section 7); this is the line between them.
"""

from __future__ import annotations

from rapidfuzz.distance import DamerauLevenshtein
from sqlglot.errors import SqlglotError
from sqlglot.tokenizer_core import Token, TokenType
from sqlglot.tokens import Tokenizer

# clauses of one SELECT in the only order that SQL has for them
_ORDER: dict[TokenType, int] = {
    TokenType.SELECT: 0,
    TokenType.FROM: 1,
    TokenType.WHERE: 2,
    TokenType.GROUP_BY: 3,
    TokenType.HAVING: 4,
    TokenType.ORDER_BY: 6,
    TokenType.LIMIT: 7,
}
_JOINING = {TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT}
_COMPARISONS = {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE}
_KEYWORDS = ("DISTINCT", "SELECT", "FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "BETWEEN", "JOIN", "COUNT")
_WORDS = {TokenType.VAR, TokenType.IDENTIFIER}


def malformed(sql: str) -> str | None:
    """Why no database accepts this SQL; None where only the reader may be at fault.

    Args:
        sql: One statement that no dialect could parse.
    """
    try:
        tokens = Tokenizer().tokenize(sql)
    except (SqlglotError, RecursionError):
        return None
    return _clauses(tokens) or _misspelt(tokens)


def _clauses(tokens: list[Token]) -> str | None:
    """A clause that stands twice, or behind a later one, in one SELECT; a subquery without its parentheses."""
    stack: list[tuple[int, str]] = [(-1, "")]
    for before, token in zip([None, *tokens], tokens, strict=False):
        kind = token.token_type
        if kind == TokenType.L_PAREN:
            stack.append((-1, ""))
        elif kind == TokenType.R_PAREN:
            if len(stack) > 1:
                stack.pop()
        elif kind in _JOINING:
            stack[-1] = (-1, "")
        elif kind in _ORDER:
            if kind == TokenType.FROM and before is not None and before.token_type == TokenType.DISTINCT:
                continue  # IS DISTINCT FROM
            if kind == TokenType.SELECT and before is not None and before.token_type in _COMPARISONS:
                return f"a subquery stands behind {before.text} without parentheses, which no database accepts"
            rank, clause = _ORDER[kind], token.text.upper()
            last, name = stack[-1]
            if rank == last:
                return f"{clause} stands twice in one SELECT, which no database accepts"
            if rank < last and not (kind == TokenType.SELECT and last == 1):  # FROM first is a dialect's way
                return f"{clause} stands behind {name} in one SELECT, which no database accepts"
            stack[-1] = (rank, clause)
    return None


def _misspelt(tokens: list[Token]) -> str | None:
    """Two words side by side inside a call, the first one letter off a keyword: ``COUNT(DISTNCT x)``."""
    for first, second, third in zip(tokens, tokens[1:], tokens[2:], strict=False):
        if first.token_type == TokenType.L_PAREN and second.token_type in _WORDS and third.token_type in _WORDS:
            word = second.text.upper()
            for keyword in _KEYWORDS:
                if word != keyword and len(word) > 4 and DamerauLevenshtein.distance(word, keyword) <= 2:
                    return f"{second.text} is a misspelt {keyword}, which no database accepts"
    return None
