"""The report: one HTML page without network, made from what the warehouse has published."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from markupsafe import Markup

from stef_core.canonical import conditions_from_json
from stef_core.errors import InputError
from stef_core.findings import CODES
from stef_core.wording import condition_text
from tasks.report_charts import TREND_HEIGHT, TREND_WIDTH, cost_chart, pareto_chart, trend_chart
from tasks.report_data import (
    AGENTS_SHOWN,
    ALERTS_SHOWN,
    CHANGED,
    EXAMPLES,
    REFUSED_SHOWN,
    RUNS_SHOWN,
    WORST_OF_A_KIND,
    Key,
    ReportData,
    example_keys,
    load_report_data,
)
from tasks.report_figures import (
    Figures,
    by_agent,
    by_bucket,
    by_version,
    costs,
    end_of,
    figures_of,
    leading_codes,
    pareto,
    reasons_by_agent,
    totals,
)
from tasks.report_page import json_for_page, marked, one, page_environment, script_and_hash, short, words, write_page
from tasks.warehouse import connect

__all__ = ["ReportData", "load_report_data", "render_report", "write_report"]

ALERTS_OPEN = 6  # the others are folded
BANDS = {"excellent": "≥ 90", "good": "75–90", "marginal": "50–75", "poor": "< 50"}
LARGEST = 2_900_000  # bytes of a page, so that a mail takes it
TREND_ROWS, TREND_ROWS_OF_MANY, MANY_AGENTS = 92, 14, 12
COST_ROWS = 200
GATES_SHOWN, FAILURES_SHOWN, NOTES_SHOWN = 8, 5, 20
_CAPTION, _CAPTIONS = 200, 3  # of alerts under a chart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Room:
    """How much is shown: agents by name; of each answer characters of a text, findings, conditions; characters of a message."""

    agents: int
    text: int
    findings: int
    conditions: int
    message: int
    runs: int


_ROOMS = (
    _Room(agents=AGENTS_SHOWN, text=3_000, findings=8, conditions=12, message=300, runs=RUNS_SHOWN + REFUSED_SHOWN),
    _Room(agents=AGENTS_SHOWN, text=1_000, findings=6, conditions=8, message=300, runs=RUNS_SHOWN + REFUSED_SHOWN),
    _Room(agents=AGENTS_SHOWN, text=300, findings=4, conditions=4, message=160, runs=RUNS_SHOWN),
    _Room(agents=24, text=300, findings=3, conditions=2, message=160, runs=RUNS_SHOWN),
    _Room(agents=12, text=80, findings=1, conditions=0, message=80, runs=20),
)


def write_report(warehouse_url: str, out: Path, *, wait_s: float = 60.0) -> Path:
    """Read the warehouse and write the report, in whole or not at all.

    Args:
        warehouse_url: As `tasks.warehouse.connect` takes it; opened for reading only.
        out: The HTML file; its folder is made where absent, an older report is replaced.
        wait_s: Seconds to wait for a warehouse that is held or away.

    Returns:
        `out`.

    Raises:
        RuleError: The URL or the file is none that works; the message says why.
        TransientError: The warehouse is held by somebody else or cannot be reached.
    """
    with connect(warehouse_url, read_only=True, wait_s=wait_s) as warehouse, warehouse.snapshot():
        data = load_report_data(warehouse)
    page = render_report(data, generated_at=dt.datetime.now(dt.UTC))
    return write_page(page, out)


OF_PHI = ("phi_fall", "version_worse")  # kinds of alerts whose figures are points of Φ
_MARKED = {"coverage_fall": "coverage", "finding_rise": "finding"}


def render_report(data: ReportData, *, generated_at: dt.datetime) -> str:
    """The page as text. Pure: the same data and time give the same page.

    Args:
        data: What to show; any of its frames may be empty.
        generated_at: Stands on the page.

    Returns:
        Below 3 MB, whatever the data holds: less of each answer is shown where answers are long.
    """
    template = page_environment().get_template("report.html.j2")
    told_apart: dict[int, tuple[Figures, dict[str, Any]]] = {}
    for room in _ROOMS:
        if room.agents not in told_apart:
            figures = figures_of(data, agents_most=room.agents)
            told_apart[room.agents] = figures, _context(data, figures)
        figures, context = told_apart[room.agents]
        page = template.render(context | _runs(data, room) | _answers(data, figures, room), generated_at=generated_at)
        if len(page.encode()) <= LARGEST:
            break
    return page


def _context(data: ReportData, figures: Figures) -> dict[str, Any]:
    """Everything but runs and single answers."""
    script, script_hash = script_and_hash("report.js")
    domain = _domain(figures)
    points = by_bucket(figures)
    findings = pareto(figures)
    for row in findings:
        row["meaning"] = CODES[row["code"]].meaning if row["code"] in CODES else ""
    return {
        "script": script,
        "script_hash": script_hash,
        "figures_json": json_for_page(_for_script(data, figures, domain)),
        "first": data.cells["first_day"].min(),
        "last": data.cells["last_day"].max(),
        "day_count": data.day_count,
        "figures": figures,
        "total": totals(figures),
        "alert_count": data.alert_count,
        "trends": [_trend(agent, points.get(agent, []), data, figures, domain) for agent in _named_agents(figures)],
        "versions": by_version(figures, data),
        "agents": by_agent(figures),
        "bands": BANDS,
        "pareto": findings,
        "pareto_chart": pareto_chart(findings),
        "enrichment_codes": leading_codes(figures, "enrichment"),
        "generation_codes": leading_codes(figures, "generation"),
        "reasons": reasons_by_agent(figures),
        "change_count": data.change_count,
        "change_runs": [_change_run(row) for row in data.change_runs.iter_rows(named=True)],
        "costs": _costs(figures),
        "limits": {
            "alerts_open": ALERTS_OPEN,
            "of_a_kind": WORST_OF_A_KIND,
            "examples": EXAMPLES,
        },
    }


def _named_agents(figures: Figures) -> range:
    return range(len(figures.agents) - bool(figures.other_agents))


def _domain(figures: Figures) -> tuple[dt.datetime, dt.datetime] | None:
    """Ends of the axis of time, half a bucket beyond the first and the last."""
    if not figures.buckets:
        return None
    first, last = (dt.datetime.combine(day, dt.time(), dt.UTC) for day in (figures.buckets[0], figures.buckets[-1]))
    half = dt.timedelta(hours=12) * ((end_of(figures.buckets[0], figures.grain) - figures.buckets[0]).days + 1)
    return first - half, last + half


def _for_script(data: ReportData, figures: Figures, domain: tuple[dt.datetime, dt.datetime] | None) -> dict[str, Any]:
    ends = [round(end.timestamp() * 1000) for end in domain] if domain else [0, 1]
    alerts = data.alerts.select("dt", "agent_id", "app_id").iter_rows()
    return figures.for_script() | {
        "chart": {"start": ends[0], "end": ends[1], "width": TREND_WIDTH, "height": TREND_HEIGHT},
        "alerts": [[figures.agent(a), -1 if app == "*" else figures.app(app), day.isoformat()] for day, a, app in alerts],
        "alert_count": data.alert_count,
    }


def _trend(
    agent: int,
    points: list[dict[str, Any]],
    data: ReportData,
    figures: Figures,
    domain: tuple[dt.datetime, dt.datetime] | None,
) -> dict[str, Any]:
    name = figures.agents[agent]
    rows = [
        point
        | {
            "low": point["interval"][0] if point["interval"] else None,
            "high": point["interval"][1] if point["interval"] else None,
        }
        for point in points
    ]
    drawn = [
        {"day": row["day"], "phi": row["mean"], "low": row["low"], "high": row["high"], "week": row["week"]}
        for row in rows
        if row["mean"] is not None
    ]
    raw = next((each for each, number in figures.agent_of.items() if number == agent), None)
    alerts = [
        {
            "dt": alert["dt"],
            "app": None if alert["app_id"] == "*" else short(alert["app_id"]),
            "kind": alert["kind"],
            "message": short(alert["message"], _CAPTION),
            "day": alert["dt"],
            "phi": alert["observed"] if alert["kind"] in OF_PHI else 100.0,
            "text": one(alert["change"]) if alert["kind"] in OF_PHI else _MARKED.get(alert["kind"], ""),
        }
        for alert in data.alerts.iter_rows(named=True)
        if alert["agent_id"] == raw
    ]
    marks = [{n: a[n] for n in ("day", "phi", "text")} for a in alerts if a["app"] is None and a["phi"] is not None]
    ages = (
        data.cells.filter(data.cells["agent_id"] == raw)
        .group_by("agent_version")
        .agg(pl.col("first_day").min())
        .sort("first_day")
    )
    versions = [{"day": day, "version": version or "?"} for version, day in ages.iter_rows()][1:]
    chart = None
    if drawn and domain is not None:
        chart = trend_chart(
            drawn,
            marks,
            versions,
            days=figures.buckets,
            domain=domain,
            name=f"trend-{agent}",
            description=_described(name, drawn, alerts, versions),
        )
    most = TREND_ROWS if len(figures.agents) <= MANY_AGENTS else TREND_ROWS_OF_MANY
    return {
        "a": agent,
        "agent": name,
        "chart": chart,
        "rows": rows[-most:],
        "row_count": len(rows),
        "alerts": alerts[:_CAPTIONS],
        "alert_count": len(alerts),
    }


def _described(name: str, drawn: list[dict[str, Any]], alerts: list[Any], versions: list[Any]) -> str:
    """A chart in words."""
    means = [row["phi"] for row in drawn]
    told = f"Mean Φ of {name} from {drawn[0]['day']} to {drawn[-1]['day']}: "
    told += f"first {means[0]:.1f}, last {means[-1]:.1f}, lowest {min(means):.1f}, highest {max(means):.1f}"
    if versions:
        told += "; new version " + ", ".join(f"{short(v['version'], 12)} on {v['day']}" for v in versions[-3:])
    if alerts:
        told += "; alert on " + ", ".join(str(alert["dt"]) for alert in alerts[:3])
    return f"{told}. The figures are in the table below."


def _change_run(row: dict[str, Any]) -> dict[str, Any]:
    return row | {"changed": ", ".join(words(str(each)) for each in _json(row["changed"]) or []) or "–"}


def _costs(figures: Figures) -> dict[str, Any]:
    """What a judging model took; by day and agent the latest only."""
    each = costs(figures, ["d", "a"])
    by_day = costs(figures, ["d"])
    has_price = any(row["cost"] for row in each)
    values = [{"day": row["day"], "n": row["cost"] if has_price else row["tokens_in"] + row["tokens_out"]} for row in by_day]
    total = {name: sum(row[name] for row in each) for name in ("judged", "llm_calls", "tokens_in", "tokens_out", "cost")}
    return {
        "agents": costs(figures, ["a"]),
        "total": total,
        "days": each[::-1][:COST_ROWS],
        "day_count": len(each),
        "has_price": has_price,
        "chart": cost_chart(values, "cost" if has_price else "tokens"),
    }


def _runs(data: ReportData, room: _Room) -> dict[str, Any]:
    """Runs with their gates: the gates of one name are one column, whatever their severity."""
    names: dict[str, None] = {}
    runs: list[dict[str, Any]] = []
    notes: dict[str, dict[str, int]] = {}
    for row in data.runs.head(room.runs).iter_rows(named=True):
        gates: dict[str, dict[str, Any]] = {}
        failures: list[str] = []
        for gate in _json(row["gates"]) or []:
            if not isinstance(gate, dict):
                continue
            name = short(str(gate.get("gate") or "gate"))
            names.setdefault(name)
            told = gate.get("failures") or []
            found = gates.setdefault(name, {"passed": True, "expectations": 0, "failed": 0})
            found["passed"] = found["passed"] and bool(gate.get("passed"))
            found["expectations"] += int(gate.get("expectations") or 0)
            found["failed"] += len(told)
            failures += [f"{words(name)}: {short(str(failure.get('message') or ''), room.message)}" for failure in told]
        for note in _json(row["notes"]) or []:
            # the same sentence about other names is one note
            wordings = notes.setdefault(short(str(note).partition(":")[0], room.message), {})
            text = short(str(note), room.message)
            wordings[text] = wordings.get(text, 0) + 1
        shown = failures[:FAILURES_SHOWN] + (
            [f"… {len(failures) - FAILURES_SHOWN} more"] if len(failures) > FAILURES_SHOWN else []
        )
        message = "" if row["outcome"] == "published" else short(row["message"], room.message)
        runs.append(row | {"gates": gates, "failures": shown, "message": message})
    columns = list(names)[:GATES_SHOWN]
    return {
        "runs": runs,
        "run_count": data.run_count,
        "gates": columns,
        "gate_totals": {
            name: [sum(r["gates"].get(name, {}).get("passed") is ok for r in runs) for ok in (True, False)] for name in columns
        },
        "notes": [
            {"text": max(wordings, key=lambda text: wordings[text]), "runs": sum(wordings.values()), "wordings": len(wordings)}
            for wordings in list(notes.values())[:NOTES_SHOWN]
        ],
        "note_count": len(notes),
    }


# --- single answers -------------------------------------------------------------------------------------------------


def _answers(data: ReportData, figures: Figures, room: _Room) -> dict[str, Any]:
    """Single answers, wherever the page shows one."""
    findings: dict[Key, list[dict[str, Any]]] = {}
    for row in data.answer_findings.iter_rows(named=True):
        findings.setdefault((row["dt"], row["query_id"]), []).append(row)
    pool = {
        (row["dt"], row["query_id"]): _explained(row, findings.get((row["dt"], row["query_id"]), []), figures, room)
        for row in data.answers.iter_rows(named=True)
    }
    by_code: dict[str, list[dict[str, Any]]] = {}
    for code, key in data.examples:
        if key in pool:
            by_code.setdefault(code, []).append(pool[key])
    changes = [
        change
        | {"answer": pool.get((change["dt"], change["query_id"])), "a": figures.agent(change["agent_id"] or "")}
        | {"changed": ", ".join(words(str(each)) for each in _json(change["changed"]) or []) or "–"}
        for change in data.changes.iter_rows(named=True)
    ]
    of_agents: dict[int, list[dict[str, Any]]] = {}
    for key in data.worst_of_agents:
        if key in pool:
            of_agents.setdefault(pool[key]["a"], []).append(pool[key])
    return {
        "alerts": [_alert(row, pool, figures, room) for row in data.alerts.head(ALERTS_SHOWN).iter_rows(named=True)],
        "worst": [pool[key] for key in data.worst if key in pool],
        "worst_of_agents": sorted(of_agents.items()),
        "examples": by_code,
        "changes": changes[:CHANGED],
        "further_changes": changes[CHANGED:],
        "is_cut": room is not _ROOMS[0],
        "room": room,
    }


def _alert(row: dict[str, Any], pool: dict[Key, dict[str, Any]], figures: Figures, room: _Room) -> dict[str, Any]:
    detail = _json(row["detail"])
    return row | {
        "a": figures.agent(row["agent_id"]),
        "p": None if row["app_id"] == "*" else figures.app(row["app_id"]),
        "message": short(row["message"], 2 * room.message),
        "rises": [rise for rise in detail.get("findings", []) if isinstance(rise, dict)][:5],
        "p_right": detail.get("p_right"),
        "examples": [pool[key] for key in example_keys(row) if key in pool],
    }


def _explained(row: dict[str, Any], findings: list[dict[str, Any]], figures: Figures, room: _Room) -> dict[str, Any]:
    alignment = _json(row["alignment"])
    benign = alignment.get("benign", [])
    conditions = [("✗", "missing", c) for c in alignment.get("missing", [])]
    conditions += [("+", "extra", c) for c in alignment.get("extra", []) if c not in benign]
    conditions += [("○", "extra, allowed", c) for c in benign]
    conditions += [("✓", "applied", c) for c in alignment.get("matched", [])]
    told = list({finding["message"]: finding for finding in findings}.values())
    asked = [finding["question_part"] for finding in findings]
    return row | {
        "a": figures.agent(row["agent_id"]),
        "p": figures.app(row["app_id"]),
        "question": marked(row["user_question"] or "(no question)", asked, room.text),
        "enriched": marked(row["enriched_question"], asked, room.text) if row["enriched_question"] else None,
        "sql": _sql(row["generated_sql"], [finding["sql_part"] for finding in findings], room.text),
        "findings": [f | {"message": short(f["message"], min(room.message, room.text))} for f in told[: room.findings]],
        "finding_count": len(told),
        "conditions": [
            (sign, word, short(_condition(condition), min(160, room.text)))
            for sign, word, condition in conditions[: room.conditions]
        ],
        "condition_count": len(conditions),
        "reasons": [
            short(str(reason), min(room.message, room.text))
            for reason in (_json(row["verdict_reasons"]) or [])[: room.findings]
        ],
    }


def _sql(text: str | None, parts: list[str | None], limit: int) -> Markup | None:
    return marked(text, parts, limit) if text and text.strip() else None


def _condition(condition: dict[str, Any]) -> str:
    try:
        return condition_text(conditions_from_json([condition])[0])
    except InputError:  # written by another version
        return json.dumps(condition, ensure_ascii=False)


def _json(text: str | None) -> Any:
    return json.loads(text) if text else {}
