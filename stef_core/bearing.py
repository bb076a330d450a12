"""Which rules bear on a row: what it names, kept beside its score, tells later whom a change of rules touches.

Source: method.md section 9 (the content hash of the rules that bear on a row is stored with its score).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from stef_core.records import AllOf, AnyOf, Condition, DatePart, DateTrunc, Filter, QueryRecord, Reading
from stef_core.rules import DEFAULT_RULES, Rules

# fields whose entries bear one by one, by the column or word they name
ENTRIES = ("column_mappings", "value_mappings", "benign_filters", "critical_filters", "metric_definitions", "redact")
# fields that bear on a row as a whole: on all rows where None, else on those that have what is named
WHOLE: Mapping[str, str | None] = {
    "dialect": None,
    "judge_notes": None,
    "safety_limit_min": "limit",
    "tolerate_order_by": "order_by",
    "trust_enrichment": "enriched",
    "no_sql": "no_sql",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearing:
    """What of a row rules can bear on: names of columns, lemmas of its texts (lower-case), and what else it has."""

    columns: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    has: frozenset[str] = frozenset()  # limit order_by enriched no_sql

    def rules(self, rules: Rules) -> Rules:
        """The part of the rules that can bear on the row; only it reaches a prompt, and its hash is stored with the score."""
        unused = {name: getattr(DEFAULT_RULES, name) for name, needs in WHOLE.items() if needs and needs not in self.has}
        # whose rules these are changes no score
        return rules.bearing_on(self.columns, self.words).changed(unused | {"app_id": DEFAULT_RULES.app_id})

    def to_json(self) -> dict[str, list[str]]:
        """As it is stored."""
        return {"columns": sorted(self.columns), "words": sorted(self.words), "has": sorted(self.has)}

    @classmethod
    def from_json(cls, text: str) -> Bearing:
        """What `to_json` gave, as text."""
        data = json.loads(text)
        return cls(columns=frozenset(data["columns"]), words=frozenset(data["words"]), has=frozenset(data["has"]))


def bearing_of(reading: Reading) -> Bearing:
    """What of a row rules can bear on, from both sides of it."""
    sql, specs = reading.sql, [spec for spec in (reading.question, reading.enriched) if spec is not None]
    columns = {name for _, name in sql.columns}
    for condition in (condition for spec in specs for condition in spec.filters):
        columns |= set(_columns_of(condition))
    return Bearing(
        columns=frozenset(columns),
        words=frozenset().union(*(spec.mentions.lemmas for spec in specs)),
        has=_has(reading),
    )


def _has(reading: Reading) -> frozenset[str]:
    sql = reading.sql
    has = {
        "limit": sql.limit is not None,
        "order_by": bool(sql.order_by),
        "enriched": reading.enriched is not None,
        "no_sql": sql.parse_status == "no_sql",
    }
    return frozenset(name for name, there in has.items() if there)


def bearing_rules(rules: Rules, reading: Reading) -> Rules:
    """The part of the rules that can bear on a row."""
    return bearing_of(reading).rules(rules)


def bearing_hash(rules: Rules, reading: Reading) -> str:
    """Content hash of the part of the rules that can bear on a row."""
    if any(getattr(rules, name) for name in ENTRIES):
        return bearing_rules(rules, reading).content_hash
    has = _has(reading)  # without entries nothing else tells rows apart
    known = rules.bearing_hashes.get(has)
    if known is None:
        known = rules.bearing_hashes[has] = bearing_rules(rules, reading).content_hash
    return known


def input_hash(record: QueryRecord) -> str:
    """SHA-256 over what is scored of a row, first 16 hex digits: another one means that the row must be scored anew."""
    texts = (record.user_question, record.enriched_question, record.generated_sql, record.extra)
    text = json.dumps((record.query_id, record.app_id, *texts, record.dialect), ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


# --- two versions of rules -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """One entry, or one field as a whole, that differs between two versions of an application's rules."""

    field: str
    name: str  # of the entry: its column or word; empty for a field as a whole
    old: Any  # None: not there
    new: Any

    @property
    def text(self) -> str:
        """The change in one line."""
        where = f"{self.field}: {self.name}" if self.name else self.field
        if self.old is None:
            return f"{where}: added {_shown(self.new)}"
        if self.new is None:
            return f"{where}: removed {_shown(self.old)}"
        return f"{where}: {_shown(self.old)} → {_shown(self.new)}"


def diff_rules(old: Rules, new: Rules) -> list[RuleChange]:
    """What differs between two versions of rules, field by field and entry by entry; the version for people takes no part."""
    changes = []
    for name in WHOLE:
        before, after = getattr(old, name), getattr(new, name)
        if before != after:
            changes.append(RuleChange(field=name, name="", old=before, new=after))
    for name in ENTRIES:
        entries = [_entries(rules, name) for rules in (old, new)]
        for key in dict.fromkeys([*entries[0], *entries[1]]):
            before, after = entries[0].get(key), entries[1].get(key)
            if before != after:
                changes.append(RuleChange(field=name, name=key[0], old=before, new=after))
    return changes


def touched_by(changes: list[RuleChange], old: Rules, new: Rules, bearing: Bearing) -> list[RuleChange]:
    """Those of the changes that can change the result of a row; none where its bearing rules stay as they are."""
    before, after = bearing.rules(old), bearing.rules(new)
    if before.content_hash == after.content_hash:
        return []
    there = {(change.field, change.name) for change in diff_rules(before, after)}
    return [change for change in changes if (change.field, change.name) in there]


def _entries(rules: Rules, field: str) -> dict[tuple[str, str], Any]:
    value = rules.model_dump(mode="json")[field]
    if isinstance(value, dict):
        return {(name, ""): entry for name, entry in value.items()}
    named = [(_name(entry), entry) for entry in value]
    # entries of a list stand for themselves: another value is one entry less and one more
    return {(name, json.dumps(entry, sort_keys=True)): entry for name, entry in named}


def _name(entry: Any) -> str:
    if not isinstance(entry, dict):
        return str(entry)
    return str(entry.get("column") or entry.get("name") or entry.get("kind") or entry.get("pattern") or "")


def _shown(value: Any) -> str:
    if isinstance(value, dict) and {"column", "op"} <= set(value):
        return f"{value['column']} {value['op']} {json.dumps(value.get('value'), ensure_ascii=False)}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _columns_of(condition: Condition) -> Iterator[str]:
    if isinstance(condition, AnyOf | AllOf):
        for inner in condition.conditions:
            yield from _columns_of(inner)
    elif isinstance(condition, Filter) and condition.column is not None:
        column = condition.column
        yield column.column if isinstance(column, DatePart | DateTrunc) else column
