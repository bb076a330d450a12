"""``stef calibrate``: how far Φ and p_right can be trusted, as tables or as one JSON object."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table

    from stef_core.calibration import Calibration, Group, Interval, Told
    from tasks.calibrate import Calibrated

WIDTH = 100  # of tables where there is no terminal to ask
GROUPS_SHOWN = 12  # rows of one table on a terminal; the JSON and the report hold all
SUB_TYPES_SHOWN = 12


def calibrate(
    labelled: Annotated[
        str | None, typer.Option(help="Labelled answers: .parquet, .jsonl, .csv, or a warehouse's URL.", metavar="FILE")
    ] = None,
    judge: Annotated[
        str | None, typer.Option(help="symbolic or openai; of a warehouse, the published scores if not given.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model id at the endpoint.")] = None,
    rules: Annotated[Path | None, typer.Option(help="Folder of rules files, or one file.")] = None,
    threshold: Annotated[float, typer.Option(help="Φ from which on an answer counts as right, 0-100.")] = 75.0,
    source: Annotated[list[str] | None, typer.Option(help="Keep only rows of this source; may be repeated.")] = None,
    columns: Annotated[
        list[str] | None, typer.Option("--map", help="COLUMN=NAME: the file's name of a column; may be repeated.")
    ] = None,
    refit_folds: Annotated[
        bool, typer.Option("--refit-folds", help="Judge each row by a symbolic model fitted on the other folds.")
    ] = False,
    folds: Annotated[int, typer.Option(help="Parts for fitting; no database or question stands in two.")] = 5,
    catalogue: Annotated[bool, typer.Option(help="Use what the rows show of tables, columns and joins.")] = True,
    seed: Annotated[int, typer.Option(help="Of folds and resamples.")] = 7,
    resamples: Annotated[int, typer.Option(help="Resamples of questions for the 95 % intervals.")] = 1000,
    out: Annotated[Path | None, typer.Option(help="HTML report to write, with curves.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Measure on labelled answers how far Φ and p_right can be trusted."""
    from stef_core.calibration import Plan
    from tasks.calibrate import Request, check_request, labelled_of, run_calibration, takes_published
    from tasks.secrets import with_secret
    from tasks.settings import load_settings

    settings = load_settings({"judge": judge, "model": model, "rules": rules})
    labelled = labelled_of(labelled, settings)
    request = Request(
        labelled=labelled,
        columns=read_mapping(columns or []),
        sources=tuple(source or ()),
        catalogue=catalogue,
        refit=refit_folds,
        published=takes_published(labelled, judge, refit=refit_folds),
        plan=Plan(threshold=threshold, folds=folds, seed=seed, resamples=resamples),
    )
    check_request(request, settings)
    with show_steps(show=not (quiet or as_json)) as tell:
        found = run_calibration(request, with_secret(settings), tell)
    if out is not None:
        from tasks.calibration_report import write_calibration

        write_calibration(found, out)
    written = {} if out is None else {"report": str(out.resolve())}
    if as_json:
        typer.echo(json.dumps(found.to_json() | written, ensure_ascii=False))
        return
    console = open_console()
    for part in tables(found):
        console.print(part)
    for name, path in written.items():
        console.print(f"{name.title()}  {path}", soft_wrap=True, highlight=False, markup=False)


def tables(calibrated: Calibrated) -> Iterator[RenderableType]:
    """What is found, as tables of at most `WIDTH` columns."""
    from rich.text import Text

    found = calibrated.found
    yield _head(calibrated)
    if found.phi is None:
        return
    yield Text()
    yield _summary(found)
    yield Text()
    yield _reliability(found)
    if found.error_types:
        yield Text()
        yield _errors(found)
    for kind, title in (("fit", "Seen by the fit"), ("source", "Sources"), ("agent", "Agents"), ("feature", "SQL features")):
        if kind in found.groups:
            yield Text()
            yield _groups(title, found.groups[kind])
    yield Text()
    yield _anchors(found)


