"""The five stages in order: read both sides, normalise, align, judge, compose. Pure: no network of its own, no state
that a result rests on; a clock only bounds what a heavy row may take (`stef_core.guard`), and equal rows are evaluated once.

`examine` does everything up to the verdict, `conclude` everything after it, so that a pipeline can run the two as separate,
retryable steps; `evaluate` and `evaluate_many` run the whole in one call.
"""

from __future__ import annotations

import itertools
import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import PurePath
from typing import Protocol, TypeVar

from stef_core.align import align
from stef_core.bearing import bearing_hash
from stef_core.catalogue import Catalogue, Witness
from stef_core.dialects import sqlglot_dialect
from stef_core.enrichment import compare_enrichment
from stef_core.errors import RowLimitError, StefError
from stef_core.extract.question_offline import OfflineReader
from stef_core.extract.question_text import INJECTION
from stef_core.extract.sql import extract_sql
from stef_core.findings import departures, finding
from stef_core.guard import guarded, is_guarded
from stef_core.injection import separate, suspected_name
from stef_core.judge.cap import UNTOLD, capped
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.limits import ROW_LIMIT, size_of_row, weigh_question, weigh_sql
from stef_core.records import (
    Alignment,
    Enrichment,
    Evaluation,
    Evidence,
    Finding,
    QueryRecord,
    QuestionSpec,
    Reading,
    SqlSpec,
    Verdict,
)
from stef_core.redact import READ
from stef_core.rules import DEFAULT_RULES, Rules
from stef_core.scoring import FILTER_POINTS, compose, rejected
from stef_core.withhold import addressed, disarmed, is_placeholder

logger = logging.getLogger(__name__)

T = TypeVar("T")
R = TypeVar("R")

REJECTED = ("no_sql", "not_a_query")  # parse statuses that are scored 0 (method.md section 7)
EVALUATOR_ERROR = "evaluator_error"  # reason of a row that this code failed on; the other rows of its day are scored
UNTOLD_KIND = "injection_in_question"  # kind of a finding: what addresses the evaluator cannot be told from what is asked
BATCH = 64  # rows evaluate_many hands to a reader or judge at once; a model answers them concurrently


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionPair:
    """A question and its reformulation as specifications; `reason` says why there is none.

    `doubted` is a model's reading of a text that addressed the evaluator: it counts only where it is the stricter of the two.
    """

    question: QuestionSpec | None
    enriched: QuestionSpec | None = None
    doubted: QuestionPair | None = None
    verdict: Verdict | None = None  # given with the reading, where one call asked for both
    reason: str | None = None  # question_reader_unavailable …
    message: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    cost: float = 0.0


class QuestionReader(Protocol):
    """Reads questions; the offline one by patterns, the LLM one through a `ChatModel`."""

    @property
    def name(self) -> str:
        """``offline`` or ``llm``."""

    @property
    def prompt_version(self) -> str | None:
        """Version of the prompt that determines an answer; None offline."""

    def read_many(self, records: Sequence[QueryRecord], rules: Sequence[Rules]) -> list[QuestionPair]:
        """One answer a record, in order; a failure is an answer with a reason, never an exception or a lost row."""


