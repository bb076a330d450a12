"""``stef import``: anybody's files of questions and SQL, or traces, as a query log."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands_export import DAY, read_day

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tasks.importing import FileReport, Imported

LOGS = "query_log"  # where no log is named
WIDTH = 100  # of tables
TIME, FRAME = 16, 13  # cells of a moment, and of the lines around four columns
MAPPINGS = 3  # files whose mapping is shown
TOLD = 8  # refused rows and notes that are told one by one


def import_log(
    files: Annotated[list[str], typer.Argument(metavar="FILE…", help="Files, folders or patterns.", show_default=False)],
    logs: Annotated[
        str | None, typer.Option(help=f"Root of the query log to write, a folder; STEF_LOGS or {LOGS} if not given.")
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--map", metavar="COLUMN=FIELD", help="Which field is a column, as output.sql; repeat it."),
    ] = None,
    constants: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="COLUMN=VALUE", help="agent_id, agent_version, app_id or dialect of all rows; repeat it."
        ),
    ] = None,
    date: Annotated[
        dt.date | None, typer.Option(parser=read_day, metavar=DAY, help="UTC day of rows that have no time.")
    ] = None,
    form: Annotated[
        str, typer.Option("--format", help="auto, csv, json, jsonl, parquet, otel, langfuse or langsmith.")
    ] = "auto",
    time_format: Annotated[str | None, typer.Option(help="Form of times that are not ISO, as '%d/%m/%Y %H:%M'.")] = None,
    encoding: Annotated[str | None, typer.Option(help="Encoding of text files; found out if not given.")] = None,
    delimiter: Annotated[str | None, typer.Option(help="Between fields of CSV; found out if not given.")] = None,
    further: Annotated[
        bool, typer.Option("--further/--no-further", help="Take fields along that are no column of the log.")
    ] = True,
    only_sql: Annotated[bool, typer.Option("--only-sql", help="Leave answers aside that hold no SQL.")] = False,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Go on without rows that cannot be taken; they are written beside.")
    ] = False,
    replace: Annotated[
        bool, typer.Option("--replace", help="Take away what these files brought in under another agent.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show columns and first rows, and write nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Make a query log of a file, or of a folder of them: CSV, JSON, Parquet, or traces."""
    from stef_core.errors import StefError
    from tasks.importing import Options, import_files
    from tasks.importing_mapping import COLUMNS, CONSTANTS, read_pairs
    from tasks.settings import load_settings

    root = logs or load_settings().logs or LOGS
    options = Options(
        named=read_pairs(named or [], "--map", COLUMNS),
        constants=read_pairs(constants or [], "--set", CONSTANTS),
        date=date,
        time_format=time_format,
        format=form,
        encoding=encoding,
        delimiter=delimiter,
        further=further,
        only_sql=only_sql,
    )
    try:
        with _waiting(show=not as_json):
            imported = import_files(files, root, options, dry_run=dry_run, skip_bad=skip_bad, replace=replace)
    except StefError as error:  # it quotes names that stand in a stranger's file
        raise type(error)(_printable(str(error)).replace("\n", " ")) from error
    stopped = bool(imported.refused) and not imported.done and not (dry_run and skip_bad)
    if as_json:
        typer.echo(json.dumps(_to_json(imported, root), ensure_ascii=True, default=str))
    else:
        _show(imported, root, dry_run=dry_run, skip_bad=skip_bad)
    raise typer.Exit(2 if stopped else 0)


@contextmanager
def _waiting(*, show: bool) -> Iterator[None]:
    """A sign on a terminal that files are being read."""
    from rich.console import Console

    console = Console(stderr=True)
    if not (show and console.is_terminal):
        yield
        return
    with console.status("reading"):
        yield


def _show(imported: Imported, root: str, *, dry_run: bool, skip_bad: bool) -> None:
    from rich.console import Console

    console = Console()
    console = Console(width=min(console.width, WIDTH) if console.is_terminal else WIDTH)
    _show_mappings(console, imported.files)
    if dry_run:
        _show_first(console, imported.files)
    for file in imported.files:
        _say(console, _counted(file, dry_run=dry_run, done=imported.done))
    for note in _notes(imported):
        _say(console, f"· {note}")
    if imported.refused:
        _show_bad(imported, dry_run=dry_run, skip_bad=skip_bad)
    if dry_run and (skip_bad or not imported.refused):
        _say(console, "Nothing was written; run it without --dry-run to write the log.")
    elif imported.done:
        _show_next(console, imported, root)


