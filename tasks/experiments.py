"""Experiments end to end: build a data set, run an agent on it, analyse what is wrong, compare runs. Knows no Prefect.

A run lives in a folder of its name: ``journal.jsonl`` (what is done), ``results.csv`` (for people), ``run.json`` (figures).

Source: experiments.md.
"""

from __future__ import annotations

import csv
import datetime as dt
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import urlsplit

from stef_core.errors import InputError, RuleError, TransientError
from stef_core.evaluate import Judge, QuestionReader, evaluate
from stef_core.experiments.agent import AgentAnswer, AgentPrompt, check_prompt
from stef_core.experiments.analysis_llm import WrongAnswer, analyse_many, analyse_offline
from stef_core.experiments.compare_runs import (
    GOLD_FAILED,
    INCORRECT,
    LABELS,
    NOT_RUN,
    Accuracy,
    Labelled,
    Paired,
    accuracy_by_level,
    accuracy_of,
    paired,
)
from stef_core.experiments.error_codes import Analysis, Tally, pareto
from stef_core.experiments.gold import UNLEVELLED, GoldRow, accepted, named_columns, read_gold, read_table
from stef_core.experiments.sampling import balanced_sample, by_level, without_duplicates
from stef_core.frames import EXPERIMENT_RESULTS, EXPERIMENT_RUNS, compact_json, frame_of
from stef_core.prompts import load_prompt
from stef_core.records import Evaluation, QueryRecord
from stef_core.rows import UNANSWERED
from stef_core.rules import Rules
from stef_core.version import CORE_VERSION
from tasks.experiment_agents import BASELINE, Agent, Baseline, FunctionAgent, Predictions
from tasks.experiment_journal import Journal, key_of, open_journal
from tasks.models import check_settings, marker_key, open_chat, open_stages
from tasks.settings import Settings, application_rules, shown_url

if TYPE_CHECKING:
    from stef_core.experiments.compare_results import CompareOptions
    from tasks.databases import Database