def _head(calibrated: Calibrated) -> RenderableType:
    from rich.console import Group as Lines
    from rich.text import Text

    from stef_core.wording import plain_text

    found = calibrated.found
    judge = f"{calibrated.judge} {calibrated.model}" if calibrated.model else calibrated.judge
    warn = calibrated.sample in ("in_sample", "partly_in_sample")
    facts = [
        f"{found.rows:,} labelled answers to {found.questions:,} questions on {found.databases:,} databases",
        f"coverage {found.coverage:.1%}",
        f"right by label {_figure(found.base_rate)}",
        f"judge {judge}, {calibrated.scores_text}",
    ]
    lines = [Text(plain_text(calibrated.labelled), style="bold"), Text(plain_text(" · ".join(facts)))]
    lines.append(Text(calibrated.sample_text, style="bold yellow" if warn else "green"))
    if found.unscored:
        reasons = ", ".join(f"{reason} {n:,}" for reason, n in found.unscored.items())
        lines.append(Text(plain_text(f"Left out as unscored: {reasons}"), style="dim"))
    return Lines(*lines, *(Text(plain_text(f"· {note}"), style="dim") for note in found.notes))


def _summary(found: Calibration) -> RenderableType:
    from tasks.calibration_report import NAMES, SHOWN, summary_cell, summary_rows

    scores = [(name, f) for name, f in (("phi", found.phi), ("p_right", found.p_right)) if f is not None]
    fitted = [(name, f) for name, f in (("phi", found.phi_fitted), ("p_right", found.p_right_fitted)) if f is not None]
    table = _table("Right or wrong", "Figure")
    for name, figures in scores:
        table.add_column(f"{NAMES[name]} ≥ {figures.cut:g}", justify="right", no_wrap=True)
    for name, _ in fitted:
        table.add_column(f"{NAMES[name]} fitted", justify="right", no_wrap=True)
    for key, word in summary_rows():
        cells = [_figure(summary_cell(figures, key)) for _, figures in scores]
        cells += [_figure(getattr(each.decision, key)) if key in SHOWN else "" for _, each in fitted]
        table.add_row(word, *cells)
    if found.ranking is not None:
        ranks = [_figure(found.ranking.phi), _figure(found.ranking.p_right)][: len(scores)]
        table.add_row(f"Spearman, {found.ranking.agents} agents", *ranks, *("" for _ in fitted))
    lines = [f"{found.plan.resamples:,} resamples of questions; 95 % intervals."]
    for name, each in fitted:
        cuts = ", ".join(f"{cut:.4g}" for cut in sorted(set(each.cuts)))
        whole = "" if each.cut is None else f"; on all rows {each.cut:.4g}"
        lines.append(f"{NAMES[name]} fitted: cut for the highest κ, split by {found.split_by}: {cuts}{whole}.")
    table.caption = "\n".join(lines)
    return table


def _reliability(found: Calibration) -> RenderableType:
    from tasks.calibration_report import NAMES

    pairs = [("p_right", found.p_right_reliability), ("gamma", found.gamma_reliability)]
    known = [(name, each) for name, each in pairs if each is not None]
    table = _table("Does a stated probability come true?", "Bin")
    for name, _ in known:
        for word in ("rows", "stated", "true"):
            table.add_column(f"{NAMES[name]} {word}", justify="right", no_wrap=True)
    for low in sorted({b.low for _, each in known for b in each.bins}):
        cells: list[str] = []
        for _, each in known:
            found_bin = next((b for b in each.bins if b.low == low), None)
            cells += [f"{found_bin.rows:,}", f"{found_bin.mean:.3f}", f"{found_bin.share:.3f}"] if found_bin else ["", "", ""]
        table.add_row(f"{low:.1f}–{low + 0.1:.1f}", *cells)
    errors = ", ".join(f"{NAMES[name]} {_figure(each.ece)}" for name, each in known)
    table.caption = f"Expected calibration error: {errors or 'not known'}"
    return table


def _errors(found: Calibration) -> RenderableType:
    table = _table("Wrong answers caught at 10 % false alarms", "Error type")
    for word in ("Rows", "Φ", "p right"):
        table.add_column(word, justify="right", no_wrap=True)
    for row in found.error_types:
        table.add_row(_name(row.name, small=row.small), f"{row.rows:,}", _figure(row.phi), _figure(row.p_right))
    subs = found.error_sub_types
    if subs:
        table.add_section()
    for row in subs[:SUB_TYPES_SHOWN]:
        name = _name(row.name.partition("/")[2] or row.name, small=row.small)
        table.add_row(name, f"{row.rows:,}", _figure(row.phi), _figure(row.p_right))
    more = f"; {len(subs) - SUB_TYPES_SHOWN} rarer sub types stand in --json and --out" if len(subs) > SUB_TYPES_SHOWN else ""
    table.caption = f"~ few rows{more}"
    return table


