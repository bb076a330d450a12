"""Two versions of rules against each other, and against the rows that a warehouse holds."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

from stef_core.bearing import Bearing, RuleChange, diff_rules, touched_by
from stef_core.rules import DEFAULT_RULES, Rules, load_rules, load_rules_dir
from tasks.settings import load_settings
from tasks.warehouse import connect

EXAMPLES = 20
COLUMNS = ("dt", "query_id", "agent_id", "app_id", "bearing")


def read_rules(path: Path) -> dict[str, Rules]:
    """Rules of a file or a folder by `app_id`.

    Raises:
        RuleError: It is absent or wrong.
    """
    if path.is_dir():
        return load_rules_dir(path)
    rules = load_rules(path)
    return {rules.app_id: rules}


def compare_rules(
    old: Path,
    new: Path,
    *,
    warehouse: str | None = None,
    first: dt.date | None = None,
    last: dt.date | None = None,
) -> dict[str, Any]:
    """What differs, and which scored rows that can touch.

    Args:
        old: Rules as they are: a file or a folder.
        new: Rules as they will be. An application that only one of the folders names is held against its default rules.
        warehouse: URL of the warehouse whose rows are counted; none where None.
        first: Count rows from this day on.
        last: Count rows up to this day.

    Returns:
        `applications`: ``{app_id, changes}``; with a warehouse also `rows`, `touched`, `unknown` (rows without a record of what
        bears on them, counted as touched), `agents`: ``{agent_id, rows, touched, examples}`` and `causes`: ``{change, rows}``.

    Raises:
        RuleError: Rules or the warehouse's URL are wrong.
        TransientError: The warehouse cannot be reached.
    """
    before, after = read_rules(old), read_rules(new)
    pairs = {
        app: (before.get(app, before.get("default", DEFAULT_RULES)), after.get(app, after.get("default", DEFAULT_RULES)))
        for app in sorted({*before, *after})
    }
    changes = {app: diff_rules(*pair) for app, pair in pairs.items()}
    found: dict[str, Any] = {
        "applications": [{"app_id": app, "changes": [change.text for change in its]} for app, its in changes.items() if its]
    }
    if warehouse is None:
        return found
    with connect(warehouse, read_only=True, wait_s=load_settings().warehouse_wait_s) as store:
        scores = store.read("query_scores", since=first, until=last, columns=COLUMNS)
    default = pairs.get("default", (DEFAULT_RULES, DEFAULT_RULES))
    rows, touched, unknown = Counter[str](), Counter[str](), 0
    causes: Counter[str] = Counter()
    examples: dict[str, list[str]] = {}
    known: dict[tuple[str, str], list[RuleChange]] = {}
    for row in scores.iter_rows(named=True):
        app = row["app_id"] if row["app_id"] in pairs else "default"
        rows[row["agent_id"]] += 1
        its = changes.get(app, [])
        if not its:
            continue
        if row["bearing"] is None:
            unknown += 1
            by = its
        else:
            key = (app, row["bearing"])
            if key not in known:
                known[key] = touched_by(its, *pairs.get(app, default), Bearing.from_json(row["bearing"]))
            by = known[key]
        if not by:
            continue
        touched[row["agent_id"]] += 1
        causes.update(f"{app}: {change.text}" for change in by)
        shown = examples.setdefault(row["agent_id"], [])
        if len(shown) < EXAMPLES:
            shown.append(f"{row['dt']} {row['query_id']}")
    return found | {
        "rows": rows.total(),
        "touched": touched.total(),
        "unknown": unknown,
        "agents": [
            {"agent_id": agent, "rows": rows[agent], "touched": count, "examples": examples[agent]}
            for agent, count in touched.most_common()
        ],
        "causes": [{"change": change, "rows": count} for change, count in causes.most_common()],
    }
