"""Everything about a warehouse that is the same in every database: portable SQL over four primitives of an adapter."""

from __future__ import annotations

import hashlib
import re
import threading
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import date, datetime
from importlib.resources import files
from types import TracebackType
from typing import Any, Self

import polars as pl

from stef_core.errors import BusyError, InputError, RuleError
from stef_core.frames import (
    EXPERIMENT_RESULTS,
    EXPERIMENT_RUNS,
    LLM_ANSWERS,
    RECORDED,
    RULES_HISTORY,
    SCORING_RUNS,
    TABLES,
    frame_of,
)

# the order rows are read in: the grain of a table, the meaning of a view
ORDER: dict[str, tuple[str, ...]] = {
    "query_scores": ("dt", "query_id"),
    "query_findings": ("dt", "query_id", "ordinal"),
    "agent_daily": ("dt", "agent_id", "agent_version", "app_id"),
    "agent_alerts": ("dt", "agent_id", "app_id", "kind"),
    "scoring_runs": ("started_at", "run_id"),
    "score_changes": ("dt", "query_id", "run_id"),
    "log_catalogue": ("dt", "app_id", "kind", "key"),
    "rules_history": ("app_id", "recorded_at", "content_hash"),
    "experiment_runs": ("started_at", "name"),
    "experiment_results": ("name", "ordinal", "query_id"),
    "v_agent_trend": ("dt", "agent_id"),
    "v_agent_compare": ("agent_id", "first_day", "last_day", "agent_version"),
    "v_worst_queries": ("worst_rank",),
    "v_finding_pareto": ("agent_id", "pareto_rank"),
    "v_agent_calendar": ("dt", "agent_id"),
    "v_agent_shares": ("dt", "agent_id", "agent_version", "kind", "value"),
    "v_agent_cost": ("dt", "agent_id", "judge", "model"),
    "v_gate_history": ("started_at", "run_id", "place"),
}
VIEWS = tuple(name for name in ORDER if name.startswith("v_"))
STAGED = tuple(name for name in TABLES if name not in RECORDED)
# rows and keys of one statement; a row of answers takes 10 parameters, and PostgreSQL takes 65,535 in all
_ANSWERS_AT_ONCE, _KEYS_AT_ONCE = 200, 1000

# a day's place in a staging table belongs to one run, so its rows need not say which
_STAGED_DAYS = "SELECT dt FROM staging.manifest WHERE run_id = $1 AND table_name = $2 AND NOT published"

_LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    version INTEGER NOT NULL, -- 0: the views and comments, whose checksum says when to make them anew
    name TEXT NOT NULL,
    checksum TEXT NOT NULL,
    applied_at TIMESTAMPTZ NOT NULL
)
"""


def migrations() -> list[tuple[int, str, str]]:
    """Version, name and SQL of every migration, in order."""
    folder = files("tasks.warehouse") / "migrations"
    names = sorted(entry.name.removesuffix(".sql") for entry in folder.iterdir() if re.fullmatch(r"\d{4}_\w+\.sql", entry.name))
    return [(int(name[:4]), name, (folder / f"{name}.sql").read_text(encoding="utf-8")) for name in names]


def comments() -> dict[str, dict[str, str]]:
    """What every table, view and column holds, from ``comments.toml``; the key ``table`` is the table or view itself."""
    return tomllib.loads((files("tasks.warehouse") / "comments.toml").read_text(encoding="utf-8"))


class SqlWarehouse(ABC):
    """A `Warehouse` in portable SQL; an adapter adds how to run it.

    Parameters are written ``$1``, ``$2`` …; table names are put into SQL only after they were found in `ORDER`. One lock lets
    several threads share the connection.
    """

    def __init__(self, name: str) -> None:
        self.name = name  # how messages call this warehouse
        self._turn = threading.RLock()
        self._stands_still = False  # within `snapshot`

    # --- what an adapter adds ---------------------------------------------------------------------------------------

    @abstractmethod
    def _transaction(self, *, read_only: bool = False) -> AbstractContextManager[None]:
        """One transaction: committed at the end, rolled back on any error."""

    @abstractmethod
    def _execute(self, sql: str, params: Sequence[object] = ()) -> None:
        """Run a statement, or without parameters a script of several."""

    @abstractmethod
    def _fetch(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        """Rows of one statement; instants are UTC with microseconds."""

    @abstractmethod
    def _fetch_parts(self, sql: str, params: Sequence[object], rows: int) -> Iterator[pl.DataFrame]:
        """As `_fetch`, some rows at a time; the answer is not held whole."""

    @abstractmethod
    def _append(self, table: str, frame: pl.DataFrame) -> None:
        """Add a frame's rows to a table, column by name."""

    @abstractmethod
    def _errors(self) -> AbstractContextManager[None]:
        """The driver's errors as ours."""

    @abstractmethod
    def close(self) -> None:
        """Let go of the warehouse; closing twice is fine."""

    @abstractmethod
    def claim(self, day: date, *, wait_s: float = 2.0) -> AbstractContextManager[None]:
        """Be the only one to work on a day (see `Warehouse.claim`)."""

    def _hold(self, what: str) -> None:  # noqa: B027 - a database with one writing process needs nothing here
        """Keep other writers of this out until the transaction ends."""

    def _prepare(self) -> None:  # noqa: B027 - most databases need nothing here
        """Make what the migrations take for granted."""

    def _script(self, sql: str) -> None:
        """Run a script that makes tables, in this database's spelling."""
        self._execute(sql)

    def _made_anew(self) -> str:
        """What is made anew whenever it changes: the views, and the comments of all tables."""
        views = (files("tasks.warehouse") / "views.sql").read_text(encoding="utf-8")
        return views + _comments_sql()

    def _published(self) -> None:  # noqa: B027 - most databases need nothing here
        """What the adapter does after each publish."""

    # --- the schema -------------------------------------------------------------------------------------------------

    def migrate(self) -> list[str]:
        """Bring the schema up to this version's (see `Warehouse.migrate`)."""
        applied: list[str] = []
        with self._turn:
            if self._is_current():
                return applied
            with self._transaction():
                self._hold("schema")
                self._prepare()
                self._script(_LEDGER)
                recorded = dict(self._ledger())  # anew: another process may have been at it meanwhile
                self._refuse_newer(max(recorded, default=0))
                for version, name, sql in migrations():
                    if version not in recorded:
                        self._script(sql)
                        self._record(version, name, _checksum(sql))
                        applied.append(name)
                made_anew = self._made_anew()
                if applied or recorded.get(0) != _checksum(made_anew) or not set(VIEWS) <= set(self._columns()):
                    self._execute(made_anew)
                    self._execute("DELETE FROM schema_migrations WHERE version = 0")
                    self._record(0, "views", _checksum(made_anew))
                    applied.append("views")
                self._refuse_other_tables()
        return applied

    def _is_current(self) -> bool:
        """Whether there is nothing to migrate. Asked by reading alone, so that a writer need not own the tables."""
        with self._transaction(read_only=True):
            columns = self._columns()
            if not {"schema_migrations", *VIEWS} <= set(columns):
                return False
            recorded = dict(self._ledger())
            self._refuse_newer(max(recorded, default=0))
            wanted = {version for version, _, _ in migrations()}
            if not wanted <= set(recorded) or recorded.get(0) != _checksum(self._made_anew()):
                return False
            self._refuse_other_tables()
        return True

    def check(self) -> None:
        """Whether this version can read the schema as it stands.

        Raises:
            RuleError: The schema is absent, older, newer or not what the migrations make.
        """
        with self._turn, self._transaction(read_only=True):
            if "schema_migrations" not in self._columns():
                raise RuleError(f"{self.name}: holds no STEF tables; score a day into it first")
            newest = max((version for version, _ in self._ledger()), default=0)
            self._refuse_newer(newest)
            applied = {version for version, _ in self._ledger()}
            if not {version for version, _, _ in migrations()} <= applied or not set(VIEWS) <= set(self._columns()):
                raise RuleError(f"{self.name}: written by an older version of STEF; score a day into it to bring it up to date")
            self._refuse_other_tables()

    def _ledger(self) -> list[tuple[int, str]]:
        return self._fetch("SELECT version, checksum FROM schema_migrations ORDER BY version").rows()

    def _record(self, version: int, name: str, checksum: str) -> None:
        self._execute("INSERT INTO schema_migrations VALUES ($1, $2, $3, CURRENT_TIMESTAMP)", (version, name, checksum))

    def _refuse_newer(self, version: int) -> None:
        known = migrations()[-1][0]
        if version > known:
            raise RuleError(
                f"{self.name}: its schema is version {version}, this version of STEF knows up to {known}; use a newer STEF"
            )

    def _refuse_other_tables(self) -> None:
        columns = self._columns()
        for table, schema in TABLES.items():
            odd = set(schema).symmetric_difference(columns.get(table, ()))
            if odd:
                raise RuleError(
                    f"{self.name}: columns {', '.join(sorted(odd))} of table {table} are not what this version of STEF makes; "
                    "score into a new warehouse"
                )

    def _columns(self) -> dict[str, list[str]]:
        """Columns of every table and view of the published schema."""
        rows = self._fetch(
            "SELECT table_name, column_name FROM information_schema.columns "
            "WHERE table_catalog = current_database() AND table_schema = current_schema() ORDER BY ordinal_position"
        ).rows()
        columns: dict[str, list[str]] = {}
        for table, column in rows:
            columns.setdefault(table, []).append(column)
        return columns

    # --- write, audit, publish --------------------------------------------------------------------------------------

    def stage(self, run_id: str, day: date, tables: Mapping[str, pl.DataFrame | Iterable[pl.DataFrame]]) -> None:
        """Put a day's rows of these tables into staging (see `Warehouse.stage`)."""
        whole = {table: rows for table, rows in tables.items() if isinstance(rows, pl.DataFrame)}
        for table, frame in whole.items():  # before anything is held
            _checked(table, frame, run_id, day)
        with self._turn, self._transaction():
            self._hold(f"day {day}")
            for table, rows in tables.items():
                self._execute(f"DELETE FROM staging.{table} WHERE dt = $1", (day,))  # noqa: S608
                self._execute("DELETE FROM staging.manifest WHERE dt = $1 AND table_name = $2 AND NOT published", (day, table))
                height = 0
                for frame in [rows] if isinstance(rows, pl.DataFrame) else rows:
                    self._append(f"staging.{table}", _checked(table, frame, run_id, day))
                    height += frame.height
                self._execute("INSERT INTO staging.manifest VALUES ($1, $2, $3, $4, FALSE)", (day, table, run_id, height))

    def staged(self, table: str, run_id: str) -> pl.DataFrame:
        """Rows of one table that a run has staged and not published, in the order of their grain."""
        _stageable(table)
        sql = f"SELECT {', '.join(TABLES[table])} FROM staging.{table} WHERE dt IN ({_STAGED_DAYS}) {_order_by(table)}"  # noqa: S608
        with self._reading():
            return self._fetch(sql, (run_id, table)).cast(TABLES[table])

    def staged_parts(self, table: str, run_id: str, *, without: Sequence[str] = (), rows: int) -> Iterator[pl.DataFrame]:
        """Rows of one table that a run has staged and not published, some at a time (see `Warehouse.staged_parts`)."""
        _stageable(table)
        schema = TABLES[table]
        names = ", ".join(f"NULL AS {name}" if name in without else name for name in schema)
        sql = f"SELECT {names} FROM staging.{table} WHERE dt IN ({_STAGED_DAYS})"  # noqa: S608
        with self._reading():
            for frame in self._fetch_parts(sql, (run_id, table), rows):
                yield frame.cast(schema).sort(ORDER[table])

    def publish(self, run_id: str, day: date, tables: Sequence[str], run: dict[str, Any] | None = None) -> None:
        """Replace a day by what the run staged for it, in one transaction (see `Warehouse.publish`)."""
        for table in tables:
            _stageable(table)
        row = None if run is None else _run_frame(run)
        if row is not None and row["run_id"].item() != run_id:
            raise InputError(f"scoring_runs: run_id is {row['run_id'].item()!r}, but {run_id!r} is being published")
        with self._turn:
            with self._transaction():
                self._hold(f"day {day}")
                for table in dict.fromkeys(tables):
                    if self._must_publish(table, run_id, day):
                        self._replace(table, run_id, day)
                if row is not None:
                    self._upsert_run(row)
            self._published()

    def _must_publish(self, table: str, run_id: str, day: date) -> bool:
        rows = self._fetch(
            "SELECT run_id, published FROM staging.manifest WHERE dt = $1 AND table_name = $2", (day, table)
        ).rows()
        states = {(run, published) for run, published in rows}
        if (run_id, False) in states:
            return True
        if (run_id, True) in states:
            return False
        if others := sorted(run for run, published in states if not published):
            raise BusyError(
                f"{self.name}: run {others[0]} has staged {day} after run {run_id}; let it finish, or score the day again"
            )
        raise InputError(f"{self.name}: run {run_id} has staged no {table} for {day}; score the day again")

    def _replace(self, table: str, run_id: str, day: date) -> None:
        names = ", ".join(TABLES[table])
        if table == "score_changes":  # its grain starts with the run: what earlier backfills moved stays told
            self._execute("DELETE FROM score_changes WHERE dt = $1 AND run_id = $2", (day, run_id))
        else:
            self._execute(f"DELETE FROM {table} WHERE dt = $1", (day,))  # noqa: S608
        self._execute(
            f"INSERT INTO {table} ({names}) SELECT {names} FROM staging.{table} WHERE dt = $1",  # noqa: S608
            (day,),
        )
        self._execute(f"DELETE FROM staging.{table} WHERE dt = $1", (day,))  # noqa: S608
        self._execute("DELETE FROM staging.manifest WHERE dt = $1 AND table_name = $2 AND published", (day, table))
        self._execute(
            "UPDATE staging.manifest SET published = TRUE WHERE dt = $1 AND table_name = $2 AND run_id = $3",
            (day, table, run_id),
        )

    def discard(self, run_id: str) -> None:
        """Throw away what a run has staged and not published."""
        days = "SELECT DISTINCT dt FROM staging.manifest WHERE run_id = $1 AND NOT published ORDER BY dt"
        with self._turn, self._transaction():
            for day in self._fetch(days, (run_id,))["dt"]:
                self._hold(f"day {day}")
            for table in STAGED:
                self._execute(f"DELETE FROM staging.{table} WHERE dt IN ({_STAGED_DAYS})", (run_id, table))  # noqa: S608
            self._execute("DELETE FROM staging.manifest WHERE run_id = $1 AND NOT published", (run_id,))

    def record_run(self, row: dict[str, Any]) -> None:
        """Write one row of ``scoring_runs``, in the place of the run's earlier one (see `Warehouse.record_run`)."""
        frame = _run_frame(row)
        with self._turn, self._transaction():
            self._upsert_run(frame)

    def _upsert_run(self, frame: pl.DataFrame) -> None:
        self._execute("DELETE FROM scoring_runs WHERE run_id = $1", (frame["run_id"].item(),))
        self._append("scoring_runs", frame)

    def record_experiment(self, run: dict[str, Any], results: pl.DataFrame) -> None:
        """Write a run of an experiment and its rows, in the place of earlier ones (see `Warehouse.record_experiment`)."""
        frame = _row_frame("experiment_runs", EXPERIMENT_RUNS, "name", run)
        name = frame["name"].item()
        if results.schema != EXPERIMENT_RESULTS:
            raise InputError("experiment_results: columns and types are not those of stef_core.frames.EXPERIMENT_RESULTS")
        if results.filter(pl.col("name").ne_missing(pl.lit(name))).height:
            raise InputError(f"experiment_results: column name holds rows of another run than {name}")
        if results["query_id"].null_count():
            raise InputError("experiment_results: column query_id is missing in a row")
        with self._turn:
            with self._transaction():
                self._hold(f"experiment {name}")
                for table, rows in (("experiment_runs", frame), ("experiment_results", results)):
                    self._execute(f"DELETE FROM {table} WHERE name = $1", (name,))  # noqa: S608
                    self._append(table, rows)
            self._published()

    def record_rules(self, rules: pl.DataFrame) -> None:
        """Keep rules that are not kept yet (see `Warehouse.record_rules`)."""
        with self._turn, self._transaction():
            known = self._fetch("SELECT app_id, content_hash FROM rules_history")
            new = rules.select(list(RULES_HISTORY)).join(known, on=["app_id", "content_hash"], how="anti")
            if new.height:
                self._append("rules_history", new)

    # --- read -------------------------------------------------------------------------------------------------------

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Let all that is read within stand still (see `Warehouse.snapshot`)."""
        with self._turn, self._transaction(read_only=True):
            self._stands_still = True
            try:
                yield
            finally:
                self._stands_still = False

    @contextmanager
    def _reading(self) -> Iterator[None]:
        with self._turn, self._errors() if self._stands_still else self._transaction(read_only=True):
            yield

    def read(
        self,
        table_or_view: str,
        *,
        day: date | None = None,
        since: date | None = None,
        until: date | None = None,
        columns: Sequence[str] | None = None,
    ) -> pl.DataFrame:
        """Published rows in the order of their grain (see `Warehouse.read`)."""
        if table_or_view not in ORDER:
            raise RuleError(f"no table or view {table_or_view!r}; there are {', '.join(ORDER)}")
        bounds = [("dt = ", day), ("dt >= ", since), ("dt <= ", until)]
        asked = [(condition, value) for condition, value in bounds if value is not None]
        with self._reading():
            known = self._columns()[table_or_view]
            names = list(known if columns is None else columns)
            for name in names:
                if name not in known:
                    raise RuleError(f"{table_or_view} has no column {name!r}; it has {', '.join(known)}")
            if not names:
                raise RuleError(f"{table_or_view}: no columns were asked for")
            if asked and "dt" not in known:
                raise RuleError(f"{table_or_view} has no column dt: it spans all days and takes no range of days")
            where = " AND ".join(f"{condition}${number}" for number, (condition, _) in enumerate(asked, 1)) or "TRUE"
            sql = f"SELECT {', '.join(names)} FROM {table_or_view} WHERE {where} {_order_by(table_or_view)}"  # noqa: S608
            frame = self._fetch(sql, [value for _, value in asked])
        if table_or_view not in TABLES:
            return frame
        return frame.cast(pl.Schema({name: TABLES[table_or_view][name] for name in names}))

    def query(self, sql: str, params: Sequence[object] = ()) -> pl.DataFrame:
        """Rows of one statement that reads (see `Warehouse.query`)."""
        with self._reading():
            return self._fetch(sql, params)

    def days(self, table: str = "query_scores") -> list[date]:
        """Days that are published, oldest first."""
        dated = [name for name, schema in TABLES.items() if "dt" in schema]
        if table not in dated:
            raise RuleError(f"no table {table!r}; there are {', '.join(dated)}")
        with self._reading():
            return self._fetch(f"SELECT DISTINCT dt FROM {table} WHERE dt IS NOT NULL ORDER BY dt")["dt"].to_list()  # noqa: S608

    def day_is_held(self, day: date) -> BusyError:
        """What to tell whoever may not have a day."""
        return BusyError(f"{self.name}: another process works on {day}; let it finish and try again")

    # --- context manager --------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- answers that runs share ------------------------------------------------------------------------------------

    def put_answers(self, frame: pl.DataFrame) -> None:
        """Add answers in one transaction (see `Warehouse.put_answers`)."""
        if frame.schema != LLM_ANSWERS:
            raise InputError("llm_answers: columns and types are not those of stef_core.frames.LLM_ANSWERS")
        for name in LLM_ANSWERS:
            if name not in ("reason", "probability") and frame[name].null_count():
                raise InputError(f"llm_answers: column {name} is missing in a row")
        if frame["key"].n_unique() < frame.height:
            raise InputError("llm_answers: a key stands in two rows")
        names, width = ", ".join(LLM_ANSWERS), len(LLM_ANSWERS)
        taken = ", ".join(f"{name} = excluded.{name}" for name in LLM_ANSWERS if name != "key")
        with self._turn, self._transaction():
            for part in frame.iter_slices(_ANSWERS_AT_ONCE):
                marks = ", ".join(f"({_marks(width, width * place)})" for place in range(part.height))
                self._execute(
                    f"INSERT INTO staging.llm_answers AS kept ({names}) VALUES {marks} "  # noqa: S608
                    f"ON CONFLICT (key) DO UPDATE SET {taken} WHERE kept.reason IS NOT NULL AND excluded.reason IS NULL",
                    [value for row in part.iter_rows() for value in row],
                )

    def answers(self, keys: Sequence[str]) -> pl.DataFrame:
        """Those of the answers that are there (see `Warehouse.answers`)."""
        found = [LLM_ANSWERS.to_frame()]
        with self._turn, self._transaction(read_only=True):
            for start in range(0, len(keys), _KEYS_AT_ONCE):
                part = keys[start : start + _KEYS_AT_ONCE]
                sql = f"SELECT {', '.join(LLM_ANSWERS)} FROM staging.llm_answers WHERE key IN ({_marks(len(part))})"  # noqa: S608
                found.append(self._fetch(sql, part).cast(LLM_ANSWERS))
        return pl.concat(found)


def _checksum(sql: str) -> str:
    return hashlib.sha256(sql.encode()).hexdigest()


def _comments_sql() -> str:
    lines = []
    for table, columns in comments().items():
        kind = "VIEW" if table in VIEWS else "TABLE"
        for column, text in columns.items():
            what = f"{kind} {table}" if column == "table" else f"COLUMN {table}.{column}"
            lines.append(f"COMMENT ON {what} IS '{text.replace(chr(39), 2 * chr(39))}';\n")
    return "".join(lines)


def _order_by(table_or_view: str) -> str:
    return "ORDER BY " + ", ".join(f"{column} NULLS FIRST" for column in ORDER[table_or_view])


def _stageable(table: str) -> None:
    if table not in STAGED:
        raise RuleError(f"table {table!r} cannot be staged; there are {', '.join(STAGED)}")


def _checked(table: str, frame: pl.DataFrame, run_id: str, day: date) -> pl.DataFrame:
    """The frame in the column order of its table, once it is what the table holds, of one day and one run."""
    _stageable(table)
    schema = TABLES[table]
    for name, dtype in schema.items():
        if name not in frame.columns:
            raise InputError(f"{table}: column {name} is missing")
        if frame.schema[name] != dtype:
            raise InputError(f"{table}: column {name} is {frame.schema[name]}, not {dtype}")
    for name in frame.columns:
        if name not in schema:
            raise InputError(f"{table}: column {name} does not belong to it")
    for name, expected in (("dt", day), ("run_id", run_id)):
        if name not in schema:
            continue
        others = frame.filter(pl.col(name).ne_missing(pl.lit(expected)))
        if others.height:
            raise InputError(f"{table}: column {name} is {others[name][0]} in {others.height} rows, not {expected}")
    return frame.select(list(schema))


def _run_frame(row: Mapping[str, Any]) -> pl.DataFrame:
    """One row of ``scoring_runs``; absent columns are null."""
    return _row_frame("scoring_runs", SCORING_RUNS, "run_id", row)


def _row_frame(table: str, schema: pl.Schema, key: str, row: Mapping[str, Any]) -> pl.DataFrame:
    """One row of a table; absent columns are null."""
    if unknown := sorted(set(row) - set(schema)):
        raise InputError(f"{table}: column {unknown[0]} does not belong to it")
    if not row.get(key):
        raise InputError(f"{table}: column {key} is missing")
    for name, value in row.items():
        if isinstance(value, datetime) and value.tzinfo is None:
            raise InputError(f"{table}: column {name} is {value}, an instant without a time zone; give it in UTC")
    try:
        return frame_of([dict.fromkeys(schema) | dict(row)], schema)
    except (pl.exceptions.PolarsError, TypeError, OverflowError) as error:
        raise InputError(f"{table}: a value does not fit its column: {error}") from error


def _marks(count: int, after: int = 0) -> str:
    """Places of parameters in a statement: ``$1, $2``."""
    return ", ".join(f"${after + number}" for number in range(1, count + 1))
