"""``docs/benchmarks.md``, made from the files that benchmarks leave: what was reached of each target, and the curves.

    python -m benchmarks.page

`make bench` measures and ends with this. The page holds no figure that is in no file. A file may have a `remark` on how it was
measured, for the page to tell.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.__main__ import TARGET, table
from benchmarks.results import RESULTS

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
STAGES = {
    "parse_one": "`sqlglot.parse_one` alone, what the others are compared with",
    "question": "read the question",
    "sql": "read the SQL: parse, repair, resolve, specification",
    "catalogue": "learn what the log shows",
    "examine": "align both sides, compare with the log",
    "conclude": "judge, compose the score",
    "frames": "rows of the tables",
    "core": "all of these",
    "stef score": "`stef score`, from Parquet to the warehouse, starting and gates included",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One target: what it is about, what was measured, what was aimed at, and whether it was reached."""

    what: str
    figure: str
    target: str
    reached: bool


def load(name: str) -> dict[str, Any]:
    """What a benchmark left.

    Raises:
        FileNotFoundError: It has not been run.
    """
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def of_symbolic_path(figures: dict[str, Any]) -> Iterator[Claim]:
    largest = figures["runs"][-1]
    ratio = largest["ratio"]["stef score"]
    yield Claim(
        what=f"symbolic judge, {largest['rows']:,} different rows: rows/s a core of bare `parse_one`, all stages",
        figure=f"{ratio:.3f} ({largest['ratio']['core']:.3f} without Prefect, Parquet and gates)",
        target="≥ 0.20",
        reached=ratio >= 0.20,
    )


def of_scaling(figures: dict[str, Any]) -> Iterator[Claim]:
    many = figures["processes"]
    for way, target in ((f"{many} processes", 1.7), (f"Dask, {many} workers", 1.6)):
        if way in figures:
            times = figures[way]["times_one_process"]
            yield Claim(
                what=f"symbolic judge, {figures['rows']:,} rows: {way}, beside one process; the same tables",
                figure=f"× {times:.2f}",
                target=f"≥ {target}",
                reached=times >= target and figures[way]["tables_equal"],
            )


def of_large_day(figures: list[dict[str, Any]]) -> Iterator[Claim]:
    by_rows = {each["rows"]: each for each in figures}
    small, middle, large = (by_rows[rows] for rows in (10_000, 100_000, 1_000_000))
    change = pace(figures, large) / pace(figures, small) - 1
    yield Claim(
        what="10,000 to 1,000,000 rows: rows a second of processor, beyond what starting takes",
        figure=f"{pace(figures, small):,.0f} to {pace(figures, large):,.0f} ({change:+.0%})",
        target="within 15 %",
        reached=abs(change) <= 0.15,
    )
    yield Claim(
        what="1,000,000 rows: peak memory of all processes together",
        figure=f"{large['peak_mib']:,.0f} MiB",
        target="≤ 2,048 MiB",
        reached=large["peak_mib"] <= 2048,
    )
    times = large["peak_mib"] / middle["peak_mib"]
    yield Claim(
        what=f"that, beside the peak of 100,000 rows ({middle['peak_mib']:,.0f} MiB)",
        figure=f"× {times:.2f}",
        target="≤ 1.3",
        reached=times <= 1.3,
    )


def of_orchestration(figures: dict[str, Any]) -> Iterator[Claim]:
    overhead = figures["overhead"]
    yield Claim(
        what=f"the flow beside the same functions in a bare loop, {figures['rows']:,} rows",
        figure=f"{overhead:+.1%}",
        target="≤ 10 %",
        reached=overhead <= 0.10,
    )
    most = figures["help_most_s"]
    yield Claim(
        what=f"`stef --help` (`import polars` alone: {figures['polars_s'] * 1000:.0f} ms)",
        figure=f"{figures['help_s'] * 1000:.0f} ms",
        target=f"≤ {most * 1000:.0f} ms: half of that and 150 ms",
        reached=figures["help_s"] <= most,
    )


