"""The log as a witness: what the other answers to one application show of its tables, columns and joins; no schema, no label.

A fact (this table owns that column, these columns tie those tables) is witnessed by the questions whose SQL shows it. A row is
held against the witnesses other than its own question, so a mistake cannot vouch for itself however often it is repeated. Facts
of several days add up; of each only the `KEPT` smallest witness hashes are kept, which bounds the table in any order of days.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import polars as pl

from stef_core.frames import LOG_CATALOGUE, compact_json
from stef_core.lexicon import identifier_words, word_similarity
from stef_core.records import AllOf, AnyOf, Condition, QueryRecord, ScalarQuery, SqlSpec, SubQuery
from stef_core.redact import Redaction, redaction
from stef_core.rules import Rules

KEPT = 16  # witnesses kept of a fact; no check needs to count further

VALUES_KEPT = 100_000  # values, and literals, that are kept of a day, and of all days together
_VALUES = ("value", "literal")

# which question shows which fact
SHOWN = pl.Schema({"app_id": pl.String(), "kind": pl.String(), "key": pl.String(), "witness": pl.String()})

# (kind, key): table t | column t.c | name c | edge t.c=t.c | pair t=t | value c=hash | literal hash | compared c |
# operator c op | format c=shape
Fact = tuple[str, str]


NOTHING = Redaction(())


def facts_of(spec: SqlSpec, hidden: Redaction = NOTHING) -> frozenset[Fact]:
    """What one query shows: tables, columns with their owners, join edges, values; nothing that is to be masked."""
    return frozenset(fact for fact in _facts(spec, hidden) if not hidden or hidden.mask(fact[1]) == fact[1])


def _facts(spec: SqlSpec, hidden: Redaction) -> set[Fact]:
    facts: set[Fact] = {("table", t) for t in spec.tables}
    for table, column in spec.columns:
        if table and table in spec.tables:
            facts |= {("column", f"{table}.{column}"), ("name", column)}
    for edge in spec.joins:
        facts |= {
            ("edge", f"{edge.left_table}.{edge.left_column}={edge.right_table}.{edge.right_column}"),
            ("pair", f"{edge.left_table}={edge.right_table}"),
        }
    for column, literal in compared_texts(spec.filters, hidden):
        facts |= {("value", f"{column}={literal}"), ("literal", literal)}
    for column, operator, shape in compared_forms(spec.filters):
        facts |= {("operator", f"{column} {operator}"), ("format", f"{column}={shape}"), ("compared", column)}
    for branch in spec.branches:
        facts |= _facts(branch, hidden)
    return facts


def compared_forms(conditions: Iterable[Condition]) -> Iterator[tuple[str, str, str]]:
    """(column, operator, shape of the literal) of every comparison with literals as they were written."""
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from compared_forms(condition.conditions)
            continue
        if isinstance(condition.value, SubQuery | ScalarQuery):
            yield from compared_forms(condition.value.filters)
        if isinstance(condition.column, str) and condition.op in _COMPARED:
            for raw in condition.raw:
                yield condition.column, condition.op, shape_of(raw)


_COMPARED = frozenset({"=", "!=", "<", "<=", ">", ">=", "in", "not_in", "between"})


def shape_of(literal: str) -> str:
    """How a literal is written: figures with their number where they make a date or a code, a word, a figure, anything else."""
    text = literal.strip()
    if re.fullmatch(r"-?\d+(\.\d+)?", text):
        return "9" * len(text) if text.isdigit() and len(text) in (6, 8) else "number"
    if re.match(r"^\d[\d\-/:. t]*$", text, re.IGNORECASE):
        return re.sub(r"\d", "9", text.casefold())[:19]
    return "word" if text else "empty"


def compared_texts(conditions: Iterable[Condition], hidden: Redaction = NOTHING) -> Iterator[tuple[str, str]]:
    """(column, hash of the text) of every equality with a text; hashed, so that the catalogue holds no value of the log.

    A text that is to be masked is left out: a phone number can be guessed from its hash.
    """
    for condition in conditions:
        if isinstance(condition, AnyOf | AllOf):
            yield from compared_texts(condition.conditions, hidden)
            continue
        if isinstance(condition.value, SubQuery | ScalarQuery):
            yield from compared_texts(condition.value.filters, hidden)
        if condition.op in ("=", "in") and isinstance(condition.column, str):
            for value in condition.value if isinstance(condition.value, tuple) else (condition.value,):
                if isinstance(value, str) and len(value) >= 2 and (not hidden or hidden.mask(value) == value):
                    yield condition.column, _hash(value)


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()


def witness_of(question: str | None) -> str:
    """The name under which a question bears witness: a hash that letter case and spacing do not change."""
    return _hash(" ".join((question or "").casefold().split()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The catalogue as one row may use it: facts of its application, its own question left out."""

    facts: Mapping[Fact, Collection[str]]
    table_words: Mapping[str, frozenset[str]]
    own: str
    names: tuple[str, ...] = ()  # every column name that the log shows
    owning: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # tables that the log shows to own a name
    questions: int = 0  # different questions behind all facts, as far as their witnesses were kept

    def others(self, kind: str, key: str) -> int:
        """How many other questions show a fact, at most `KEPT`."""
        found = self.facts.get((kind, key))
        return len(found) - (self.own in found) if found else 0

    def owners(self, column: str) -> int:
        """How many tables other questions read a column of this name from."""
        return sum(1 for table in self.owning.get(column, ()) if self.others("column", f"{table}.{column}"))

    def tables_named(self, words: Iterable[str]) -> dict[str, str]:
        """Words of a question that name a table which at least three other questions use: {word: table}."""
        named: dict[str, str] = {}
        for word in words:
            for table, parts in self.table_words.items():
                if self.others("table", table) >= 3 and any(word_similarity(word, p) >= 0.85 for p in parts):
                    named.setdefault(word, table)
        return named


