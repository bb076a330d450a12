"""What the terminal shows: figures that add up, signs beside colours, and strangers' text that can do no harm."""

from __future__ import annotations

import datetime as dt
import io
import json
from typing import Any

import pytest
from rich.console import Console, RenderableType

from flows.terminal import agent_table, alerts_table, render_evaluation, run_table, score_text, sparkline
from stef_core.canonical import conditions_from_json
from stef_core.drift import EVENTS
from stef_core.frames import AGENT_ALERTS, AGENT_DAILY, frame_of
from stef_core.records import (
    Alignment,
    Enrichment,
    Evaluation,
    Filter,
    Finding,
    QueryRecord,
    QuestionSpec,
    Reading,
    Score,
    SqlSpec,
    Verdict,
)
from stef_core.wording import condition_text, plain_text


def shown(renderable: RenderableType, width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None, legacy_windows=False).print(renderable)
    return out.getvalue()


def daily(day: int, agent: str = "shop-analyst", version: str | None = "v2", **values: Any) -> dict[str, Any]:
    shares = {"band": {"excellent": 0.5, "good": 0.25, "marginal": 0.0, "poor": 0.25}}
    row = {"rows": 40, "scored": 40, "coverage": 1.0, "mean_phi": 80.0, "median_phi": 90.0, "p90_phi": 100.0}
    key = {"dt": dt.date(2026, 3, day), "agent_id": agent, "agent_version": version, "app_id": "*"}
    return {**dict.fromkeys(AGENT_DAILY), **key, **row, "shares": json.dumps(shares), **values}


def evaluation(**changes: Any) -> tuple[QueryRecord, Evaluation]:
    country = Filter(column="country", value="norway")
    year = Filter(column="year", value=2025)
    tenant, limit = Filter(column="tenant_id", value=17), Filter(column="channel", value="web")
    record = QueryRecord(
        query_id="q-1",
        agent_id="shop-analyst",
        user_question="How many orders from Norway in 2025?",
        enriched_question=None,
        generated_sql="SELECT COUNT(*) FROM orders WHERE country = 'Norway' AND tenant_id = 17 AND channel = 'web'",
        dialect="postgres",
    )
    values: dict[str, Any] = {
        "query_id": "q-1",
        "status": "scored",
        "reading": Reading(
            question=QuestionSpec(filters=(country, year)),
            enriched=None,
            sql=SqlSpec(parse_status="ok", filters=(country, tenant, limit), limit=50),
        ),
        "alignment": Alignment(
            filter_status="partially_applied",
            required=(country, year),
            matched=(country,),
            missing=(year,),
            extra=(tenant, limit),
            benign=(tenant,),
        ),
        "enrichment": Enrichment(status="absent"),
        "verdict": Verdict(grade="incorrect", confidence=0.9, judge="symbolic", reasons=("The year is not applied.",)),
        "score": Score(filters=3, verdict=0, lenient=0, base=3, gamma_factor=1.0, phi=30.0, band="poor"),
        "findings": (
            Finding(
                code="missing_filter",
                dimension="filters",
                severity="critical",
                stage="generation",
                message="Nothing in the SQL holds year = 2025.",
            ),
        ),
    }
    return record, Evaluation(**(values | changes))


def test_agent_figures_of_a_period_weigh_days_by_their_scored_rows() -> None:
    days = [daily(2, mean_phi=90.0, scored=30, coverage=0.75), daily(3, mean_phi=60.0, scored=10, rows=10, median_phi=55.0)]

    text = shown(agent_table(frame_of(days, AGENT_DAILY)))

    row = next(line for line in text.splitlines() if "shop-analyst" in line)
    assert [cell.strip() for cell in row.split("│")[1:8]] == ["shop-analyst", "v2", "50", "80.0 %", "82.5", "55.0", "100.0"]
    assert "██████▓▓▓░░░" in row
    assert "▇▅" in row


@pytest.mark.parametrize("days", [1, 7, 14, 21, 31])
@pytest.mark.parametrize("agent", ["bot", "sales-bot", "customer-service-copilot"])
@pytest.mark.parametrize("version", ["v6", "2026-11-22", "2026-11-22-release-0.1.7"])
@pytest.mark.parametrize("rows", [40, 400_000])
def test_names_and_versions_of_24_letters_stand_whole_in_100_columns(days: int, agent: str, version: str, rows: int) -> None:
    frame = frame_of(
        [daily(day, agent=agent, version=version, rows=rows, scored=rows) for day in range(1, days + 1)], AGENT_DAILY
    )

    lines = shown(agent_table(frame), 100).splitlines()

    (row,) = [line for line in lines if line.startswith("│")]
    assert [cell.strip() for cell in row.split("│")[1:3]] == [agent, version]
    assert f"{rows * days:,}" in row
    assert "80.0" in row
    assert max(map(len, lines)) <= 100


