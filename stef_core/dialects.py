"""Dialect names: what logs call them, and what sqlglot calls them."""

from __future__ import annotations

from functools import lru_cache

from sqlglot.dialects.dialect import Dialect, Dialects

# names that logs carry and sqlglot does not know
_ALIASES = {
    "postgresql": "postgres",
    "pg": "postgres",
    "mssql": "tsql",
    "sqlserver": "tsql",
    "sql server": "tsql",
    "mariadb": "mysql",
    "sparksql": "spark",
    "spark sql": "spark",
    "pyspark": "spark",
    "sqlite3": "sqlite",
    "googlesql": "bigquery",
    "bq": "bigquery",
    "db2": "",
    "ansi": "",
    "sql": "",
    "standard": "",
}
_KNOWN = {d.value for d in Dialects if d.value}


def sqlglot_dialect(name: str | None) -> str | None:
    """sqlglot's name of a dialect; "" for ANSI, None for a name that nobody knows."""
    if name is None:
        return ""
    folded = name.strip().casefold()
    folded = _ALIASES.get(folded, folded)
    return folded if folded in _KNOWN or folded == "" else None


@lru_cache(maxsize=64)  # making one takes as long as a short query's tokens; it holds no state of a query
def dialect_of(name: str | None) -> Dialect:
    """sqlglot's dialect of a name that `sqlglot_dialect` gave; ANSI where it is empty or None."""
    return Dialect.get_or_raise(name or None)


def known_dialects() -> list[str]:
    """Every name that may stand in a log or a rules file, sorted."""
    return sorted(_KNOWN | set(_ALIASES))
