"""PostgreSQL URLs: read by libpq's own rules, named without secrets, and which failures of a connection are for good."""

from __future__ import annotations

import re

import psycopg
from psycopg.conninfo import conninfo_to_dict

from stef_core.errors import RuleError

_SHOWN = 300
# what libpq says when waiting helps nobody: it gives no code for a connection that failed
_FOR_GOOD = re.compile(
    r"authentication failed|no password supplied|pg_hba\.conf|database \".*\" does not exist|role \".*\" does not exist"
    r"|is not permitted to log in|permission denied for database|is not currently accepting connections"
    r"|invalid (?:port|sslmode|\w+ value|integer)|does not support SSL|certificate|SSL error: wrong|definition of service",
    re.IGNORECASE,
)


def options_of(url: str, what: str) -> dict[str, str]:
    """The connection options that a URL names, by libpq's names.

    Args:
        url: ``postgresql://…`` or ``postgres://…``; host, user and further options may stand in its query string.
        what: How the message calls what the URL is of, such as ``warehouse``.

    Raises:
        RuleError: The URL is malformed. The message repeats no part of it that may be a password.
    """
    example = (
        "write postgresql://user@host:5432/database?sslmode=verify-full, special characters of a password as %40 and the like"
    )
    try:
        found = {name: str(value) for name, value in conninfo_to_dict(url).items()}
    except psycopg.ProgrammingError as error:
        # libpq's own words quote the URL, password and all; the name of an unknown option is safe to tell
        unknown = re.search(r'invalid URI query parameter: "(\w+)"', str(error))
        why = f"there is no option {unknown[1]!r}" if unknown else "it cannot be read"
        raise RuleError(f"{what}: its PostgreSQL URL does not work: {why}; {example}") from None
    if "@" in found.get("host", ""):
        raise RuleError(f"{what}: its PostgreSQL URL does not work: there is an @ in its host; {example}")
    return found


def name_of(options: dict[str, str]) -> str:
    """How messages call the database: host, port and name, and nothing that may be secret."""
    host, port, database = (options.get(name, "") for name in ("host", "port", "dbname"))
    if host.startswith("/"):  # the folder of a socket
        return f"postgresql:///{database}?host={host}"
    return f"postgresql://{host}{port and ':'}{port}/{database}"


def said(error: BaseException) -> str:
    """The server's own sentence; of a failed login libpq's, which names the host and the user and no password."""
    diagnosis = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    line = " ".join((diagnosis or str(error)).strip().partition("\n")[0].split())
    return (line if len(line) <= _SHOWN else line[:_SHOWN] + "…") or type(error).__name__


def fails_for_good(error: psycopg.OperationalError) -> bool:
    """Whether a connection failed for a reason that no waiting removes, such as a wrong password or certificate."""
    return _FOR_GOOD.search(str(error)) is not None
