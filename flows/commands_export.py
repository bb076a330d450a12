"""``stef export``: published tables as Parquet or Delta, for lakes."""

from __future__ import annotations

import datetime as dt
import json
from typing import Annotated

import typer

DAY = "YYYY-MM-DD"


def read_day(text: str) -> dt.date:
    """A UTC day of the command line.

    Raises:
        BadParameter: It is none.
    """
    try:
        return dt.datetime.strptime(text, "%Y-%m-%d").date()  # noqa: DTZ007  # a UTC day has no time
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no day of the calendar; write YYYY-MM-DD") from error


def export(
    out: Annotated[str, typer.Option(help="Folder, or URI of one (s3://, gs://, abfs://); a table is a folder in it.")],
    form: Annotated[str, typer.Option("--format", help="parquet or delta.")] = "parquet",
    warehouse: Annotated[
        str | None, typer.Option(help="URL of the warehouse: duckdb:///stef.duckdb or postgresql://….")
    ] = None,
    since: Annotated[
        dt.date | None, typer.Option(parser=read_day, metavar=DAY, help="First UTC day; all if not given.")
    ] = None,
    until: Annotated[dt.date | None, typer.Option(parser=read_day, metavar=DAY, help="Last UTC day; all if not given.")] = None,
    tables: Annotated[str | None, typer.Option(help="Which tables, a comma between them; all if not given.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
) -> None:
    """Copy the published tables to a folder of Parquet or Delta, a partition a day; days are replaced whole."""
    from stef_core.errors import RuleError
    from tasks.export import FORMATS, export_tables
    from tasks.settings import load_settings

    if form not in FORMATS:
        raise RuleError(f"--format {form!r} is not known; write {' or '.join(FORMATS)}")
    settings = load_settings({"warehouse": warehouse})
    names = [name.strip() for name in (tables or "").split(",") if name.strip()]
    done = export_tables(
        settings.warehouse, out, form, since=since, until=until, tables=names, wait_s=settings.warehouse_wait_s
    )
    if as_json:
        typer.echo(json.dumps({"format": form, "tables": [one.to_json() for one in done]}, ensure_ascii=False))
        return
    width = max(len(one.table) for one in done)
    for one in done:
        days = "whole" if one.days is None else f"{one.days:,} days" + (f", {one.removed:,} removed" if one.removed else "")
        typer.echo(f"{one.table:<{width}}  {one.rows:>9,} rows  {days:<24}  {one.path}")
