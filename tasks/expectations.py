"""What each table must satisfy before a day is published: the suites of Great Expectations.

Range and set expectations pass on nulls and on no rows, so every suite starts with a row count and says where nulls are meant.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, get_args

from stef_core.findings import CODES
from stef_core.frames import QUERY_FINDINGS, QUERY_LOG, QUERY_SCORES
from stef_core.records import Band, EnrichmentStatus, FilterStatus, Grade, ParseStatus, Severity, Stage, Status

if TYPE_CHECKING:
    from great_expectations import ExpectationSuite
    from great_expectations.expectations.expectation import Expectation

# terms of Φ: there on scored rows, absent on the others
SCORE_COLUMNS = (
    "phi",
    "band",
    "verdict",
    "confidence",
    "sigma_filters",
    "sigma_verdict",
    "delta_lenient",
    "base",
    "gamma_factor",
)
# shares of one, in agent_daily
SHARE_COLUMNS = ("coverage", "mean_p_right")
PHI_COLUMNS = ("mean_phi", "median_phi", "p90_phi")


def query_log_suite(day: dt.date) -> ExpectationSuite:
    """What a day's log must satisfy before anything is scored: columns, types, keys, dates (data-contract.md)."""
    from great_expectations import ExpectationSuite  # slow import: pay at the gate only
    from great_expectations import expectations as gxe
    from great_expectations.expectations.metadata_types import FailureSeverity

    start = dt.datetime.combine(day, dt.time(), dt.UTC)
    texts = [name for name, kind in QUERY_LOG.items() if kind.is_(QUERY_LOG["query_id"])]
    return ExpectationSuite(
        name="query_log",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectTableColumnsToMatchSet(column_set=list(QUERY_LOG), exact_match=False),
            *(gxe.ExpectColumnValuesToBeOfType(column=name, type_="str") for name in texts),
            gxe.ExpectColumnValuesToBeOfType(column="asked_at", type_="Timestamp"),
            *(gxe.ExpectColumnValuesToNotBeNull(column=name) for name in ("query_id", "agent_id", "asked_at")),
            gxe.ExpectColumnValuesToBeUnique(column="query_id"),
            # such a row is kept and reported, not refused
            gxe.ExpectColumnValuesToBeBetween(
                column="asked_at",
                min_value=start,
                max_value=start + dt.timedelta(days=1),
                strict_max=True,
                severity=FailureSeverity.WARNING,
            ),
        ],
    )


def scores_suite() -> ExpectationSuite:
    """What one day of ``query_scores`` must satisfy before it is published."""
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    scored, unscored = Column("status") == "scored", Column("status") == "unscored"
    return ExpectationSuite(
        name="scores",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectTableColumnsToMatchSet(column_set=list(QUERY_SCORES)),
            gxe.ExpectCompoundColumnsToBeUnique(column_list=["dt", "query_id"]),
            *(gxe.ExpectColumnValuesToNotBeNull(column=name) for name in ("dt", "query_id", "agent_id", "app_id", "status")),
            gxe.ExpectColumnValuesToBeInSet(column="status", value_set=list(get_args(Status))),
            gxe.ExpectColumnValuesToBeInSet(column="verdict", value_set=list(get_args(Grade))),
            gxe.ExpectColumnValuesToBeInSet(column="band", value_set=list(get_args(Band))),
            gxe.ExpectColumnValuesToBeInSet(column="filter_status", value_set=list(get_args(FilterStatus))),
            gxe.ExpectColumnValuesToBeInSet(column="enrichment_status", value_set=list(get_args(EnrichmentStatus))),
            gxe.ExpectColumnValuesToBeInSet(column="parse_status", value_set=list(get_args(ParseStatus))),
            gxe.ExpectColumnValuesToBeBetween(column="phi", min_value=0, max_value=100),
            gxe.ExpectColumnValuesToBeBetween(column="p_right", min_value=0, max_value=1),
            gxe.ExpectColumnValuesToBeBetween(column="confidence", min_value=0, max_value=1),
            *(gxe.ExpectColumnValuesToNotBeNull(column=name, row_condition=scored) for name in SCORE_COLUMNS),
            *(gxe.ExpectColumnValuesToBeNull(column=name, row_condition=unscored) for name in ("phi", "band", "base")),
            gxe.ExpectColumnValuesToNotBeNull(column="reason", row_condition=unscored),
            gxe.ExpectColumnValuesToBeNull(column="reason", row_condition=scored),
        ],
    )


