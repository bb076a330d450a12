"""``stef experiment``: build a data set, run agents on it, say why they are wrong, compare runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.commands_calibrate import open_console, read_mapping, show_steps

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from stef_core.experiments.compare_runs import Accuracy, Paired
    from tasks.experiments import Analysed, Built, Compared, Run
    from tasks.settings import Settings

EXAMPLES = 2  # questions shown for each error code
SHOWN = 8  # questions that a run fixed or broke
STEPS = 5  # lines of progress where there is no terminal

experiment_app = typer.Typer(
    help="Run agents on questions with gold SQL: accuracy, errors, comparison.", no_args_is_help=True, rich_markup_mode=None
)

DatabaseOption = Annotated[
    str, typer.Option(help="URL of the database: sqlite:///f.sqlite, duckdb:///f.duckdb or postgresql://….", metavar="URL")
]
MapOption = Annotated[
    list[str] | None, typer.Option("--map", help="COLUMN=NAME: the file's name of a column; may be repeated.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Folder of the runs.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
WarehouseOption = Annotated[str | None, typer.Option(help="URL of the warehouse: duckdb:///stef.duckdb or postgresql://….")]
RUNS = Path("experiments")


@experiment_app.command("dataset")
def dataset(
    source: Annotated[Path, typer.Option("--from", help="Questions with gold SQL: .csv, .jsonl or .parquet.")],
    database: DatabaseOption,
    out: Annotated[Path, typer.Option(help="Data set to write: .csv, .jsonl or .parquet.")],
    per_level: Annotated[int | None, typer.Option(help="Rows a level; all if not given.")] = None,
    seed: Annotated[int, typer.Option(help="Of the sample.")] = 7,
    columns: MapOption = None,
    timeout_s: Annotated[float, typer.Option(help="Seconds that one gold query may take.")] = 30.0,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Build a data set: no duplicates, gold SQL that runs and returns data, balanced by level."""
    from tasks.experiments import build_dataset

    with show_steps(show=not (quiet or as_json), lines=STEPS) as tell:
        built = build_dataset(
            source,
            database,
            out,
            columns=read_mapping(columns or []),
            per_level=per_level,
            seed=seed,
            timeout_s=timeout_s,
            tell=tell,
        )
    if as_json:
        steps = [{"step": step, "rows": sum(levels.values()), "levels": levels} for step, levels in built.steps]
        _print_json({"dataset": str(built.path), "steps": steps, "faults": list(built.faults)})
        return
    _show(_built(built))