def of_backfill(figures: dict[str, Any]) -> Iterator[Claim]:
    touched, calls = figures["touched"], figures["calls_of_backfill"]
    yield Claim(
        what=f"backfill of {figures['rows']:,} rows after a rule that bears on {touched:,}: calls of the model",
        figure=f"{calls:,}",
        target=f"≤ {touched:,}",
        reached=calls <= touched and figures["tables_equal"],
    )
    yield Claim(
        what="its time beside that of scoring the day, tables equal to scoring anew",
        figure=f"{figures['time_share']:.2f}",
        target="≤ 0.15",
        reached=figures["time_share"] <= 0.15 and figures["tables_equal"],
    )


def of_llm_throughput(figures: dict[str, Any]) -> Iterator[Claim]:
    yield Claim(
        what=f"calls/s of the model, {figures['in_flight']} in flight, beside a bare loop of the same client",
        figure=f"{figures['share']:.2f}",
        target="≥ 0.85",
        reached=figures["share"] >= 0.85,
    )
    few, many = figures["rows"]
    yield Claim(
        what=f"peak memory of scoring by a model, {many:,} rows beside {few:,}",
        figure=f"× {figures['memory']:.2f} ({figures['peak_mib'][1]:.0f} MiB)",
        target="≤ 1.3",
        reached=figures["memory"] <= 1.3,
    )


def of_peers(figures: dict[str, Any]) -> Iterator[Claim]:
    for name, what in PEERS.items():
        times = figures["ratios"][name]
        yield Claim(what=what, figure=f"× {times:.1f}", target=f"≥ {TARGET:.0f}", reached=times >= TARGET)


PEERS = {
    "rules": "rules that say whether SQL is right, rows/s a core beside the best of Ragas, SQLAS and IBM's toolkit",
    "judge_two_requests": "a model as judge, rows/s beside the best of them as documented; STEF asks twice a row",
}
CLAIMS: dict[str, Callable[[Any], Iterator[Claim]]] = {
    "symbolic_path": of_symbolic_path,
    "scaling": of_scaling,
    "large_day": of_large_day,
    "orchestration": of_orchestration,
    "backfill": of_backfill,
    "llm_throughput": of_llm_throughput,
    "peers": of_peers,
}


def pace(figures: list[dict[str, Any]], each: dict[str, Any]) -> float:
    """Rows a second of processor beyond the first size, which stands for starting."""
    first = figures[0]
    return float((each["rows"] - first["rows"]) / (each["cpu_s"] - first["cpu_s"]))


def stages_table(figures: dict[str, Any]) -> Iterator[str]:
    """Where the time of a row goes."""
    run = figures["runs"][-1]
    yield f"| {run['rows']:,} rows | ms a row | rows/s a core | of `parse_one` |"
    yield "|---|---:|---:|---:|"
    for name, told in STAGES.items():
        if name in run["seconds"]:
            taken = run["seconds"][name] / run["rows"]
            yield f"| {told} | {1000 * taken:.2f} | {1 / taken:,.0f} | {run['ratio'][name]:.3f} |"


def sizes_table(figures: list[dict[str, Any]]) -> Iterator[str]:
    """How time and memory grow with a day."""
    yield "| rows | seconds | rows/s | seconds of processor | rows/s of processor beyond the first | peak MiB | warehouse MiB |"
    yield "|---:|---:|---:|---:|---:|---:|---:|"
    for each in figures:
        beyond = f"{pace(figures, each):,.0f}" if each is not figures[0] else ""
        yield (
            f"| {each['rows']:,} | {each['seconds']:,.0f} | {each['rows_per_s']:,.0f} | {each['cpu_s']:,.0f} "
            f"| {beyond} | {each['peak_mib']:,.0f} | {each['warehouse_mib']:,.0f} |"
        )


