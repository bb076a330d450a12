"""What a run leaves to read in Prefect: tables of gates and agents, a summary, what a backfill moved, and how far it is.

A key holds the day or days it is about, so that the artifacts of one key are the versions of one thing.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import polars as pl
from prefect.artifacts import (
    create_markdown_artifact,
    create_progress_artifact,
    create_table_artifact,
    update_progress_artifact,
)


def start_progress(description: str, key: str = "daily-scoring-progress") -> UUID:
    """A progress bar of the run, at 0 %."""
    made = create_progress_artifact(progress=0.0, key=key, description=description)
    assert isinstance(made, UUID)  # called from a sync flow
    return made


def show_progress(artifact: UUID, share: float) -> None:
    """Move the progress bar to a share of 0-1."""
    update_progress_artifact(artifact_id=artifact, progress=100.0 * min(1.0, share))


class Board:
    """One progress bar over several days that may be under way at once.

    Args:
        artifact: The bar.
        days: How many they are.
    """

    def __init__(self, artifact: UUID, days: int) -> None:
        self._artifact, self._days = artifact, days
        self._shares: dict[dt.date, float] = {}

    def share_of(self, day: dt.date) -> Callable[[float], None]:
        """Tells how far a day is, 0-1."""

        def show(share: float) -> None:
            self._shares[day] = share
            show_progress(self._artifact, sum(self._shares.values()) / self._days)

        return show


def show_day(day: dt.date, run: Mapping[str, Any], agents: pl.DataFrame, alerts: pl.DataFrame) -> None:
    """Tables of the day's gates and agents, and a summary in Markdown."""
    show_gates(run)
    create_table_artifact(key=f"agents-{day}", table=agent_rows(agents), description=f"Agents on {day}")
    create_markdown_artifact(key=f"summary-{day}", markdown=summary(day, run, agents, alerts), description=f"Scores of {day}")


def show_gates(run: Mapping[str, Any]) -> None:
    """A table of what the gates found in a day; none where it ended before a gate.

    Args:
        run: The day's row of ``scoring_runs``.
    """
    rows = gate_rows(json.loads(run["gates"]))
    if rows:
        create_table_artifact(key=f"gates-{run['dt']}", table=rows, description=f"Gates of {run['dt']}")


def gate_rows(gates: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """One row for each expectation that did not hold, and one for those of a gate that did."""
    rows = []
    for gate in gates:
        failed = gate["failures"]
        held = gate["expectations"] - len({(failure["expectation"], failure["column"]) for failure in failed})
        rows += [
            {
                "gate": gate["gate"],
                "expectation": " ".join(filter(None, (failure["expectation"], failure["column"]))),
                "severity": failure["severity"],
                "agent": failure["agent"] or "",
                "observed": failure["observed"],
                "required": failure["required"],
                "outcome": _outcome(failure),
            }
            for failure in failed
        ]
        told = f"{held} of {gate['expectations']} expectations"
        blank = dict.fromkeys(("severity", "agent", "observed", "required"), "")
        rows.append({"gate": gate["gate"], "expectation": told} | blank | {"outcome": "passed"})
    return rows


def _outcome(failure: Mapping[str, Any]) -> str:
    if not failure["evaluated"]:
        return "could not be evaluated"
    return "failed" if failure["severity"] == "critical" else "reported"


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


def show_changes(days: str, results: Sequence[Mapping[str, Any]]) -> None:
    """What a backfill moved, by day and agent.

    Args:
        days: First and last day of the backfill, as text: ``2026-03-01 to 2026-03-08``.
        results: What became of each day.
    """
    rows = [
        {
            "day": str(result["day"]),
            "agent": moved["agent_id"],
            "rows": moved["rows"],
            "moved": moved["moved"],
            "up": moved["up"],
            "down": moved["down"],
            "other band": moved["other_band"],
            "mean Φ before": _rounded(moved["mean_before"]),
            "mean Φ after": _rounded(moved["mean_after"]),
        }
        for result in results
        for moved in result["moved"]
        if moved["moved"]
    ]
    create_table_artifact(key=f"backfill-{days.replace(' ', '-')}", table=rows, description=f"Moved, {days}")


def show_plan(days: str, results: Sequence[Mapping[str, Any]]) -> None:
    """What a backfill would do, by day, and what that would take; arguments as of `show_changes`."""
    rows = [
        {
            "day": str(result["day"]),
            "rows": result["rows"],
            "to do": result["redone"],
            "causes": ", ".join(f"{cause} {count}" for cause, count in result["causes"].items()),
            "calls": result["estimate"]["calls"],
            "tokens": result["estimate"]["tokens_in"] + result["estimate"]["tokens_out"],
            "cost": round(result["estimate"]["cost"], 2),
        }
        for result in results
    ]
    create_table_artifact(key=f"backfill-plan-{days.replace(' ', '-')}", table=rows, description=f"To do, {days}")


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
