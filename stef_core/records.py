"""Records of one answered question, from the log row to the score.

Every record is frozen, slotted and keyword-only. Fields marked *evidence* say where a value came from; they take no part in
equality, so that two spellings of one condition compare equal.

Canonical form: columns are lower-case base names without qualifier, resolved through aliases; text values are NFKC, case-folded
and white-space collapsed; numbers are numbers; dates are ``YYYY-MM-DD`` text (``YYYY-MM-DD HH:MM:SS`` with a time of day).
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

# --- the vocabulary -------------------------------------------------------------------------------------------------

FilterStatus: TypeAlias = Literal["fully_applied", "fully_applied_with_extras", "partially_applied", "not_applied"]
Grade: TypeAlias = Literal["correct", "likely_correct", "potentially_incorrect", "incorrect"]
Band: TypeAlias = Literal["excellent", "good", "marginal", "poor"]
EnrichmentStatus: TypeAlias = Literal["absent", "faithful", "adds", "drops", "contradicts"]
Status: TypeAlias = Literal["scored", "unscored"]
Stage: TypeAlias = Literal["enrichment", "generation", "evaluation"]
Severity: TypeAlias = Literal["critical", "major", "minor", "info"]
ParseStatus: TypeAlias = Literal[
    "ok",  # read in the stated dialect (packaging such as one markdown fence stripped)
    "other_dialect",  # read in another dialect; `SqlSpec.dialect` says which
    "repaired",  # read after a safe repair; `SqlSpec.notes` says which
    "llm",  # read from the text by the model
    "unparseable",  # no dialect reads it, yet it looks like a query: unscored
    "no_sql",  # missing or empty
    "not_a_query",  # DML, DDL, several statements, prose, cut off in the middle
]


# --- what goes in ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryRecord:
    """One row of the query log (data-contract.md, "Query log")."""

    query_id: str
    user_question: str | None
    generated_sql: str | None
    enriched_question: str | None = None
    agent_id: str = "unknown"
    agent_version: str | None = None
    app_id: str = "default"
    asked_at: dt.datetime | None = None
    dialect: str | None = None
    extra: str | None = None  # JSON object of the log's further columns; carried through, never read


# --- columns, values and conditions ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DatePart:
    """A part of a date column: ``EXTRACT(YEAR FROM c)``, ``strftime('%m', c)``."""

    part: str
    column: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DateTrunc:
    """A date column cut to a unit: ``DATE_TRUNC('month', c)``, ``DATE(c)`` is unit ``day``."""

    unit: str
    column: str


# a base name, or an expression as lower-case text, or a date part / truncation
Column: TypeAlias = str | DatePart | DateTrunc


@dataclass(frozen=True, slots=True, kw_only=True)
class Now:
    """A moment relative to now: ``amount`` `unit`s ago (negative: ahead), cut to ``trunc`` where given."""

    amount: int = 0
    unit: str = "day"
    trunc: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnValue:
    """The value of another column or of the same column in another row."""

    column: Column
    table: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalarQuery:
    """A scalar subquery that computes one aggregate; `correlated` names the columns that tie it to the outer row."""

    func: str
    column: Column
    filters: tuple[Condition, ...] = ()
    correlated: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubQuery:
    """A subquery used as a set of values (IN, ANY) or as an existence test."""

    projections: tuple[Column, ...] = ()
    filters: tuple[Condition, ...] = ()
    spec: SqlSpec | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A bound parameter (``?``, ``:tenant``): one constant whose value the log does not show."""

    name: str = "?"


