"""What the report reads is what the tables hold, on each database."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from tasks.report import ReportData, load_report_data, render_report
from tasks.report_data import BAND_COUNTS
from tasks.warehouse import connect
from tests.reports import CHANGED, NOW, demo_week, filled


@pytest.fixture
def loaded(url: str) -> tuple[ReportData, pl.DataFrame, pl.DataFrame]:
    filled(url, *demo_week())
    with connect(url, read_only=True) as warehouse:
        return load_report_data(warehouse), warehouse.read("query_scores"), warehouse.read("query_findings")


def test_sums_and_answers_of_the_report_are_those_of_the_rows(
    loaded: tuple[ReportData, pl.DataFrame, pl.DataFrame],
) -> None:
    data, scores, findings = loaded
    scored = pl.col("status") == "scored"
    place = ["dt", "agent_id", "agent_version", "app_id"]
    at_fault = {stage: set(findings.filter(pl.col("stage") == stage)["query_id"]) for stage in ("enrichment", "generation")}
    in_enrichment, in_generation = (pl.col("query_id").is_in(at_fault[stage]) for stage in ("enrichment", "generation"))
    cells = scores.group_by(place).agg(
        pl.len().cast(pl.Int64).alias("rows"),
        scored.sum().cast(pl.Int64).alias("scored"),
        pl.col("phi").filter(scored).sum(),
        (pl.col("phi") * pl.col("phi")).filter(scored).sum().alias("phi_squares"),
        pl.col("p_right").filter(scored).sum(),
        *((scored & (pl.col("band") == band)).sum().cast(pl.Int64).alias(band) for band in BAND_COUNTS),
        (scored & (pl.col("enrichment_status") != "absent")).sum().cast(pl.Int64).alias("reformulated"),
        (scored & in_enrichment).sum().cast(pl.Int64).alias("in_enrichment"),
        (scored & in_generation).sum().cast(pl.Int64).alias("in_generation"),
        (scored & in_enrichment & in_generation).sum().cast(pl.Int64).alias("in_both"),
    )
    cells = cells.rename({"dt": "bucket"})
    faults = findings.join(scores.filter(scored).select("dt", "query_id"), on=["dt", "query_id"], validate="m:1")

    assert_frame_equal(data.cells.select(cells.columns), cells, check_row_order=False)
    assert data.faults["occurrences"].sum() == faults.height
    assert data.reasons["rows"].sum() == scores.filter(~scored).height
    assert data.costs["tokens_in"].sum() == scores["tokens_in"].sum()
    assert data.costs["judged"].sum() == scores.filter(pl.col("llm_calls") > 0).height
    lowest = scores.filter(scored)["phi"].min()
    worst = data.answers.filter((pl.col("dt") == data.worst[0][0]) & (pl.col("query_id") == data.worst[0][1]))
    assert worst["phi"].item() == lowest
    assert data.change_count == CHANGED
    assert data.answers.select("dt", "query_id").is_unique().all()
    keys = {*data.worst, *data.worst_of_agents, *(key for _, key in data.examples)}
    assert keys <= set(data.answers.select("dt", "query_id").rows())
    assert "What slipped" in render_report(data, generated_at=NOW)