class Judge(Protocol):
    """Grades evidence; the symbolic one from the alignment alone, the LLM one through a `ChatModel`."""

    @property
    def name(self) -> str:
        """``symbolic`` or ``openai``."""

    @property
    def model(self) -> str | None:
        """Model id; of the symbolic judge the name of its fitted model file."""

    @property
    def prompt_version(self) -> str | None:
        """Version of the prompt; None for the symbolic judge."""

    def judge_many(self, evidence: Sequence[Evidence], rules: Sequence[Rules]) -> list[Verdict]:
        """One verdict a row, in order; a failure is a verdict without grade and with a reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One row before its verdict. `evidence` is None when there is nothing to judge: `reason` and `findings` say why."""

    query_id: str
    evidence: Evidence | None
    reading: Reading | None
    findings: tuple[Finding, ...]
    verdict: Verdict | None = None  # given with the reading; no judge is asked then
    rival: Evidence | None = None  # of the other reading, where text addresses the evaluator: it caps the verdict, too
    rules_app: str
    rules_version: str
    rules_hash: str
    catalogue: str | None = None  # fingerprint of the catalogue that was asked
    reason: str | None = None  # why unscored; None with no evidence: rejected, Φ = 0
    message: str = ""  # of an evaluator_error
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """One row after both sides were read; `reason` says why the question side could not be."""

    record: QueryRecord
    reading: Reading
    doubted: Reading | None = None  # as in `QuestionPair`
    verdict: Verdict | None = None  # likewise
    reason: str | None = None
    message: str = ""
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    cost: float = 0.0


def read_many(records: Sequence[QueryRecord], rules: Sequence[Rules], reader: QuestionReader) -> list[Read]:
    """Read both sides of each row, independently of each other.

    Args:
        records: Rows of the log.
        rules: The rules of each row, in the same order.
        reader: Reads the question side.

    Returns:
        One result a row, in order.
    """
    rows = list(zip(records, rules, strict=True))
    pairs = _guarded(
        rows,
        lambda part: reader.read_many([record for record, _ in part], [rule for _, rule in part]),
        lambda _, reason, message: QuestionPair(question=None, reason=reason, message=message),
        lambda row: row[0].query_id,
    )
    statements = _guarded(
        rows,
        lambda part: [extract_sql(record.generated_sql, record.dialect or rule.dialect) for record, rule in part],
        lambda _, reason, message: SqlSpec(parse_status="unparseable", notes=(reason,), error=message),
        lambda row: row[0].query_id,
    )
    return [_read_row(record, pair, sql) for record, pair, sql in zip(records, pairs, statements, strict=True)]


def _read_row(record: QueryRecord, pair: QuestionPair, sql: SqlSpec) -> Read:
    failed = next((reason for reason in (EVALUATOR_ERROR, ROW_LIMIT) if reason in sql.notes), None)
    reason = None if pair.question is not None else pair.reason or "question_reader_unavailable"
    return Read(
        record=record,
        reading=_reading(pair, sql),
        doubted=_reading(pair.doubted, sql) if pair.doubted is not None else None,
        verdict=pair.verdict,
        reason=failed or reason,
        message=sql.error or "" if failed else pair.message,
        tokens_in=pair.tokens_in,
        tokens_out=pair.tokens_out,
        calls=pair.calls,
        cost=pair.cost,
    )


def _reading(pair: QuestionPair, sql: SqlSpec) -> Reading:
    return Reading(question=pair.question or QuestionSpec(), enriched=pair.enriched, sql=sql)


def examine_many(
    records: Sequence[QueryRecord], rules: Sequence[Rules], reader: QuestionReader, catalogue: Catalogue | None = None
) -> list[Examined]:
    """Read both sides of each row and align them; `read_many` and `examine` in one call."""
    read = read_many(records, rules, reader)
    return [examine(row, rule, catalogue) for row, rule in zip(read, rules, strict=True)]


