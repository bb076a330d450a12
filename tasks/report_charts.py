"""Charts of the pages: Vega-Altair drawn to SVG when the page is made, so that the page needs no chart library."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from stef_core.wording import plain_text
from tasks.report_page import words

if TYPE_CHECKING:
    import altair as alt

# style.css gives these their shade for dark paper
LINE, SOFT, ALERT = "#2b7bba", "#8a93a0", "#c4501b"
TREND_WIDTH, TREND_HEIGHT = 300, 150
DOTTED = 40  # more points than this are a line without dots
PARETO_CODES = 12
_DAYS_NAMED, _VERSIONS_NAMED = 5, 6


def trend_chart(
    points: Sequence[dict[str, Any]],
    alerts: Sequence[dict[str, Any]],
    versions: Sequence[dict[str, Any]],
    *,
    days: Sequence[dt.date],
    domain: tuple[dt.datetime, dt.datetime],
    name: str,
    description: str,
) -> Markup:
    """Mean Φ over time with its interval, alerts and new versions.

    Args:
        points: ``day phi low high week`` of each bucket; `low`, `high` and `week` may be None.
        alerts: ``day phi text`` of each alert.
        versions: ``day version`` of each new version.
        days: Buckets of the axis of time, the same for all agents.
        domain: Ends of that axis.
        name: Space of ids of its own.
        description: What a screen reader says.
    """
    import vl_convert  # slow import: pay when a report is made

    # at most five days are named, the last one always
    named = tuple(days[::-1][:: -(-len(days) // _DAYS_NAMED)])
    has_week = any(point["week"] is not None for point in points)
    vega = json.loads(_trend_spec(domain, named, has_week, len(points) <= DOTTED, bool(versions), bool(alerts)))
    told = [version | {"version": plain_text(version["version"])[:12]} for version in versions]
    rows = {"points": points, "alerts": alerts, "versions": told, "labels": told[-_VERSIONS_NAMED:]}
    for data in vega["data"]:
        if data["name"] in rows:
            data["values"] = [row | {"day": f"{row['day']}T00:00:00Z"} for row in rows[data["name"]]]
    return _described(str(vl_convert.vega_to_svg(vega)), name, description)


@lru_cache(maxsize=64)
def _trend_spec(
    domain: tuple[dt.datetime, dt.datetime],
    named: tuple[dt.date, ...],
    has_week: bool,
    has_dots: bool,
    has_versions: bool,
    has_alerts: bool,
) -> str:
    """The chart without its rows, as JSON of Vega: agents share it, and making it takes longer than drawing it."""
    import altair as alt
    import vl_convert

    y = alt.Y("phi:Q", title="mean Φ", scale=alt.Scale(domain=[0, 100]), axis=alt.Axis(values=[0, 25, 50, 75, 100]))
    years = domain[1] - domain[0] > dt.timedelta(days=300)
    values = [alt.DateTime(year=date.year, month=date.month, date=date.day, utc=True) for date in named]
    ticks = alt.Axis(format="%b %Y" if years else "%-d %b", values=values, labelFlush=False, grid=False)
    ends = [alt.DateTime(year=d.year, month=d.month, date=d.day, hours=d.hour, utc=True) for d in domain]
    x = alt.X("day:T", title=None, axis=ticks, scale=alt.Scale(type="utc", domain=ends, nice=False))

    def layer(name: str, rows: str) -> alt.Chart:
        return alt.Chart(alt.NamedData(name=rows), name=name)

    layers: list[alt.Chart] = [
        layer("interval", "points").mark_area(color=LINE, opacity=0.2).encode(x, alt.Y("low:Q"), alt.Y2("high:Q")),
    ]
    if has_week:
        week = layer("week", "points").mark_line(color=SOFT, strokeDash=[4, 3], strokeWidth=1.5)
        layers.append(week.encode(x, alt.Y("week:Q")))
    layers.append(layer("mean", "points").mark_line(color=LINE, strokeWidth=2).encode(x, y))
    if has_dots:
        layers.append(layer("dots", "points").mark_point(color=LINE, size=26, filled=True, opacity=1).encode(x, y))
    if has_versions:
        layers.append(layer("version", "versions").mark_rule(color=SOFT, strokeDash=[2, 2]).encode(x))
        label = layer("label", "labels").mark_text(align="right", dx=-4, fontSize=11, color="currentColor", baseline="bottom")
        layers.append(label.encode(x, y=alt.datum(2), text="version:N"))
    if has_alerts:
        marks = layer("alert", "alerts").mark_point(shape="triangle-down", size=110, filled=True, color=ALERT, yOffset=-13)
        told = layer("told", "alerts").mark_text(dy=17, fontSize=12, fontWeight="bold", color=ALERT)
        layers += [marks.encode(x, y), told.encode(x, y, text="text:N")]
    chart = alt.layer(*layers).properties(width=TREND_WIDTH, height=TREND_HEIGHT)
    return json.dumps(vl_convert.vegalite_to_vega(_spec(chart)))


def pareto_chart(pareto: Sequence[dict[str, Any]]) -> Markup | None:
    """The most frequent findings with their running share; None of no findings."""
    import altair as alt

    if not pareto:
        return None
    values = [
        {"code": words(row["code"]), "n": row["occurrences"], "share": row["cumulative"]} for row in pareto[:PARETO_CODES]
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
    return svg(
        chart, "pareto", "Findings by code, the most frequent first, with their running share; see the table of findings"
    )


def cost_chart(values: Sequence[dict[str, Any]], title: str) -> Markup | None:
    """What each ``day`` took, as ``n``; None of nothing."""
    import altair as alt

    if not any(value["n"] for value in values):
        return None
    data = [value | {"day": f"{value['day']}T00:00:00Z"} for value in values]
    x = alt.X("day:T", title=None, scale=alt.Scale(type="utc"), axis=alt.Axis(format="%-d %b", tickCount=5, grid=False))
    bars = alt.Chart(alt.InlineData(values=data)).mark_bar(color=LINE, width={"band": 0.8}).encode(x, alt.Y("n:Q", title=title))
    chart = bars.properties(width=300, height=150)
    return svg(chart, "cost", f"{title} over time; the figures are in the table beside")


def svg(chart: alt.TopLevelMixin, name: str, description: str) -> Markup:
    """A chart as SVG of the page: its text follows the page's colour, and a screen reader hears the description."""
    import vl_convert

    return _described(str(vl_convert.vegalite_to_svg(_spec(chart))), name, description)


