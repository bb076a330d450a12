"""The command line ``stef``: 0 done, 1 a gate failed, 2 bad input or settings, 3 endpoint or warehouse not reached.

Each command imports what it needs itself, so that ``stef --help`` answers at once.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from flows.commands_backfill import AddressOption, RunnerOption, backfill, rules_diff
from flows.commands_cache import cache_app
from flows.commands_calibrate import calibrate
from flows.commands_experiment import experiment_app
from flows.commands_export import export
from flows.commands_import import import_log

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console

    from stef_core.records import QueryRecord
    from stef_core.rules import Rules
    from tasks.dry_run import Planned, Summary
    from tasks.progress import Event
    from tasks.settings import Settings

DONE, GATE_FAILED, BAD_INPUT, UNREACHED = 0, 1, 2, 3
CRASHED, INTERRUPTED = 70, 130  # as sysexits.h and the shell have it
RISE = 0.02  # share of answers from which on a finding is told as a cause
SHOWN = 3  # requests that a dry run of days shows where it writes no file
NOTES, NAMED = 8, 6  # notes shown, and names that each lists
WIDTH = 100  # of tables where there is no terminal to ask

app = typer.Typer(
    help="Score the answers of text-to-SQL agents without gold SQL: daily, gated, explained.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    rich_markup_mode=None,  # help that is painted takes half a second to import
)
rules_app = typer.Typer(
    help="Check the rules of applications, and publish their schema.", no_args_is_help=True, rich_markup_mode=None
)
app.add_typer(rules_app, name="rules")
app.add_typer(experiment_app, name="experiment")
app.add_typer(cache_app, name="cache")


def _day(text: str) -> dt.date:
    try:
        return dt.datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007  # a UTC day has no time
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no day of the calendar; write YYYY-MM-DD") from error


DAY = "YYYY-MM-DD"
WarehouseOption = Annotated[str | None, typer.Option(help="URL of the warehouse: duckdb:///stef.duckdb or postgresql://….")]
RulesOption = Annotated[Path | None, typer.Option(help="Folder of rules files, or one file.")]
JudgeOption = Annotated[str | None, typer.Option(help="symbolic (built in) or openai (any OpenAI-compatible endpoint).")]
ModelOption = Annotated[str | None, typer.Option(help="Model id at the endpoint.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be sent to the model, and send nothing.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]


def main() -> None:
    """Entry point of ``stef``."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: list[str]) -> int:
    """Run one command.

    Args:
        arguments: Of the command line, without the program's name.

    Returns:
        The exit code.
    """
    try:
        code = app(args=arguments, prog_name="stef", standalone_mode=False)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else BAD_INPUT
    except typer.TyperException as error:
        return _misused(error)
    except Exception as error:  # noqa: BLE001  # the top: whatever comes here is told in one line
        if not _interrupted(error):
            return tell_error(error)
        code = INTERRUPTED
    if code == INTERRUPTED:
        _complain("interrupted; nothing was half-written, run the command again to go on")
    return code or DONE


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"stef {version('stef-pipeline')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and Prefect's log; also STEF_DEBUG=1.")] = False,
) -> None:
    """Score the answers of text-to-SQL agents without gold SQL: daily, gated, explained."""
    if debug:
        os.environ["STEF_DEBUG"] = "1"


@app.command()
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where the demo writes its log, warehouse and report.")] = Path("demo"),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score a bundled week of three agents, offline: log, gate, warehouse, report."""
    quiet_prefect()
    from tasks.demo_data import write_demo_week

    try:
        folder.mkdir(parents=True, exist_ok=True)
        week = write_demo_week(folder)
    except OSError as error:
        raise _bad_input(f"--dir {folder}: cannot be written: {error.strerror}") from error
    warehouse = f"duckdb:///{(folder / 'stef.duckdb').resolve()}"
    flags = {
        "date": week.first,
        "to": week.last,
        "logs": str(week.logs),
        "rules": str(week.rules),
        "warehouse": warehouse,
        "judge": "symbolic",
        "kind": "demo",
    }
    runs, failure = _score(flags, days=(week.last - week.first).days + 1, show=not (quiet or as_json))
    out = folder / "report.html"
    if failure is None:
        from tasks.report import write_report

        write_report(warehouse, out)
    _show_scores(runs, warehouse, failure, as_json=as_json, extra={"report": str(out.resolve())} if failure is None else {})
    if failure is None and not as_json:
        console = _console()
        console.print(f"Report     {out.resolve()}", soft_wrap=True, highlight=False)
        console.print(f"Warehouse  {warehouse}", soft_wrap=True, highlight=False)
    raise typer.Exit(tell_error(failure) if failure else DONE)