@experiment_app.command("run")
def run(
    name: Annotated[str, typer.Option(help="Name of the run, e.g. mini-prompt-v2.")],
    dataset: Annotated[Path, typer.Option(help="Data set: .csv, .jsonl or .parquet.", metavar="FILE")],
    database: DatabaseOption,
    agent: Annotated[str | None, typer.Option(help="module:function that answers questions.")] = None,
    predictions: Annotated[Path | None, typer.Option(help="File of answers, in the place of an agent.")] = None,
    prompt: Annotated[Path | None, typer.Option(help="Prompt file with {schema}, of the baseline agent or of --agent.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the baseline agent.")] = None,
    limit: Annotated[int | None, typer.Option(help="Rows, from the first on.")] = None,
    compared: Annotated[
        str, typer.Option("--columns", help="exact, or subset: predicted columns that gold does not have are let be.")
    ] = "exact",
    ignore_case: Annotated[bool, typer.Option(help="Texts that differ only in case are equal.")] = False,
    max_rows: Annotated[int, typer.Option(help="Results of more rows are compared by hash.")] = 10_000,
    timeout_s: Annotated[float, typer.Option(help="Seconds that one query may take.")] = 30.0,
    columns: MapOption = None,
    judge: Annotated[str | None, typer.Option(help="symbolic or openai: who scores the answers beside.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Model of that judge.")] = None,
    rules: Annotated[Path | None, typer.Option(help="Folder of rules files, or one file.")] = None,
    out: OutOption = RUNS,
    warehouse: WarehouseOption = None,
    record: Annotated[bool, typer.Option("--record/--no-record", help="Write the run to the warehouse too.")] = True,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Run an agent on a data set; killed and started again, it goes on where it stopped."""
    from stef_core.errors import RuleError
    from tasks.experiments import Experiment, check_experiment, run_experiment
    from tasks.secrets import with_secret
    from tasks.settings import load_settings

    if compared not in ("exact", "subset"):
        raise RuleError(f"--columns {compared}: takes exact or subset")
    wanted = Experiment(
        name=name,
        dataset=dataset,
        database=database,
        agent=agent,
        predictions=predictions,
        prompt=prompt,
        columns=read_mapping(columns or []),
        limit=limit,
        subset=compared == "subset",
        ignore_case=ignore_case,
        max_rows=max_rows,
        timeout_s=timeout_s,
        out=out,
        record=record,
    )
    settings = load_settings({"judge": judge, "model": judge_model, "rules": rules, "warehouse": warehouse})
    asked = load_settings({"judge": "openai", "model": model}) if agent is None and predictions is None else None
    check_experiment(wanted, settings, asked)
    with show_steps(show=not (quiet or as_json), lines=STEPS) as tell:
        found = run_experiment(wanted, with_secret(settings), with_secret(asked) if asked else None, tell)
    if as_json:
        _print_json(found.to_json())
        return
    _show(_ran(found))


@experiment_app.command("analyze")
def analyze(
    run: Annotated[str, typer.Argument(help="Name of a run, or a CSV of results.", metavar="NAME|CSV")],
    judge: Annotated[
        str | None, typer.Option(help="openai: a model tells; symbolic: the syntax trees do. STEF_JUDGE if not given.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Model id at the endpoint; asks it.")] = None,
    to: Annotated[Path | None, typer.Option(help="CSV to write; analysis.csv beside the results if not given.")] = None,
    out: OutOption = RUNS,
    warehouse: WarehouseOption = None,
    record: Annotated[bool, typer.Option("--record/--no-record", help="Write the codes to the warehouse too.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Say of every wrong answer of a run why it is wrong: codes, their Pareto table, examples."""
    from tasks.experiments import analyse_run
    from tasks.secrets import with_secret
    from tasks.settings import load_settings

    asked = judge or ("openai" if model else None)
    settings: Settings = with_secret(load_settings({"judge": asked, "model": model, "warehouse": warehouse}))
    found = analyse_run(run, out=out, to=to, settings=settings, record=record)
    if as_json:
        _print_json(found.to_json())
        return
    _show(_analysed(found))


@experiment_app.command("compare")
def compare(
    runs: Annotated[list[str], typer.Argument(help="Names of runs, or CSVs of results, first to last.", metavar="A B…")],
    out: OutOption = RUNS,
    as_json: JsonOption = False,
) -> None:
    """Put runs side by side: accuracy with its interval, by level, what each fixed and broke, McNemar's test."""
    from tasks.experiments import compare_named

    found = compare_named(runs, out=out)
    if as_json:
        _print_json(found.to_json())
        return
    _show(_compared(found))


@experiment_app.command("list")
def list_(out: OutOption = RUNS, as_json: JsonOption = False) -> None:
    """What ran, with its accuracy."""
    from tasks.experiments import list_runs

    runs = list_runs(out)
    if as_json:
        _print_json({"runs": runs})
        return
    _show(_listed(runs, out))


@experiment_app.command("demo")
def demo(
    folder: Annotated[Path, typer.Option("--dir", help="Where database, data set, prompts and runs go.")] = Path(
        "experiment-demo"
    ),
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """The whole loop offline: data set, three prompt versions of a scripted agent, their errors, their comparison."""
    from stef_core.errors import InputError
    from tasks.demo_experiment import write_demo_experiment
    from tasks.experiments import Experiment, analyse_run, build_dataset, compare_named, run_experiment
    from tasks.settings import load_settings

    try:
        files = write_demo_experiment(folder)
    except OSError as error:
        raise InputError(f"--dir {folder}: cannot be written: {error.strerror}") from error
    settings = load_settings({"judge": "symbolic", "warehouse": f"duckdb:///{(folder / 'stef.duckdb').resolve()}"})
    database, runs = f"sqlite:///{files.database}", folder / "experiments"
    with show_steps(show=not (quiet or as_json), lines=STEPS) as tell:
        built = build_dataset(files.questions, database, folder / "dataset.csv", per_level=14, tell=tell)
        found = [
            run_experiment(
                Experiment(
                    name=prompt.stem,
                    dataset=built.path,
                    database=database,
                    agent="tasks.demo_experiment:agent",
                    prompt=prompt,
                    out=runs,
                ),
                settings,
                tell=tell,
            )
            for prompt in files.prompts
        ]
    analysed = [analyse_run(each.name, out=runs, settings=settings, record=True) for each in found]
    compared = compare_named([each.name for each in found], out=runs)
    if as_json:
        steps = {"dataset": str(built.path), "runs": [each.to_json() for each in found]}
        _print_json(steps | {"analyses": [each.to_json() for each in analysed], "compare": compared.to_json()})
        return
    _show(_built(built))
    for one, errors in zip(found, analysed, strict=True):
        _show(_ran(one))
        _show(_analysed(errors))
    _show(_compared(compared))


# --- what is shown --------------------------------------------------------------------------------------------------


def _built(built: Built) -> Iterator[RenderableType]:
    levels = list(built.steps[0][1])
    table = _table("Data set", "Step", *levels, "rows")
    for step, counts in built.steps:
        table.add_row(step, *(str(counts.get(level, 0)) for level in levels), str(sum(counts.values())))
    yield table
    for fault in built.faults[:SHOWN]:
        yield _text(f"dropped {fault}", "dim")
    if len(built.faults) > SHOWN:
        yield _text(f"and {len(built.faults) - SHOWN} more", "dim")
    yield _text(f"Written  {built.path}")


def _ran(run: Run) -> Iterator[RenderableType]:
    table = _table(f"Run {run.name}", "Level", "right", "of", "accuracy", "95 %", "not run", "gold failed", "coverage")
    for level, each in run.levels.items():
        table.add_row(level, *_accuracy(each))
    table.add_section()
    table.add_row("all", *_accuracy(run.accuracy))
    yield table
    phi = run.about.get("mean_phi")
    facts = [f"{run.resumed} rows were there already"] if run.resumed else []
    facts += [f"mean Φ {phi:.1f}"] if phi is not None else []
    facts += [f"{run.about['tokens']:,} tokens"] if run.about.get("tokens") else []
    if facts:
        yield _text(" · ".join(facts), "dim")
    for note in run.notes:
        yield _text(note, "yellow")
    yield _text(f"Results  {run.results}")


def _analysed(found: Analysed) -> Iterator[RenderableType]:
    if not found.rows:
        yield _text(f"{found.name}: no wrong answer to analyse.")
        return
    table = _table(f"Why {len(found.rows)} answers of {found.name} are wrong", "Code", "rows", "share", "cumulative")
    for tally in found.tallies:
        table.add_row(tally.code, str(tally.rows), f"{tally.share:.0%}", f"{tally.cumulative:.0%}")
    yield table
    for tally in found.tallies:
        for n in tally.examples[:EXAMPLES]:
            yield _text(f"{tally.code}: {_clip(found.rows[n].question)} → {_clip(found.analyses[n].text, 160)}", "dim")
    yield _text(f"Analysis  {found.path}")


def _compared(found: Compared) -> Iterator[RenderableType]:
    levels = list(dict.fromkeys(level for by in found.levels for level in by))
    table = _table("Runs", "Run", "right", "of", "accuracy", "95 %", "coverage", *levels)
    for name, each, by in zip(found.names, found.accuracies, found.levels, strict=True):
        cells = _accuracy(each)
        table.add_row(name, *cells[:4], cells[6], *(_share(by[level].accuracy) if level in by else "–" for level in levels))
    yield table
    table = _table("Pairs", "From", "to", "pairs", "fixed", "broke", "difference", "p (McNemar)")
    for first, second, pair in found.pairs:
        difference = "–" if pair.difference is None else f"{pair.difference:+.2%}"
        table.add_row(first, second, str(pair.pairs), str(len(pair.fixed)), str(len(pair.broke)), difference, _p(pair.p_value))
    yield table
    for first, second, pair in found.pairs[: len(found.names) - 1]:
        yield from _moved(first, second, pair)


def _moved(first: str, second: str, each: Paired) -> Iterator[RenderableType]:
    for what, rows in (("fixed", each.fixed), ("broke", each.broke)):
        for row in rows[:SHOWN]:
            yield _text(f"{second} {what} ({row.level}): {_clip(row.question)}", "green" if what == "fixed" else "red")
        if len(rows) > SHOWN:
            yield _text(f"and {what} {len(rows) - SHOWN} more; --json names all", "dim")
    if each.only_first or each.only_second:
        yield _text(f"{each.only_first} rows of {first} and {each.only_second} of {second} stand in no pair.", "yellow")


def _listed(runs: Sequence[Mapping[str, Any]], out: Path) -> Iterator[RenderableType]:
    if not runs:
        yield _text(f"No runs in {out}; stef experiment run makes one.")
        return
    table = _table(f"Runs in {out}", "Run", "ended", "answered by", "rows", "accuracy", "95 %", "coverage")
    for run in runs:
        span = "–" if run["accuracy_low"] is None else f"{run['accuracy_low']:.1%}–{run['accuracy_high']:.1%}"
        table.add_row(
            _text(run["name"]),
            f"{run['ended_at']:%Y-%m-%d %H:%M}",
            _text(" ".join(run[name] for name in ("agent", "model", "prompt") if run[name])),
            str(run["rows"]),
            _share(run["accuracy"]),
            span,
            _share(run["coverage"]),
        )
    yield table


def _accuracy(each: Accuracy) -> tuple[str, ...]:
    span = "–" if each.low is None or each.high is None else f"{each.low:.1%}–{each.high:.1%}"
    counts = (str(each.not_run), str(each.gold_failed))
    return str(each.correct), str(each.decided), _share(each.accuracy), span, *counts, _share(each.coverage)


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.2%}"


def _p(value: float) -> str:
    return f"{value:.4f}" if value >= 0.0001 else f"{value:.1e}"


def _clip(text: str, length: int = 90) -> str:
    text = " ".join(text.split())
    return text if len(text) <= length else text[: length - 1] + "…"


def _text(text: str, style: str = "") -> RenderableType:
    from rich.text import Text

    from stef_core.wording import plain_text

    return Text(plain_text(text), style=style, overflow="fold")


def _table(title: str, first: str, *others: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
    table.add_column(first, overflow="fold")
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _show(parts: Iterator[RenderableType]) -> None:
    from rich.text import Text

    console = open_console()
    for part in parts:
        console.print(part, soft_wrap=isinstance(part, Text), highlight=False)
    console.print()


def _print_json(value: Mapping[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