def _spec(chart: alt.TopLevelMixin) -> dict[str, Any]:
    spec: dict[str, Any] = chart.to_dict(validate=False)
    text = {"labelColor": "currentColor", "titleColor": "currentColor", "labelFontSize": 12, "titleFontSize": 12}
    lines = {"domainColor": SOFT, "tickColor": SOFT, "gridColor": SOFT, "gridOpacity": 0.25, "titleFontWeight": "normal"}
    spec["config"] = {
        "aria": False,  # an image is one thing to a screen reader, and its table tells the figures
        "font": "system-ui, -apple-system, 'Segoe UI', sans-serif",
        "background": "transparent",
        "view": {"stroke": None},
        "axis": text | lines,
        "legend": text,
    }
    return spec


def _described(drawn: str, name: str, description: str) -> Markup:
    # several charts share the page, and so one space of ids
    prefix = re.sub(r"[^a-z0-9]+", "-", name.lower())
    drawn = re.sub(r'\bid="', f'id="{prefix}-', drawn).replace("url(#", f"url(#{prefix}-")
    label = Markup.escape(plain_text(description))
    return Markup(_lean(drawn).replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704  # Vega escapes its text


def _lean(drawn: str) -> str:
    """Without what nobody sees: digits below a hundredth of a pixel, and frames that are not drawn."""
    drawn = re.sub(r"<[^>]*>", lambda tag: re.sub(r"(\.\d\d)\d+", r"\1", tag[0]), drawn)
    drawn = re.sub(r'<path class="(?:back|fore)ground"[^>]*d="(?:M0,0h0v0h0Z)?"[^>]*/>', "", drawn)
    # the image is one thing with one description; roles of its parts would each want one of their own
    return re.sub(
        r' (?:pointer-events="none"|aria-hidden="true"|role="graphics-[a-z]+"|aria-roledescription="[^"]*")', "", drawn
    )


def _name_axis(names: Sequence[str]) -> alt.Axis:
    import altair as alt

    # the browser's font may be wider than the one the chart was laid out with
    room = min(190, 12 + 7 * max(map(len, names)))
    return alt.Axis(ticks=False, domain=False, labelLimit=190, minExtent=room)