def test_marks_are_of_the_last_14_days_and_the_table_says_so() -> None:
    values = [0.0] * 7 + [100.0] * 14

    text = shown(agent_table(frame_of([daily(1 + n, agent="bot", mean_phi=v) for n, v in enumerate(values)], AGENT_DAILY)))

    assert "█" * 14 in text
    assert "▁" not in text
    assert "marks are of the last 14 days" in " ".join(text.split())
    assert "marks are of" not in shown(agent_table(frame_of([daily(2)], AGENT_DAILY)))


def test_a_name_longer_than_that_is_folded_and_loses_no_letter() -> None:
    agent = "abcdefghijklmnopqrstuvwxyz0123456789" * 2

    lines = shown(agent_table(frame_of([daily(2, agent=agent)], AGENT_DAILY)), 100).splitlines()

    cells = [line.split("│")[1].strip() for line in lines if line.startswith("│")]
    assert "".join(cells) == agent
    assert max(map(len, cells)) >= 24
    assert max(map(len, lines)) <= 100


def test_versions_of_an_agent_stand_in_order_of_time_and_single_applications_stay_out() -> None:
    days = [daily(6, version="v1"), daily(2, version="v9"), daily(2, version="v9", app_id="shop", mean_phi=1.0)]

    lines = shown(agent_table(frame_of(days, AGENT_DAILY))).splitlines()

    assert [line.split("│")[2].strip() for line in lines if "shop-analyst" in line] == ["v9", "v1"]


def test_an_agent_without_a_scored_row_has_dashes_and_no_zero() -> None:
    nothing: dict[str, Any] = {"scored": 0, "coverage": 0.0, "mean_phi": None, "median_phi": None, "p90_phi": None}

    row = next(line for line in shown(agent_table(frame_of([daily(2, **nothing)], AGENT_DAILY))).splitlines() if "shop" in line)

    assert [cell.strip() for cell in row.split("│")[4:8]] == ["0.0 %", "–", "–", "–"]
    assert "·" in row


def test_tables_without_rows_say_so() -> None:
    assert "No day has been scored yet." in shown(agent_table(frame_of([], AGENT_DAILY)))
    assert "No agent got worse" in shown(alerts_table(frame_of([], AGENT_ALERTS)))


def test_alerts_tell_the_change_the_chance_and_the_reason() -> None:
    base = {**dict.fromkeys(AGENT_ALERTS), "dt": dt.date(2026, 3, 6), "agent_id": "a", "app_id": "*"}
    alerts = [
        {**base, "kind": "phi_fall", "change": -18.04, "p_value": 0.00001, "message": "a: mean Φ fell."},
        {**base, "kind": "coverage_fall", "change": -0.25, "p_value": 0.0005, "message": "a: coverage fell."},
        {**base, "kind": "version_worse", "change": -7.5, "p_value": 0.002, "message": "a: version v2 is worse."},
        {**base, "kind": "finding_rise", "change": 0.125, "p_value": 0.003, "message": "a: wrong join rose."},
    ]

    text = shown(alerts_table(frame_of(alerts, AGENT_ALERTS)))

    assert "▼ 18.0 Φ" in text
    assert "<0.0001" in text
    assert "▼ 25.0% coverage" in text
    assert "a: coverage fell." in text
    assert "▼ 7.5 Φ" in text
    assert "▲ 12.5% of answers" in text


def test_every_kind_of_alert_has_a_place_in_the_table() -> None:
    base = {**dict.fromkeys(AGENT_ALERTS), "dt": dt.date(2026, 3, 6), "change": -0.5, "p_value": 0.01, "message": "m"}
    kinds = [kind for event in EVENTS for kind in event]

    text = shown(alerts_table(frame_of([{**base, "kind": kind} for kind in kinds], AGENT_ALERTS)))

    assert text.count("2026-03-06") == len(kinds)


def test_runs_say_the_outcome_in_words_and_signs() -> None:
    runs: list[dict[str, Any]] = [
        {
            "dt": dt.date(2026, 3, 2),
            "rows_in": 200,
            "rows_scored": 199,
            "mean_phi": 81.26,
            "outcome": "published",
            "message": None,
        },
        {"dt": dt.date(2026, 3, 3), "rows_in": 0, "rows_scored": 0, "outcome": "gate_failed", "message": "coverage of a"},
    ]

    text = shown(run_table(runs))

    assert "99.5 %" in text
    assert "81.3" in text
    assert "✓ published" in text
    assert "✗ gate failed" in text


def test_an_answer_is_explained_down_to_the_sum() -> None:
    text = " ".join(shown(render_evaluation(*evaluation())).split())

    for expected in (
        "✓ country = 'norway'",
        "✗ year = 2025",
        "○ tenant_id = 17",
        "+ channel = 'web'",
        "– absent",
        "incorrect γ 0.90 · symbolic",
        "– The year is not applied.",
        "‼ missing_filter generation Nothing in the SQL holds year = 2025.",
        "Φ = (σ_filters 3 + σ_verdict 0 + δ 0) / 10 × 100 × Γ 1 = 30.0 poor",
    ):
        assert expected in text
    assert text.count("tenant_id = 17") == 3  # SQL, applied filters, benign condition: not among the other extras