Value: TypeAlias = (
    "str | int | float | bool | Now | ColumnValue | ScalarQuery | SubQuery | Parameter | tuple[Value, ...] | None"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """One comparison.

    ``op`` is one of ``= != < <= > >= in not_in between not_between like not_like regexp not_regexp is_null is_not_null exists
    not_exists``; ``between`` and ``in`` take a tuple. With ``agg`` it is a HAVING (``column`` is the aggregate's argument),
    with ``window`` a QUALIFY (``column`` is None). On the question side ``column`` may be None: the value is known, the column
    is not.
    """

    column: Column | None = None
    op: str = "="
    value: Value = None
    agg: str | None = None
    window: str | None = None
    distinct: bool = False
    # evidence
    table: str | None = field(default=None, compare=False)  # base table that owns the column, where the SQL says so
    raw: tuple[str, ...] = field(default=(), compare=False)  # literals as they were written
    text: str = field(default="", compare=False)  # the phrase of the question, or the SQL, that it was read from
    clause: str = field(default="where", compare=False)  # where on join having qualify | question enrichment
    certain: bool = field(default=True, compare=False)  # False: a guess; never counted as a missing filter
    level: int = field(default=0, compare=False)  # 0: outermost query; 1: a CTE, derived table or subquery below it; …


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOf:
    """OR of conditions."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AllOf:
    """AND of conditions; appears only inside `AnyOf` and in lists that stand for a nested group."""

    conditions: tuple[Condition, ...]


Condition: TypeAlias = Filter | AnyOf | AllOf


@dataclass(frozen=True, slots=True, kw_only=True)
class Aggregation:
    """An aggregate that is output (``func`` lower-case: count sum avg min max …; ``column`` ``*`` for COUNT(*))."""

    func: str
    column: Column = "*"
    distinct: bool = False
    filter: tuple[Condition, ...] = ()
    table: str | None = field(default=None, compare=False)
    text: str = field(default="", compare=False)
    certain: bool = field(default=True, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderKey:
    """One ORDER BY key: a column, an aggregate (``agg`` over ``column``) or a window function."""

    column: Column | None = None
    agg: str | None = None
    window: str | None = None
    dir: Literal["asc", "desc"] = "asc"
    certain: bool = field(default=True, compare=False)
    text: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A window function of the output or of a filter."""

    func: str
    column: Column | None = None
    partition_by: tuple[Column, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    frame: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinEdge:
    """Two columns that a query holds equal to tie tables together; the sides are sorted, so an edge has one spelling."""

    left_table: str
    left_column: str
    right_table: str
    right_column: str
    kind: str = "inner"  # inner left right full semi anti cross correlated


@dataclass(frozen=True, slots=True, kw_only=True)
class Defect:
    """Something in the SQL that is wrong or doubtful whatever was asked, e.g. ``= NULL`` or a cross join by accident.

    ``kind`` is a stable name: never_true always_true null_comparison contradiction integer_division cross_join
    missing_group_by avg_of_avg else_in_count count_star_outer_join date_upper_bound case_fold_mismatch fan_out write …
    ``code`` is the finding code it becomes; ``fatal`` defects make the answer wrong, others make it doubtful.
    """

    kind: str
    code: str
    message: str
    sql_part: str = ""
    fatal: bool = False


# --- specifications -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlSpec:
    """What one SQL query does (method.md section 1), and how it was read."""

    parse_status: ParseStatus
    dialect: str | None = None
    projections: tuple[Column, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()
    filters: tuple[Condition, ...] = ()
    join_filters: tuple[Condition, ...] = ()
    group_by: tuple[Column, ...] = ()
    grouping_sets: tuple[tuple[Column, ...], ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None
    offset: int | None = None
    distinct: bool = False
    set_op: str | None = None  # union union_all intersect except …; `None` for one SELECT
    windows: tuple[Window, ...] = ()
    # beyond the canonical form: what alignment, the judge and the catalogue need
    expressions: tuple[str, ...] = ()  # every output in order as canonical lower-case text, aggregates and ratios included
    tables: tuple[str, ...] = ()  # base tables read, lower-case, once for each use
    joins: tuple[JoinEdge, ...] = ()
    columns: tuple[tuple[str | None, str], ...] = ()  # (base table or None, column) of every column used anywhere
    literals: tuple[str, ...] = ()  # every literal as written, limits and formats excluded
    inner_limits: tuple[tuple[int, tuple[OrderKey, ...]], ...] = ()  # limits below the outermost level, with their order
    inner_groups: tuple[tuple[Column, ...], ...] = ()  # GROUP BY below the outermost level, where another grouping stands above
    distinct_on: bool = False
    one_row: bool = False  # aggregates without grouping: exactly one row comes out
    subqueries: int = 0
    statements: int = 1
    branches: tuple[SqlSpec, ...] = ()  # operands of a set operation
    defects: tuple[Defect, ...] = ()
    notes: tuple[str, ...] = ()  # how the reading was reached, in words
    error: str | None = None  # why it could not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class Mentions:
    """What a text names, whether or not the reader made a condition of it. Lower-case; numbers as numbers."""

    lemmas: frozenset[str] = frozenset()
    numbers: tuple[float, ...] = ()
    dates: tuple[str, ...] = ()  # YYYY, YYYY-MM or YYYY-MM-DD
    quoted: tuple[str, ...] = ()  # quoted strings, as written
    names: tuple[str, ...] = ()  # capitalised words and runs of them, as written


@dataclass(frozen=True, slots=True, kw_only=True)
class Hint:
    """One clause of an enriched question or of evidence: "X refers to col = 'v'", "rate = `a` / `b`"."""

    phrase: str = ""
    column: str | None = None
    op: str | None = None
    value: Value = None
    agg: str | None = None
    expression: str | None = None
    text: str = ""
    relevant: bool = True  # its phrase shares a lemma with the question


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSpec:
    """What a question asks for (method.md section 1). Columns are guesses in snake_case from the words used."""

    projections: tuple[Column, ...] = ()
    aggregations: tuple[Aggregation, ...] = ()
    filters: tuple[Condition, ...] = ()
    group_by: tuple[Column, ...] = ()
    order_by: tuple[OrderKey, ...] = ()
    limit: int | None = None  # k of a top-k, 1 for a singular superlative
    distinct: bool = False
    asks_order: bool = False
    asks_limit: bool = False
    superlative: Literal["max", "min"] | None = None
    per_group_limit: bool = False  # "the top k of each …"
    set_op: str | None = None  # "but not", "both … and …" across sets
    negated: bool = False  # asks for what does not exist ("never ordered", "without")
    ratio: bool = False  # asks for a share, percentage, rate or ratio
    target: str | None = None  # the noun whose rows are asked for ("customers")
    mentions: Mentions = Mentions()
    hints: tuple[Hint, ...] = ()
    language: str = "en"
    unread: tuple[str, ...] = ()  # phrases the reader saw and could not place
    reader: str = "offline"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Both sides of one row, read independently of each other."""

    question: QuestionSpec
    enriched: QuestionSpec | None
    sql: SqlSpec


# --- what comes out -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One departure (method.md section 8). ``code`` is a key of `stef_core.findings.CODES`."""

    code: str
    dimension: str
    severity: Severity
    stage: Stage
    question_part: str | None = None
    sql_part: str | None = None
    message: str = ""
    kind: str = ""  # finer than the code, for the judge's model; e.g. value_conflict, operator_direction
    strength: float = 1.0  # 0-1: how sure the reading behind it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """How the SQL side meets the question side (method.md section 3)."""

    filter_status: FilterStatus
    required: tuple[Condition, ...] = ()
    matched: tuple[Condition, ...] = ()  # of the SQL side
    missing: tuple[Condition, ...] = ()  # of the question side: absent, or there with another operator or value
    extra: tuple[Condition, ...] = ()  # of the SQL side: nobody asked; benign ones included
    benign: tuple[Condition, ...] = ()  # of the SQL side: extras that R_app confirms
    group_by_required: bool = False
    benign_group_by: tuple[Column, ...] = ()
    order_by_tolerated: bool = False
    limit_is_safety: bool = False
    findings: tuple[Finding, ...] = ()
    support: tuple[tuple[str, float], ...] = ()  # named signals for the judge's model: (name, value in 0-1)

    @property
    def lenient(self) -> int:
        """δ_lenient of method.md section 3: 1 when every extra is confirmed benign."""
        return int(
            self.filter_status == "fully_applied_with_extras" and set(map(repr, self.extra)) <= set(map(repr, self.benign))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Enrichment:
    """How true the reformulation is to the question (method.md section 4)."""

    status: EnrichmentStatus
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All that a judge sees of one row."""

    record: QueryRecord
    reading: Reading
    alignment: Alignment
    enrichment: Enrichment
    findings: tuple[Finding, ...] = ()  # of alignment, enrichment and the SQL's own defects


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """What the verdict of a model rests on; γ is the least of what is known of `stated`, `agreement` and `probability`."""

    stated: float  # confidence that the model states, 0-1; the mean over the answers that gave the grade
    step: str  # how the form of the answer was asked for: json_schema | json_object | text
    repaired: bool = False  # an answer came outside its schema and was mended on request
    votes: tuple[tuple[Grade, int], ...] = ()  # of several samples: how many gave each grade
    agreement: float | None = None  # share of the samples that gave the grade, 0-1
    probability: float | None = None  # of the tokens that write the grade, 0-1, where the endpoint tells it


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A judge's answer. ``grade`` None: the judge gave none, and ``reason`` says why (the row is unscored)."""

    grade: Grade | None
    confidence: float | None = None  # γ in 0-1
    judge: str = "symbolic"
    reasons: tuple[str, ...] = ()
    reason: str | None = None  # of an absent verdict: judge_unavailable judge_refused judge_invalid judge_truncated …
    p_right: float | None = None
    model: str | None = None
    prompt_version: str | None = None
    tokens_in: int = 0
    tokens_out: int = 0
    calls: int = 0
    cost: float = 0.0
    basis: Basis | None = None  # of a model's verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Φ with every term that made it (method.md section 6), so that a reader can redo the sum."""

    filters: int
    verdict: int
    lenient: int
    base: int
    gamma_factor: float
    phi: float
    band: Band
    p_right: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One row, judged and explained; `score` is None when `status` is unscored."""

    query_id: str
    status: Status
    reason: str | None = None
    reading: Reading | None = None
    alignment: Alignment | None = None
    enrichment: Enrichment | None = None
    verdict: Verdict | None = None
    score: Score | None = None
    findings: tuple[Finding, ...] = ()
    rules_version: str = ""
    rules_hash: str = ""

    def to_json(self) -> dict[str, Any]:
        """The object that ``stef explain --file`` writes (interface.md)."""
        from stef_core.canonical import evaluation_json

        return evaluation_json(self)