def _say(console: Console, text: str) -> None:
    console.print(_printable(text), markup=False, highlight=False, soft_wrap=True)


def _printable(text: str) -> str:
    """Text without control characters, which a file of a stranger may hold to steer a terminal."""
    return "".join(char if char.isprintable() or char == "\n" else "�" for char in text)


def _cell(value: Any) -> Text:
    from rich.text import Text

    return Text(" ".join(_printable(str(value)[:500].replace("\n", " ").replace("\t", " ")).split()))


def _show_mappings(console: Console, files: list[FileReport]) -> None:
    from rich.table import Table

    from tasks.importing_mapping import told

    groups: dict[tuple[tuple[str, ...], ...], list[FileReport]] = {}
    for file in files:
        groups.setdefault(tuple(row[:3] for row in told(file.mapping, file.sample)), []).append(file)
    for alike in list(groups.values())[:MAPPINGS]:
        file = alike[0]
        more = f" and {len(alike) - 1} more alike" if len(alike) > 1 else ""
        table = Table(title=_cell(f"{file.path}{more} · {file.format}"), title_justify="left", header_style="bold")
        rows = [(column, _cell(path), how, _cell(first)) for column, path, how, first in told(file.mapping, file.sample)]
        origin = min(30, max(len("Taken from"), *(path.cell_len for _, path, _, _ in rows)))
        table.add_column("Column of the log", no_wrap=True, width=len("enriched_question"))
        table.add_column("Taken from", overflow="fold", width=origin)
        table.add_column("How", no_wrap=True, width=len("guessed"))
        rest = console.width - len("enriched_question") - origin - len("guessed") - FRAME
        table.add_column("First value", no_wrap=True, overflow="ellipsis", max_width=rest)
        for row in rows:
            table.add_row(*row)
        console.print(table)
    if len(groups) > MAPPINGS:
        _say(console, f"{len(groups) - MAPPINGS} more mappings; --json shows all of them")


