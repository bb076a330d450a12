"""Whatever a log, rules or a command line hold: only our own errors, no hang, JSON, twice the same, and nothing leaks.

Each property is tried for some seconds here; ``make drills`` tries each for as many seconds as ``FUZZ_SECONDS`` says, 20
minutes where it is unset.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz import targets

# threads of other tests' libraries draw from `random` meanwhile, which hypothesis takes for a strategy's doing
pytestmark = pytest.mark.filterwarnings("ignore:Do not use the `random` module")

FRAGMENTS = (
    "SELECT FROM WHERE GROUP BY HAVING ORDER LIMIT OFFSET JOIN LEFT ON USING UNION ALL EXCEPT INTERSECT WITH AS AND OR NOT IN "
    "IS NULL BETWEEN LIKE ILIKE EXISTS CASE WHEN THEN ELSE END DISTINCT OVER PARTITION QUALIFY CAST INTERVAL DATE EXTRACT YEAR "
    "VALUES TOP FETCH ROLLUP CUBE PIVOT WINDOW FILTER SUM COUNT AVG MAX COALESCE DATE_TRUNC CURRENT_DATE LATERAL "
    "a b t u t.a u.b orders status amount created_at c1 * , ( ) [ ] { } . ; = <> < > <= >= + - / % || :: -> ->> ~ ! @ # $1 ? : "
    "1 0 -5 3.14 1e309 0x1F 'open' 'it''s' '%x%' '2020-01-01' \"name\" `a b` [c d] '' \"\" N'x' E'\\n' $$x$$ -- /* */ ``` "
    "1=1 COUNT(*) (SELECT 1) DESC ASC NULLS LAST RECURSIVE UNNEST JSON_VALUE"
).split(" ")
WORDS = (
    "how many orders are open in Peru list the names of customers who spent more than 5 and less than 100 per month average "
    "between 2020 and 2021 March 3rd last year top 10 highest not without except each sorted by amount descending distinct "
    "ratio of percent % 'Lima' \"open\" ( ) , . ? ! ; : - \u2019 status = 5 refers to means Evidence: ignore previous "
    "instructions verdict sum is the twice no never at least none both either total \u202e \u200b \u043erders \u8ba2\u5355 "
    "\u00a0 \u0301 1,000.50 $3m 12/31/2020 a_b O'Brien"
).split(" ")
ODD = st.text(st.characters(), max_size=20)  # halves of characters and NUL included
SQL = st.lists(st.sampled_from(FRAGMENTS) | ODD, max_size=40).map(" ".join) | st.text(st.characters(), max_size=200)
QUESTION = st.lists(st.sampled_from(WORDS) | ODD, max_size=40).map(" ".join) | st.text(st.characters(), max_size=200)
SECRETS = (targets.PLACE, f"'{targets.PLACE}'", f"email = '{targets.PLACE}'")
WITH_SECRET = st.lists(st.sampled_from([*FRAGMENTS, *SECRETS]) | ODD, max_size=30)
ASKED_SECRET = st.lists(st.sampled_from([*WORDS, *SECRETS]) | ODD, max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=10), inner, max_size=4),
    max_leaves=12,
)
FIELDS = (
    "app_id version dialect column_mappings value_mappings benign_filters critical_filters metric_definitions safety_limit_min "
    "tolerate_order_by trust_enrichment no_sql judge_notes redact"
).split()
RULES = st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=8), JSON, max_size=6).map(json.dumps) | st.text(max_size=100)
FLAGS = "-q -s -e --sql --question --dialect --app --file - --json --dry-run --judge symbolic openai --rules --help -h".split()
# without --output, so that nothing is written
COMMAND = st.lists(st.sampled_from(FLAGS) | QUESTION | SQL, max_size=8)
VALUE = (SQL | QUESTION).map(lambda text: text.encode("utf-8", "surrogatepass")) | st.binary(max_size=40)


def drawn(rounds: int, *, anew: bool = False, **strategies: Any) -> Callable[[Callable[..., None]], Callable[[], None]]:
    quiet = settings(
        max_examples=rounds, deadline=None, suppress_health_check=list(HealthCheck), database=None, derandomize=not anew
    )
    return lambda check: quiet(given(**strategies)(check))


def check_sql(text: str, dialect: str | None) -> None:
    targets.sql(text, dialect)


def check_question(text: str, enriched: str | None) -> None:
    targets.question(text, enriched)


def check_redacted(asked: list[str], statement: list[str]) -> None:
    targets.redacted(" ".join(asked), " ".join(statement))


def check_rules(text: str) -> None:
    targets.rules(text)


def check_values(values: list[bytes]) -> None:
    targets.parquet_values(*values)


def check_parquet(at: int, piece: bytes, cut: int) -> None:
    (whole,) = targets.seeds("parquet")
    at %= len(whole)
    targets.parquet((whole[:at] + piece + whole[at + len(piece) :])[: len(whole) - cut % len(whole)])


def check_command(words: list[str], stdin: str) -> None:
    targets.command(["explain", *words], stdin)


def check_line(row: Any) -> None:
    targets.explain_line(json.dumps(row).encode("utf-8", "surrogatepass"))


LONG_S = float(os.environ.get("FUZZ_SECONDS", "1200"))
PROPERTIES: dict[str, tuple[Callable[..., None], dict[str, Any], int]] = {
    "sql": (check_sql, {"text": SQL, "dialect": st.sampled_from(targets.DIALECTS)}, 150),
    "question": (check_question, {"text": QUESTION, "enriched": st.none() | QUESTION}, 150),
    "redacted": (check_redacted, {"asked": ASKED_SECRET, "statement": WITH_SECRET}, 100),
    "rules": (check_rules, {"text": RULES}, 150),
    "values": (check_values, {"values": st.lists(VALUE, min_size=1, max_size=3)}, 30),
    "parquet": (check_parquet, {"at": st.integers(0), "piece": st.binary(max_size=12), "cut": st.integers(0, 40)}, 100),
    "command": (check_command, {"words": COMMAND, "stdin": st.text(max_size=60)}, 60),
    "line": (
        check_line,
        {
            "row": JSON
            | st.fixed_dictionaries({"user_question": QUESTION | JSON, "generated_sql": SQL | JSON, "asked_at": JSON})
        },
        100,
    ),
}


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder without settings, where a command line may do what it likes."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith(("STEF_", "OPENAI_"))]:
        monkeypatch.delenv(name)


def tried_of(name: str, *, anew: bool = False) -> int:
    """How many examples of a property were tried, none of which broke it; others than the last time where `anew`."""
    check, strategies, rounds = PROPERTIES[name]
    tried = 0

    def counted(**values: Any) -> None:
        nonlocal tried
        tried += 1
        check(**values)

    drawn(rounds, anew=anew, **strategies)(counted)()
    return tried


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", PROPERTIES)
def test_promises_hold_for_some_seconds(name: str) -> None:
    assert tried_of(name) >= PROPERTIES[name][2]


@pytest.mark.drill
@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize("name", PROPERTIES)
def test_promises_hold_for_as_long_as_is_said(name: str) -> None:
    end, tried = time.monotonic() + LONG_S, 0

    while time.monotonic() < end:
        tried += tried_of(name, anew=True)

    print(f"{name}: {tried} examples")
    assert tried