@dataclass(frozen=True, slots=True, kw_only=True)
class AppCatalogue:
    """Facts of one application, each with its witnesses."""

    facts: Mapping[Fact, Collection[str]]
    table_words: Mapping[str, frozenset[str]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    owning: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    fingerprint: str = ""
    questions: int = 0


class Catalogue:
    """Facts of all applications, from the days up to one date.

    Args:
        facts: Witnesses by application and fact.
    """

    def __init__(self, facts: Mapping[str, Mapping[Fact, Collection[str]]]) -> None:
        self._apps = {app: _app_catalogue(found) for app, found in facts.items()}

    def witness(self, record: QueryRecord) -> Witness | None:
        """What the log shows to one row; None where nothing is known of its application."""
        app = self._apps.get(record.app_id)
        if app is None:
            return None
        return Witness(
            facts=app.facts,
            table_words=app.table_words,
            own=witness_of(record.user_question),
            names=app.names,
            owning=app.owning,
            questions=app.questions,
        )

    def fingerprint_of(self, app_id: str) -> str | None:
        """Hash of all that is known of an application; a score says which catalogue it saw."""
        app = self._apps.get(app_id)
        return app.fingerprint if app else None

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the whole catalogue."""
        return _digest(f"{app}:{self._apps[app].fingerprint}" for app in sorted(self._apps))


def mine(
    rows: Iterable[tuple[QueryRecord, SqlSpec]], day: dt.date, rules: Callable[[QueryRecord], Rules] | None = None
) -> pl.DataFrame:
    """The facts that one day shows, as rows of LOG_CATALOGUE: `shown_facts` and `log_catalogue` in one call."""
    return log_catalogue([shown_facts(rows, rules).lazy()], day)


def shown_facts(
    rows: Iterable[tuple[QueryRecord, SqlSpec]], rules: Callable[[QueryRecord], Rules] | None = None
) -> pl.DataFrame:
    """Which question shows which fact, as a frame of `SHOWN` without repeats.

    Args:
        rows: Any rows of a day with their specifications; rows that could not be read show nothing.
        rules: The rules of a row, which say what may not be stored; everything may where None.
    """
    found: dict[tuple[str, str, str, str], None] = {}
    for record, spec in rows:
        if spec.parse_status not in ("ok", "other_dialect", "repaired"):
            continue
        witness = witness_of(record.user_question)
        hidden = redaction(rules(record), spec, record=record) if rules is not None else NOTHING
        for kind, key in facts_of(spec, hidden):
            found[(record.app_id, kind, key, witness)] = None
    return pl.DataFrame(list(found), schema=SHOWN, orient="row")


def log_catalogue(shown: Iterable[pl.LazyFrame], day: dt.date) -> pl.DataFrame:
    """The facts of a day with their witnesses, as rows of LOG_CATALOGUE.

    Args:
        shown: Frames of `SHOWN`, which may repeat rows within and between them; a fact stands in one of these frames only.
        day: The day.
    """
    key = ["app_id", "kind", "key"]
    parts = [
        part.group_by(key)
        .agg(
            pl.col("witness").n_unique().alias("questions"),
            pl.col("witness").unique().sort().head(KEPT).alias("witnesses"),
        )
        .collect(engine="streaming")
        for part in shown
    ]
    facts = _most_shown(pl.concat(parts)).sort(key)
    witnesses = [compact_json(names) for names in facts["witnesses"].to_list()]
    return (
        facts.with_columns(pl.lit(day).alias("dt"), pl.Series("witnesses", witnesses, dtype=pl.String))
        .select(list(LOG_CATALOGUE))
        .cast(LOG_CATALOGUE)
    )


def _most_shown(facts: pl.DataFrame) -> pl.DataFrame:
    """Of values, and of literals, the `VALUES_KEPT` that most questions show: any row may bring new ones.

    Each application keeps as many as the others, or all that it has.
    """
    ordered = facts.sort(["questions", "app_id", "kind", "key"], descending=[True, False, False, False])
    placed = ordered.with_columns(pl.int_range(pl.len()).over("app_id", "kind").alias("place"))
    beyond = placed.sort("place", "app_id", "kind").with_columns(pl.int_range(pl.len()).over("kind").alias("rank"))
    return beyond.filter(~pl.col("kind").is_in(_VALUES) | (pl.col("rank") < VALUES_KEPT)).drop("place", "rank")


def catalogue_of(frame: pl.DataFrame) -> Catalogue:
    """The catalogue that some days make together.

    Args:
        frame: Rows of LOG_CATALOGUE of any days, in any order.
    """
    key = ["app_id", "kind", "key"]
    total = frame.lazy().group_by(key).agg(pl.col("questions").sum()).collect(engine="streaming")
    if _has_many(total):
        frame = frame.join(_most_shown(total).select(key), on=key, how="semi")
    facts: dict[str, dict[Fact, tuple[str, ...]]] = {}
    same: dict[tuple[str, ...], tuple[str, ...]] = {}  # most facts are shown by one question, which shows several
    for app, kind, name, witnesses in frame.select(*key, "witnesses").iter_rows():
        known, fact = facts.setdefault(app, {}), (kind, name)
        names = json.loads(witnesses)
        if fact in known:
            names = sorted({*known[fact], *names})
        kept = tuple(names[:KEPT])
        known[fact] = same.setdefault(kept, kept)
    return Catalogue(facts)


def _has_many(facts: pl.DataFrame) -> bool:
    counts = facts.filter(pl.col("kind").is_in(_VALUES)).group_by("kind").len()["len"]
    return max(counts.to_list(), default=0) > VALUES_KEPT


def _app_catalogue(facts: Mapping[Fact, Collection[str]]) -> AppCatalogue:
    words = {key: frozenset(identifier_words(key)) for kind, key in facts if kind == "table"}
    asked = frozenset().union(*facts.values()) if facts else frozenset()
    names = tuple(sorted(key for kind, key in facts if kind == "name"))
    owning: dict[str, tuple[str, ...]] = {}
    for kind, key in sorted(facts):
        if kind == "column":
            table, _, name = key.rpartition(".")
            owning[name] = (*owning.get(name, ()), table)
    return AppCatalogue(
        facts=facts,
        table_words=words,
        names=names,
        owning=owning,
        fingerprint=_digest(_lines(facts)),
        questions=len(asked),
    )


def _lines(facts: Mapping[Fact, Collection[str]]) -> Iterator[str]:
    for kind, key in sorted(facts):
        yield f"{kind}:{key}:{','.join(sorted(facts[(kind, key)]))}"


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).hexdigest()[:16]
