"""Read and judge one batch of rows from the spool into the spool. Knows no Prefect, so that any process can do it."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache

import polars as pl

from stef_core.catalogue import Catalogue, catalogue_of, shown_facts
from stef_core.evaluate import Read, conclude_many, examine, read_many, rules_picker
from stef_core.frames import records_of
from stef_core.limits import row_limits
from stef_core.llm import Usage
from stef_core.records import QueryRecord
from stef_core.rows import UNANSWERED, examined_frame, findings_frame, judged_frame, score_frame
from stef_core.rules import Rules
from tasks.crew import Crew
from tasks.models import open_judge, open_reader, usage_of
from tasks.settings import Settings
from tasks.spool import Spool

# what a batch leaves in the spool
LOG, READ, FACTS, CATALOGUE, SCORES, FINDINGS = "log", "read", "facts", "catalogue", "scores", "findings"
ENDLESS = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)  # stands for when a day was scored until it is
UNASKED = UNANSWERED | {"budget_exhausted"}  # reasons of rows that nobody gave an answer for
_OF_ENDPOINT = ("judge_", "question_reader_", "budget_")  # reasons that another day, key or budget may take away


@dataclass(frozen=True, slots=True, kw_only=True)
class Extracted:
    """What reading a batch came to."""

    number: int
    rows: int
    usage: Usage
    prompt_version: str | None
    reused: bool = False  # a run before this one had read it


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What judging a batch came to."""

    number: int
    rows: int
    scored: int
    answered: int  # rows that an endpoint gave an answer for, be it one that is of no use
    reasons: Mapping[str, int]  # why rows have no score
    said: Mapping[str, str]  # by reason, where nobody answered: what the first such row is told
    usage: Usage
    prompt_version: str | None
    judge: str
    model: str | None
    reused: bool = False


def extract(
    spool: Spool,
    number: int,
    rules: Mapping[str, Rules],
    settings: Settings,
    *,
    last_try: bool,
    crew: Crew | None = None,
) -> Extracted:
    """Read both sides of one batch, and note what its SQL shows of tables and columns.

    Args:
        spool: Holds the batch as ``log``; takes ``read`` and ``facts``.
        number: Of the batch, from 0.
        rules: Rules by `app_id`; ``default`` for the others.
        settings: Say who reads the questions.
        last_try: An endpoint that stays away makes rows unscored, with the reason, rather than raising.
        crew: Whom this process shares the run's limits with.

    Raises:
        TransientError: The endpoint answered nobody, and this is not the last try.
    """
    records, chosen = _rows(spool, number, rules)
    with _limits(settings), open_reader(settings, raise_if_down=not last_try, crew=crew) as reader:
        read = read_many(records, chosen, reader)
        done = Extracted(number=number, rows=len(read), usage=usage_of(reader), prompt_version=reader.prompt_version)
    own = {record.app_id: its for record, its in zip(records, chosen, strict=True)}
    facts = shown_facts(((row.record, row.reading.sql) for row in read), lambda record: own[record.app_id])
    spool.write(FACTS, number, facts)
    spool.write_objects(READ, number, [replace(row, record=None) for row in read])  # type: ignore[arg-type]  # they are in the log
    if not any((row.reason or "").startswith(_OF_ENDPOINT) for row in read):
        spool.note(READ, number, asdict(done))
    return done


def extracted_before(spool: Spool, number: int) -> Extracted | None:
    """What an earlier run of the same work left of a batch."""
    found = spool.noted(READ, number)
    return None if found is None else Extracted(**(found | {"usage": Usage(**found["usage"]), "reused": True}))