def examine(read: Read, rules: Rules, catalogue: Catalogue | None = None) -> Examined:
    """Align one row that was read.

    Args:
        read: The row with its specifications.
        rules: Its rules.
        catalogue: What the rest of the log shows; not asked where None.

    Returns:
        What there is to judge, or why there is nothing; a fault of this code is the reason ``evaluator_error``, and
        ``row_limit`` that aligning the row takes more than the limits in force allow.
    """

    def failed(row: Read, reason: str, message: str) -> Examined:
        return Examined(
            query_id=row.record.query_id,
            evidence=None,
            reading=row.reading,
            findings=(),
            rules_app=rules.app_id,
            rules_version=rules.content_hash,
            rules_hash=rules.content_hash,
            reason=reason,
            message=message,
            tokens_in=row.tokens_in,
            tokens_out=row.tokens_out,
            calls=row.calls,
            cost=row.cost,
        )

    def examined(row: Read) -> Examined:
        record = row.record
        texts = (record.user_question, record.enriched_question)
        if is_guarded() or "heavy" not in (weigh_sql(record.generated_sql)[0], weigh_question(*texts)[0]):
            return _examine(row, rules, catalogue)
        try:
            its: Examined = guarded("examine", row, rules, catalogue)
        except RowLimitError as error:
            return _over_limit(failed(row, ROW_LIMIT, ""), record, f"its two sides cannot be compared: {error}")
        return its

    (its,) = _guarded([read], lambda part: [examined(row) for row in part], failed, lambda row: row.record.query_id)
    return _over_limit(its, read.record, its.message) if its.reason == ROW_LIMIT and not its.findings else its


def _over_limit(examined: Examined, record: QueryRecord, why: str) -> Examined:
    """The row with a finding that says which limit it exceeds, and how large it is."""
    size = size_of_row(record.user_question, record.enriched_question, record.generated_sql)
    message = f"The row exceeds a limit: {why.rstrip('.')}. Its size: {size}."
    return replace(examined, reason=ROW_LIMIT, message=message, findings=(finding(ROW_LIMIT, message, stage="evaluation"),))


def _examine(read: Read, rules: Rules, catalogue: Catalogue | None) -> Examined:
    record, reading, sql = read.record, read.reading, read.reading.sql

    def done(
        *,
        evidence: Evidence | None,
        findings: Sequence[Finding],
        reason: str | None = None,
        message: str = "",
        rival: Evidence | None = None,
    ) -> Examined:
        return Examined(
            query_id=record.query_id,
            evidence=evidence,
            reading=replace(evidence.reading, sql=sql) if evidence else reading,
            findings=tuple(findings),
            verdict=read.verdict if evidence is not None else None,
            rival=rival,
            rules_app=rules.app_id,
            rules_version=rules.content_hash,
            rules_hash=bearing_hash(rules, reading),
            catalogue=catalogue.fingerprint_of(record.app_id) if catalogue else None,
            reason=reason,
            message=message,
            tokens_in=read.tokens_in,
            tokens_out=read.tokens_out,
            calls=read.calls,
            cost=read.cost,
        )

    if not (record.user_question or "").strip():
        return done(evidence=None, findings=(), reason="question_missing")
    if read.reason == ROW_LIMIT:
        return done(evidence=None, findings=(), reason=ROW_LIMIT, message=read.message)
    if sql.parse_status in REJECTED:
        if sql.parse_status == "no_sql" and rules.no_sql == "exclude":
            return done(evidence=None, findings=(), reason="declined")
        return done(evidence=None, findings=(_rejection(sql, record), *injections_of(record, sql)))
    if read.reason == EVALUATOR_ERROR:
        return done(evidence=None, findings=(), reason=EVALUATOR_ERROR, message=read.message)
    if sql.parse_status == "unparseable":
        message = f"No dialect reads the SQL: {sql.error or 'unknown error'}"
        found = finding("sql_unparseable", message, stage="evaluation", sql_part=_clip(record.generated_sql))
        return done(evidence=None, findings=(found, *injections_of(record, sql)), reason="sql_unparseable")
    if read.reason is not None:
        message = read.message or "The question reader gave no answer."
        found = finding("judge_unavailable", message, stage="evaluation", kind=read.reason)
        return done(evidence=None, findings=(found,), reason=read.reason)

    witness = catalogue.witness(record) if catalogue else None
    injections = injections_of(record, sql)
    readings = [r for r in (reading, read.doubted) if r is not None]
    evidence, *others = sorted((_evidence(record, r, rules, witness, injections) for r in readings), key=_points)
    return done(evidence=evidence, findings=departures(evidence.findings), rival=others[0] if others else None)


