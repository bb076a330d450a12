"""``stef backfill`` and ``stef rules diff``: what a change touches, what scoring it again takes, and what moved."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands_calibrate import open_console

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tasks.progress import Event

DAY = "YYYY-MM-DD"
SHOWN_DAYS, SHOWN_ROWS = 40, 5


def _day(text: str) -> dt.date:
    try:
        return dt.datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007  # a UTC day has no time
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no day of the calendar; write YYYY-MM-DD") from error


DayOption = Annotated[dt.date | None, typer.Option(parser=_day, metavar=DAY)]
WarehouseOption = Annotated[str | None, typer.Option(help="URL of the warehouse, e.g. duckdb:///stef.duckdb.")]
RunnerOption = Annotated[str | None, typer.Option(help="Where batches are worked on: threads, or dask.")]
AddressOption = Annotated[str | None, typer.Option(help="Scheduler of Dask, e.g. tcp://host:8786.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


def backfill(
    logs: Annotated[str | None, typer.Option(help="Root of the query log: a path or a URI (s3://, gs://, abfs://).")] = None,
    first: Annotated[
        dt.date | None,
        typer.Option("--from", parser=_day, metavar=DAY, help="First UTC day; the first published one."),
    ] = None,
    last: Annotated[
        dt.date | None, typer.Option("--to", parser=_day, metavar=DAY, help="Last UTC day; the last published one.")
    ] = None,
    warehouse: WarehouseOption = None,
    rules: Annotated[Path | None, typer.Option(help="Folder of rules files, or one file.")] = None,
    judge: Annotated[str | None, typer.Option(help="symbolic or openai.")] = None,
    model: Annotated[str | None, typer.Option(help="Model id at the endpoint.")] = None,
    coverage_min: Annotated[float | None, typer.Option(help="Share of an agent's rows that must be scored, 0-1.")] = None,
    batch: Annotated[
        bool | None, typer.Option("--batch/--no-batch", help="Ask through the Batch API: cheaper, slower.")
    ] = None,
    runner: RunnerOption = None,
    address: AddressOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say how many rows, calls, tokens and how much money.")] = False,
    as_json: JsonOption = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Score published days again after a change; only rows that the change touches, and say what moved."""
    from flows.cli import code_of, quiet_prefect, tell_error, watch
    from stef_core.errors import StefError
    from tasks.progress import DayMoved, listening
    from tasks.settings import load_settings

    quiet_prefect()
    flags: dict[str, Any] = {
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
    results: list[dict[str, Any]] = []
    failure: StefError | None = None
    days = (last - first).days + 1 if first and last else 1
    with watch(max(days, 1), show=not (quiet or as_json)) as draw:

        def listen(event: Event) -> None:
            if isinstance(event, DayMoved):
                results.append(event.result)
            draw(event)

        from flows.backfill import backfill as run_backfill  # takes seconds: the bar stands already
        from tasks.runners import task_runner

        try:
            with listening(listen):
                run_backfill.with_options(task_runner=task_runner(settings))(first=first, last=last, dry_run=dry_run, **flags)
        except StefError as error:
            failure = error
    if as_json:
        told = {
            "dry_run": dry_run,
            "days": [_plain(result) for result in results],
            "error": str(failure) if failure else None,
            "exit_code": code_of(failure) if failure else 0,
        }
        typer.echo(json.dumps(told, ensure_ascii=False, default=str))
    else:
        console = open_console()
        for part in planned_parts(results) if dry_run else moved_parts(results):
            console.print(part)
    raise typer.Exit(tell_error(failure) if failure else 0)


def planned_parts(results: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """What a backfill would do: rows, calls, tokens and money, by day and together."""
    from rich.table import Table

    table = Table(title="What a backfill would do", title_justify="left", title_style="bold")
    for name in ("Day", "Rows", "Anew", "Because of", "LLM calls", "Tokens", "Cost"):
        table.add_column(name, justify="left" if name in ("Day", "Because of") else "right", no_wrap=name != "Because of")
    for result in results[:SHOWN_DAYS]:
        table.add_row(str(result["day"]), *_planned([result]))
    if len(results) > SHOWN_DAYS:
        table.add_row("…", *_planned(results[SHOWN_DAYS:]))
    table.add_section()
    table.add_row("together", *_planned(results))
    return [table, "Nothing was written and nobody was asked. Calls are those that the answer cache does not hold."]


def _planned(results: Sequence[Mapping[str, Any]]) -> list[str]:
    causes: dict[str, int] = {}
    for result in results:
        for name, rows in result["causes"].items():
            causes[name] = causes.get(name, 0) + rows
    total = {name: sum(result["estimate"][name] for result in results) for name in ("calls", "tokens_in", "tokens_out", "cost")}
    return [
        f"{sum(result['rows'] for result in results):,}",
        f"{sum(result['redone'] for result in results):,}",
        ", ".join(f"{name} {rows:,}" for name, rows in causes.items()) or "–",
        f"{total['calls']:,}",
        f"{total['tokens_in'] + total['tokens_out']:,}",
        f"{total['cost']:,.2f}",
    ]


def moved_parts(results: Sequence[Mapping[str, Any]]) -> list[RenderableType]:
    """What a backfill did: rows scored anew by day and cause, and what moved by agent."""
    from rich.table import Table
    from rich.text import Text

    from stef_core.wording import plain_text

    redone = sum(result["redone"] for result in results)
    rows = sum(result["rows"] for result in results)
    written = sum(result["run"] is not None for result in results)
    parts: list[RenderableType] = [f"{redone:,} of {rows:,} rows of {len(results)} days scored anew; {written} days written."]
    agents: dict[str, dict[str, float]] = {}
    for result in results:
        for moved in result["moved"]:
            sums = agents.setdefault(moved["agent_id"], dict.fromkeys(("rows", "moved", "up", "down", "other_band"), 0.0))
            for name in sums:
                sums[name] += moved[name]
            for name in ("mean_before", "mean_after"):
                sums[name] = sums.get(name, 0.0) + (moved[name] or 0.0) * moved["rows"]
    table = Table(title="What moved", title_justify="left", title_style="bold")
    for name in ("Agent", "Rows", "Moved", "Up", "Down", "Other band", "Mean Φ before", "after", "change"):
        table.add_column(name, justify="left" if name == "Agent" else "right", overflow="fold")
    for agent, sums in sorted(agents.items(), key=lambda pair: -pair[1]["moved"]):
        before, after = (sums[name] / sums["rows"] for name in ("mean_before", "mean_after"))
        counts = [f"{int(sums[name]):,}" for name in ("rows", "moved", "up", "down", "other_band")]
        table.add_row(Text(plain_text(agent)), *counts, f"{before:.1f}", f"{after:.1f}", f"{after - before:+.1f}")
    if agents:
        parts.append(table)
    return parts


def rules_diff(
    old: Annotated[Path, typer.Argument(help="Rules as they are: a file or a folder.")],
    new: Annotated[Path, typer.Argument(help="Rules as they will be: a file or a folder.")],
    warehouse: WarehouseOption = None,
    first: Annotated[dt.date | None, typer.Option("--from", parser=_day, metavar=DAY, help="Count from this day on.")] = None,
    last: Annotated[dt.date | None, typer.Option("--to", parser=_day, metavar=DAY, help="Count up to this day.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Say what differs between two versions of rules, and with a warehouse which scored rows that can touch."""
    from tasks.rules_diff import compare_rules

    found = compare_rules(old, new, warehouse=warehouse, first=first, last=last)
    if as_json:
        typer.echo(json.dumps(found, ensure_ascii=False, default=str))
        return
    for application in found["applications"]:
        typer.echo(f"{application['app_id']}:")
        for change in application["changes"]:
            typer.echo(f"  {change}")
    if not found["applications"]:
        typer.echo("no difference that can change a score")
    if warehouse is None:
        return
    from stef_core.wording import plain_text

    typer.echo("")
    typer.echo(f"{found['touched']:,} of {found['rows']:,} scored rows can change:")
    for group in found["agents"]:
        shown = plain_text(", ".join(group["examples"][:SHOWN_ROWS]))
        typer.echo(f"  {plain_text(group['agent_id'])}: {group['touched']:,} of {group['rows']:,} (e.g. {shown})")
    for cause in found["causes"]:
        typer.echo(f"  {cause['rows']:,} rows by {cause['change']}")
    if found["unknown"]:
        typer.echo(f"  {found['unknown']:,} rows were scored before rows kept what bears on them; each counts as touched")


def _plain(result: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "run"} | {
        "run_id": result["run"]["run_id"] if result["run"] else None
    }