def judge(
    spool: Spool,
    number: int,
    catalogue: str,
    rules: Mapping[str, Rules],
    settings: Settings,
    day: dt.date,
    *,
    last_try: bool,
    crew: Crew | None = None,
) -> Judged:
    """Align and judge one batch that was read, and compose its scores.

    Args:
        spool: Holds the batch as ``log`` and ``read``.
        number: Of the batch, from 0.
        catalogue: Folder of the spool that holds the catalogue, and takes ``scores`` and ``findings``.
        rules: Rules by `app_id`.
        settings: Say who judges.
        day: The partition.
        last_try: As in `extract`.
        crew: As in `extract`.

    Raises:
        TransientError: The endpoint answered nobody, and this is not the last try.
    """
    log = spool.read(LOG, number)
    known = load_catalogue(spool.within(catalogue))
    read, chosen = read_rows(spool, number, rules)
    records = [row.record for row in read]
    with _limits(settings):
        examined = [examine(row, its, known) for row, its in zip(read, chosen, strict=True)]
    with open_judge(settings, raise_if_down=not last_try, crew=crew) as judging:
        evaluations = conclude_many(examined, chosen, judging)
        judged = judged_frame(evaluations, records, chosen, judge=judging.name, model=judging.model)
        asked = Asked(judge=judging.name, model=judging.model, prompt_version=judging.prompt_version, usage=usage_of(judging))
    findings = findings_frame(evaluations, records, chosen, day=day, run_id="")
    scores = score_frame(
        log, examined_frame(examined, records, chosen), judged, day=day, run_id="", scored_at=ENDLESS, prompt_version=None
    )
    done = judged_of(number, judged, findings, asked)
    into = spool.within(catalogue)
    into.write(SCORES, number, scores)
    into.write(FINDINGS, number, findings)
    if not any(reason.startswith(_OF_ENDPOINT) for reason in done.reasons):
        into.note(SCORES, number, asdict(done))
    return done


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Who judged, and what a model was asked for it."""

    judge: str
    model: str | None = None
    prompt_version: str | None = None
    usage: Usage = field(default_factory=Usage)


def judged_of(number: int, judged: pl.DataFrame, findings: pl.DataFrame, asked: Asked) -> Judged:
    """What a batch came to.

    Args:
        number: Of the batch.
        judged: Its rows, of `stef_core.rows.JUDGED`.
        findings: Of its rows.
        asked: Who judged.
    """
    return Judged(
        number=number,
        rows=judged.height,
        scored=judged.filter(pl.col("status") == "scored").height,
        answered=_answered(judged),
        reasons=dict(Counter(judged["reason"].drop_nulls())),
        said=_said(judged, findings),
        usage=asked.usage,
        prompt_version=asked.prompt_version,
        judge=asked.judge,
        model=asked.model,
    )


def judged_before(spool: Spool, number: int, catalogue: str) -> Judged | None:
    """What an earlier run of the same work left of a batch."""
    found = spool.within(catalogue).noted(SCORES, number)
    return None if found is None else Judged(**(found | {"usage": Usage(**found["usage"]), "reused": True}))


def read_rows(spool: Spool, number: int, rules: Mapping[str, Rules]) -> tuple[list[Read], list[Rules]]:
    """The rows of a batch as `extract` read them, each with its rules."""
    records, chosen = _rows(spool, number, rules)
    read = spool.read_objects(READ, number)
    return [replace(row, record=record) for row, record in zip(read, records, strict=True)], chosen


def load_catalogue(folder: Spool) -> Catalogue:
    """The catalogue that a folder of the spool holds; read once a process."""
    with _loading:
        return _loaded(folder)


_loading = threading.Lock()


@lru_cache(maxsize=1)  # a process works on one day, and a catalogue may be large
def _loaded(folder: Spool) -> Catalogue:
    return catalogue_of(folder.read(CATALOGUE, 0))


def _limits(settings: Settings) -> AbstractContextManager[None]:
    return row_limits(seconds=settings.row_seconds, memory_mb=settings.row_memory_mb)


def _rows(spool: Spool, number: int, rules: Mapping[str, Rules]) -> tuple[list[QueryRecord], list[Rules]]:
    pick = rules_picker(rules)
    records = records_of(spool.read(LOG, number))
    return records, [pick(record) for record in records]


def _answered(judged: pl.DataFrame) -> int:
    # rows scored by rule alone ask nobody; a refusal is an answer
    reason = pl.col("reason").fill_null("")
    graded = (reason == "") & (pl.col("judge") != "rule")
    return judged.filter(graded | (reason.str.starts_with("judge_") & ~reason.is_in(list(UNANSWERED)))).height


def _said(judged: pl.DataFrame, findings: pl.DataFrame) -> dict[str, str]:
    unasked = judged.filter(pl.col("reason").is_in(list(UNASKED))).select("query_id", "reason")
    told = findings.filter(pl.col("code") == "judge_unavailable").join(unasked, on="query_id", maintain_order="left")
    return dict(reversed(told.select("reason", "message").rows()))
