"""What `stef` shows on a terminal: tables of agents, alerts and runs, and one answer explained."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.syntax import Syntax
from rich.table import Column, Table
from rich.text import Text

from stef_core.records import Evaluation, Finding, OrderKey, QueryRecord, QuestionSpec, Score, SqlSpec
from stef_core.wording import aggregation_text, column_text, condition_text, plain_text


class _Layout(NamedTuple):
    marks: int  # days marked at most; 0 leaves the column out
    bands: bool
    median: bool


BANDS = (("excellent", "█", "green"), ("good", "▓", "cyan"), ("marginal", "▒", "yellow"), ("poor", "░", "red"))
BAND_STYLE = {name: style for name, _, style in BANDS}
BAR_CELLS = 12
NAME_CELLS = 24  # a name up to this wide is never folded at 100 columns
MARKED_DAYS = 14  # days that the table of agents marks at most
# what gives way, in this order, where names leave too little room
AGENT_LAYOUTS: tuple[_Layout, ...] = (
    *(_Layout(days, bands=True, median=True) for days in range(MARKED_DAYS, 4, -1)),
    _Layout(0, bands=True, median=True),
    _Layout(0, bands=False, median=True),
    _Layout(0, bands=False, median=False),
)
SPARKS = "▁▂▃▄▅▆▇█"
SIDE_BY_SIDE = 90  # columns; below it question and SQL are stacked
SEVERITY = {"critical": ("‼", "bold red"), "major": ("!", "red"), "minor": ("·", "yellow"), "info": ("i", "dim")}
OUTCOME = {"published": ("✓", "green"), "gate_failed": ("✗", "red"), "failed": ("✗", "red")}
GRADE_STYLE = {"correct": "green", "likely_correct": "cyan", "potentially_incorrect": "yellow", "incorrect": "red"}


def agent_table(agent_daily: pl.DataFrame) -> RenderableType:
    """Each version of each agent over the period of the frame.

    Args:
        agent_daily: Rows of ``agent_daily`` (stef_core.frames.AGENT_DAILY); only those of all applications together count.

    Returns:
        Rows, coverage and mean Φ of the whole period; median and P90 of the last day, as they cannot be averaged over days;
        the share of each band; one mark a day, 0-100, of the last days. Where there is no room, marks, bands and median give
        way before a name of up to `NAME_CELLS` is folded.
    """
    whole = agent_daily.filter(pl.col("app_id") == "*").sort("dt")
    groups = whole.partition_by("agent_id", "agent_version", maintain_order=True)
    return _Agents(tuple(sorted(groups, key=lambda g: (g["agent_id"][0], g["dt"][0]))))


def alerts_table(alerts: pl.DataFrame) -> RenderableType:
    """Rows of ``agent_alerts``, newest first; a sentence when there are none."""
    if alerts.is_empty():
        return Text("✓ No agent got worse than chance explains.", style="green")
    table = Table(title="Alerts", title_justify="left", header_style="bold", title_style="bold")
    table.add_column("Day", no_wrap=True)
    table.add_column("Change", justify="right", no_wrap=True)
    table.add_column("p", justify="right", no_wrap=True)
    table.add_column("What got worse, and why", overflow="fold")
    for row in alerts.sort("dt", "p_value", "agent_id", "app_id", descending=[True, False, False, False]).iter_rows(named=True):
        chance = "<0.0001" if row["p_value"] < 0.0001 else f"{row['p_value']:.4f}"
        change = Text(_CHANGES[row["kind"]].format(abs(row["change"])), style="bold red")
        table.add_row(str(row["dt"]), change, chance, _text(row["message"]))
    return table


_CHANGES = {
    "phi_fall": "▼ {:.1f} Φ",
    "version_worse": "▼ {:.1f} Φ",
    "coverage_fall": "▼ {:.1%} coverage",
    "finding_rise": "▲ {:.1%} of answers",
}


def run_table(runs: Sequence[Mapping[str, Any]]) -> Table:
    """What scoring did, one row a day.

    Args:
        runs: ``dt rows_in rows_scored outcome message`` of ``scoring_runs``, and ``mean_phi`` where known.
    """
    table = Table(title="Scoring", title_justify="left", header_style="bold", title_style="bold")
    table.add_column("Day", no_wrap=True)
    for name in ("Rows", "Scored", "Coverage", "Mean Φ"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Outcome", no_wrap=True)
    table.add_column("Message", overflow="fold")
    for run in runs:
        rows, scored = run.get("rows_in"), run.get("rows_scored")
        sign, style = OUTCOME.get(run["outcome"], ("?", "yellow"))
        table.add_row(
            str(run["dt"]),
            _count(rows),
            _count(scored),
            _percent(scored / rows if rows and scored is not None else None),
            _number(run.get("mean_phi")),
            Text(f"{sign} {run['outcome'].replace('_', ' ')}", style=style),
            _text(run.get("message")),
        )
    return table


def render_evaluation(record: QueryRecord, evaluation: Evaluation) -> RenderableType:
    """One answer judged and explained: what was asked and applied, the verdict with its reasons, and the sum of Φ."""
    parts: list[RenderableType] = [_headline(record, evaluation), _Sides(record)]
    if evaluation.reading is not None and evaluation.alignment is not None:
        parts += [_heading("Asked and applied"), _parts_table(evaluation)]
    if evaluation.alignment is not None:
        parts += [_heading("Conditions"), _conditions_table(evaluation)]
    if evaluation.enrichment is not None:
        parts += [_heading("Reformulation"), _indented(Text(_ENRICHMENT[evaluation.enrichment.status]))]
    if evaluation.verdict is not None and evaluation.verdict.grade is not None:
        parts += [_heading("Verdict"), _verdict(evaluation)]
    elif evaluation.verdict is not None and evaluation.verdict.reasons and not evaluation.findings:
        parts += [_heading("Verdict"), _indented(Text("\n".join(map(plain_text, evaluation.verdict.reasons))))]
    if evaluation.findings:
        parts += [_heading("Findings"), _findings_table(evaluation.findings)]
    if evaluation.score is not None:
        parts += [_heading("Score"), _indented(score_text(evaluation.score))]
    return Group(*parts)


def score_text(score: Score) -> Text:
    """The sum written out: ``Φ = (σ_filters 5 + σ_verdict 5 + δ 0) / 10 × 100 × Γ 1.0 = 100.0``."""
    terms = f"σ_filters {score.filters} + σ_verdict {score.verdict} + δ {score.lenient}"
    capped = score.filters + score.verdict + score.lenient > score.base
    base = f"min(10, {terms})" if capped else f"({terms})"
    text = Text(f"Φ = {base} / 10 × 100 × Γ {score.gamma_factor:g} = ")
    text.append(f"{score.phi:.1f}", style=f"bold {BAND_STYLE[score.band]}")
    text.append(f"  {score.band}")
    if score.p_right is not None:
        text.append(f"   probability of being right {score.p_right:.0%}", style="dim")
    return text


def sparkline(values: Sequence[float | None], low: float = 0.0, high: float = 100.0) -> str:
    """One block a value between `low` and `high`; a dot where there is none."""
    steps = len(SPARKS) - 1
    return "".join("·" if v is None else SPARKS[round(min(1.0, max(0.0, (v - low) / (high - low))) * steps)] for v in values)


_ENRICHMENT = {
    "absent": "– absent: the agent did not reformulate the question",
    "faithful": "✓ faithful to the question",
    "adds": "+ adds a condition that nobody asked for",
    "drops": "✗ drops a condition of the question",
    "contradicts": "≠ contradicts the question",
}


@dataclass(frozen=True, slots=True)
class _Sides:
    """Question and SQL, side by side where the terminal is wide enough."""

    record: QueryRecord

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        question = Text(plain_text(self.record.user_question) or "(no question)")
        left: list[RenderableType] = [question]
        if self.record.enriched_question:
            left += [Text("\nReformulated", style="bold"), Text(plain_text(self.record.enriched_question))]
        sql = plain_text(self.record.generated_sql).expandtabs(4)
        right: RenderableType = Text("(no SQL)", style="dim")
        if sql.strip():
            right = Syntax(sql, "sql", theme="ansi_dark", background_color="default", word_wrap=True)
        dialect = plain_text(self.record.dialect)
        panels = (
            Panel(Group(*left), title="Question", title_align="left", border_style="dim"),
            Panel(right, title=Text(f"SQL · {dialect}" if dialect else "SQL"), title_align="left", border_style="dim"),
        )
        if options.max_width < SIDE_BY_SIDE:
            yield from panels
            return
        grid = Table.grid(expand=True, padding=(0, 1))
        grid.add_column(ratio=2)
        grid.add_column(ratio=3)
        grid.add_row(*panels)
        yield grid


@dataclass(frozen=True, slots=True)
class _Agents:
    """The table of agents, in the fullest layout that leaves names whole."""

    groups: tuple[pl.DataFrame, ...]  # the days of one version of one agent each, in order

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.groups:
            yield Text("Agents", style="bold")
            yield Text("No day has been scored yet.", style="dim")
            return
        for layout in AGENT_LAYOUTS:
            table = self.table(*layout)
            if self.width(table) <= options.max_width:
                break
        yield table

    def table(self, marks: int, bands: bool, median: bool) -> Table:
        table = Table(title="Agents", title_justify="left", caption_justify="left", header_style="bold", title_style="bold")
        table.add_column("Agent", overflow="fold")
        table.add_column("Version", overflow="fold")
        for name in ("Rows", "Coverage", "Mean Φ", *(["Median"] if median else []), "P90"):
            table.add_column(name, justify="right", no_wrap=True)
        if bands:
            table.add_column("Bands", no_wrap=True)
        if marks:
            table.add_column("By day", no_wrap=True)
        for days in self.groups:
            rows, scored = int(days["rows"].sum()), int(days["scored"].sum())
            judged = days.filter(pl.col("scored") > 0)
            last = judged.tail(1).to_dicts()[0] if judged.height else {}
            mean = float((judged["mean_phi"] * judged["scored"]).sum()) / scored if scored else None
            table.add_row(
                _text(days["agent_id"][0]),
                _text(days["agent_version"][0] or "–"),
                f"{rows:,}",
                _percent(scored / rows if rows else None),
                _number(mean),
                *([_number(last.get("median_phi"))] if median else []),
                _number(last.get("p90_phi")),
                *([_band_bar(judged)] if bands else []),
                *([sparkline(days["mean_phi"].tail(marks).to_list())] if marks else []),
            )
        table.caption = self.legend(marks, bands, median)
        return table

    def legend(self, marks: int, bands: bool, median: bool) -> Text:
        notes = ["median and P90 are of the last day" if median else "P90 is of the last day"]
        if marks and any(days.height > marks for days in self.groups):
            notes.append(f"marks are of the last {marks} days")
        text = Text()
        if bands:
            text.append("Bands ", style="dim")
            for name, glyph, style in BANDS:
                text.append(f"{glyph} {name}  ", style=style)
        return text.append("".join(f"· {note} " for note in notes).rstrip(), style="dim")

    def width(self, table: Table) -> int:
        """Columns of the terminal that the table takes with every name of up to `NAME_CELLS` in one line."""
        return sum(self._cells(column) + 3 for column in table.columns) + 1  # a border and two blanks each

    @staticmethod
    def _cells(column: Column) -> int:
        widest = max(cell_len(str(cell)) for cell in (column.header, *column.cells))
        return widest if column.no_wrap else min(widest, NAME_CELLS)


def _headline(record: QueryRecord, evaluation: Evaluation) -> Text:
    text = Text()
    if evaluation.score is not None:
        score = evaluation.score
        text.append(f"Φ {score.phi:.1f} {score.band}", style=f"bold {BAND_STYLE[score.band]}")
    else:
        text.append(f"unscored: {plain_text(evaluation.reason) or 'no reason given'}", style="bold yellow")
    origin = [evaluation.query_id, record.agent_id, record.agent_version, record.app_id]
    known = [plain_text(part) for part in origin if part and part not in ("unknown", "default")]
    return text.append("  " + " · ".join(known), style="dim")


def _parts_table(evaluation: Evaluation) -> RenderableType:
    assert evaluation.reading is not None
    asked, applied = _dimensions(evaluation.reading.question), _dimensions(evaluation.reading.sql)
    table = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    table.add_column("")
    table.add_column("asked", ratio=1, overflow="fold")
    table.add_column("applied", ratio=1, overflow="fold")
    for name in asked:
        if asked[name] or applied[name]:
            table.add_row(Text(name, style="bold"), _text(asked[name] or "–"), _text(applied[name] or "–"))
    return table


def _dimensions(spec: QuestionSpec | SqlSpec) -> dict[str, str]:
    return {
        "outputs": ", ".join(column_text(c) for c in spec.projections),
        "aggregates": ", ".join(aggregation_text(a) for a in spec.aggregations),
        "filters": " AND ".join(condition_text(c) for c in spec.filters),
        "groups": ", ".join(column_text(c) for c in spec.group_by),
        "order": ", ".join(_order_text(k) for k in spec.order_by),
        "limit": "" if spec.limit is None else str(spec.limit),
        "distinct": "yes" if spec.distinct else "",
        "set": (spec.set_op or "").replace("_", " "),
    }


def _order_text(key: OrderKey) -> str:
    name = column_text(key.column) if key.column is not None else key.window or ""
    return f"{key.agg}({name}) {key.dir}" if key.agg else f"{name} {key.dir}"


def _conditions_table(evaluation: Evaluation) -> RenderableType:
    alignment = evaluation.alignment
    assert alignment is not None
    benign = set(map(repr, alignment.benign))
    rows = [("✓", "green", "applied", c) for c in alignment.matched]
    rows += [("✗", "bold red", "missing", c) for c in alignment.missing]
    rows += [("+", "yellow", "extra, nobody asked for it", c) for c in alignment.extra if repr(c) not in benign]
    rows += [("○", "cyan", "extra, allowed by the rules", c) for c in alignment.benign]
    status = Text(alignment.filter_status.replace("_", " "), style="italic")
    if not rows:
        return _indented(Text("none asked, none applied · ").append_text(status))
    table = Table(box=None, padding=(0, 1), show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    for sign, style, word, condition in rows:
        table.add_row(Text(sign, style=style), Text(plain_text(condition_text(condition)), style=style), word)
    return _indented(Group(table, status))


def _verdict(evaluation: Evaluation) -> RenderableType:
    verdict = evaluation.verdict
    assert verdict is not None
    assert verdict.grade is not None
    line = Text(verdict.grade.replace("_", " "), style=f"bold {GRADE_STYLE[verdict.grade]}")
    judge = plain_text(f"{verdict.judge} {verdict.model}" if verdict.model else verdict.judge)
    line.append(f"  γ {verdict.confidence:.2f} · {judge}" if verdict.confidence is not None else f"  {judge}", style="dim")
    reasons = [Text(f"– {plain_text(reason)}") for reason in verdict.reasons]
    return _indented(Group(line, *reasons))


def _findings_table(findings: Iterable[Finding]) -> RenderableType:
    table = Table(box=None, padding=(0, 1), show_header=False, show_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for found in findings:
        sign, style = SEVERITY[found.severity]
        table.add_row(Text(sign, style=style), Text(found.code, style=style), found.stage, _text(found.message))
    return _indented(table)


def _heading(title: str) -> RenderableType:
    return Padding(Rule(Text(title, style="bold"), align="left", style="dim"), (1, 0, 0, 0))


def _indented(body: RenderableType) -> RenderableType:
    return Padding(body, (0, 0, 0, 2))


def _band_bar(days: pl.DataFrame) -> Text:
    totals = dict.fromkeys(BAND_STYLE, 0.0)
    for shares, scored in days.select("shares", "scored").iter_rows():
        for name, share in (json.loads(shares or "{}").get("band") or {}).items():
            if name in totals:
                totals[name] += share * scored
    total, bar, filled, cumulated = sum(totals.values()), Text(), 0, 0.0
    for name, glyph, style in BANDS:
        cumulated += totals[name]
        cells = round(BAR_CELLS * cumulated / total) - filled if total else 0
        bar.append(glyph * cells, style=style)
        filled += cells
    return bar


def _text(value: str | None) -> Text:
    return Text(plain_text(value))


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
