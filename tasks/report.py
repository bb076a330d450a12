"""The report: one HTML page without scripts or network, made from what the warehouse has published."""

from __future__ import annotations

import datetime as dt
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from stef_core.canonical import conditions_from_json
from stef_core.errors import InputError, RuleError
from stef_core.findings import CODES
from stef_core.frames import AGENT_ALERTS, AGENT_DAILY, QUERY_FINDINGS, QUERY_SCORES, SCORING_RUNS
from stef_core.wording import condition_text, plain_text
from tasks.warehouse import connect

if TYPE_CHECKING:
    import altair as alt

    from tasks.warehouse import Warehouse

BANDS = {"excellent": "≥ 90", "good": "75–90", "marginal": "50–75", "poor": "< 50"}
BAND_COLOURS = {"excellent": "#2b7bba", "good": "#8fc1e3", "marginal": "#f0b35e", "poor": "#c4501b"}
LINE, SOFT, ALERT = "#2b7bba", "#8a93a0", "#c4501b"
WORST = 10
WORST_OF_A_KIND = 3  # ten times "no SQL" would teach nothing
CHART_DAYS = 90
CHART_AGENTS = 24
RUNS_SHOWN = 60
PARETO_CODES = 12

_PLAN = ("sigma_filters", "sigma_verdict", "delta_lenient", "base", "gamma_factor", "alignment")
TREND = pl.Schema(
    {"dt": pl.Date(), "agent_id": pl.String(), "rows": pl.Int64(), "mean_phi": pl.Float64(), "mean_phi_7d": pl.Float64()}
)
COMPARE = pl.Schema(
    {
        "agent_id": pl.String(),
        "agent_version": pl.String(),
        "rows": pl.Int64(),
        "scored": pl.Int64(),
        "coverage": pl.Float64(),
        "mean_phi": pl.Float64(),
        "median_phi": pl.Float64(),
        "p90_phi": pl.Float64(),
        "mean_p_right": pl.Float64(),
        "first_day": pl.Date(),
        "last_day": pl.Date(),
        "mean_phi_change": pl.Float64(),
    }
)
PARETO = pl.Schema({"code": pl.String(), "severity": pl.String(), "stage": pl.String(), "occurrences": pl.Int64()})
_ANSWER = (
    "dt query_id agent_id agent_version app_id phi band p_right user_question enriched_question generated_sql sql_dialect "
    "filter_status enrichment_status verdict confidence verdict_reasons"
).split()
ANSWERS = pl.Schema({name: QUERY_SCORES[name] for name in (*_ANSWER, *_PLAN)})
ANSWER_FINDINGS = pl.Schema(
    {n: QUERY_FINDINGS[n] for n in ("dt", "query_id", "ordinal", "code", "severity", "stage", "message")}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportData:
    """What the report shows; each frame has at least the columns of the schema named beside it."""

    agent_daily: pl.DataFrame  # AGENT_DAILY, all applications together
    trend: pl.DataFrame  # TREND
    compare: pl.DataFrame  # COMPARE: agent versions
    pareto: pl.DataFrame  # PARETO: all agents together
    alerts: pl.DataFrame  # AGENT_ALERTS
    worst: pl.DataFrame  # ANSWERS, the worst first
    examples: pl.DataFrame  # ANSWERS that alerts point at
    findings: pl.DataFrame  # ANSWER_FINDINGS of both
    runs: pl.DataFrame  # SCORING_RUNS

    @classmethod
    def empty(cls) -> ReportData:
        """Of a warehouse in which nothing has been published."""
        schemas = (AGENT_DAILY, TREND, COMPARE, PARETO, AGENT_ALERTS, ANSWERS, ANSWERS, ANSWER_FINDINGS, SCORING_RUNS)
        return cls(**{name: schema.to_frame() for name, schema in zip(cls.__slots__, schemas, strict=True)})


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


def write_page(page: str, out: Path) -> Path:
    """Write a page, in whole or not at all; its folder is made where absent, an older file is replaced.

    Raises:
        RuleError: The file cannot be written; the message says why.
    """
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=out.parent, prefix=f".{out.name}.", suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(page)
            Path(name).chmod(0o644)
            Path(name).replace(out)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise RuleError(f"{out}: the report cannot be written: {error.strerror or error}; choose another file") from error
    return out


def load_report_data(warehouse: Warehouse) -> ReportData:
    """Read what the report shows; the sums are made in the warehouse, single answers are only those that are shown."""
    alerts = warehouse.read("agent_alerts")
    candidates = warehouse.query(
        "SELECT dt, query_id, agent_id, user_question, generated_sql, finding_codes FROM v_worst_queries "
        "WHERE worst_rank <= $1 ORDER BY worst_rank",
        (50 * WORST,),
    )
    worst = _answers(warehouse, _varied(candidates))
    wanted = [
        (row["dt"], query_id)
        for row in alerts.iter_rows(named=True)
        for query_id in _json(row["detail"]).get("examples", [])[:3]
    ]
    examples = _answers(warehouse, wanted)
    return ReportData(
        agent_daily=warehouse.read("agent_daily").filter(pl.col("app_id") == "*"),
        trend=warehouse.read("v_agent_trend"),
        compare=warehouse.read("v_agent_compare"),
        pareto=warehouse.read("v_finding_pareto").filter(pl.col("agent_id") == "*"),
        alerts=alerts,
        worst=worst,
        examples=examples,
        findings=_findings(warehouse, pl.concat([worst, examples])),
        runs=warehouse.read("scoring_runs"),
    )


def render_report(data: ReportData, *, generated_at: dt.datetime) -> str:
    """The page as text. Pure: the same data and time give the same page.

    Args:
        data: What to show; any of its frames may be empty.
        generated_at: Stands on the page.
    """
    template = page_environment().get_template("report.html.j2")
    return template.render(_context(data), generated_at=generated_at)


def page_environment() -> Environment:
    """Templates of this package, with everything that comes from strangers escaped and made plain."""
    environment = Environment(
        loader=PackageLoader("tasks", "report_templates"),
        autoescape=True,  # questions, SQL and names come from strangers
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: plain_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value,
    )
    environment.filters |= {"one": _one, "percent": _percent, "count": _count, "words": _words}
    return environment


# --- reading --------------------------------------------------------------------------------------------------------


def _varied(candidates: pl.DataFrame) -> list[tuple[dt.date, str]]:
    """The worst answers, each question once and few of a kind while there are others, so that ten show more than one fault."""
    seen: set[tuple[Any, ...]] = set()
    kinds: dict[str, int] = {}
    picked: list[tuple[int, dt.date, str]] = []
    spare: list[tuple[int, dt.date, str]] = []
    for rank, row in enumerate(candidates.iter_rows(named=True)):
        answer = (row["agent_id"], row["user_question"], row["generated_sql"])
        if answer in seen:
            continue
        seen.add(answer)
        code = (row["finding_codes"] or "").split(",")[0]
        kind = "no_sql" if code == "not_a_query" else code
        kinds[kind] = kinds.get(kind, 0) + 1
        (picked if kinds[kind] <= WORST_OF_A_KIND else spare).append((rank, row["dt"], row["query_id"]))
    chosen = picked[:WORST] + spare[: max(0, WORST - len(picked))]
    return [(day, query_id) for _, day, query_id in sorted(chosen)]


def _answers(warehouse: Warehouse, keys: Sequence[tuple[dt.date, str]]) -> pl.DataFrame:
    rows = _by_key(warehouse, "query_scores", list(ANSWERS), keys)
    order = pl.DataFrame(list(dict.fromkeys(keys)), schema={"dt": pl.Date(), "query_id": pl.String()}, orient="row")
    return order.join(rows, on=["dt", "query_id"], how="inner", maintain_order="left").select(ANSWERS.names()).cast(ANSWERS)


def _findings(warehouse: Warehouse, answers: pl.DataFrame) -> pl.DataFrame:
    keys = list(dict.fromkeys(answers.select("dt", "query_id").rows()))
    found = _by_key(warehouse, "query_findings", list(ANSWER_FINDINGS), keys)
    return found.cast(ANSWER_FINDINGS).sort("dt", "query_id", "ordinal")


def _by_key(warehouse: Warehouse, table: str, columns: Sequence[str], keys: Sequence[tuple[dt.date, str]]) -> pl.DataFrame:
    unique = list(dict.fromkeys(keys))
    if not unique:
        return pl.DataFrame(schema={name: {**ANSWERS, **ANSWER_FINDINGS}[name] for name in columns})
    places = " OR ".join(f"(dt = ${2 * n + 1} AND query_id = ${2 * n + 2})" for n in range(len(unique)))
    sql = f"SELECT {', '.join(columns)} FROM {table} WHERE {places}"  # noqa: S608  # names are ours, values are bound
    return warehouse.query(sql, [value for key in unique for value in key])


# --- what the page shows --------------------------------------------------------------------------------------------


def _context(data: ReportData) -> dict[str, Any]:
    days = sorted(set(data.agent_daily["dt"]))
    rows, scored = int(data.agent_daily["rows"].sum()), int(data.agent_daily["scored"].sum())
    judged = data.agent_daily.filter(pl.col("scored") > 0)
    agents = sorted(set(data.compare["agent_id"]))
    # an agent that alerts must not fall out of the charts because there are many
    alerting = set(data.alerts["agent_id"])
    charted = sorted(sorted(agents, key=lambda agent: (agent not in alerting, agent))[:CHART_AGENTS])
    return {
        "first": days[0] if days else None,
        "last": days[-1] if days else None,
        "day_count": len(days),
        "rows": rows,
        "scored": scored,
        "mean_phi": float((judged["mean_phi"] * judged["scored"]).sum()) / scored if scored else None,
        "agents": agents,
        "alerts": _alerts(data),
        "trends": [_trend(agent, data) for agent in charted],
        "uncharted": len(agents) - len(charted),
        "versions": _versions(data),
        "bands": BANDS,
        "band_colours": BAND_COLOURS,
        "band_chart": _band_chart(data),
        "pareto": (pareto := _pareto(data.pareto)),
        "pareto_chart": _pareto_chart(pareto),
        "worst": [_explained(row, data.findings) for row in data.worst.iter_rows(named=True)],
        "worst_of_a_kind": WORST_OF_A_KIND,
        "coverage": _coverage(data.agent_daily),
        "runs": _runs(data.runs),
        "run_count": data.runs.height,
    }


def _alerts(data: ReportData) -> list[dict[str, Any]]:
    examples = {(row["dt"], row["query_id"]): row for row in data.examples.iter_rows(named=True)}
    out = []
    for alert in data.alerts.sort("dt", "change", descending=[True, False]).iter_rows(named=True):
        detail = _json(alert["detail"])
        keys = [(alert["dt"], query_id) for query_id in detail.get("examples", [])]
        shown = [_explained(examples[key], data.findings) for key in keys if key in examples]
        out.append(alert | {"rises": detail.get("findings", []), "p_right": detail.get("p_right"), "examples": shown})
    return out


def _versions(data: ReportData) -> list[dict[str, Any]]:
    shares: dict[tuple[str, str | None], dict[str, float]] = {}
    for row in data.agent_daily.iter_rows(named=True):
        bands = shares.setdefault((row["agent_id"], row["agent_version"]), dict.fromkeys(BANDS, 0.0))
        for band, share in (_json(row["shares"]).get("band") or {}).items():
            if band in bands:
                bands[band] += share * row["scored"]
    out = []
    for row in data.compare.sort("agent_id", "first_day", "last_day").iter_rows(named=True):
        counts = shares.get((row["agent_id"], row["agent_version"]), {})
        total = sum(counts.values())
        out.append(row | {"bands": {band: count / total for band, count in counts.items()} if total else {}})
    return out


def _pareto(pareto: pl.DataFrame) -> list[dict[str, Any]]:
    codes = pareto.group_by("code").agg(pl.col("occurrences").sum()).sort("occurrences", "code", descending=[True, False])
    total, running, out = int(codes["occurrences"].sum()), 0, []
    for code, occurrences in codes.iter_rows():
        running += occurrences
        meaning = CODES[code].meaning if code in CODES else ""
        out.append({"code": code, "occurrences": occurrences, "cumulative": running / total, "meaning": meaning})
    return out


def _explained(row: dict[str, Any], findings: pl.DataFrame) -> dict[str, Any]:
    mine = findings.filter((pl.col("dt") == row["dt"]) & (pl.col("query_id") == row["query_id"]))
    alignment = _json(row["alignment"])
    benign = alignment.get("benign", [])
    conditions = [("✓", "applied", c) for c in alignment.get("matched", [])]
    conditions += [("✗", "missing", c) for c in alignment.get("missing", [])]
    conditions += [("+", "extra", c) for c in alignment.get("extra", []) if c not in benign]
    conditions += [("○", "extra, allowed", c) for c in benign]
    return row | {
        "findings": list({f["message"]: f for f in mine.iter_rows(named=True)}.values()),
        "conditions": [(sign, word, _condition(condition)) for sign, word, condition in conditions],
        "reasons": _json(row["verdict_reasons"]) or [],
    }


def _condition(condition: dict[str, Any]) -> str:
    try:
        return condition_text(conditions_from_json([condition])[0])
    except InputError:  # written by another version
        return json.dumps(condition, ensure_ascii=False)


def _coverage(agent_daily: pl.DataFrame) -> list[dict[str, Any]]:
    out = []
    for part in agent_daily.sort("agent_id").partition_by("agent_id", maintain_order=True):
        reasons: dict[str, float] = {}
        for shares, rows in part.select("shares", "rows").iter_rows():
            for reason, share in (_json(shares).get("reason") or {}).items():
                reasons[reason] = reasons.get(reason, 0.0) + share * rows
        rows, scored = int(part["rows"].sum()), int(part["scored"].sum())
        out.append(
            {
                "agent_id": part["agent_id"][0],
                "rows": rows,
                "unscored": rows - scored,
                "coverage": scored / rows if rows else None,
                "reasons": sorted(((round(n), reason) for reason, n in reasons.items()), reverse=True),
            }
        )
    return out


def _runs(runs: pl.DataFrame) -> list[dict[str, Any]]:
    newest = runs.sort("started_at", "dt", descending=True, nulls_last=True).head(RUNS_SHOWN)
    return [
        row
        | {
            "gates": [gate for gate in _json(row["gates"]) or [] if isinstance(gate, dict)],
            "notes": _json(row["notes"]) or [],
        }
        for row in newest.iter_rows(named=True)
    ]


# --- charts ---------------------------------------------------------------------------------------------------------


def _trend(agent: str, data: ReportData) -> dict[str, Any]:
    days = data.trend.filter(pl.col("agent_id") == agent).sort("dt").tail(CHART_DAYS)
    points = [
        {"day": f"{row['dt']}T00:00:00", "phi": row["mean_phi"], "week": row["mean_phi_7d"], "rows": row["rows"]}
        for row in days.iter_rows(named=True)
        if row["mean_phi"] is not None
    ]
    first = days["dt"].min()
    alerts = data.alerts.filter((pl.col("agent_id") == agent) & (pl.col("app_id") == "*") & (pl.col("kind") == "phi_fall"))
    falls = [
        {"day": f"{row['dt']}T00:00:00", "phi": row["observed"]}
        for row in alerts.iter_rows(named=True)
        if first is not None and row["dt"] >= first
    ]
    versions = [
        {"day": f"{row['first_day']}T00:00:00", "version": plain_text(row["agent_version"] or "?")[:12]}
        for row in data.compare.filter(pl.col("agent_id") == agent).sort("first_day").iter_rows(named=True)
        if first is not None and row["first_day"] > first
    ]
    chart = _trend_chart(points, falls, versions, f"trend-{agent}") if points else None
    return {"agent_id": agent, "chart": chart, "days": days.to_dicts(), "falls": len(falls), "versions": versions}


def _trend_chart(points: list[Any], falls: list[Any], versions: list[Any], name: str) -> Markup:
    import altair as alt  # slow import: pay when a report is made

    y = alt.Y("phi:Q", title="mean Φ", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(values=[0, 25, 50, 75, 100]))
    # at most five days are named, the last one always
    step = -(-len(points) // 5)
    dates = [dt.date.fromisoformat(point["day"][:10]) for point in points[::-1][::step]]
    named = [alt.DateTime(year=date.year, month=date.month, date=date.day) for date in dates]
    ticks = alt.Axis(format="%-d %b", values=named, labelFlush=False, grid=False)
    x = alt.X("day:T", title=None, axis=ticks)
    base = alt.Chart(alt.InlineData(values=points))
    layers: list[alt.Chart] = [
        base.mark_line(color=SOFT, strokeDash=[4, 3], strokeWidth=1.5).encode(x, alt.Y("week:Q")),
        base.mark_line(color=LINE, strokeWidth=2, point=alt.OverlayMarkDef(color=LINE, size=28, filled=True)).encode(x, y),
    ]
    if versions:
        changes = alt.Chart(alt.InlineData(values=versions))
        layers.append(changes.mark_rule(color=SOFT, strokeDash=[2, 2]).encode(x))
        label = changes.mark_text(align="right", dx=-4, fontSize=11, color="currentColor", baseline="bottom")
        layers.append(label.encode(x, y=alt.datum(2), text="version:N"))
    if falls:
        marks = alt.Chart(alt.InlineData(values=falls))
        layers.append(marks.mark_point(shape="triangle-down", size=110, filled=True, color=ALERT, yOffset=-13).encode(x, y))
        fall = marks.mark_text(text="fall", dy=17, fontSize=12, fontWeight="bold", color=ALERT)
        layers.append(fall.encode(x, y))
    chart = alt.layer(*layers).properties(width=290, height=150)
    return _svg(chart, name, f"Mean Φ by day for {name.removeprefix('trend-')}; the figures are in the table below")


def _band_chart(data: ReportData) -> Markup | None:
    import altair as alt

    shown = [v for v in _versions(data) if v["bands"]][: 2 * CHART_AGENTS]
    if not shown:
        return None
    names = [plain_text(f"{v['agent_id']} {v['agent_version'] or ''}".strip())[:28] for v in shown]
    values = [
        {"agent": name, "band": band, "rank": rank, "share": version["bands"][band]}
        for name, version in zip(names, shown, strict=True)
        for rank, band in enumerate(BANDS)
    ]
    colours = alt.Scale(domain=list(BANDS), range=list(BAND_COLOURS.values()))
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar(height=15)
        .encode(
            alt.X("share:Q", title=None, stack="zero", axis=alt.Axis(format="%", tickCount=5), scale=alt.Scale(domain=[0, 1])),
            alt.Y("agent:N", title=None, sort=names, axis=_name_axis(names)),
            alt.Color("band:N", scale=colours, legend=alt.Legend(orient="top", title=None, symbolType="square")),
            order=alt.Order("rank:Q"),
        )
        .properties(width=260, height=alt.Step(24))
    )
    return _svg(chart, "bands", "Share of each band by agent version; the figures are in the table of agents")


def _pareto_chart(pareto: list[dict[str, Any]]) -> Markup | None:
    import altair as alt

    if not pareto:
        return None
    values = [
        {"code": _words(row["code"]), "n": row["occurrences"], "share": row["cumulative"]} for row in pareto[:PARETO_CODES]
    ]
    order = [value["code"] for value in values]
    y = alt.Y("code:N", title=None, sort=order, axis=_name_axis(order))
    base = alt.Chart(alt.InlineData(values=values))
    grid = alt.Axis(tickMinStep=1, tickCount=5, orient="bottom")
    bars = base.mark_bar(color=LINE, height=15).encode(alt.X("n:Q", title="findings", axis=grid), y)
    top = alt.Axis(format="%", orient="top", tickCount=5, grid=False, titleColor=ALERT, labelColor=ALERT)
    share = alt.X("share:Q", title="running share", scale=alt.Scale(domain=[0, 1]), axis=top)
    running = base.mark_line(color=ALERT, strokeWidth=1.5, point=alt.OverlayMarkDef(color=ALERT, size=24)).encode(share, y)
    running = running.encode(order=alt.Order("share:Q"))
    chart = alt.layer(bars, running).resolve_scale(x="independent").properties(width=260, height=alt.Step(24))
    return _svg(chart, "pareto", "Findings by code, the most frequent first, with their running share; see the table below")


def _name_axis(names: Sequence[str]) -> alt.Axis:
    import altair as alt

    # the browser's font may be wider than the one the chart was laid out with
    room = min(190, 12 + 7 * max(map(len, names)))
    return alt.Axis(ticks=False, domain=False, labelLimit=190, minExtent=room)


def _svg(chart: alt.TopLevelMixin, name: str, description: str) -> Markup:
    import vl_convert

    spec = chart.to_dict(validate=False)
    text = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "titleFontSize": 12}
    lines = {"domainColor": SOFT, "tickColor": SOFT, "gridColor": SOFT, "gridOpacity": 0.25, "titleFontWeight": "normal"}
    spec["config"] = {
        "font": "system-ui, -apple-system, 'Segoe UI', sans-serif",
        "background": "transparent",
        "view": {"stroke": None},
        "axis": text | lines,
        "legend": text,
    }
    svg = str(vl_convert.vegalite_to_svg(spec))
    # several charts share the page, and so one space of ids
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg).replace("url(#", f"url(#{prefix}-")
    label = Markup.escape(plain_text(description))
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704  # Vega escapes its text


# --- wording --------------------------------------------------------------------------------------------------------


def _json(text: str | None) -> Any:
    return json.loads(text) if text else {}


def _one(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}".replace(",", "\u202f")


def _words(value: str | None) -> str:
    return (value or "–").replace("_", " ")