def test_a_sum_above_ten_shows_its_cap() -> None:
    score = Score(filters=5, verdict=5, lenient=1, base=10, gamma_factor=0.8, phi=80.0, band="good", p_right=0.914)

    text = score_text(score).plain

    assert text.startswith("Φ = min(10, σ_filters 5 + σ_verdict 5 + δ 1) / 10 × 100 × Γ 0.8 = 80.0  good")
    assert text.endswith("91%")


def test_an_unscored_answer_says_why_and_shows_no_score() -> None:
    nothing: dict[str, Any] = {
        "reading": None,
        "alignment": None,
        "enrichment": None,
        "verdict": None,
        "score": None,
        "findings": (),
    }
    record, unscored = evaluation(status="unscored", reason="sql_unparseable", **nothing)

    text = shown(render_evaluation(record, unscored))

    assert "unscored: sql_unparseable" in text
    assert "Φ" not in text


def test_a_row_that_the_evaluator_failed_on_says_so() -> None:
    nothing: dict[str, Any] = {"reading": None, "alignment": None, "enrichment": None, "score": None, "findings": ()}
    failed = Verdict(grade=None, reason="evaluator_error", reasons=("The evaluator failed on this row.",))
    record, unscored = evaluation(status="unscored", reason="evaluator_error", verdict=failed, **nothing)

    text = shown(render_evaluation(record, unscored))

    assert "unscored: evaluator_error" in text
    assert "The evaluator failed on this row." in text


@pytest.mark.parametrize("width", [40, 80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = shown(render_evaluation(*evaluation()), width).splitlines()

    assert max(map(len, lines)) <= width


def test_question_and_sql_stand_side_by_side_only_where_there_is_room() -> None:
    def same_line(width: int) -> bool:
        return any("Question" in line and "SQL" in line for line in shown(render_evaluation(*evaluation()), width).splitlines())

    assert same_line(100)
    assert not same_line(80)


def test_markup_and_escape_codes_of_strangers_stay_text() -> None:
    record, judged = evaluation()
    evil = "[bold red]x[/] [link=file:///etc]y[/link] \x1b[2J\x1b]0;title\x07 \u202egnp.exe"
    record = QueryRecord(query_id="q", user_question=evil, generated_sql=f"SELECT '{evil}'", agent_id=evil, dialect=evil)

    text = shown(render_evaluation(record, judged), 200)

    assert "[bold red]x[/]" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "\x1b" not in shown(agent_table(frame_of([daily(2, agent=evil)], AGENT_DAILY)))


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ({"column": "a", "op": "=", "value": "o'neil"}, "a = 'o''neil'"),
        ({"column": "a", "op": ">=", "value": 3}, "a ≥ 3"),
        ({"column": "a", "op": "is_null"}, "a IS NULL"),
        ({"column": "a", "op": "in", "value": [1, 2]}, "a IN (1, 2)"),
        ({"column": "a", "op": "in", "value": list(range(9))}, "a IN (0, 1, 2, 3, 4, 5, … 3 more)"),
        ({"column": "a", "op": "not_between", "value": [1, 5]}, "a NOT BETWEEN 1 AND 5"),
        ({"column": {"part": "year", "column": "d"}, "op": "=", "value": 2025}, "year(d) = 2025"),
        ({"column": {"trunc": "month", "column": "d"}, "op": "=", "value": "2025-01-01"}, "month of d = '2025-01-01'"),
        ({"column": "d", "op": ">=", "value": {"now_minus": [30, "day"]}}, "d ≥ 30 days ago"),
        ({"agg": "count", "column": "x", "distinct": True, "op": ">", "value": 3}, "count(distinct x) > 3"),
        ({"window": "row_number", "op": "<=", "value": 3}, "row_number() ≤ 3"),
        ({"op": "not_exists", "value": {"filters": [{"column": "a", "op": "=", "value": 1}]}}, "NOT EXISTS (a = 1)"),
        ({"column": "a", "op": "=", "value": {"column": "b"}}, "a = b"),
        ({"column": "a", "op": ">", "value": {"scalar": {"func": "avg", "column": "a"}}}, "a > (avg(a) of all)"),
        ({"column": None, "op": "=", "value": True}, "(some column) = TRUE"),
        (
            {
                "any": [
                    {"all": [{"column": "a", "op": "=", "value": 1}, {"column": "b", "op": "=", "value": 2}]},
                    {"column": "c", "op": "=", "value": None},
                ]
            },
            "(a = 1 AND b = 2) OR c = NULL",
        ),
    ],
)
def test_conditions_read_as_short_sql(condition: dict[str, Any], text: str) -> None:
    (parsed,) = conditions_from_json([condition])

    assert condition_text(parsed) == text


def test_sparkline_keeps_to_its_range_and_marks_gaps() -> None:
    assert sparkline([0, 50, 100, None, 130, -5]) == "▁▅█·█▁"


def test_plain_text_keeps_letters_of_every_script_and_line_ends() -> None:
    assert plain_text("שלום\r\nمرحبا\t你好\x00") == "שלום\nمرحبا\t你好\ufffd"
