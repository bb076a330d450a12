"""``stef cache``: what the answer cache holds and saved, and how it is made smaller."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands_calibrate import open_console

if TYPE_CHECKING:
    from rich.table import Table

    from tasks.cache_upkeep import CacheStats, Pruned
    from tasks.settings import Settings

SECONDS = {"h": 3600, "d": 86_400, "w": 604_800}
BYTES = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}

cache_app = typer.Typer(
    help="Look into the cache of answers already paid for, and prune it.", no_args_is_help=True, rich_markup_mode=None
)


def read_age(text: str) -> float:
    """Seconds of an age such as ``90d``.

    Raises:
        BadParameter: It has another form.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([hdw])", text.strip())
    if found is None:
        raise typer.BadParameter(f"{text!r} is no age; write hours, days or weeks, as in 12h, 90d or 8w")
    return float(found[1]) * SECONDS[found[2]]


def read_size(text: str) -> int:
    """Bytes of a size such as ``500MB``.

    Raises:
        BadParameter: It has another form.
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMG]?I?B)", text.strip().upper())
    if found is None or found[2] not in BYTES:
        raise typer.BadParameter(f"{text!r} is no size; write it as in 500MB, 1.5GB or 200MiB")
    return int(float(found[1]) * BYTES[found[2]])


JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]


@cache_app.command("stats")
def stats(as_json: JsonOption = False) -> None:
    """Say what the cache holds, by model and schema, and what it saved."""
    from tasks.cache_upkeep import cache_stats

    settings = _settings()
    found = cache_stats(_file(settings), journal=settings.cache_journal)
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False))
        return
    for line in _head(found):
        typer.echo(line)
    if found.kept:
        console = open_console()
        console.print()
        console.print(_table(found))


@cache_app.command("prune")
def prune(
    older_than: Annotated[
        float | None, typer.Option(parser=read_age, metavar="AGE", help="Answers not asked for since, e.g. 90d.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Answers of this model.")] = None,
    failures: Annotated[bool, typer.Option("--failures", help="Settled failures alone; they are asked again.")] = False,
    max_size: Annotated[
        int | None,
        typer.Option(parser=read_size, metavar="SIZE", help="The longest unused, until the file is this small, e.g. 500MB."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, say what would go.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Remove what meets all of --older-than, --model and --failures, then what --max-size leaves no room for."""
    from tasks.cache_upkeep import Wish, prune_cache

    settings = _settings()
    wish = Wish(older_than_s=older_than, model=model, failures=failures, max_bytes=max_size)
    pruned = prune_cache(_file(settings), wish, journal=settings.cache_journal, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps(pruned.to_json(), ensure_ascii=False))
        return
    for line in _told(pruned):
        typer.echo(line)


def size_text(count: int) -> str:
    """Bytes for a person: ``1.2 MB``."""
    for name, unit in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count} B"


def _settings() -> Settings:
    from tasks.settings import load_settings

    return load_settings()


def _file(settings: Settings) -> Path:
    from stef_core.errors import RuleError

    if settings.cache is None:
        raise RuleError("no answer cache is set; see STEF_CACHE")
    return settings.cache


def _head(found: CacheStats) -> list[str]:
    if not found.exists:
        return [f"No answers are kept yet: {found.file} is made when a model is first asked."]
    answers, failures, hits = (found.total(name) for name in ("answers", "failures", "hits"))
    saved = found.total("saved_in") + found.total("saved_out")
    lines = [
        f"File     {found.file}",
        f"Size     {size_text(found.size_bytes)}, journal {found.journal}",
        f"Kept     {answers:,} answers, {failures:,} settled failures",
        f"Saved    {hits:,} requests, {saved:,} tokens",
    ]
    if found.oldest is not None and found.newest is not None:
        lines.append(f"Arrived  {found.oldest:%Y-%m-%d %H:%M} to {found.newest:%Y-%m-%d %H:%M} UTC")
    if found.last_used is not None:
        lines.append(f"Used     last {found.last_used:%Y-%m-%d %H:%M} UTC")
    return lines


def _table(found: CacheStats) -> Table:
    from rich.table import Table
    from rich.text import Text

    from stef_core.wording import plain_text

    table = Table(title="By model", title_justify="left", header_style="bold", title_style="bold")
    table.add_column("Model", overflow="fold")
    table.add_column("Schema", overflow="fold")
    for name in ("Answers", "Failures", "Tokens paid", "Saved", "Tokens saved"):
        table.add_column(name, justify="right", no_wrap=True)
    for kept in found.kept:
        figures = (kept.answers, kept.failures, kept.tokens_in + kept.tokens_out, kept.hits, kept.saved_in + kept.saved_out)
        names = (Text(plain_text(name) or "–") for name in (kept.model, kept.schema))
        table.add_row(*names, *(f"{figure:,}" for figure in figures))
    return table


def _told(pruned: Pruned) -> list[str]:
    did, freed, about = ("would go", "would be freed", "about ") if pruned.dry_run else ("removed", "freed", "")
    lines = [
        f"{pruned.answers:,} answers and {pruned.failures:,} settled failures {did}, {pruned.left:,} left",
        f"{about}{size_text(pruned.freed_bytes)} {freed}, {pruned.file} is {about}{size_text(pruned.size_bytes)}",
    ]
    return lines if pruned.note is None else [*lines, pruned.note]