def _groups(title: str, groups: Sequence[Group]) -> RenderableType:
    table = _table(title, "Group")
    for word in ("Rows", "Right", "Φ acc.", "Φ κ", "Φ AUROC", "p acc.", "p κ", "p AUROC", "95 %"):
        table.add_column(word, justify="right", no_wrap=True)
    for group in groups[:GROUPS_SHOWN]:
        cells = []
        for figures in (group.phi, group.p_right):
            if figures is None:
                cells += ["", "", ""]
                continue
            cells += [_value(figures.decision.accuracy), _value(figures.decision.kappa), _value(figures.auroc)]
        span = "" if group.p_right is None else _span(group.p_right.auroc)
        table.add_row(_name(group.name, small=group.small), f"{group.rows:,}", _value(group.base_rate), *cells, span)
    more = f"; {len(groups) - GROUPS_SHOWN} smaller groups stand in --json and --out" if len(groups) > GROUPS_SHOWN else ""
    table.caption = f"~ few rows{more}"
    return table


def _anchors(found: Calibration) -> RenderableType:
    table = _table("Published figures beside", "What")
    for word in ("Figure", "The judge sees", "From"):
        table.add_column(word, overflow="fold")
    for anchor in found.anchors:
        table.add_row(anchor.what, anchor.figure, anchor.sees, anchor.source)
    return table


def _table(title: str, first: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", caption_justify="left", box=box.SIMPLE_HEAD)
    table.add_column(first, overflow="fold")
    return table


def _name(name: str, *, small: bool) -> RenderableType:
    from rich.text import Text

    from stef_core.wording import plain_text

    return Text(plain_text(f"~ {name}" if small else name), style="dim" if small else "")


def _value(interval: Interval) -> str:
    return "–" if interval.value is None else f"{interval.value:.2f}"


def _figure(interval: Interval) -> str:
    """A figure with its interval: ``0.751 [.72-.78]``."""
    if interval.value is None:
        return "–"
    span = _span(interval)
    return f"{interval.value:.3f} [{span}]" if span else f"{interval.value:.3f}"


def _span(interval: Interval) -> str:
    return "" if interval.low is None or interval.high is None else f"{_short(interval.low)}-{_short(interval.high)}"


def _short(value: float) -> str:
    text = f"{value:.2f}"
    return text.replace("0.", ".", 1) if abs(value) < 0.995 else text


def read_mapping(pairs: Sequence[str]) -> dict[str, str]:
    """Values of ``--map COLUMN=NAME`` as our name of a column → the file's.

    Raises:
        InputError: A value is of another form.
    """
    from stef_core.errors import InputError

    out = {}
    for pair in pairs:
        name, separator, theirs = pair.partition("=")
        if not separator or not name.strip() or not theirs.strip():
            raise InputError(f"--map {pair}: write COLUMN=NAME, as in --map label=is_correct")
        out[name.strip()] = theirs.strip()
    return out


@contextmanager
def show_steps(*, show: bool, lines: int = 1) -> Iterator[Told]:
    """A bar on a terminal, and elsewhere the start of each step and some ``lines`` of how far it is; both on stderr."""
    if not show:
        yield lambda *_: None
        return
    console = open_console(stderr=True)
    if not console.is_terminal:

        def line(what: str, done: int, total: int) -> None:
            if done in (0, total) or done % max(1, total // lines) == 0:
                so_far = f"{done:,} of " if done else ""
                console.print(f"{what}: {so_far}{total:,} rows", highlight=False)

        yield line
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        step = bar.add_task("reading", total=None)
        yield lambda what, done, total: bar.update(step, description=what, completed=done, total=total)


def open_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal, and `WIDTH` columns where there is none."""
    from rich.console import Console

    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=WIDTH)
