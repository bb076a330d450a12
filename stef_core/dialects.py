"""Dialect names: what logs call them, and what sqlglot calls them."""

from __future__ import annotations

from sqlglot.dialects.dialect import Dialects

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


def known_dialects() -> list[str]:
    """Every name that may stand in a log or a rules file, sorted."""
    return sorted(_KNOWN | set(_ALIASES))