def _evidence(
    record: QueryRecord, reading: Reading, rules: Rules, witness: Witness | None, injections: Sequence[Finding]
) -> Evidence:
    if injections:  # what addresses the evaluator is neither asked for nor answers what is
        question, enriched = separate(record.user_question or ""), separate(record.enriched_question or "")
        record = replace(record, user_question=question.text, enriched_question=enriched.text or None)
        statement = disarmed(record.generated_sql, reading.sql.dialect, (question.text, enriched.text))
        spec = extract_sql(statement, reading.sql.dialect) if statement else reading.sql
        if statement and spec.parse_status in READ:
            # a placeholder is no value that the question could have named
            spec = replace(spec, literals=tuple(text for text in spec.literals if not is_placeholder(text)))
            record, reading = replace(record, generated_sql=statement), replace(reading, sql=spec)
    alignment, enrichment = _compared(_Case(record, reading, rules, witness))
    findings = (*alignment.findings, *enrichment.findings, *injections)
    return Evidence(record=record, reading=reading, alignment=alignment, enrichment=enrichment, findings=findings)


class _Case:
    """What is compared: equal where the texts are and all else is the same object, which the case keeps alive."""

    __slots__ = ("_key", "reading", "record", "rules", "witness")

    def __init__(self, record: QueryRecord, reading: Reading, rules: Rules, witness: Witness | None) -> None:
        self.record, self.reading, self.rules, self.witness = record, reading, rules, witness
        objects = (reading.question, reading.enriched, reading.sql, rules, witness.facts if witness else None)
        self._key = (record.user_question, record.enriched_question, *map(id, objects))

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Case) and self._key == other._key


@lru_cache(maxsize=4_096)  # agents that are asked the same often answer the same
def _compared(case: _Case) -> tuple[Alignment, Enrichment]:
    alignment = align(case.record, case.reading, case.rules, case.witness)
    return alignment, compare_enrichment(case.record, case.reading, case.rules)


def _points(evidence: Evidence) -> int:
    """Points of the filters, with which Φ is composed."""
    return FILTER_POINTS[evidence.alignment.filter_status] + evidence.alignment.lenient


def conclude(examined: Examined, verdict: Verdict | None) -> Evaluation:
    """Compose the score of one row, or say why it has none.

    Args:
        examined: The row before its verdict.
        verdict: The judge's answer; None only where there was nothing to judge.
    """
    evidence = examined.evidence
    status, reason, findings = "scored", None, examined.findings
    score = None
    if examined.reason is not None:
        status, reason = "unscored", examined.reason
        if reason == EVALUATOR_ERROR:
            verdict = _no_verdict(reason, examined.message)
    elif evidence is None:
        verdict = rejection_verdict(examined)
        score = rejected()
    elif verdict is None or verdict.grade is None:
        status, reason = "unscored", (verdict.reason if verdict else None) or "judge_unavailable"
        text = "; ".join(verdict.reasons) if verdict else "The judge was not asked."
        findings = (*findings, finding("judge_unavailable", text or reason, stage="evaluation", kind=reason))
    else:
        verdict = _within(examined, evidence, verdict)
        score = compose(evidence.alignment, verdict)
    return Evaluation(
        query_id=examined.query_id,
        status=status,  # type: ignore[arg-type]  # two literals
        reason=reason,
        reading=examined.reading,
        alignment=evidence.alignment if evidence else None,
        enrichment=evidence.enrichment if evidence else None,
        verdict=verdict,
        score=score,
        findings=findings,
        rules_version=examined.rules_version,
        rules_hash=examined.rules_hash,
    )