def conservation_suite(rows_in: int) -> ExpectationSuite:
    """Each row of the log exactly once among the scores.

    For a frame of ``query_id``, ``agent_id``, ``in_log`` and ``in_scores``: how often an id is on each side.
    """
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="conservation",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectTableRowCountToEqual(value=rows_in),
            gxe.ExpectColumnValuesToBeInSet(column="in_log", value_set=[1]),
            gxe.ExpectColumnValuesToBeInSet(column="in_scores", value_set=[1]),
        ],
    )


def findings_suite() -> ExpectationSuite:
    """What one day of ``query_findings`` must satisfy; a day without findings is not put to it."""
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="findings",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectTableColumnsToMatchSet(column_set=list(QUERY_FINDINGS)),
            gxe.ExpectCompoundColumnsToBeUnique(column_list=["dt", "query_id", "ordinal"]),
            *(gxe.ExpectColumnValuesToNotBeNull(column=name) for name in ("query_id", "code", "severity", "stage", "message")),
            gxe.ExpectColumnValuesToBeInSet(column="code", value_set=list(CODES)),
            gxe.ExpectColumnValuesToBeInSet(column="severity", value_set=list(get_args(Severity))),
            gxe.ExpectColumnValuesToBeInSet(column="stage", value_set=list(get_args(Stage))),
        ],
    )


def agents_suite(coverage_min: float) -> ExpectationSuite:
    """What each agent's day must satisfy, over all its versions and applications.

    Args:
        coverage_min: Share of an agent's rows that must be scored, 0-1.
    """
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="agents",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectColumnValuesToNotBeNull(column="coverage"),
            gxe.ExpectColumnValuesToBeBetween(column="coverage", min_value=coverage_min, max_value=1),
        ],
    )


def agent_daily_suite() -> ExpectationSuite:
    """What one day of ``agent_daily`` must satisfy before it is published."""
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="agent_daily",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            gxe.ExpectCompoundColumnsToBeUnique(column_list=["dt", "agent_id", "agent_version", "app_id"]),
            *(gxe.ExpectColumnValuesToBeBetween(column=name, min_value=0, max_value=1) for name in SHARE_COLUMNS),
            *(gxe.ExpectColumnValuesToBeBetween(column=name, min_value=0, max_value=100) for name in PHI_COLUMNS),
        ],
    )


def volume_suite() -> ExpectationSuite:
    """How many rows a day should have and how late its last one; for a frame of `stef_core.trailing.VOLUME`.

    All that is told against the days before is a warning: the day may be right and the world another.
    """
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="volume",
        expectations=[
            gxe.ExpectTableRowCountToEqual(value=1),
            _warn_least("rows"),
            _warn_most("rows"),
            _warn_most("quiet_hours"),
        ],
    )


def inputs_suite() -> ExpectationSuite:
    """How the inputs of a day should be spread; for a frame of `stef_core.trailing.INPUTS`."""
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(name="inputs", expectations=[gxe.ExpectTableRowCountToBeBetween(min_value=1), _warn_most("psi")])


def agent_drift_suite() -> ExpectationSuite:
    """How each agent's day should be beside its days before; for a frame of `stef_core.trailing.AGENTS`."""
    from great_expectations import ExpectationSuite
    from great_expectations import expectations as gxe

    return ExpectationSuite(
        name="agent_drift",
        expectations=[
            gxe.ExpectTableRowCountToBeBetween(min_value=1),
            _warn_least("rows"),
            _warn_least("coverage"),
            _warn_most("band_psi"),
        ],
    )


def _warn_least(column: str) -> Expectation:
    return _warn_unless_at_least(column, f"{column}_least")


def _warn_most(column: str) -> Expectation:
    return _warn_unless_at_least(f"{column}_most", column)


def _warn_unless_at_least(larger: str, smaller: str) -> Expectation:
    """A warning where one column is below another; a bound that is null is not known and holds nothing against a row."""
    from great_expectations import expectations as gxe
    from great_expectations.expectations.metadata_types import FailureSeverity

    return gxe.ExpectColumnPairValuesAToBeGreaterThanB(
        column_A=larger,
        column_B=smaller,
        or_equal=True,
        ignore_row_if="either_value_is_missing",
        severity=FailureSeverity.WARNING,
    )
