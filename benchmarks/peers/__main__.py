"""STEF beside Ragas, SQLAS and IBM's text2sql-eval-toolkit: the same rows, the same endpoint, one run.

    python -m benchmarks.peers [--rows 600] [--judge-rows 1000] [--fault-rows 200] [--repeat 1] [--latency 0.1] [--timeout 3]
        [--venvs DIR] [--only NAME …] [--json FILE]

Why it matters: who chooses an evaluator asks what a night of it costs, and what it makes of an endpoint that fails. Each peer
comes from PyPI in an environment of its own (`.bench/peers/NAME`, made on first use and kept), and is driven through its own
API, as its documents show it; where the caller does more than they show, the table has that apart ("…"). Three parts:

- rules: metrics that ask no model, rows a second of the processor's time, on one core. STEF is given question and SQL alone.
  The peers compare with gold SQL or with the results of both statements, which are made beforehand and not counted. What
  SQLAS does without gold (syntax, safety, cost) does not say whether SQL answers the question, nor do Ragas' string metrics.
- judge: metrics that ask a model, by the clock, up to `--in-flight` requests at once where the peer can. The endpoint answers
  each in its own form, after the same latency, so that 64 at once and 0.1 s leave at most 640 requests a second to anybody. No
  row's SQL is right, as IBM's judge is not asked where results agree. Ragas' judge compares with gold SQL, the others do not.
- faults: the same with 20 % 429, 5 % 500, 2 % hanging, 2 % invalid, 1 % refused and 1 % truncated, drawn for each attempt.
  Each good answer is the best grade there is, so that a failure which became a grade shows. A request is given up after
  `--timeout` seconds, which each of them lets a caller say, and a run after `--limit`.

Target: ten times the best peer, of rules that say whether SQL is right, and of judges. Memory is the peak of the process that
evaluates.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.driver import Row
from benchmarks.peers.rows import TABLES, make_database, make_rows
from benchmarks.results import keep
from tests.llm_endpoint import running

ROOT, HERE = Path(__file__).parents[2], Path(__file__).parent
FAULTS = {"429": 0.20, "500": 0.05, "hang": 0.02, "invalid": 0.02, "refusal": 0.01, "truncated": 0.01}
WARM_UP = 8
PATIENT_S = 60.0  # of a request where nothing fails
TARGET = 10.0
WIDTH = 100


@dataclass(frozen=True, kw_only=True)
class Way:
    """One way to use one of them.

    `judges` tells that it says whether the SQL answers the question, and so compares with STEF; `documented` that its own
    documents show it; `in_flight` what is at once by its nature, 0 for what the options say, below 0 for all rows.
    """

    name: str
    way: str
    label: str
    needs: str
    judges: bool = True
    documented: bool = True
    in_flight: int = 0


RULES = (
    Way(name="stef", way="rules", label="symbolic path", needs="question, SQL"),
    Way(name="sqlas", way="alone", label="rules without gold", needs="question, SQL", judges=False),
    Way(name="sqlas", way="gold", label="all rules", needs="gold, database"),
    Way(name="ibm", way="rules", label="equivalence, results", needs="gold, results"),
    Way(name="ragas", way="strings", label="texts of the SQL", needs="gold", judges=False),
    Way(name="ragas", way="results", label="DataCompyScore", needs="results of both"),
)
JUDGES = (
    Way(name="stef", way="judge", label="question and verdict", needs="question, SQL"),
    Way(name="stef", way="verdict", label="verdict alone", needs="question, SQL"),
    Way(name="ragas", way="judge", label="evaluate, workers", needs="gold, schema"),
    Way(name="ragas", way="batch", label="abatch_score", needs="gold, schema", in_flight=-1),
    Way(name="ragas", way="limited", label="… with a limit", needs="gold, schema", documented=False),
    Way(name="ibm", way="judge", label="max_concurrency", needs="results, schema"),
    Way(name="ibm", way="threads", label="… in wider threads", needs="results, schema", documented=False),
    Way(name="sqlas", way="judge", label="evaluate_batch", needs="question, SQL", in_flight=1),
    Way(name="sqlas", way="threads", label="… in threads", needs="question, SQL", documented=False),
)
TITLES = {"stef": "STEF", "ragas": "Ragas", "ibm": "IBM toolkit", "sqlas": "SQLAS"}


def environment(name: str, folder: Path) -> Path:
    """The interpreter of a peer's environment, made where it is not there or its requirements changed.

    Raises:
        SystemExit: pip could not install it.
    """
    if name == "stef":
        return Path(sys.executable)
    wanted = (HERE / f"requirements-{name}.txt").read_text(encoding="utf-8")
    python, mark = folder / name / "bin" / "python", folder / name / "installed.txt"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        print(f"making the environment of {TITLES[name]} in {folder / name}", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder / name], check=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--requirement", str(HERE / f"requirements-{name}.txt")]
        if subprocess.run(pip).returncode:
            raise SystemExit(f"pip could not install {name}; see above, and benchmarks/peers/requirements-{name}.txt")
        mark.write_text(wanted, encoding="utf-8")
    return python


def drive(python: Path, way: Way, task: dict[str, Any], limit_s: float) -> dict[str, Any]:
    """What a driver reports of one run, or that it did not end within the limit.

    Raises:
        SystemExit: The driver itself failed.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
        process = subprocess.Popen(
            [python, "-m", f"benchmarks.peers.drive_{way.name}", "task.json", "report.json"],
            cwd=folder,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, said = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            return {"rows": len(task["rows"]), "did_not_end_s": limit_s}
        if not (folder / "report.json").exists():
            raise SystemExit(f"the driver of {way.name} ended with {process.returncode}: {said[-2000:]}")
        found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
        return found


class Bench:
    """Environments, rows and options of one run."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options, self.database = options, folder / "harbour.sqlite"
        names = ["stef", *(options.only or ("ragas", "ibm", "sqlas"))]
        self.pythons = {name: environment(name, options.venvs) for name in names}
        make_database(self.database)

    def ways(self, part: Sequence[Way]) -> Iterator[Way]:
        return (way for way in part if way.name in self.pythons)

    def run(
        self, way: Way, rows: list[Row], *, warm_up: Sequence[Row] = (), base_url: str = "", timeout_s: float = PATIENT_S
    ) -> dict[str, Any]:
        print(f"{TITLES[way.name]}: {way.label}, {len(rows)} rows", file=sys.stderr, flush=True)
        task = {
            "way": way.way,
            "rows": rows,
            "warm_up": list(warm_up),
            "database": str(self.database),
            "tables": TABLES,
            "base_url": base_url,
            "in_flight": way.in_flight if way.in_flight > 0 else self.options.in_flight,
            "timeout_s": timeout_s,
        }
        found = drive(self.pythons[way.name], way, task, self.options.limit)
        return {"name": way.name, "way": way.way, "label": way.label, "needs": way.needs} | found

    def rules(self) -> list[dict[str, Any]]:
        """Rows a second of one core, each peer's rules over the same rows, half of them right."""
        rows = make_rows(self.options.rows + WARM_UP, self.database, right=True)

        def once(way: Way) -> dict[str, Any]:
            found = self.run(way, rows[WARM_UP:], warm_up=rows[:WARM_UP])
            return found | {"judges": way.judges, "rows_per_s": rate(found, "cpu_s")}

        return self.by_turns(RULES, once)

    def judges(self) -> list[dict[str, Any]]:
        """Rows a second by the clock, each asking an endpoint of its own."""
        rows = make_rows(self.options.judge_rows + WARM_UP, self.database, right=False)

        def once(way: Way) -> dict[str, Any]:
            some = self.some(rows[WARM_UP:], way)
            with self.endpoint() as endpoint:
                found = self.run(way, some, warm_up=rows[:WARM_UP], base_url=endpoint.base_url)
                found["requests_per_row"] = endpoint.stats()["requests"] / (len(some) + WARM_UP)
            return found | {"documented": way.documented, "in_flight": self.at_once(way), "rows_per_s": rate(found, "clock_s")}

        return self.by_turns(JUDGES, once)

    def by_turns(self, part: Sequence[Way], once: Callable[[Way], dict[str, Any]]) -> list[dict[str, Any]]:
        """Each way `--repeat` times, in turns; of each the run with the median rate."""
        rounds = [[once(way) for way in self.ways(part)] for _ in range(self.options.repeat)]
        return [sorted(runs, key=lambda run: run["rows_per_s"] or 0.0)[len(runs) // 2] for runs in zip(*rounds, strict=True)]

    def faults(self) -> list[dict[str, Any]]:
        """What becomes of each row where the endpoint fails."""
        rows = make_rows(self.options.fault_rows, self.database, right=False)
        runs = []
        for way in self.ways(JUDGES):
            with self.endpoint("--faults", json.dumps(FAULTS), "--each-attempt") as endpoint:
                some = self.some(rows, way)
                found = self.run(way, some, base_url=endpoint.base_url, timeout_s=self.options.timeout)
                stats = endpoint.stats()
            told = sum(found.get(key, 0) for key in ("graded", "as_grade", "unscored", "silent"))
            runs.append(found | {"lost": len(some) - told, "requests": stats["requests"], "drawn": stats["drawn"]})
        return runs

    @contextlib.contextmanager
    def endpoint(self, *arguments: str) -> Iterator[Any]:
        with running("--latency", str(self.options.latency), *arguments, module="benchmarks.peers.endpoint") as endpoint:
            yield endpoint

    def some(self, rows: list[Row], way: Way) -> list[Row]:
        """The rows of a way; few of them where they come one after another."""
        return rows[: self.options.serial_rows] if way.in_flight == 1 else rows

    def at_once(self, way: Way) -> str:
        return "all" if way.in_flight < 0 else str(way.in_flight or self.options.in_flight)


def rate(found: dict[str, Any], seconds: str) -> float | None:
    """Rows a second; None where a run did not end well, or graded nothing."""
    if "did_not_end_s" in found or found["ended_by"] or not found["graded"]:
        return None
    return float(found["rows"] / found[seconds])


def ratios(figures: dict[str, Any]) -> dict[str, float | None]:
    """STEF's rates over those of the best peer, where they do the same."""

    def best(runs: Sequence[dict[str, Any]]) -> float:
        return max((run["rows_per_s"] or 0.0 for run in runs if run["name"] != "stef"), default=0.0)

    def ours(part: str, way: str) -> float:
        return next(run["rows_per_s"] or 0.0 for run in figures[part] if (run["name"], run["way"]) == ("stef", way))

    rules, judges = figures["rules"], figures["judge"]
    pairs = {
        "rules": (ours("rules", "rules"), best([run for run in rules if run["judges"]])),
        "rules_any": (ours("rules", "rules"), best(rules)),
        "judge_two_requests": (ours("judge", "judge"), best([run for run in judges if run["documented"]])),
        "judge_one_request": (ours("judge", "verdict"), best([run for run in judges if run["documented"]])),
        "judge_one_request_any": (ours("judge", "verdict"), best(judges)),
    }
    return {name: mine / theirs if theirs else None for name, (mine, theirs) in pairs.items()}


def table(figures: dict[str, Any]) -> str:
    """The three parts as text, 100 columns wide at most."""
    lines = [", ".join(f"{TITLES[name]} {version}" for name, version in figures["versions"].items()), ""]
    lines.append(f"{'Rules, one core':<34}{'needs':<18}{'rows':>6}{'scored':>9}{'rows/s':>10}{'MiB':>7}")
    for run in figures["rules"]:
        lines += shown(run, f"{run['needs']:<18}{run['rows']:>6}", rules_cells)
    lines += ["", f"{'Judge':<34}{'needs':<18}{'rows':>6}{'at once':>9}{'requests':>10}{'CPU ms':>8}{'rows/s':>8}{'MiB':>7}"]
    for run in figures["judge"]:
        lines += shown(run, f"{run['needs']:<18}{run['rows']:>6}{run['in_flight']:>9}", judge_cells)
    lines += ["", f"{'Faults':<34}{'rows':>6}{''.join(f'{name:>8}' for name in FATES)}{'seconds':>9}{'requests':>10}"]
    for run in figures["faults"]:
        lines += shown(run, f"{run['rows']:>6}", fault_cells)
    lines += ["", *NOTES, ""]
    for name, label in LABELS.items():
        share = figures["ratios"][name]
        lines.append(f"{'-' if share is None else f'× {share:.1f}':>8}  {label}")
    return "\n".join(lines)


FATES = {"graded": "graded", "failure": "as_grade", "reason": "unscored", "silent": "silent", "lost": "lost"}
NOTES = (
    "requests: of a row, then of a run. CPU ms: of a row. graded: as the endpoint answered;",
    "failure: a grade that a failed call gave; reason: no grade, and a reason; silent: no grade and none;",
    "lost: in no result.",
)
LABELS = {
    "rules": f"STEF / best peer: rules that say whether the SQL is right (target × {TARGET:.0f})",
    "rules_any": "STEF / best peer: any rules, also those that read no SQL or no question",
    "judge_two_requests": f"STEF / best peer: judge as documented, STEF with two requests a row (target × {TARGET:.0f})",
    "judge_one_request": f"STEF / best peer: judge as documented, STEF with one request a row (target × {TARGET:.0f})",
    "judge_one_request_any": "STEF / best peer: judge however driven, STEF with one request a row",
}


def title(run: dict[str, Any]) -> str:
    return f"{TITLES[run['name']]}: {run['label']}"


def shown(run: dict[str, Any], given: str, cells: Callable[[dict[str, Any]], str]) -> list[str]:
    """The line of a run, or why it has no figures."""
    start = f"{title(run):<34}{given}"
    if "did_not_end_s" in run:
        return [f"{start}  did not end within {run['did_not_end_s']:.0f} s"]
    if run["ended_by"]:
        reason = " ".join(run["ended_by"].split())
        return [f"{start}  ended after {run['clock_s']:.0f} s by", f"    {reason[: WIDTH - 4]}"]
    return [start + cells(run)]


def rules_cells(run: dict[str, Any]) -> str:
    return f"{run['graded']:>9}{run['rows_per_s'] or 0:>10,.0f}{run['peak_mib']:>7.0f}"


def judge_cells(run: dict[str, Any]) -> str:
    processor = 1000 * run["cpu_s"] / run["rows"]
    return f"{run['requests_per_row']:>10.1f}{processor:>8.1f}{run['rows_per_s'] or 0:>8.1f}{run['peak_mib']:>7.0f}"


def fault_cells(run: dict[str, Any]) -> str:
    return "".join(f"{run[key]:>8}" for key in FATES.values()) + f"{run['clock_s']:>9.1f}{run['requests']:>10}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=600, help="rows of the rules")
    parser.add_argument("--judge-rows", type=int, default=1000)
    parser.add_argument("--serial-rows", type=int, default=60, help="rows of a judge that asks one request after another")
    parser.add_argument("--fault-rows", type=int, default=200)
    parser.add_argument("--repeat", type=int, default=1, help="rounds of rules and judges, of which the median counts")
    parser.add_argument("--in-flight", type=int, default=64)
    parser.add_argument("--latency", type=float, default=0.1)
    parser.add_argument("--timeout", type=float, default=3.0, help="seconds of one request, where requests may hang")
    parser.add_argument("--limit", type=float, default=180.0, help="seconds of one run")
    parser.add_argument("--venvs", type=Path, default=Path(".bench/peers"), help="where the peers' environments are kept")
    parser.add_argument("--only", nargs="+", choices=("ragas", "ibm", "sqlas"), help="these peers alone")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    options.venvs = options.venvs.absolute()
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, Path(folder))
        figures: dict[str, Any] = {"rules": bench.rules(), "judge": bench.judges(), "faults": bench.faults()}
    figures["versions"] = {run["name"]: run["version"] for run in figures["rules"]}
    figures["ratios"] = ratios(figures)
    figures["options"] = {name: value for name, value in vars(options).items() if isinstance(value, int | float)}
    print(table(figures))
    keep(options.json, figures)


if __name__ == "__main__":
    main()
