"""What conditions let through, and how two of them relate."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stef_core.canonical import conditions_from_json
from stef_core.domains import domain_of, period_of_text, relate
from stef_core.records import Filter

CASES = json.loads((Path(__file__).parents[1] / "golden" / "domains.json").read_text(encoding="utf-8"))


def filters(data: list[dict[str, Any]]) -> list[Filter]:
    return [c for c in conditions_from_json(data) if isinstance(c, Filter)]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["why"].replace(" ", "-"))
def test_relation_matches_golden_case(case: dict[str, Any]) -> None:
    asked, applied = domain_of(filters(case["asked"])), domain_of(filters(case["applied"]))

    relation = relate(asked, applied)

    assert relation == case["relation"]


@pytest.mark.parametrize("text", ["2024-02-30", "2024-13-01", "20241", "soon", "", "12"])
def test_text_that_is_no_date_has_no_period(text: str) -> None:
    assert period_of_text(text) is None


values = st.one_of(st.integers(-1000, 3000), st.text(max_size=12), st.dates().map(str), st.booleans(), st.none())
conditions = st.builds(
    Filter, column=st.just("c"), op=st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "like", "is_null"]), value=values
)


@given(condition=conditions)
def test_every_condition_relates_to_itself_as_equal_or_not_at_all(condition: Filter) -> None:
    domain = domain_of([condition])

    assert relate(domain, domain) in ("equal", "alike", "incomparable")


@example(
    group=[Filter(column="c", op="=", value=0)],
    other=[Filter(column="c", op="<", value=0), Filter(column="c", op="<", value=False)],
)
@example(
    group=[Filter(column="c", op="<", value=3), Filter(column="c", op="<=", value=3)],
    other=[Filter(column="c", op="<", value=3)],
)
@given(group=st.lists(conditions, min_size=1, max_size=4), other=st.lists(conditions, min_size=1, max_size=4))
def test_the_order_of_conjuncts_does_not_change_the_relation(group: list[Filter], other: list[Filter]) -> None:
    forward = relate(domain_of(group), domain_of(other))

    backward = relate(domain_of(group[::-1]), domain_of(other[::-1]))

    assert forward == backward
