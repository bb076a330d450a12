"""What a run leaves to read in Prefect: a table of agents, a summary, and how far it is."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import polars as pl
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)


def start_progress(description: str) -> UUID:
    """A progress bar of the run, at 0 %."""
    made = create_progress_artifact(progress=0.0, key="daily-scoring-progress", description=description)
    assert isinstance(made, UUID)  # called from a sync flow
    return made


def show_progress(artifact: UUID, share: float) -> None:
    """Move the progress bar to a share of 0-1."""
    update_progress_artifact(artifact_id=artifact, progress=100.0 * min(1.0, share))


def show_day(day: dt.date, run: Mapping[str, Any], agents: pl.DataFrame, alerts: pl.DataFrame) -> None:
    """A table of the day's agents, and a summary in Markdown."""
    create_table_artifact(key=f"agents-{day}", table=agent_rows(agents), description=f"Agents on {day}")
    create_markdown_artifact(key=f"summary-{day}", markdown=summary(day, run, agents, alerts), description=f"Scores of {day}")


def agent_rows(agents: pl.DataFrame) -> list[dict[str, Any]]:
    """``agent_daily`` over all applications, one row an agent and version, figures rounded for reading."""
    return [
        {
            "agent": row["agent_id"],
            "version": row["agent_version"] or "",
            "rows": row["rows"],
            "coverage": round(row["coverage"], 3),
            "mean Φ": _rounded(row["mean_phi"]),
            "median Φ": _rounded(row["median_phi"]),
            "P90 Φ": _rounded(row["p90_phi"]),
        }
        for row in agents.filter(pl.col("app_id") == "*").iter_rows(named=True)
    ]


def summary(day: dt.date, run: Mapping[str, Any], agents: pl.DataFrame, alerts: pl.DataFrame) -> str:
    """The day in a few lines of Markdown."""
    rows = agent_rows(agents)
    lines = [
        f"# Scores of {day}",
        f"{run['rows_scored']} of {run['rows_in']} rows scored, {run['rows_unscored']} unscored; judge {run['judge']}.",
        "",
        *_table(rows),
        "",
        *(f"- **{_plain(alert['message'])}**" for alert in alerts.iter_rows(named=True)),
        *(f"- {_plain(note)}" for note in json.loads(run["notes"])),
        *(
            f"- warning: {_plain(failure['message'])}"
            for gate in json.loads(run["gates"])
            for failure in gate["failures"]
            if failure["severity"] != "critical"
        ),
    ]
    return "\n".join(lines)


def _table(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    if not rows:
        return []
    head = list(rows[0])
    body = ["| " + " | ".join(_plain(str(row[name])) for name in head) + " |" for row in rows]
    return ["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *body]


def _plain(text: str) -> str:
    """Text of the log that must not turn into markup."""
    return text.replace("\n", " ").replace("|", "\\|").replace("<", "&lt;")


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
