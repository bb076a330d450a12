"""The calibration as one HTML page without scripts or network: curves, tables, and how honest the figures are."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

from markupsafe import Markup

from stef_core.calibration import BINS, FALSE_ALARMS, LEVEL, SMALL, Figures, Interval, Reliability
from tasks.calibrate import Calibrated
from tasks.report_charts import ALERT, LINE, SOFT, svg
from tasks.report_page import page_environment, write_page

NAMES = {"phi": "Φ", "p_right": "p right", "gamma": "γ"}
KINDS = {
    "fit": "By whether the judge's model was fitted on the question",
    "source": "By source",
    "agent": "By agent",
    "feature": "By SQL feature",
}
SHOWN = {
    "accuracy": "Accuracy",
    "precision": "Precision",
    "recall": "Recall",
    "f1": "F1",
    "kappa": "Cohen's κ",
}


def write_calibration(calibrated: Calibrated, out: Path) -> Path:
    """Write the page, in whole or not at all.

    Raises:
        RuleError: The file cannot be written; the message says why.
    """
    return write_page(render_calibration(calibrated, generated_at=dt.datetime.now(dt.UTC)), out)


def render_calibration(calibrated: Calibrated, *, generated_at: dt.datetime) -> str:
    """The page as text. Pure: the same calibration and time give the same page."""
    environment = page_environment()
    environment.filters |= {"share": share, "span": span}
    found = calibrated.found
    scores = {name: figures for name, figures in (("phi", found.phi), ("p_right", found.p_right)) if figures is not None}
    reliabilities = {
        name: each
        for name, each in (("p_right", found.p_right_reliability), ("gamma", found.gamma_reliability))
        if each is not None
    }
    return environment.get_template("calibration.html.j2").render(
        about=calibrated,
        found=found,
        names=NAMES,
        kinds=KINDS,
        small=SMALL,
        level=LEVEL,
        alarms=FALSE_ALARMS,
        scores=scores,
        summary=[
            (key if key in SHOWN else None, word, [summary_cell(figures, key) for figures in scores.values()])
            for key, word in summary_rows()
        ],
        fitted={n: f for n, f in (("phi", found.phi_fitted), ("p_right", found.p_right_fitted)) if f is not None},
        roc=_roc_chart(found.roc) if any(found.roc.values()) else None,
        reliabilities=reliabilities,
        reliability_charts={name: _reliability_chart(name, each) for name, each in reliabilities.items()},
        generated_at=generated_at,
    )


def summary_rows() -> list[tuple[str, str]]:
    """Figures of the main table in order: key and name."""
    return [*SHOWN.items(), ("auroc", "AUROC"), ("within_agent", "AUROC within agent"), ("pairwise", "Pairs of one question")]


def summary_cell(figures: Figures, key: str) -> Interval:
    """One figure of the main table."""
    found: Interval = getattr(figures.decision if key in SHOWN else figures, key)
    return found


def share(value: Interval | float | None, digits: int = 3) -> str:
    """A figure of 0-1 as text, a dash where it is not known."""
    number = value.value if isinstance(value, Interval) else value
    return "–" if number is None else f"{number:.{digits}f}"


def span(value: Interval, digits: int = 3) -> str:
    """Its interval as text; nothing where there is none."""
    return "" if value.low is None or value.high is None else f"{value.low:.{digits}f} – {value.high:.{digits}f}"


def _roc_chart(roc: Any) -> Markup:
    import altair as alt  # slow import: pay when a page is made

    values = [
        {"score": NAMES[name], "order": n, "false": fpr, "true": tpr}
        for name, points in roc.items()
        for n, (fpr, tpr) in enumerate(points)
    ]
    names = [NAMES[name] for name, points in roc.items() if points]
    unit = alt.Scale(domain=[0, 1])
    x = alt.X("false:Q", title="wrong answers taken for right", scale=unit, axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("true:Q", title="right answers taken for right", scale=unit, axis=alt.Axis(format="%", tickCount=5))
    colour = alt.Scale(domain=names, range=[ALERT if name == NAMES["phi"] else LINE for name in names])
    legend = alt.Legend(orient="top", title=None, symbolType="stroke")
    lines = (
        alt.Chart(alt.InlineData(values=values))
        .mark_line(strokeWidth=2)
        .encode(x, y, alt.Color("score:N", scale=colour, legend=legend), order=alt.Order("order:Q"))
    )
    chart = alt.layer(_diagonal("false", "true"), lines).properties(width=300, height=280)
    return svg(chart, "roc", "ROC curve of each score; the areas below are in the table above")


def _reliability_chart(name: str, reliability: Reliability) -> Markup:
    import altair as alt

    values = [{"stated": b.mean, "true": b.share, "rows": b.rows} for b in reliability.bins]
    unit = alt.Scale(domain=[0, 1])
    true = "judged as labelled" if name == "gamma" else "right"
    x = alt.X("stated:Q", title=f"{NAMES[name]} as stated", scale=unit, axis=alt.Axis(format="%", tickCount=5))
    y = alt.Y("true:Q", title=f"share {true}", scale=unit, axis=alt.Axis(format="%", tickCount=5))
    base = alt.Chart(alt.InlineData(values=values))
    size = alt.Size("rows:Q", scale=alt.Scale(range=[20, 260], domainMin=0), legend=None)
    line = base.mark_line(color=LINE, strokeWidth=1.5).encode(x, y)
    points = base.mark_point(color=LINE, filled=True, opacity=1).encode(x, y, size)
    chart = alt.layer(_diagonal("stated", "true"), line, points).properties(width=300, height=280)
    return svg(chart, f"reliability-{name}", f"Reliability of {NAMES[name]} in {BINS} bins; the figures are in the table below")


def _diagonal(x: str, y: str) -> Any:
    import altair as alt

    ends = alt.InlineData(values=[{x: 0, y: 0}, {x: 1, y: 1}])
    return alt.Chart(ends).mark_line(color=SOFT, strokeDash=[4, 3], strokeWidth=1).encode(alt.X(f"{x}:Q"), alt.Y(f"{y}:Q"))
