"""The shared conformance cases through ``stef explain --file``: at least 97 % of what needs no LLM, no family under 90 %.

What a case may expect is written down in ``../shared/cases/README.md``.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flows import cli

SHARED = Path(__file__).parents[2] / "shared"
CASES = SHARED / "cases" / "cases_shared.jsonl"
CHECKER = SHARED / "tools" / "check_cases.py"
LEAST, LEAST_OF_A_FAMILY = 0.97, 0.90
# what a case that needs an LLM does not ask of the offline reader
QUESTION_SIDE = frozenset(
    "question_spec filter_status filter_status_in missing extras benign_extras boost right".split()
)  # fmt: skip
PLAIN = ("group_by_required", "limit_is_safety", "order_by_tolerated")  # keys of the alignment that hold as they are
RIGHT = ("correct", "likely_correct")
Case = dict[str, Any]


# --- the checker ------------------------------------------------------------------------------------------------------


def folded(value: Any) -> Any:
    """A value that compares whatever the order of lists, letter case, and absent against empty."""
    if isinstance(value, dict):
        kept = {k: folded(v) for k, v in value.items() if k == "value" or v not in (None, [], False)}
        return tuple(sorted(kept.items(), key=repr))
    if isinstance(value, list):
        return tuple(sorted((folded(v) for v in value), key=repr))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value.strip().lower() if isinstance(value, str) else value


def alike(wanted: Any, have: Any, *, ordered: bool = False) -> bool:
    if not isinstance(wanted, list):
        return bool(folded(wanted) == folded(have))
    if ordered:
        return [folded(v) for v in wanted] == [folded(v) for v in have or []]
    return Counter(repr(folded(v)) for v in wanted) == Counter(repr(folded(v)) for v in have or [])


def among(wanted: list[Any], have: list[Any] | None) -> set[str]:
    """The members of one list that stand in another."""
    return {repr(folded(v)) for v in wanted} & {repr(folded(v)) for v in have or []}


def sql_of(case: Case) -> str:
    if case.get("sql") is not None or not case.get("sql_gen"):
        return case.get("sql") or ""

    def made(part: Case) -> str:
        if "text" in part:
            return str(part["text"])
        if "repeat" in part:
            return str(part["repeat"]) * int(part["n"])
        low, high = part["range"]
        return str(part.get("sep", ", ")).join(map(str, range(low, high + 1)))

    return "".join(made(part) for part in case["sql_gen"]["parts"])


def answers_of(case: Case) -> Iterator[dict[str, Any]]:
    """The lines for `stef explain --file`: the case, and each SQL that it is compared with."""
    variants = [("", sql_of(case))]
    variants += [
        (f"#{key}{i}", sql) for key in ("same_as", "differs_from") for i, sql in enumerate(case["expect"].get(key, []))
    ]
    shared = {k: case[k] for k in ("user_question", "enriched_question", "dialect", "rules") if case.get(k) is not None}
    for suffix, sql in variants:
        yield {"query_id": case["id"] + suffix, "agent_id": "cases", "generated_sql": sql, **shared}


def checked(case: Case, outs: dict[str, dict[str, Any]]) -> Iterator[tuple[str, bool]]:
    """Each expectation of a case that needs no LLM, and whether it is met."""
    out = outs.get(case["id"])
    yield "answered", out is not None
    if out is None:
        return
    spec, alignment = out["sql_spec"] or {}, out["alignment"] or {}
    score, grade = out["score"] or {}, (out["verdict"] or {}).get("grade")
    codes = {f["code"] for f in out["findings"]}
    for key, want in case["expect"].items():
        if case.get("needs") == "llm" and key in QUESTION_SIDE:
            continue
        if key in ("sql_spec", "question_spec"):
            have = out[key] or {}
            for part, value in want.items():
                name = part.removesuffix("_contain")
                if name == part:
                    yield f"{key}.{part}", alike(value, have.get(part), ordered=part == "order_by")
                else:
                    yield f"{key}.{part}", len(among(value, have.get(name))) == len({repr(folded(v)) for v in value})
        elif key == "sql_spec_not":
            for part, items in want.items():
                yield f"{key}.{part}", not among(items, spec.get(part))
        elif key in ("missing", "benign_extras"):
            yield key, alike(want, alignment.get("missing" if key == "missing" else "benign"))
        elif key == "extras":
            benign = {repr(folded(v)) for v in alignment.get("benign") or []} - {repr(folded(v)) for v in want}
            yield key, alike(want, [v for v in alignment.get("extra") or [] if repr(folded(v)) not in benign])
        elif key in ("same_as", "differs_from"):
            for i in range(len(want)):
                twin = outs.get(f"{case['id']}#{key}{i}") or {}
                same = (twin.get("score") or {}).get("phi") == score.get("phi")
                other = folded(twin.get("sql_spec") or {}) != folded(spec) or (twin.get("verdict") or {}).get("grade") != grade
                yield key, same if key == "same_as" else bool(twin) and other
        else:
            yield from simple(key, want, out, spec, alignment, score, grade, codes)


def simple(
    key: str,
    want: Any,
    out: dict[str, Any],
    spec: dict[str, Any],
    alignment: dict[str, Any],
    score: dict[str, Any],
    grade: str | None,
    codes: set[str],
) -> Iterator[tuple[str, bool]]:
    if key == "filter_status":
        yield key, alignment.get("filter_status") == want
    elif key == "filter_status_in":
        yield key, alignment.get("filter_status") in want
    elif key == "boost":
        yield key, bool(score.get("lenient")) == want
    elif key == "benign_group_by":
        yield key, alike(want, alignment.get(key))
    elif key in PLAIN:
        yield key, bool(alignment.get(key)) == want
    elif key == "right":
        yield key, (grade in RIGHT) == want
    elif key == "is_query":
        yield key, bool(codes & {"no_sql", "not_a_query"}) != want
        if want is False:
            yield "phi_zero", score.get("phi") == 0 or out["status"] == "unscored"
    elif key == "parses" and want is False:
        yield key, spec.get("parse_status") not in ("ok", None) or out["status"] == "unscored"
    elif key == "filter_columns":
        yield key, sorted(want) == sorted({str(f.get("column")) for f in spec.get("filters") or []})
    elif key == "in_list_length":
        lists = [f["value"] for f in spec.get("filters") or [] if f.get("op") == "in" and isinstance(f.get("value"), list)]
        yield key, want in [len(values) for values in lists]


# --- the tests --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    if not CASES.is_file():
        pytest.skip("the folder with the shared conformance cases is not beside the repository")
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines() if line.strip()]


@pytest.fixture(scope="module")
def explained(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `stef explain --file` writes about every case, with default settings and no endpoint."""
    folder = tmp_path_factory.mktemp("conformance")
    lines = [json.dumps(answer, ensure_ascii=False) for case in cases for answer in answers_of(case)]
    (folder / "in.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # no settings file of somebody else's
        code = cli.run(["explain", "--file", "in.jsonl", "--output", "out.jsonl"])
    assert code == 0
    return folder / "out.jsonl"


def met(cases: list[Case], outs: dict[str, dict[str, Any]]) -> tuple[Counter[str], Counter[str], list[str]]:
    passed: Counter[str] = Counter()
    total: Counter[str] = Counter()
    failed = []
    for case in cases:
        for key, ok in checked(case, outs):
            total[case["family"]] += 1
            passed[case["family"]] += ok
            failed += [] if ok else [f"{case['id']} {key}"]
    return passed, total, failed


def rows_of(path: Path) -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return {row["query_id"]: row for row in rows}


def test_the_conformance_cases_are_met(cases: list[Case], explained: Path) -> None:
    passed, total, failed = met(cases, rows_of(explained))

    assert sum(total.values()) >= 5 * len(cases)
    assert sum(passed.values()) >= LEAST * sum(total.values()), failed
    assert {f: passed[f] / total[f] for f in total if passed[f] < LEAST_OF_A_FAMILY * total[f]} == {}, failed


def test_this_checker_and_the_shared_one_count_alike(cases: list[Case], explained: Path) -> None:
    if not CHECKER.is_file():
        pytest.skip("the shared checker is not beside the repository")
    passed, total, failed = met(cases, rows_of(explained))

    done = subprocess.run(
        [sys.executable, str(CHECKER), "check", str(CASES), str(explained), "-v"],
        capture_output=True, text=True, check=False, encoding="utf-8", timeout=120,
    )  # fmt: skip

    counted = re.findall(r"^(\w+) +(\d+) / +(\d+) ", done.stdout, re.M)
    assert done.returncode == 0, done.stdout + done.stderr
    assert counted == [(f, str(passed[f]), str(total[f])) for f in sorted(total)], failed


def test_the_checker_sees_an_answer_that_is_wrong(cases: list[Case], explained: Path) -> None:
    outs = rows_of(explained)
    broken = {
        name: row | {"sql_spec": {}, "alignment": {}, "verdict": {"grade": None}, "score": {"phi": 50.0}}
        for name, row in outs.items()
    }

    passed, total, _ = met(cases, broken)

    assert sum(passed.values()) < 0.6 * sum(total.values())
    assert met(cases, {})[0].total() == 0