Told: TypeAlias = Callable[[str, int, int], None]  # what is done, how many of how many

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
OUT = Path("experiments")
PROMPT = "sql_agent_v1"  # of the baseline agent where no file is named
RESULTS, RUN, ANALYSIS = "results.csv", "run.json", "analysis.csv"
# columns of results.csv, those of experiments.md first
COLUMNS = (
    *"query expected_sql predicted_sql level execution_accuracy accuracy_reason latency tokens".split(),
    *"phi p_right verdict gamma findings".split(),
    *"query_id ordinal split flags enriched_question status reason dialect db_id agent_id".split(),
)
ANALYSIS_COLUMNS = (
    *"query expected_sql predicted_sql level accuracy_reason error_codes error_analysis analysed_by query_id".split(),
)
RESULT_NAMES: dict[str, tuple[str, ...]] = {
    "query": ("query", "question", "user_question"),
    "expected_sql": ("expected_sql", "gold_sql", "gold", "sql"),
    "predicted_sql": ("predicted_sql", "generated_sql", "prediction"),
    "execution_accuracy": ("execution_accuracy", "label"),
    **{name: (name,) for name in "level accuracy_reason query_id dialect flags".split()},
}
_WORDS = {
    **dict.fromkeys(("correct", "true", "1", "1.0", "right"), "correct"),
    **dict.fromkeys(("incorrect", "false", "0", "0.0", "wrong"), INCORRECT),
    **dict.fromkeys(("not_run", "", "none", "null", "nan"), NOT_RUN),
    GOLD_FAILED: GOLD_FAILED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One run: data set × agent × model × prompt."""

    name: str
    dataset: Path
    database: str  # URL
    agent: str | None = None  # module:function
    predictions: Path | None = None
    prompt: Path | None = None
    columns: Mapping[str, str] = field(default_factory=dict)  # our name of a column → the data set's
    limit: int | None = None
    subset: bool = False  # predicted columns that gold does not have are let be
    ignore_case: bool = False
    max_rows: int = 10_000
    timeout_s: float = 30.0
    out: Path = OUT
    record: bool = True  # write to the warehouse too


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A finished run: its figures, rows and files."""

    name: str
    about: Mapping[str, Any]  # one row of `experiment_runs`
    accuracy: Accuracy
    levels: Mapping[str, Accuracy]
    rows: tuple[Mapping[str, Any], ...]  # one a question, keys of `COLUMNS`
    results: Path
    resumed: int = 0  # rows that an earlier start had finished
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The object of ``stef experiment run --json``."""
        return {
            "name": self.name,
            "run": json.loads(compact_json(dict(self.about))),
            "accuracy": accuracy_json(self.accuracy),
            "levels": {level: accuracy_json(each) for level, each in self.levels.items()},
            "results": str(self.results),
            "resumed": self.resumed,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A data set that was built: rows left after each step, by level."""

    path: Path
    steps: tuple[tuple[str, Mapping[str, int]], ...]
    faults: tuple[str, ...]  # gold SQL that fails or returns nothing, a line each
    rows: tuple[GoldRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysed:
    """Why the wrong rows of a run are wrong."""

    name: str
    rows: tuple[WrongAnswer, ...]
    analyses: tuple[Analysis, ...]
    tallies: tuple[Tally, ...]
    path: Path

    def to_json(self) -> dict[str, Any]:
        """The object of ``stef experiment analyze --json``."""
        return {
            "name": self.name,
            "incorrect": len(self.rows),
            "codes": [asdict(tally) | {"examples": [self.rows[n].question for n in tally.examples]} for tally in self.tallies],
            "analysis": str(self.path),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Runs side by side."""

    names: tuple[str, ...]
    accuracies: tuple[Accuracy, ...]
    levels: tuple[Mapping[str, Accuracy], ...]
    pairs: tuple[tuple[str, str, Paired], ...]  # each run against the one before it, and the last against the first

    def to_json(self) -> dict[str, Any]:
        """The object of ``stef experiment compare --json``."""
        runs = [
            {"name": name, **accuracy_json(each), "levels": {level: accuracy_json(a) for level, a in by.items()}}
            for name, each, by in zip(self.names, self.accuracies, self.levels, strict=True)
        ]
        pairs = [
            {
                "first": first,
                "second": second,
                "pairs": each.pairs,
                "both": each.both,
                "neither": each.neither,
                "fixed": [row.question for row in each.fixed],
                "broke": [row.question for row in each.broke],
                "difference": each.difference,
                "p_value": each.p_value,
                "only_first": each.only_first,
                "only_second": each.only_second,
            }
            for first, second, each in self.pairs
        ]
        return {"runs": runs, "pairs": pairs}


def accuracy_json(accuracy: Accuracy) -> dict[str, Any]:
    """An accuracy with its shares."""
    return asdict(accuracy) | {"accuracy": accuracy.accuracy, "coverage": accuracy.coverage}


# --- building a data set --------------------------------------------------------------------------------------------


def build_dataset(
    source: Path,
    database: str,
    out: Path,
    *,
    columns: Mapping[str, str] | None = None,
    per_level: int | None = None,
    seed: int = 7,
    timeout_s: float = 30.0,
    tell: Told = lambda *_: None,
) -> Built:
    """Make a data set of rows whose gold SQL works: no duplicates, all of it runs and returns data, balanced by level.

    Args:
        source: CSV, JSON lines or Parquet.
        database: URL of the database that gold SQL runs on.
        out: File to write, of a kind that its name says: ``.csv``, ``.jsonl`` or ``.parquet``.
        columns: The source's names of columns, where they are not known ones.
        per_level: Rows a level; all where None.
        seed: Of the sample.
        timeout_s: Seconds that one gold query may take.
        tell: Told how far it is.

    Raises:
        InputError: A file is wrong, or no row is left.
        RuleError: The database cannot be opened, or an option is wrong.
    """
    if per_level is not None and per_level < 1:
        raise RuleError(f"--per-level {per_level}: takes 1 or more")
    if out.suffix.lower() not in (".csv", ".jsonl", ".parquet"):
        raise RuleError(f"--out {out}: is neither of .csv, .jsonl, .parquet")
    rows = read_gold(source, columns)
    steps: list[tuple[str, Mapping[str, int]]] = [("read", by_level(rows))]
    rows = without_duplicates(rows)
    steps.append(("without duplicates", by_level(rows)))
    faults: list[str] = []
    kept: list[GoldRow] = []
    with _open_database(database, timeout_s=timeout_s, max_rows=1) as opened:
        for done, row in enumerate(rows):
            tell("running gold SQL", done, len(rows))
            fault = _gold_fault(row, opened)
            if fault is None:
                kept.append(row)
            else:
                faults.append(f"row {row.number}: {fault}")
        tell("running gold SQL", len(rows), len(rows))
    steps.append(("gold SQL runs and returns data", by_level(kept)))
    if per_level is not None:
        kept = balanced_sample(kept, per_level, seed)
        steps.append((f"{per_level} a level, seed {seed}", by_level(kept)))
    if not kept:
        raise InputError(f"{source}: no row is left; {faults[0] if faults else 'there was none'}")
    _write_dataset(kept, out)
    return Built(path=out, steps=tuple(steps), faults=tuple(faults), rows=tuple(kept))


def _gold_fault(row: GoldRow, database: Database) -> str | None:
    from stef_core.experiments.execution import QueryFailure

    for sql in row.gold_sql:
        found = database.run(sql)
        if isinstance(found, QueryFailure):
            return f"gold SQL fails: {found.message}"
        if not found.rows:
            return "gold SQL returns nothing"
    return None


def _write_dataset(rows: Sequence[GoldRow], out: Path) -> None:
    lines = [
        {
            "query_id": row.query_id,
            "question": row.question,
            "gold_sql": row.gold_sql[0] if len(row.gold_sql) == 1 else json.dumps(list(row.gold_sql), ensure_ascii=False),
            "level": row.level,
            "split": row.split,
            "enriched_question": row.enriched_question,
        }
        for row in rows
    ]
    if out.suffix.lower() == ".csv":
        _write_csv(out, list(lines[0]), lines)
        return
    import polars as pl

    frame = pl.DataFrame(lines, schema=dict.fromkeys(lines[0], pl.String))
    with _writing(out) as path:
        if out.suffix.lower() == ".parquet":
            frame.write_parquet(path)
        else:
            frame.write_ndjson(path)


# --- running --------------------------------------------------------------------------------------------------------


def check_experiment(experiment: Experiment, settings: Settings, agent_settings: Settings | None) -> None:
    """Refuse what cannot be run, before anything is read or written.

    Args:
        experiment: What to run.
        settings: Say who judges.
        agent_settings: Of the model that the baseline agent asks; None for other agents.

    Raises:
        RuleError: The message names the option.
    """
    if not NAME.fullmatch(experiment.name):
        raise RuleError(f"--name {experiment.name!r}: takes letters, digits, dot, dash and underscore, as in mini-prompt-v2")
    if experiment.agent is not None and experiment.predictions is not None:
        raise RuleError("--agent and --predictions exclude each other")
    if experiment.prompt is not None and experiment.predictions is not None:
        raise RuleError("--prompt does not go with --predictions: nobody is asked")
    if experiment.limit is not None and experiment.limit < 1:
        raise RuleError(f"--limit {experiment.limit}: takes 1 or more")
    if experiment.max_rows < 1:
        raise RuleError(f"--max-rows {experiment.max_rows}: takes 1 or more")
    if not experiment.timeout_s > 0:
        raise RuleError(f"--timeout-s {experiment.timeout_s:g}: takes more than 0 seconds")
    check_settings(settings)
    if experiment.agent is None and experiment.predictions is None:
        if agent_settings is None or not agent_settings.model:
            raise RuleError(
                "nobody is named who answers: give --model (with --prompt FILE), --agent module:function or --predictions"
            )
        check_settings(agent_settings, needed_by="the baseline agent asks a model")


def run_experiment(
    experiment: Experiment,
    settings: Settings,
    agent_settings: Settings | None = None,
    tell: Told = lambda *_: None,
    *,
    clock: Callable[[], float] = time.perf_counter,
    now: Callable[[], dt.datetime] = lambda: dt.datetime.now(dt.UTC),
) -> Run:
    """Run one experiment to its end, or on from where an earlier start of it stopped.

    Args:
        experiment: What to run.
        settings: Say who judges, by which rules, how many rows at a time, and the warehouse.
        agent_settings: Name the model of the baseline agent.
        tell: Told how far it is.
        clock: Seconds, for latencies.
        now: The time of day, in UTC.

    Raises:
        InputError: Data set, predictions or folder are wrong.
        RuleError: Options, settings, agent or database are wrong.
        BusyError: Another process runs this experiment, or holds the warehouse.
        TransientError: The agent's endpoint answered for no row; what is known is saved all the same.
    """
    check_experiment(experiment, settings, agent_settings)
    started = now()
    dataset = read_gold(experiment.dataset, experiment.columns)
    gold = dataset if experiment.limit is None else dataset[: experiment.limit]
    prompt = _prompt(experiment)
    folder = experiment.out / experiment.name
    with ExitStack() as stack:
        database = stack.enter_context(_open_database(experiment.database, timeout_s=experiment.timeout_s, max_rows=None))
        schema, dialect = database.ddl(), database.dialect
        agent = _open_agent(stack, experiment, agent_settings, prompt, schema, dialect)
        reader, judge = stack.enter_context(open_stages(settings))
        rules = application_rules(settings)["default"]
        journal = stack.enter_context(open_journal(folder))
        worker = _Worker(experiment, agent, journal, rules, reader, judge, dialect, clock)
        stack.callback(worker.close)
        rows, resumed = _work(worker, gold, settings.concurrency, tell)
    accuracy = accuracy_of(labelled_rows(rows))
    about = {
        "name": experiment.name,
        "dataset": str(experiment.dataset),
        "database": shown_url(experiment.database),
        "dialect": dialect,
        "agent": agent.name,
        "model": agent_settings.model if agent.name == BASELINE and agent_settings else None,
        "prompt": None if prompt is None else prompt.name,
        "prompt_version": None if prompt is None else prompt.version,
        "judge": judge.name,
        "core_version": CORE_VERSION,
        "options": compact_json(_options(experiment) | {"limit": experiment.limit}),
        "started_at": started,
        "ended_at": now(),
        **{name: value for name, value in asdict(accuracy).items() if name not in ("low", "high")},
        "accuracy": accuracy.accuracy,
        "accuracy_low": accuracy.low,
        "accuracy_high": accuracy.high,
        "coverage": accuracy.coverage,
        "mean_phi": _mean([row["phi"] for row in rows]),
        "tokens": sum(row["tokens"] or 0 for row in rows),
    }
    notes = _notes(folder, about)
    _write_csv(folder / RESULTS, COLUMNS, rows)
    with _writing(folder / RUN) as path:
        kept = about | {"recorded": experiment.record}
        path.write_text(json.dumps(kept, ensure_ascii=False, indent=2, default=str) + "\n", encoding="utf-8")
    (folder / ANALYSIS).unlink(missing_ok=True)  # of other rows than these
    if experiment.record:
        _record(settings, about, [_stored(experiment.name, row) for row in rows])
    unreached = [row for row in rows if str(row["accuracy_reason"]).startswith("agent_unavailable")]
    if rows and len(unreached) == len(rows):
        raise TransientError(f"the agent's endpoint answered for no row: {unreached[0]['accuracy_reason'].partition(': ')[2]}")
    return Run(
        name=experiment.name,
        about=about,
        accuracy=accuracy,
        levels=accuracy_by_level(labelled_rows(rows)),
        rows=tuple(rows),
        results=folder / RESULTS,
        resumed=resumed,
        notes=notes,
    )


class _Worker:
    """Takes one question from the agent's answer to the finished row; used from several threads."""

    def __init__(
        self,
        experiment: Experiment,
        agent: Agent,
        journal: Journal,
        rules: Rules,
        reader: QuestionReader,
        judge: Judge,
        dialect: str,
        clock: Callable[[], float],
    ) -> None:
        from stef_core.experiments.compare_results import CompareOptions

        self._experiment, self._agent, self._journal, self._dialect = experiment, agent, journal, dialect
        self._rules, self._reader, self._judge, self._clock = rules, reader, judge, clock
        self._options: CompareOptions = CompareOptions(
            columns="subset" if experiment.subset else "exact",
            ignore_case=experiment.ignore_case,
            max_rows=experiment.max_rows,
        )
        judged_by = [judge.name, judge.model, judge.prompt_version, reader.name, reader.prompt_version]
        self._setting = key_of(
            *[shown_url(experiment.database), _fingerprint(experiment.database), experiment.timeout_s, _options(experiment)],
            *[judged_by, rules.content_hash, CORE_VERSION, dialect],
        )
        self._mine = threading.local()
        self._opened: list[ExitStack] = []
        self._turn = threading.Lock()

    def known(self, row: GoldRow) -> dict[str, Any] | None:
        """The finished row of an earlier start; one that was not run, or that the judge did not answer for, is tried again."""
        found = self._journal.find("row", self._row_key(row))
        if found is None or found["execution_accuracy"] == NOT_RUN or found["reason"] in UNANSWERED:
            return None
        return self._placed(found, row)

    def finish(self, row: GoldRow) -> dict[str, Any]:
        """Answer, run, compare and score one question."""
        answer, latency = self._answer(row)
        label, reason, flags = self._outcome(row, answer)
        evaluation = self._score(row, answer)
        done = _result_row(answer, latency, label, reason, flags, evaluation)
        self._journal.add("row", self._row_key(row), done)
        return self._placed(done, row)

    def close(self) -> None:
        """Close the databases of all threads."""
        for stack in self._opened:
            stack.close()

    def _row_key(self, row: GoldRow) -> str:
        return key_of(self._setting, self._agent.key(row), row.query_id, row.question, row.enriched_question, row.gold_sql)

    def _placed(self, done: Mapping[str, Any], row: GoldRow) -> dict[str, Any]:
        """A finished row with what the data set says of it today."""
        about = {
            "query": row.question,
            "expected_sql": "\n;\n".join(row.gold_sql),  # a query may end in a comment
            "level": row.level,
            "query_id": row.query_id,
            "ordinal": row.number,
            "split": row.split,
            "dialect": self._dialect,
            "db_id": _database_name(self._experiment.database),
            "agent_id": self._experiment.name,
        }
        return {name: {**done, **about}[name] for name in COLUMNS}

    def _answer(self, row: GoldRow) -> tuple[AgentAnswer, float | None]:
        key = self._agent.key(row)
        kept = self._journal.find("answer", key)
        if kept is not None:
            return AgentAnswer(**kept["answer"]), kept["latency"]
        start = self._clock()
        answer = _writable(self._agent.answer(row))
        latency = None if answer.cached or isinstance(self._agent, Predictions) else round(self._clock() - start, 4)
        if answer.sql is not None:  # a failure is asked again by the next start
            self._journal.add("answer", key, {"answer": asdict(answer), "latency": latency})
        return answer, latency

    def _outcome(self, row: GoldRow, answer: AgentAnswer) -> tuple[str, str, tuple[str, ...]]:
        if answer.sql is None:
            return NOT_RUN, answer.reason or "the agent gave no answer", ()
        from stef_core.experiments.execution import execution_accuracy

        found = execution_accuracy(row.gold_sql, answer.sql, self._database().run, self._dialect, self._options)
        emptied = found.label == INCORRECT and found.predicted_rows == 0
        return found.label, found.reason, tuple(sorted(found.flags | ({"prediction_empty"} if emptied else set())))

    def _score(self, row: GoldRow, answer: AgentAnswer) -> Evaluation | None:
        if answer.sql is None:
            return None  # nobody answered: nothing to score
        record = QueryRecord(
            query_id=row.query_id,
            user_question=row.question,
            enriched_question=answer.enriched_question or row.enriched_question,
            generated_sql=answer.sql,
            agent_id=self._experiment.name,
            dialect=self._dialect,
        )
        return evaluate(record, self._rules, self._judge, self._reader)

    def _database(self) -> Database:
        opened: Database | None = getattr(self._mine, "database", None)
        if opened is None:
            stack = ExitStack()
            opened = stack.enter_context(
                _open_database(self._experiment.database, timeout_s=self._experiment.timeout_s, max_rows=None)
            )
            self._mine.database = opened
            with self._turn:
                self._opened.append(stack)
        return opened


def _work(worker: _Worker, gold: Sequence[GoldRow], concurrency: int, tell: Told) -> tuple[list[dict[str, Any]], int]:
    """Finished rows in the order of the data set, and how many an earlier start had finished."""
    finished: dict[int, dict[str, Any]] = {}
    for n, row in enumerate(gold):
        known = worker.known(row)
        if known is not None:
            finished[n] = known
    resumed = len(finished)
    waiting = iter([n for n in range(len(gold)) if n not in finished])
    tell("running", len(finished), len(gold))
    with ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="stef-experiment") as pool:
        running: dict[Future[dict[str, Any]], int] = {}
        try:
            while True:
                while len(running) < concurrency and (nth := next(waiting, None)) is not None:
                    running[pool.submit(worker.finish, gold[nth])] = nth
                if not running:
                    break
                for done in wait(running, return_when=FIRST_COMPLETED).done:
                    finished[running.pop(done)] = done.result()
                tell("running", len(finished), len(gold))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [finished[n] for n in range(len(gold))], resumed


def _writable(answer: AgentAnswer) -> AgentAnswer:
    """An answer whose texts can be written as UTF-8: lone surrogates become question marks."""
    texts = {name: getattr(answer, name) for name in ("sql", "reason", "enriched_question")}
    return replace(answer, **{name: text.encode("utf-8", "replace").decode() for name, text in texts.items() if text})


def _result_row(
    answer: AgentAnswer,
    latency: float | None,
    label: str,
    reason: str,
    flags: Sequence[str],
    evaluation: Evaluation | None,
) -> dict[str, Any]:
    known = [n for n in (answer.tokens_in, answer.tokens_out) if n is not None]
    score, verdict = (None, None) if evaluation is None else (evaluation.score, evaluation.verdict)
    return {
        "predicted_sql": answer.sql,
        "enriched_question": answer.enriched_question,
        "execution_accuracy": label,
        "accuracy_reason": reason,
        "flags": list(flags),
        "latency": latency,
        "tokens": sum(known) if known else None,
        "phi": score.phi if score else None,
        "p_right": None if score is None or score.p_right is None else round(score.p_right, 6),
        "verdict": verdict.grade if verdict else None,
        "gamma": None if verdict is None or verdict.confidence is None else round(verdict.confidence, 6),
        "findings": [] if evaluation is None else list(dict.fromkeys(f.code for f in evaluation.findings)),
        "status": None if evaluation is None else evaluation.status,
        "reason": None if evaluation is None else evaluation.reason,
    }


def _open_agent(
    stack: ExitStack,
    experiment: Experiment,
    agent_settings: Settings | None,
    prompt: AgentPrompt | None,
    schema: str,
    dialect: str,
) -> Agent:
    if experiment.predictions is not None:
        return Predictions(experiment.predictions)
    if experiment.agent is not None:
        return FunctionAgent(experiment.agent, prompt, schema, dialect)
    assert agent_settings is not None  # held by check_experiment
    assert prompt is not None
    return Baseline(stack.enter_context(open_chat(agent_settings)), prompt, schema, dialect)


def _prompt(experiment: Experiment) -> AgentPrompt | None:
    if experiment.prompt is None:
        if experiment.agent is not None or experiment.predictions is not None:
            return None
        return AgentPrompt(name=PROMPT, text=load_prompt(PROMPT).text)
    try:
        text = experiment.prompt.read_text(encoding="utf-8-sig").strip()
    except OSError as error:
        raise RuleError(f"--prompt {experiment.prompt}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise RuleError(f"--prompt {experiment.prompt}: not UTF-8") from error
    check_prompt(text, f"--prompt {experiment.prompt}")
    return AgentPrompt(name=experiment.prompt.stem, text=text)


def _options(experiment: Experiment) -> dict[str, Any]:
    columns = "subset" if experiment.subset else "exact"
    return {"columns": columns, "ignore_case": experiment.ignore_case, "max_rows": experiment.max_rows}


def _notes(folder: Path, about: Mapping[str, Any]) -> tuple[str, ...]:
    """What an earlier run of this name was that this one is not."""
    try:
        before = json.loads((folder / RUN).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    moved = [n for n in ("dataset", "database", "agent", "model", "prompt_version", "judge") if before.get(n) != about[n]]
    return tuple(f"This run takes the place of one of the same name with {n} {before.get(n)}." for n in moved)


# --- analysing ------------------------------------------------------------------------------------------------------


def analyse_run(
    run: str, *, out: Path = OUT, to: Path | None = None, settings: Settings | None = None, record: bool = False
) -> Analysed:
    """Say of each incorrect row of a run why it is wrong.

    Args:
        run: Name of a run, or a CSV with ``query, expected_sql, predicted_sql, execution_accuracy``.
        out: Folder of the runs.
        to: CSV to write; ``analysis.csv`` beside the results where None.
        settings: With a model: it is asked; without one the syntax trees tell.
        record: Add codes and analyses to the run's rows in the warehouse of `settings`, if the run was recorded at all.

    Raises:
        InputError: There is no such run or file, or a column is missing.
        RuleError: A setting is wrong.
    """
    path = results_of(run, out)
    rows = read_results(path)
    wrong = [row for row in rows if row["execution_accuracy"] == INCORRECT]
    answers = [_wrong(row) for row in wrong]
    if settings is not None and settings.judge == "openai":
        with open_chat(settings) as chat:
            analyses = analyse_many(answers, chat, marker_key(settings))
    else:
        analyses = [analyse_offline(answer) for answer in answers]
    lines = [
        {name: row.get(name) for name in ANALYSIS_COLUMNS}
        | {"error_codes": list(analysis.codes), "error_analysis": analysis.text, "analysed_by": analysis.by}
        for row, analysis in zip(wrong, analyses, strict=True)
    ]
    target = to or (path.with_name(ANALYSIS) if path.name == RESULTS else path.with_name(f"{path.stem}.{ANALYSIS}"))
    _write_csv(target, ANALYSIS_COLUMNS, lines)
    about = path.with_name(RUN)
    stored = _read_run(about) if path.name == RESULTS and about.is_file() else {}
    if record and settings is not None and stored.get("recorded"):
        told = {row["query_id"]: analysis for row, analysis in zip(wrong, analyses, strict=True)}
        _record(settings, stored, [_stored(path.parent.name, row, told.get(row["query_id"])) for row in rows])
    tallies = pareto([analysis.codes for analysis in analyses])
    return Analysed(name=run, rows=tuple(answers), analyses=tuple(analyses), tallies=tuple(tallies), path=target)


def _wrong(row: Mapping[str, Any]) -> WrongAnswer:
    return WrongAnswer(
        question=row["query"],
        gold_sql=accepted(row["expected_sql"]) or (),
        predicted_sql=row["predicted_sql"],
        dialect=row.get("dialect") or None,
        outcome=row.get("accuracy_reason") or "",
        flags=tuple(row.get("flags") or ()),
    )


# --- comparing ------------------------------------------------------------------------------------------------------


def compare_named(runs: Sequence[str], *, out: Path = OUT) -> Compared:
    """Put runs side by side: each against the one before it, and the last against the first.

    Args:
        runs: Two or more names of runs, or CSVs.
        out: Folder of the runs.

    Raises:
        InputError: There is no such run or file, or two have no question in common.
        RuleError: Fewer than two.
    """
    if len(runs) < 2:
        raise RuleError("compare takes two runs or more")
    rows = [labelled_rows(read_results(results_of(run, out))) for run in runs]
    order = [(n, n + 1) for n in range(len(runs) - 1)] + ([(0, len(runs) - 1)] if len(runs) > 2 else [])
    pairs = tuple((runs[a], runs[b], paired(rows[a], rows[b])) for a, b in order)
    for first, second, each in pairs:
        if not {row.key for row in rows[runs.index(first)]} & {row.key for row in rows[runs.index(second)]}:
            raise InputError(f"{first} and {second} have no question in common ({each.only_first} and {each.only_second} rows)")
    return Compared(
        names=tuple(runs),
        accuracies=tuple(accuracy_of(each) for each in rows),
        levels=tuple(accuracy_by_level(each) for each in rows),
        pairs=pairs,
    )


def list_runs(out: Path = OUT) -> list[dict[str, Any]]:
    """What ran, oldest first: one row of `experiment_runs` each."""
    found = [_read_run(path) for path in out.glob(f"*/{RUN}")] if out.is_dir() else []
    return sorted(found, key=lambda run: (str(run["started_at"]), run["name"]))


def results_of(run: str, out: Path = OUT) -> Path:
    """The CSV of a run that is named, or the file itself.

    Raises:
        InputError: There is neither.
    """
    if run.lower().endswith((".csv", ".tsv", ".jsonl", ".ndjson", ".parquet", ".pq")):
        return Path(run)
    path = out / run / RESULTS
    if not path.is_file():
        names = ", ".join(each["name"] for each in list_runs(out)) or "none"
        raise InputError(f"{run}: no run of that name in {out}; there: {names}")
    return path


def read_results(path: Path) -> list[dict[str, Any]]:
    """Rows of a results file, with a label of `LABELS`; other columns are texts, lists are lists.

    Raises:
        InputError: A column is missing, or a label is none.
    """
    lines = read_table(path)
    if not lines:
        raise InputError(f"{path}: holds no rows")
    required = ("query", "expected_sql", "predicted_sql", "execution_accuracy")
    named = named_columns(list(lines[0]), str(path), RESULT_NAMES, required, {})
    rows = []
    for number, line in enumerate(lines, 1):
        row = dict(line) | {name: line[theirs] for name, theirs in named.items()}
        told = str("" if row["execution_accuracy"] is None else row["execution_accuracy"]).strip().casefold()
        if told not in _WORDS:
            raise InputError(
                f"{path}: row {number}: column {named['execution_accuracy']} is {told!r}; it must be one of {', '.join(LABELS)}"
            )
        row["execution_accuracy"] = _WORDS[told]
        row["flags"] = _listed(row.get("flags"))
        row["findings"] = _listed(row.get("findings"))
        rows.append(row)
    return rows


def labelled_rows(rows: Sequence[Mapping[str, Any]]) -> list[Labelled]:
    """Rows of results as far as comparing needs them; equal questions are told apart by their place among themselves."""
    seen: dict[str, int] = {}
    out = []
    for row in rows:
        content = key_of(*(" ".join(str(row[name] or "").split()) for name in ("query", "expected_sql")))
        seen[content] = seen.get(content, 0) + 1
        out.append(
            Labelled(
                key=f"{content}-{seen[content]}",
                question=row["query"],
                level=row.get("level") or UNLEVELLED,
                label=row["execution_accuracy"],
            )
        )
    return out


# --- the outside ----------------------------------------------------------------------------------------------------


@contextmanager
def _open_database(url: str, *, timeout_s: float, max_rows: int | None) -> Iterator[Database]:
    from tasks.databases import open_database  # drivers load when a database is opened

    with open_database(url, timeout_s=timeout_s, max_rows=max_rows) as opened:
        yield opened


def _database_name(url: str) -> str:
    return Path(urlsplit(url).path).stem


def _fingerprint(url: str) -> list[int]:
    """Size and time of a database file, so that rows are run anew when it has changed; nothing for a server."""
    scheme, _, rest = url.partition(":///")
    if scheme in ("sqlite", "duckdb"):
        try:
            found = Path(rest.partition("?")[0]).expanduser().stat()
        except OSError:
            return []
        return [found.st_size, found.st_mtime_ns]
    return []


def _record(settings: Settings, about: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> None:
    from tasks.warehouse import connect

    with connect(settings.warehouse, wait_s=settings.warehouse_wait_s) as store:
        run = {name: about[name] for name in EXPERIMENT_RUNS if name in about}
        store.record_experiment(run, frame_of(rows, EXPERIMENT_RESULTS))


def _stored(name: str, row: Mapping[str, Any], analysis: Analysis | None = None) -> dict[str, Any]:
    """A row of results as the warehouse holds it; texts of a CSV become numbers."""
    stored: dict[str, Any] = {column: row.get(column) for column in EXPERIMENT_RESULTS} | {"name": name}
    for column in ("latency", "phi", "p_right", "gamma"):
        stored[column] = None if stored[column] in (None, "") else float(stored[column])
    for column in ("tokens", "ordinal"):
        stored[column] = None if stored[column] in (None, "") else int(stored[column])
    for column in ("flags", "findings"):
        stored[column] = compact_json(list(row.get(column) or ()))
    told = {"error_codes": compact_json(list(analysis.codes)), "error_analysis": analysis.text} if analysis else {}
    return {column: None if value == "" else value for column, value in (stored | told).items()}


def _read_run(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found | {name: dt.datetime.fromisoformat(found[name]) for name in ("started_at", "ended_at")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: is no record of a run: {error}; run the experiment again") from error


def _write_csv(path: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    with _writing(path) as arriving, arriving.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(row[name]) for name in columns] for row in rows)


def _cell(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return "; ".join(value)
    return "" if value is None else value


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [part.strip() for part in value.split(";") if part.strip()]
    return list(value or ())


@contextmanager
def _writing(path: Path) -> Iterator[Path]:
    """A file that takes the place of another only when it is whole.

    Raises:
        InputError: The folder cannot be written.
    """
    arriving = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield arriving
        os.replace(arriving, path)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    finally:
        arriving.unlink(missing_ok=True)


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