def _show_first(console: Console, files: list[FileReport]) -> None:
    from rich.cells import cell_len
    from rich.table import Table

    rows = [row for file in files for row in file.first][:5]
    if not rows:
        return
    table = Table(title="First rows", title_justify="left", header_style="bold")
    agent = min(16, max(len("agent_id"), *(cell_len(row["agent_id"]) for row in rows)))
    rest = console.width - TIME - agent - FRAME
    table.add_column("asked_at", no_wrap=True, width=TIME)
    table.add_column("agent_id", no_wrap=True, overflow="ellipsis", width=agent)
    table.add_column("user_question", width=rest // 2, no_wrap=True, overflow="ellipsis")
    table.add_column("generated_sql", width=rest - rest // 2, no_wrap=True, overflow="ellipsis")
    for row in rows:
        sql = row["generated_sql"] or ""
        table.add_row(f"{row['asked_at']:%Y-%m-%d %H:%M}", _cell(row["agent_id"]), _cell(row["user_question"]), _cell(sql))
    console.print(table)


def _counted(file: FileReport, *, dry_run: bool, done: bool) -> str:
    parts = [f"{_answers(file.rows_in) if file.mapping.of_traces else _rows(file.rows_in)} in"]
    if dry_run or not done:
        parts.append(f"{file.written:,} can be written")
    else:
        parts.append(f"{file.written:,} written")
    parts.append(f"{file.refused:,} refused")
    if file.repeated:
        parts.append(f"{file.repeated:,} repeated")
    if file.present:
        parts.append(f"{file.present:,} in the log already")
    if file.aside:
        parts.append(f"{file.aside:,} without SQL left aside")
    return f"{file.path}: {', '.join(parts)}"


def _notes(imported: Imported) -> list[str]:
    """What a person should know, each kind once."""
    from tasks.importing_mapping import AGENT

    files = imported.files
    total = {name: sum(file.remarks[name] for file in files) for name in ("zoneless", "fence", "json", "no_sql")}
    notes = [*imported.notes, *(note for file in files for note in file.notes)]
    if any(taken.how == "made" for file in files for name, taken in file.mapping.columns.items() if name == "agent_id"):
        notes.append(f"no field names the agent, so all rows are of agent {AGENT!r}; --set agent_id=NAME names it")
    if total["zoneless"]:
        notes.append(f"the time of {_rows(total['zoneless'])} has no zone; taken as UTC")
    if total["fence"]:
        notes.append(f"the SQL of {_rows(total['fence'])} was taken out of a Markdown fence")
    if total["json"] and not all(file.mapping.of_traces for file in files):
        notes.append(f"the SQL of {_rows(total['json'])} was taken out of JSON")
    if total["no_sql"]:
        notes.append(f"without SQL: {_rows(total['no_sql'])}, scored as no answer (--only-sql leaves them aside)")
    if spans := sum(file.spans_aside for file in files):
        notes.append(f"spans that belong to no answer: {spans:,}")
    return notes if len(notes) <= TOLD else [*notes[:TOLD], f"{len(notes) - TOLD} more notes; --json shows all of them"]


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _answers(count: int) -> str:
    return "1 answer" if count == 1 else f"{count:,} answers"


def _show_bad(imported: Imported, *, dry_run: bool, skip_bad: bool) -> None:
    for bad in imported.bad[:TOLD]:
        typer.echo(f"refused: {_printable(str(bad))}", err=True)
    if imported.refused > TOLD:
        typer.echo(f"refused: {imported.refused - TOLD:,} more rows", err=True)
    if imported.done:
        where = ", ".join(file.rejects for file in imported.files if file.rejects)
        typer.echo(f"The refused rows stand in {where}", err=True)
    elif not (dry_run and skip_bad):
        way = "mend them, or go on without them with --skip-bad"
        typer.echo(f"error: {_rows(imported.refused)} cannot be taken, so nothing was written; {way}", err=True)


def _show_next(console: Console, imported: Imported, root: str) -> None:
    days = list(imported.days)
    if not days:
        there = any(file.present for file in imported.files)
        what = f"The log {root} holds all of it already" if there else "No row was written"
        _say(console, f"{what}; there is nothing new to score.")
        return
    rows = sum(imported.days.values())
    span = str(days[0]) if len(days) == 1 else f"{len(days)} days, {days[0]} to {days[-1]}"
    _say(console, f"\nLog        {root}: {_rows(rows)} on {span}")
    _say(console, "Next")
    for command in next_commands(days, root):
        _say(console, f"  {command}")


def next_commands(days: list[dt.date], root: str) -> list[str]:
    """What scores these days and reports them, as it is typed."""
    logs = shlex.quote(root)
    if len(days) == 1:
        score = f"stef score --date {days[0]} --logs {logs}"
    else:
        # a range with gaps: only days that are there
        gaps = " --missing" if (days[-1] - days[0]).days + 1 > len(days) else ""
        score = f"stef score --date {days[0]} --to {days[-1]}{gaps} --logs {logs}"
    return [score, "stef report"]


def _to_json(imported: Imported, root: str) -> dict[str, Any]:
    from tasks.importing_mapping import told

    days = list(imported.days)
    return {
        "written": imported.done,
        "logs": root,
        "files": [
            {
                "path": file.path,
                "format": file.format,
                "mapping": {row[0]: {"from": row[1] or None, "how": row[2]} for row in told(file.mapping, file.sample)},
                "rows_in": file.rows_in,
                "rows_written": file.written,
                "rows_refused": file.refused,
                "rows_repeated": file.repeated,
                "rows_present": file.present,
                "rows_aside": file.aside,
                "spans_aside": file.spans_aside,
                "days": {str(day): rows for day, rows in file.days.items()},
                "notes": file.notes,
                "rejects": file.rejects,
            }
            for file in imported.files
        ],
        "refused": [{"file": bad.file, "where": bad.where, "column": bad.column, "reason": bad.reason} for bad in imported.bad],
        "notes": _notes(imported),
        "next": next_commands(days, root) if imported.done and days else [],
    }