@app.command()
def score(
    logs: Annotated[str | None, typer.Option(help="Root of the query log: a path or a URI (s3://, gs://, abfs://).")] = None,
    date: Annotated[dt.date | None, typer.Option(parser=_day, metavar=DAY, help="UTC day; yesterday if not given.")] = None,
    to: Annotated[dt.date | None, typer.Option(parser=_day, metavar=DAY, help="Last day, to score several.")] = None,
    warehouse: WarehouseOption = None,
    rules: RulesOption = None,
    judge: JudgeOption = None,
    model: ModelOption = None,
    coverage_min: Annotated[float | None, typer.Option(help="Share of an agent's rows that must be scored, 0-1.")] = None,
    missing: Annotated[
        bool, typer.Option("--missing", help="Only days that are missing, failed, or whose files have changed.")
    ] = False,
    batch: Annotated[
        bool | None, typer.Option("--batch/--no-batch", help="Ask through the Batch API: cheaper, slower.")
    ] = None,
    runner: RunnerOption = None,
    address: AddressOption = None,
    dry_run: DryRunOption = False,
    out: Annotated[Path | None, typer.Option(help="Where a dry run writes the requests, as JSON lines.")] = None,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Score one or several days of a query log, and publish those that pass their gates."""
    if out is not None and not dry_run:
        raise _bad_input("--out: belongs to --dry-run")
    quiet_prefect()
    from tasks.settings import load_settings

    flags = {
        "logs": logs,
        "warehouse": warehouse,
        "rules": None if rules is None else str(rules),
        "judge": judge,
        "model": model,
        "coverage_min": coverage_min,
        "batch": batch,
        "runner": runner,
        "address": address,
    }
    settings = load_settings(flags)  # wrong settings are told before Prefect starts
    if batch and settings.judge == "symbolic":
        raise _bad_input("--batch: the symbolic judge asks no model; use --judge openai, or leave --batch out")
    if dry_run:
        raise typer.Exit(_dry_score(settings, date, to, out, as_json=as_json, show=not (quiet or as_json)))
    days = (to - date).days + 1 if date and to else 1
    given = {"date": date, "to": to, "missing": missing} | flags
    runs, error = _score(given, days=max(days, 1), show=not (quiet or as_json))
    _show_scores(runs, settings.warehouse, error, as_json=as_json)
    raise typer.Exit(tell_error(error) if error else DONE)


@app.command()
def explain(
    question: Annotated[str | None, typer.Option("--question", "-q", help="What the person asked.")] = None,
    enriched: Annotated[str | None, typer.Option("--enriched", "-e", help="How the agent reformulated it.")] = None,
    sql: Annotated[str | None, typer.Option("--sql", "-s", help="The SQL that the agent wrote; - reads it from stdin.")] = None,
    dialect: Annotated[str | None, typer.Option(help="Dialect of the SQL, by sqlglot's name.")] = None,
    rules: RulesOption = None,
    application: Annotated[str | None, typer.Option("--app", help="Application whose rules apply.")] = None,
    file: Annotated[Path | None, typer.Option(help="JSON lines to explain, one answer a line; - is stdin.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where the explained lines go; stdout if not given.")] = None,
    judge: JudgeOption = None,
    model: ModelOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Judge and explain one answer, or a file of them."""
    from tasks.settings import load_settings

    if (file is None) == (question is None and sql is None):
        raise _bad_input("explain takes either --question and --sql, or --file")
    settings = load_settings({"rules": rules, "judge": judge, "model": model})
    if file is not None:
        try:
            explain_it = _dry_explain_file if dry_run else _explain_file
            raise typer.Exit(explain_it(file, output, settings, application))
        except BrokenPipeError as stopped:  # the reader of a pipe, such as head, has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise typer.Exit(DONE) from stopped
    if question is None or sql is None:
        raise _bad_input("explain takes --question and --sql together")
    record = _record_of(question, enriched, sql, dialect, application)
    explain_one = _dry_explain_one if dry_run else _explain_one
    raise typer.Exit(explain_one(record, settings, application, as_json=as_json))


@app.command()
def report(
    warehouse: WarehouseOption = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = Path("stef-report.html"),
    as_json: JsonOption = False,
) -> None:
    """Write a self-contained HTML report of what the warehouse holds."""
    from tasks.report import write_report
    from tasks.settings import load_settings

    settings = load_settings({"warehouse": warehouse})
    written = write_report(settings.warehouse, out, wait_s=settings.warehouse_wait_s).resolve()
    typer.echo(json.dumps({"report": str(written)}) if as_json else f"Report  {written}")


@app.command()
def migrate(warehouse: WarehouseOption = None, as_json: JsonOption = False) -> None:
    """Make the tables of a warehouse, or bring them up to this version; whatever writes does so too, where it may."""
    from tasks.settings import load_settings
    from tasks.warehouse import connect

    settings = load_settings({"warehouse": warehouse})
    with connect(settings.warehouse, wait_s=settings.warehouse_wait_s) as store:
        newest = store.query("SELECT name FROM schema_migrations ORDER BY version DESC LIMIT 1")["name"].item()
    told = {"warehouse": settings.warehouse_shown, "schema": newest}
    typer.echo(json.dumps(told) if as_json else f"Warehouse  {told['warehouse']}, schema {newest}")


app.command()(backfill)
app.command()(calibrate)
app.command()(export)
app.command("import")(import_log)
rules_app.command("diff")(rules_diff)


@rules_app.command("check")
def rules_check(
    files: Annotated[list[Path], typer.Argument(help="Rules files.", metavar="FILE…")], as_json: JsonOption = False
) -> None:
    """Validate rules files; every fault is named by its path in the file."""
    from stef_core.errors import RuleError
    from stef_core.rules import load_rules

    results: list[dict[str, Any]] = []
    origin: dict[str, Path] = {}
    for file in files:
        try:
            rules = load_rules(file)
        except RuleError as error:
            results.append({"file": str(file), "ok": False, "errors": str(error).splitlines()})
            continue
        first = origin.setdefault(rules.app_id, file)
        errors = [] if first == file else [f"{file}: app_id {rules.app_id!r} is claimed by {first} too"]
        about = {"app_id": rules.app_id, "version": rules.version, "content_hash": rules.content_hash}
        results.append({"file": str(file), "ok": not errors, "errors": errors, **about})
    for result in [] if as_json else results:
        if result["ok"]:
            typer.echo(f"{result['file']}: ok (app {result['app_id']}, version {result['version']}, {result['content_hash']})")
        for line in result["errors"]:
            _complain(line)
    if as_json:
        typer.echo(json.dumps({"files": results}, ensure_ascii=False))
    raise typer.Exit(DONE if all(result["ok"] for result in results) else BAD_INPUT)


@rules_app.command("schema")
def rules_schema() -> None:
    """Print the JSON Schema of a rules file."""
    from stef_core.rules import rules_schema as schema

    typer.echo(json.dumps(schema(), indent=2, ensure_ascii=False))


def quiet_prefect() -> None:
    """Set, before Prefect is imported, what a first run offline needs; whoever set something else keeps it."""
    debug = _debugging()
    _check_prefect_home()
    for name, value in {
        "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_CLI_WRAP_LINES": "false",
        # an error a user can cause is told in one line, so Prefect must not add its traceback
        "PREFECT_LOGGING_LEVEL": "INFO" if debug else "CRITICAL",
        "PREFECT_LOGGING_INTERNAL_LEVEL": "ERROR" if debug else "CRITICAL",
        "PREFECT_LOGGING_EXTRA_LOGGERS": "flows,tasks,stef_core",
        "PREFECT_LOGGING_TO_API_WHEN_MISSING_FLOW": "ignore",  # a dry run logs as well, and is no flow
        "GX_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
    }.items():
        os.environ.setdefault(name, value)
    if not debug:
        for name in ("EventsWorker", "APILogWorker"):  # count on stderr what they still have to do at the end
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _check_prefect_home() -> None:
    """Refuse a folder that cannot be written, which Prefect answers with pages of tracebacks.

    Raises:
        RuleError: Names the folder.
    """
    home = Path(os.environ.get("PREFECT_HOME") or "~/.prefect").expanduser()
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _bad_input(f"{home}: cannot be written: {error.strerror}; set PREFECT_HOME to a folder that can") from error
    if not os.access(home, os.W_OK):
        raise _bad_input(f"{home}: cannot be written; set PREFECT_HOME to a folder that can")


def _score(flags: dict[str, Any], *, days: int, show: bool) -> tuple[list[dict[str, Any]], Exception | None]:
    """Run the flow; the runs that ended and the error that the flow ended with, if any."""
    from stef_core.errors import StefError
    from tasks.progress import BatchesLeft, DayEnded, listening
    from tasks.settings import load_settings

    runs: list[dict[str, Any]] = []
    with watch(days, show) as draw:

        def listen(event: Event) -> None:
            if isinstance(event, DayEnded):
                runs.append(event.run)
            if isinstance(event, BatchesLeft):
                _complain(str(event))
            draw(event)

        from flows.daily_scoring import daily_scoring  # takes seconds: the bar stands already
        from tasks.runners import task_runner

        try:
            runner = task_runner(load_settings({name: flags.get(name) for name in ("runner", "address")}))
            with listening(listen):
                daily_scoring.with_options(task_runner=runner)(**flags)
        except StefError as error:
            return runs, error
    return runs, None


def _found_days(days: list[tuple[dt.date, str]]) -> str:
    """Which days a run for missing ones found, in one line."""
    if not days:
        return "no day is missing, failed or changed"
    shown = ", ".join(f"{day} ({why})" for day, why in days[:NAMED])
    return f"{len(days)} days to score: {shown}{f' and {len(days) - NAMED} more' if len(days) > NAMED else ''}"


@contextmanager
def watch(days: int, show: bool) -> Iterator[Callable[[Event], None]]:
    """Draws a bar on a terminal, and a line a day elsewhere; both on stderr."""
    from tasks.progress import BatchWaits, DayEnded, DaysFound, DayStarted, RowsDone

    if not show:
        yield lambda _: None
        return
    console = _console(stderr=True)
    if not console.is_terminal:
        told: set[str] = set()

        def line(event: Event) -> None:
            if isinstance(event, BatchWaits) and str(event) not in told:  # looked at each minute, it may take hours
                told.add(str(event))
                console.print(str(event), highlight=False, soft_wrap=True)
            elif isinstance(event, DaysFound):
                console.print(_found_days(event.days), highlight=False)
            elif isinstance(event, DayEnded):
                run = event.run
                console.print(
                    f"{event.day}: {run['rows_scored']} of {run['rows_in']} rows scored, {run['outcome']}", highlight=False
                )

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        whole = bar.add_task("starting", total=days)
        today = bar.add_task("rows", total=None, visible=False)

        def advance(event: Event) -> None:
            if isinstance(event, DaysFound):
                bar.console.print(_found_days(event.days), highlight=False)
                bar.update(whole, total=len(event.days))
            elif isinstance(event, DayStarted):
                bar.update(whole, description=f"scoring {event.day}")
                bar.reset(today, total=event.rows, visible=True)
            elif isinstance(event, DayEnded):
                bar.advance(whole)
            elif isinstance(event, BatchWaits):
                bar.update(whole, description=str(event))
            elif isinstance(event, RowsDone):
                bar.update(whole, description=f"scoring {event.day}")
                bar.advance(today, event.rows)

        yield advance


def _show_scores(
    runs: list[dict[str, Any]], warehouse: str, error: Exception | None, *, as_json: bool, extra: dict[str, Any] | None = None
) -> None:
    """What was scored: the days, the agents, and what fell."""
    published = [run["run_id"] for run in runs if run["outcome"] == "published"]
    agents, alerts = _published(warehouse, runs, published)
    if as_json:
        told = {
            "outcome": "failed" if error else "published",
            "error": str(error) if error else None,
            "exit_code": code_of(error) if error else DONE,
            "runs": [_decoded(run, ("files", "gates", "notes")) for run in runs],
            "agents": [_decoded(row, ("shares",)) for row in agents.iter_rows(named=True)] if agents is not None else [],
            "alerts": [_decoded(row, ("detail",)) for row in alerts.iter_rows(named=True)] if alerts is not None else [],
        }
        typer.echo(json.dumps(told | (extra or {}), ensure_ascii=False, default=str))
        return
    from flows.terminal import agent_table, alerts_table, run_table
    from stef_core.wording import plain_text

    console = _console()
    means = _mean_by_day(agents)
    if runs:
        console.print(run_table([run | {"mean_phi": means.get(run["dt"])} for run in runs]))
    for note in _condensed(note for run in runs for note in json.loads(run["notes"] or "[]")):
        console.print(f"· {plain_text(note)}", highlight=False, markup=False)
    _show_warnings(console, runs)
    if agents is not None and alerts is not None:
        console.print()
        console.print(agent_table(agents))
        console.print()
        console.print(alerts_table(alerts))
        for row in alerts.filter(alerts["app_id"] == "*").iter_rows(named=True):
            _show_causes(console, row)


def _show_warnings(console: Console, runs: list[dict[str, Any]]) -> None:
    """What gates found unusual and let pass, the last days first."""
    from stef_core.wording import plain_text

    gates = [gate for run in reversed(runs) for gate in json.loads(run["gates"] or "[]")]
    told = [f["message"] for gate in gates for f in gate["failures"] if f["severity"] != "critical"]
    for message in told[:NOTES]:
        console.print(f"! {plain_text(message)}", style="yellow", highlight=False, markup=False)
    if len(told) > NOTES:
        console.print(f"! {len(told) - NOTES} more warnings stand in scoring_runs.gates", style="yellow", highlight=False)


def _condensed(notes: Iterable[str]) -> list[str]:
    """Notes of several days, each told once; lists that begin alike become one."""
    lists: dict[str, dict[str, None]] = {}
    for note in notes:
        what, _, items = note.partition(": ")
        lists.setdefault(what, {}).update(dict.fromkeys(items.split(", ")))
    told = []
    for what, items_of in lists.items():
        names = [name for name in items_of if name]
        more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
        told.append(f"{what}: {', '.join(names[:NAMED])}{more}" if names else what)
    return told if len(told) <= NOTES else [*told[:NOTES], f"{len(told) - NOTES} more notes stand in scoring_runs.notes"]


def _mean_by_day(agents: pl.DataFrame | None) -> dict[dt.date, float]:
    """Mean Φ of all scored rows of a day."""
    if agents is None:
        return {}
    import polars as pl

    whole = agents.filter((pl.col("app_id") == "*") & (pl.col("scored") > 0))
    means = whole.group_by("dt").agg((pl.col("mean_phi") * pl.col("scored")).sum() / pl.col("scored").sum())
    return dict(means.iter_rows())


def _show_causes(console: Console, alert: dict[str, Any]) -> None:
    """The findings behind a fall: how often now, how often before."""
    from rich.table import Table

    from stef_core.findings import CODES

    causes = json.loads(alert["detail"]).get("findings", [])
    found = [cause for cause in causes if cause["share"] - cause["share_before"] >= RISE]
    if not found:
        return
    table = Table(title=f"What {alert['agent_id']} does more of since {alert['dt']}", title_justify="left", title_style="bold")
    table.add_column("Finding", no_wrap=True)
    table.add_column("Before", justify="right", no_wrap=True)
    table.add_column("Now", justify="right", no_wrap=True)
    table.add_column("Meaning", overflow="fold")
    for each in found:
        meaning = CODES[each["code"]].meaning if each["code"] in CODES else ""
        table.add_row(each["code"], f"{each['share_before']:.0%}", f"{each['share']:.0%}", meaning)
    console.print()
    console.print(table)


def _published(
    warehouse: str, runs: list[dict[str, Any]], published: list[str]
) -> tuple[pl.DataFrame, pl.DataFrame] | tuple[None, None]:
    """``agent_daily`` and ``agent_alerts`` of these runs."""
    if not published:
        return None, None
    from tasks.settings import load_settings
    from tasks.warehouse import connect

    days = [run["dt"] for run in runs]
    with connect(warehouse, read_only=True, wait_s=load_settings().warehouse_wait_s) as store:
        agents, alerts = (store.read(name, since=min(days), until=max(days)) for name in ("agent_daily", "agent_alerts"))
    return agents.filter(agents["run_id"].is_in(published)), alerts.filter(alerts["run_id"].is_in(published))


def _record_of(question: str, enriched: str | None, sql: str, dialect: str | None, application: str | None) -> QueryRecord:
    from stef_core.records import QueryRecord

    return QueryRecord(
        query_id="explain",
        user_question=question,
        enriched_question=enriched,
        generated_sql=sys.stdin.read() if sql == "-" else sql,
        dialect=dialect,
        app_id=application or "default",
    )


def _explain_one(record: QueryRecord, settings: Settings, application: str | None, *, as_json: bool) -> int:
    from stef_core.evaluate import evaluate
    from stef_core.limits import row_limits
    from tasks.models import open_stages
    from tasks.secrets import with_secret

    pick = _rules_of(settings, application)
    limits = row_limits(seconds=settings.row_seconds, memory_mb=settings.row_memory_mb)
    with limits, open_stages(with_secret(settings)) as (reader, judge):
        evaluation = evaluate(record, pick(record), judge, reader)
    if as_json:
        typer.echo(_json_line(evaluation.to_json()))
    else:
        from flows.terminal import render_evaluation

        _console().print(render_evaluation(record, evaluation))
    return _unreached([evaluation.reason])


def _explain_file(file: Path, output: Path | None, settings: Settings, application: str | None) -> int:
    from stef_core.limits import row_limits
    from stef_core.lines import BAD_LINE, explain_lines
    from tasks.models import open_stages
    from tasks.secrets import with_secret

    pick = _rules_of(settings, application)
    bad = total = 0
    reasons: set[str | None] = set()
    with ExitStack() as stack:
        lines, sink = _ends(file, output, stack)
        stack.enter_context(row_limits(seconds=settings.row_seconds, memory_mb=settings.row_memory_mb))
        reader, judge = stack.enter_context(open_stages(with_secret(settings)))
        for explained in explain_lines(lines, pick, judge, reader):
            total += 1
            reason = explained["reason"]
            bad += str(reason).startswith(BAD_LINE)
            reasons.add(reason)
            sink.write(_json_line(explained).encode("utf-8") + b"\n")
        sink.flush()
    if bad:
        _complain(f"{bad} of {total} lines were bad; their reasons stand in the output")
    return _unreached(reasons)


def _ends(file: Path, output: Path | None, stack: ExitStack) -> tuple[BinaryIO, BinaryIO]:
    """The lines to explain, and where the explained ones go."""
    if output is not None and output.exists() and file.exists() and output.samefile(file):
        raise _bad_input(f"--output {output}: is the file that is read; choose another")
    lines = sys.stdin.buffer if str(file) == "-" else stack.enter_context(_open(file, "rb"))
    return lines, sys.stdout.buffer if output is None else stack.enter_context(_open(output, "wb"))


def _dry_explain_one(record: QueryRecord, settings: Settings, application: str | None, *, as_json: bool) -> int:
    from tasks.dry_run import SYMBOLIC, Summary, open_unsent, plan

    if settings.judge == "symbolic":
        return _nothing_sent(SYMBOLIC, as_json=as_json)
    summary = Summary()
    with open_unsent(settings) as chat:
        planned = list(plan([(record, _rules_of(settings, application)(record))], chat, summary))
    if as_json:
        typer.echo(_json_line({"requests": [each.to_json() for each in planned]} | {"summary": summary.to_json()}))
        return DONE
    for each in planned:
        _show_planned(each)
    if not planned:
        typer.echo("nothing would be sent of this answer: there is no question, no SQL, or SQL that cannot be read")
    _show_summary(summary)
    return DONE


def _dry_explain_file(file: Path, output: Path | None, settings: Settings, application: str | None) -> int:
    from stef_core.lines import rows_of_lines
    from tasks.dry_run import SYMBOLIC, Summary, open_unsent, plan

    if settings.judge == "symbolic":
        _complain(SYMBOLIC)
        return DONE
    summary = Summary()
    with ExitStack() as stack:
        lines, sink = _ends(file, output, stack)
        chat = stack.enter_context(open_unsent(settings))
        for row in rows_of_lines(lines, _rules_of(settings, application)):
            if isinstance(row, str):
                _complain(row)
                continue
            for each in plan([row], chat, summary):
                sink.write(_json_line(each.to_json()).encode("utf-8") + b"\n")
        sink.flush()
    _show_summary(summary, err=True)
    return DONE


def _dry_score(
    settings: Settings, date: dt.date | None, to: dt.date | None, out: Path | None, *, as_json: bool, show: bool
) -> int:
    from tasks.dry_run import SYMBOLIC, Summary, json_lines, open_unsent, plan_days
    from tasks.progress import listening
    from tasks.settings import application_rules

    if settings.judge == "symbolic":
        return _nothing_sent(SYMBOLIC, as_json=as_json)
    from flows.daily_scoring import days_between, logs_of

    logs_of(settings)
    days = days_between(date or dt.datetime.now(dt.UTC).date() - dt.timedelta(days=1), to)
    summary = Summary()
    shown: list[Planned] = []
    with ExitStack() as stack:
        chat = stack.enter_context(open_unsent(settings))
        write = stack.enter_context(json_lines(out)) if out is not None else None
        draw = stack.enter_context(watch(len(days), show))
        stack.enter_context(listening(draw))
        for each in plan_days(settings, application_rules(settings), days, chat, summary):
            if write is not None:
                write(each.to_json())
            elif len(shown) < SHOWN:
                shown.append(each)
    if as_json:
        told = summary.to_json() | ({"out": str(out.resolve())} if out is not None else {})
        typer.echo(_json_line(told | ({} if out is not None else {"first": [each.to_json() for each in shown]})))
        return DONE
    for each in shown:
        _show_planned(each)
    _show_summary(summary, out)
    return DONE


def _nothing_sent(why: str, *, as_json: bool) -> int:
    typer.echo(json.dumps({"requests": [], "note": why}) if as_json else why)
    return DONE


def _show_planned(planned: Planned) -> None:
    """A request: what is asked of whom, the system prompt by its version, the data whole."""
    from stef_core.prompts import prompt_of

    request, tokens = planned.request, f"about {planned.tokens} tokens"
    where = "its answer is in the cache" if planned.cached else "not in the cache"
    reading = {"offline": "rests on the offline reading", "model": "rests on the model's reading"}.get(planned.reading or "")
    about = [f"model {request.model}", f"schema {request.schema_name}", tokens, where, *([reading] if reading else [])]
    from stef_core.wording import plain_text

    typer.echo(f"{plain_text(planned.query_id)} · {planned.stage} · {' · '.join(about)}")
    for message in request.messages:
        prompt = prompt_of(message.content)
        typer.echo(f"{message.role}: prompt {prompt.version}" if prompt is not None else f"{message.role}:\n{message.content}")
    typer.echo()


def _show_summary(summary: Summary, out: Path | None = None, *, err: bool = False) -> None:
    from stef_core.wording import plain_text

    told = summary.to_json()
    lines = [
        f"rows: {told['rows']}, requests: {told['requests']}, distinct: {told['distinct_requests']}, already in the cache: "
        f"{told['in_cache']}; about {told['tokens_estimate']} tokens would be sent, nothing was",
        *(f"· {plain_text(note)}" for note in told["notes"]),
    ]
    if out is not None:
        lines.append(f"Requests  {out.resolve()}")
    for line in lines:
        typer.echo(line, err=err)


def _rules_of(settings: Settings, application: str | None) -> Callable[[QueryRecord], Rules]:
    """The rules of a record: of the one file that is named, else of its application."""
    from stef_core.errors import RuleError
    from stef_core.evaluate import rules_picker
    from tasks.settings import application_rules

    rules = application_rules(settings)
    if settings.rules is not None and settings.rules.is_file():
        only = next(iter(rules.values()))
        return lambda _: only
    if application is not None and application not in rules:
        raise RuleError(f"--app {application}: has no rules; there are rules for {', '.join(sorted(rules))}")
    return rules_picker(rules) if application is None else lambda _: rules[application]


def _unreached(reasons: Iterable[str | None]) -> int:
    """Exit code of explained answers: 3 when an endpoint answered for none of them."""
    from stef_core.rows import UNANSWERED

    every = set(reasons)
    if every and every <= UNANSWERED:
        _complain("the endpoint did not answer; see that STEF_BASE_URL is up and try again")
        return UNREACHED
    return DONE


def _open(path: Path, mode: str) -> BinaryIO:
    try:
        return path.open(mode)  # type: ignore[return-value]  # binary modes only
    except OSError as error:
        raise _bad_input(f"{path}: cannot be {'read' if mode == 'rb' else 'written'}: {error.strerror}") from error


def _json_line(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False)
    # a lone surrogate, which JSON may carry, has no UTF-8
    return text if text.isascii() or _encodes(text) else json.dumps(value)


def _encodes(text: str) -> bool:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _decoded(row: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """A row with its JSON columns as values."""
    return row | {name: json.loads(row[name]) for name in names if row.get(name)}


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)


def _debugging() -> bool:
    return os.environ.get("STEF_DEBUG", "") not in ("", "0", "false")


def _bad_input(message: str) -> Exception:
    from stef_core.errors import RuleError

    return RuleError(message)


def _complain(message: str) -> None:
    from stef_core.wording import plain_text

    typer.echo(plain_text(message), err=True)


def code_of(error: Exception) -> int:
    """The exit code that an error stands for."""
    from stef_core.errors import GateError, StefError, TransientError

    if isinstance(error, GateError):
        return GATE_FAILED
    if isinstance(error, TransientError):
        return UNREACHED
    return BAD_INPUT if isinstance(error, StefError) else CRASHED


def _interrupted(error: BaseException | None) -> bool:
    """Whether an error is what Prefect made of an interruption on its way up."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt):
            return True
        error = error.__cause__ or error.__context__
    return False


def _misused(error: typer.TyperException) -> int:
    """Tell a wrong command or option in one line; where a subcommand lacks, show the help."""
    if type(error).__name__ == "NoArgsIsHelpError":
        typer.echo(error.format_message())
        return BAD_INPUT
    context = getattr(error, "ctx", None)
    message = " ".join(error.format_message().split()).rstrip(".")
    _complain(f"error: {message}; see {context.command_path if context else 'stef'} --help")
    return BAD_INPUT


def tell_error(error: Exception) -> int:
    """Tell an error in one line, with its traceback when debugging; its exit code."""
    from stef_core.errors import StefError

    if _debugging():
        import traceback

        traceback.print_exception(error)
    if isinstance(error, StefError):
        _complain(f"error: {error}")
        return code_of(error)
    if "ephemeral Prefect API server" in str(error):
        _complain(
            "error: the Prefect server of this run did not start; see that this machine reaches itself at 127.0.0.1, or set"
            " PREFECT_API_URL to a running server"
        )
        return UNREACHED
    if "Failed to reach API" in str(error) or type(error).__module__.split(".")[0] in ("httpx", "httpcore"):
        _complain(f"error: the Prefect server could not be reached ({error}); see PREFECT_API_URL")
        return UNREACHED
    _complain(f"error: unexpected {type(error).__name__}: {error} (STEF_DEBUG=1 shows where)".replace("\n", " "))
    return CRASHED