def page() -> str:
    """The page."""
    results = {name: load(name) for name in CLAIMS}
    machines = sorted({found["machine"] for found in results.values()})
    days = sorted({found["measured_on"] for found in results.values()})
    claims = [claim for name, of in CLAIMS.items() for claim in of(results[name]["figures"])]
    reached = [f"| {c.what} | {c.figure} | {c.target} | {'reached' if c.reached else '**not reached**'} |" for c in claims]
    parts = [
        ["# Benchmarks"],
        wrapped(ABOUT.format(when=" to ".join(dict.fromkeys((days[0], days[-1]))), machine="; ".join(machines))),
        ["| what | measured | target | |", "|---|---|---|---|", *reached],
        wrapped(ELSEWHERE),
        *(wrapped(f"Of `{name}`: {found['remark']}") for name, found in results.items() if "remark" in found),
        ["## Where the time of a row goes"],
        stages_table(results["symbolic_path"]["figures"]),
        wrapped(LEFT),
        ["## How a day grows"],
        sizes_table(results["large_day"]["figures"]),
        wrapped(MEMORY),
        ["## Beside its peers"],
        wrapped(BESIDE),
        ["```text", *table(results["peers"]["figures"]).splitlines(), "```"],
        wrapped(FAULTS),
        ["## Starting"],
        wrapped(STARTING.format(seconds=results["orchestration"]["figures"]["one_row_s"])),
    ]
    return "\n".join(line for part in parts for line in (*part, ""))


def wrapped(text: str) -> list[str]:
    """A paragraph in lines."""
    return textwrap.wrap(" ".join(text.split()), 128, break_long_words=False, break_on_hyphens=False)


ABOUT = """
Measured {when} on {machine}. `make bench` measures again and writes this page from `benchmarks/results/`. Each figure
compares two things of one run, so it holds on other machines; seconds and rows a second are those of this one, whose cores
others use as well. Each file of `benchmarks/` says at its top what it measures and why that matters.
"""
ELSEWHERE = """
How right the scores are stands in [agreement.md](agreement.md), how often alerts are false in [alerts.md](alerts.md), how
fast the views answer in [bi.md](bi.md).
"""
LEFT = """
`parse_one` is compiled, and builds a tree of nodes; reading a query so that it can be compared does that once and then asks
each node several times: which table owns a column, which alias stands for what, which literal belongs to which predicate.
Those questions, the words of the question, and the comparison of both sides are Python, in some hundred small functions of
which none takes more than a few percent: a profile shows no single thing left that would pay. The target of 0.20 was set
for a parser of 6,000 statements a second; the compiled one is several times as fast, so the same work is a smaller share of
it.
"""
MEMORY = """
Memory is the proportional set size of all processes together. It grows with what each process has met (caches that are
bounded) and with the catalogue of what the log shows (bounded by 100,000 values of a kind), not with the rows.
"""
BESIDE = """
`python -m benchmarks.peers` drives Ragas, SQLAS and the text2sql-eval-toolkit of IBM in environments of their own, over the
same rows and the same endpoint. They do not do the same: STEF is given question and SQL alone, the others mostly compare
with gold SQL or with the results of both statements, which were made beforehand and are not counted. Rules that do not say
whether SQL answers the question (syntax and safety; how alike two texts are) stand apart. With 64 requests of 0.1 s at once
nobody passes 640 requests a second, so ten times a peer that asks once a row is out of reach for whoever asks that often.
"""
FAULTS = """
The faults are 20 % 429, 5 % 500, 2 % hanging, 2 % invalid, 1 % refused and 1 % truncated, drawn for each attempt. The
endpoint gives the best grade to all, so a failure that became a grade shows as one. STEF gives each row a grade or a
reason.
"""
STARTING = """
A day of one row takes {seconds:.0f} s by the clock. Most of it is Prefect, which starts a server of its own unless
`PREFECT_API_URL` names one, and Great Expectations, which is imported.
"""


def main() -> None:
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(Path.cwd()) if PAGE.is_relative_to(Path.cwd()) else PAGE}")


if __name__ == "__main__":
    main()
