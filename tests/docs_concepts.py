"""The made parts of docs/concepts.md: one invented example, evaluated, so that no figure on the page is written by hand."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from stef_core import Evaluation, QueryRecord, Rules, evaluate
from stef_core.catalogue import Catalogue, catalogue_of, mine
from stef_core.extract.sql import extract_sql
from stef_core.judge.model import load_model
from stef_core.records import Aggregation, AllOf, AnyOf, Condition, DatePart, Evidence, Filter, QuestionSpec, SqlSpec
from stef_core.rules import BenignFilter
from tests.docs_parts import remade, table

CONCEPTS = Path(__file__).parents[1] / "docs" / "concepts.md"

QUESTION = "How many bookings from Lisbon were cancelled in 2025?"
REFORMULATION = "Number of bookings with city = Lisbon and status = cancelled in the year 2025"
WITHOUT_YEAR = "Number of bookings with city = Lisbon and status = cancelled"
BARE = "SELECT COUNT(*) FROM bookings WHERE city = 'Lisbon' AND status = 'cancelled'"
SQL = f"{BARE} AND is_test = FALSE"
YEAR = " AND EXTRACT(YEAR FROM cancelled_on) = 2025"
BENIGN = Rules(benign_filters=[BenignFilter(column="is_test", op="=", value=False)])

JOINED = (
    "SELECT COUNT(*) FROM bookings b JOIN hotels h ON h.hotel_id = b.{key} "
    "WHERE h.city = 'Lisbon' AND b.status = 'cancelled' AND EXTRACT(YEAR FROM b.cancelled_on) = 2025"
)
# what the other answers of the log are: their SQL, for as many questions as numbers go in
LOG = (
    "SELECT COUNT(*) FROM bookings WHERE status = 'cancelled' AND EXTRACT(YEAR FROM cancelled_on) = 2025 AND nights > {n}",
    "SELECT h.name FROM hotels h JOIN bookings b ON b.hotel_id = h.hotel_id WHERE h.city = 'Lisbon' AND b.nights > {n}",
)
ANSWERS = 6  # of each


def judged(
    sql: str = SQL, *, enriched: str = REFORMULATION, rules: Rules | None = None, catalogue: Catalogue | None = None
) -> Evaluation:
    """An answer to the question of the page."""
    record = QueryRecord(query_id="1", user_question=QUESTION, enriched_question=enriched, generated_sql=sql)
    return evaluate(record, rules, catalogue=catalogue)


VARIANTS: Mapping[str, Evaluation] = {
    "as it stands": judged(),
    "the rules call `is_test = FALSE` benign": judged(rules=BENIGN),
    "the year is in the SQL": judged(SQL + YEAR),
    "both": judged(SQL + YEAR, rules=BENIGN),
    "the year is in the SQL, and `is_test` is not": judged(BARE + YEAR),
    "the reformulation loses the year, and the SQL follows it": judged(BARE, enriched=WITHOUT_YEAR),
}


def log() -> Catalogue:
    """What a log of other answers to the same application shows."""
    answers = [
        QueryRecord(query_id=f"{n}", user_question=f"{n} of {sql}", generated_sql=sql.format(n=n))
        for sql in LOG
        for n in range(ANSWERS)
    ]
    return catalogue_of(mine(((each, extract_sql(each.generated_sql)) for each in answers), dt.date(2026, 3, 2)))


ANSWERED = {
    "reads `city` from `bookings`": BARE + YEAR,
    "joins `hotels` on `hotel_id`": JOINED.format(key="hotel_id"),
    "joins `hotels` on `booking_id`": JOINED.format(key="booking_id"),
}
WITH_LOG: Mapping[str, tuple[Evaluation, Evaluation]] = {
    name: (judged(sql), judged(sql, catalogue=log())) for name, sql in ANSWERED.items()
}


def concepts_page() -> str:
    """``docs/concepts.md`` with its made parts made anew; the text between them stays."""
    return remade(CONCEPTS, PARTS)


def shown(condition: Condition) -> str:
    """A condition in one line, as the page writes it."""
    if isinstance(condition, AnyOf | AllOf):
        return (" or " if isinstance(condition, AnyOf) else " and ").join(map(shown, condition.conditions))
    assert isinstance(condition, Filter)
    column = condition.column
    name = f"{column.part}({column.column})" if isinstance(column, DatePart) else column
    return f"`{name} {condition.op} {str(condition.value).lower()}`"


def listed(conditions: Iterable[Condition]) -> str:
    return ", ".join(map(shown, conditions)) or "–"


def _aggregates(found: Iterable[Aggregation]) -> str:
    return ", ".join(f"`{each.func}({each.column})`" for each in found)


def texts_part() -> str:
    """The three texts."""
    return "\n".join(
        ["```text", f"question       {QUESTION}", f"reformulation  {REFORMULATION}", "```", "", "```sql", *_wrapped(SQL), "```"]
    )


def _wrapped(sql: str) -> list[str]:
    return re.sub(r" (FROM|WHERE|AND) ", r"\n\1 ", sql).splitlines()


def reading_part() -> str:
    """Both specifications side by side."""
    reading = VARIANTS["as it stands"].reading
    assert reading is not None
    assert reading.enriched is not None
    sides: list[tuple[str, QuestionSpec | SqlSpec]] = [
        ("question", reading.question),
        ("reformulation", reading.enriched),
        ("SQL", reading.sql),
    ]
    return table(
        "side | aggregates | conditions", ([name, _aggregates(s.aggregations), listed(s.filters)] for name, s in sides)
    )


def alignment_part() -> str:
    """Required, matched, missing, extra and benign conditions."""
    found = VARIANTS["as it stands"].alignment
    assert found is not None
    rows = [[name, listed(getattr(found, name))] for name in ("required", "matched", "missing", "extra", "benign")]
    return table("conditions | which", [*rows, ["**filter status**", f"`{found.filter_status}`"]])


def evidence_of(evaluation: Evaluation) -> Evidence:
    """What the judge saw of an answer without text that addresses it."""
    assert evaluation.reading is not None
    assert evaluation.alignment is not None
    assert evaluation.enrichment is not None
    return Evidence(
        record=QueryRecord(query_id="1", user_question=QUESTION, enriched_question=REFORMULATION, generated_sql=SQL),
        reading=evaluation.reading,
        alignment=evaluation.alignment,
        enrichment=evaluation.enrichment,
        findings=(*evaluation.alignment.findings, *evaluation.enrichment.findings),
    )


def verdict_part() -> str:
    """The sum of log-odds, term by term, and what becomes of it."""
    evaluation = VARIANTS["as it stands"]
    assert evaluation.verdict is not None
    model = load_model()
    evidence = evidence_of(evaluation)
    terms = model.terms(evidence)
    total = math.fsum(terms.values())
    told = {f.kind or f.code: f.message for f in evidence.findings}
    what = {"": "where an answer starts that has a reformulation"} | told
    rows = [[f"`{name or 'intercept'}`", what.get(name, "speaks for the answer"), f"{w:+.2f}"] for name, w in terms.items()]
    verdict = evaluation.verdict
    return "\n".join(
        [
            table("term | why | log-odds", [*rows, ["**sum**", "", f"{total:+.2f}"]]),
            "",
            f"`p_right` = 1 / (1 + e^{-total:.2f}) = **{verdict.p_right:.2f}**, so the grade is `{verdict.grade}`,",
            f"and the confidence in it γ = {verdict.confidence:.2f}, the larger of `p_right` and 1 − `p_right`.",
        ]
    )


def score_part() -> str:
    """Φ, term by term."""
    evaluation = VARIANTS["as it stands"]
    score, verdict, alignment = evaluation.score, evaluation.verdict, evaluation.alignment
    assert score is not None
    assert verdict is not None
    assert verdict.confidence is not None
    assert alignment is not None
    rows: list[list[object]] = [
        ["σ_filters", f"`{alignment.filter_status}`", score.filters],
        ["σ_verdict", f"`{verdict.grade}`", score.verdict],
        ["δ", "all extras benign" if score.lenient else "an extra that no rule knows", score.lenient],
        ["B", f"min(10, {score.filters} + {score.verdict} + {score.lenient})", score.base],
        ["Γ", f"γ = {verdict.confidence:.2f}", score.gamma_factor],
        ["**Φ**", f"{score.base} / 10 × 100 × {score.gamma_factor}", f"**{score.phi:g}**, `{score.band}`"],
    ]
    return table("term | from | value", rows)


def findings_part() -> str:
    """The findings of the answer."""
    return _findings(VARIANTS["as it stands"])


def reformulated_part() -> str:
    """The findings where the reformulation is at fault."""
    return _findings(VARIANTS["the reformulation loses the year, and the SQL follows it"])


def _findings(evaluation: Evaluation) -> str:
    rows = [
        [
            f"`{f.code}`",
            f.stage,
            f.severity,
            *(f"`{part}`" if part else "–" for part in (f.question_part, f.sql_part)),
            f.message,
        ]
        for f in evaluation.findings
    ]
    return table("code | stage | severity | in the question | in the SQL | message", rows)


def variants_part() -> str:
    """What each change of the example does to its score."""
    rows = []
    for name, evaluation in VARIANTS.items():
        score, verdict = evaluation.score, evaluation.verdict
        assert score is not None
        assert verdict is not None
        assert verdict.confidence is not None
        points = [score.filters, score.verdict, score.lenient, score.base]
        trust = [f"{verdict.confidence:.2f}", score.gamma_factor, f"**{score.phi:g}**", score.band, f"{score.p_right:.2f}"]
        rows.append([name, *points, *trust])
    return table("what | σ_filters | σ_verdict | δ | B | γ | Γ | Φ | band | p_right", rows)


def log_part() -> str:
    """The same answers without and with what the log shows."""
    rows = []
    for name, (alone, beside) in WITH_LOG.items():
        assert alone.score is not None
        assert beside.score is not None
        told = [f.message for f in beside.findings if f not in alone.findings]
        pair = [f"{score.phi:g}, {score.p_right:.2f}" for score in (alone.score, beside.score)]
        rows.append([name, *pair, " ".join(told) or "–"])
    return table("the SQL | Φ, p_right without | with the log | what the log says", rows)


PARTS = {
    "texts": texts_part,
    "reading": reading_part,
    "alignment": alignment_part,
    "verdict": verdict_part,
    "score": score_part,
    "findings": findings_part,
    "variants": variants_part,
    "reformulated": reformulated_part,
    "log": log_part,
}