def _within(examined: Examined, evidence: Evidence, verdict: Verdict) -> Verdict:
    """The verdict, held within what judges say whom no text can talk to, where a text tries to."""
    if not any(f.code == INJECTION for f in evidence.findings):
        return verdict
    judge = SymbolicJudge()
    allowed = [(e.alignment, judge.judge(e)) for e in (evidence, examined.rival) if e is not None]
    if any(f.kind == UNTOLD_KIND for f in evidence.findings):
        allowed.append((evidence.alignment, UNTOLD))
    return capped(verdict, evidence.alignment, allowed)


def rejection_verdict(examined: Examined) -> Verdict:
    """The verdict on SQL that is missing or not one query: incorrect, γ = 1, whatever a judge would say."""
    return Verdict(
        grade="incorrect", confidence=1.0, judge="rule", reasons=tuple(f.message for f in examined.findings), p_right=0.0
    )


def evaluate(
    record: QueryRecord,
    rules: Rules | None = None,
    judge: Judge | None = None,
    reader: QuestionReader | None = None,
    catalogue: Catalogue | None = None,
) -> Evaluation:
    """Judge one answered question.

    Args:
        record: The row of the log.
        rules: R_app; the default rules where None.
        judge: Gives the verdict; the built-in symbolic judge where None.
        reader: Reads the question; the built-in offline reader where None.
        catalogue: What the rest of the log shows of the application; not asked where None.

    Returns:
        The evaluation, scored or unscored with a reason; no input makes it raise.

    Source:
        method.md.
    """
    return next(evaluate_many([record], rules, judge, reader, catalogue))


def evaluate_many(
    records: Iterable[QueryRecord],
    rules: Rules | Mapping[str, Rules] | Callable[[QueryRecord], Rules] | None = None,
    judge: Judge | None = None,
    reader: QuestionReader | None = None,
    catalogue: Catalogue | None = None,
) -> Iterator[Evaluation]:
    """`evaluate` for many rows, lazily and in order.

    Args:
        records: Rows of the log.
        rules: One set for all, a mapping by `app_id` (its ``default`` for the others), or a function of the record.
        judge: As in `evaluate`; asked about up to 64 rows at once.
        reader: As in `evaluate`.
        catalogue: As in `evaluate`.
    """
    judge = judge or SymbolicJudge()
    reader = reader or OfflineReader()
    pick = rules_picker(rules)
    for batch in itertools.batched(records, BATCH) if hasattr(itertools, "batched") else _batched(records, BATCH):
        chosen = [pick(record) for record in batch]
        examined = examine_many(batch, chosen, reader, catalogue)
        yield from conclude_many(examined, chosen, judge)


def conclude_many(examined: Sequence[Examined], rules: Sequence[Rules], judge: Judge) -> list[Evaluation]:
    """Ask the judge about the rows that have evidence, and compose every row, in order."""
    asked = [(e.evidence, r) for e, r in zip(examined, rules, strict=True) if e.evidence is not None and e.verdict is None]
    verdicts = iter(
        _guarded(
            asked,
            lambda part: judge.judge_many([e for e, _ in part], [r for _, r in part]),
            lambda _, reason, message: _no_verdict(reason, message, judge),
            lambda row: row[0].record.query_id,
        )
    )
    pairs = [(e, e.verdict or next(verdicts) if e.evidence is not None else None) for e in examined]
    return _guarded(
        pairs,
        lambda part: [conclude(e, verdict) for e, verdict in part],
        lambda row, reason, message: conclude(replace(row[0], evidence=None, reason=reason, message=message), None),
        lambda row: row[0].query_id,
    )


def _no_verdict(reason: str, message: str, judge: Judge | None = None) -> Verdict:
    return Verdict(
        grade=None,
        judge=judge.name if judge else "rule",
        model=judge.model if judge else None,
        reason=reason,
        reasons=(message,),
    )


def _guarded(
    rows: Sequence[T],
    run: Callable[[Sequence[T]], Sequence[R]],
    failed: Callable[[T, str, str], R],
    query_id: Callable[[T], str],
) -> list[R]:
    """`run` over all rows, one result each; where it raises, over halves, so that only the row at fault gets `failed`.

    `failed` is told the row, a reason and a message.

    Raises:
        StefError: Raised on purpose: an endpoint that is away, rules that are wrong.
    """
    try:
        results = list(run(rows)) if rows else []
        if len(results) != len(rows):
            raise ValueError(f"{len(rows)} rows gave {len(results)} results")
        return results
    except StefError:
        raise
    except Exception as error:  # whatever one row holds, the rest of the day is scored
        if len(rows) > 1:
            middle = len(rows) // 2
            return [result for part in (rows[:middle], rows[middle:]) for result in _guarded(part, run, failed, query_id)]
        if isinstance(error, RecursionError | MemoryError):
            if is_guarded():
                raise  # told by the other side, which knows the limits
            what = "is nested more deeply than can be read" if isinstance(error, RecursionError) else "needs too much memory"
            logger.warning("row %s is unscored (%s): it %s", query_id(rows[0]), ROW_LIMIT, what)
            return [failed(rows[0], ROW_LIMIT, f"it {what}")]
        # the error's own text may quote what the rules redact, so no log holds it
        frame = traceback.extract_tb(error.__traceback__)[-1]
        message = f"The evaluator failed on this row: {type(error).__name__} in {PurePath(frame.filename).name}:{frame.lineno}."
        logger.warning("row %s is unscored (%s): %s", query_id(rows[0]), EVALUATOR_ERROR, message)
        logger.debug("row %s:\n%s", query_id(rows[0]), "".join(traceback.format_tb(error.__traceback__)))
        return [failed(rows[0], EVALUATOR_ERROR, message)]


def rules_picker(
    rules: Rules | Mapping[str, Rules] | Callable[[QueryRecord], Rules] | None,
) -> Callable[[QueryRecord], Rules]:
    """The rules of a record under any of the forms that `evaluate_many` takes."""
    if rules is None:
        return lambda _: DEFAULT_RULES
    if isinstance(rules, Rules):
        return lambda _: rules
    if isinstance(rules, Mapping):
        fallback = rules.get("default", DEFAULT_RULES)
        return lambda record: rules.get(record.app_id, fallback)
    return rules


def _batched(records: Iterable[QueryRecord], size: int) -> Iterator[tuple[QueryRecord, ...]]:
    iterator = iter(records)  # itertools.batched is new in Python 3.12
    while batch := tuple(itertools.islice(iterator, size)):
        yield batch


def _rejection(sql: SqlSpec, record: QueryRecord) -> Finding:
    if sql.parse_status == "no_sql":
        return finding("no_sql", "The agent wrote no SQL.")
    return finding("not_a_query", sql.error or "The text is not one read-only query.", sql_part=_clip(record.generated_sql))


def injections_of(record: QueryRecord, sql: SqlSpec) -> list[Finding]:
    """A finding for each place of a row that addresses the evaluator."""
    found = []
    for place, text in (("question", record.user_question), ("reformulation", record.enriched_question)):
        told = separate(text or "")
        if told.cut:
            apart = "It is left out" if told.sure else "It cannot be told apart from what is asked"
            message = f"The {place} carries text that addresses the evaluator. {apart}."
            kind = INJECTION if told.sure else UNTOLD_KIND
            found.append(finding(INJECTION, message, stage="evaluation", question_part=_clip(told.cut, 160), kind=kind))
    places = [*addressed(record.generated_sql, sql.dialect or record.dialect)]
    if record.dialect and sqlglot_dialect(record.dialect) is None and suspected_name(record.dialect):
        places.append(("the name of the dialect", record.dialect))
    for place, text in places:
        message = f"Text that addresses the evaluator stands in {place}. It is not shown to a model."
        found.append(finding(INJECTION, message, stage="evaluation", sql_part=_clip(text, 160)))
    return found


def _clip(text: str | None, length: int = 200) -> str | None:
    return text if text is None or len(text) <= length else text[: length - 1] + "…"
