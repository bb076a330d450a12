"""Application rules R_app: what an application's SQL may do without blame. One JSON file each, validated on load.

Source: method.md sections 2, 3, 7 and 9.
"""

from __future__ import annotations

import fnmatch
import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, ValidationInfo, field_validator

from stef_core.errors import RuleError

Op = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not_in", "like", "is_null", "is_not_null"]
Literal_ = str | int | float | bool | None


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class BenignFilter(_Strict):
    """A filter that this application's SQL may carry without being asked for."""

    column: str = Field(min_length=1, description="Column name; * matches any run of characters.")
    op: Op = Field(description="Comparison; it binds.")
    value: Literal_ | list[Literal_] = Field(default="*", description='The value; "*" is any one constant or parameter.')


class MetricDefinition(_Strict):
    """What a word of the business means: ``{"revenue": {"func": "sum", "column": "amount"}}``."""

    func: str = Field(min_length=1, description="Aggregate function, lower-case.")
    column: str = Field(min_length=1, description="Its column, or *.")


class RedactKind(_Strict):
    """Values of one kind, wherever they stand in a row: ``{"kind": "phone", "region": ["DE", "AT"]}``."""

    kind: Literal["email", "phone", "card", "iban", "national_id"] = Field(description="What is masked.")
    region: str | tuple[str, ...] | None = Field(
        default=None,
        validate_default=True,
        description="ISO 3166 code, or several: whose national ids, or where a phone number without country code is from.",
    )

    @field_validator("region")
    @classmethod
    def _known_region(cls, value: str | tuple[str, ...] | None, info: ValidationInfo) -> str | tuple[str, ...] | None:
        kind = info.data.get("kind")
        regions = (value,) if isinstance(value, str) else value or ()
        if kind == "national_id":
            from stef_core.sensitive import NATIONAL_IDS

            if not regions or not set(regions) <= set(NATIONAL_IDS):
                raise ValueError(f"names the countries whose ids are meant: use some of {' '.join(sorted(NATIONAL_IDS))}")
        elif kind == "phone":
            from phonenumbers import SUPPORTED_REGIONS  # paid for where a rule asks

            if not set(regions) <= set(SUPPORTED_REGIONS):
                raise ValueError("names a country that no phone number is from; write its ISO 3166 code in capitals, e.g. DE")
        elif regions and kind is not None:
            raise ValueError("goes with phone and national_id alone")
        return value

    @property
    def regions(self) -> tuple[str, ...]:
        """Its regions as a list."""
        return (self.region,) if isinstance(self.region, str) else self.region or ()


class RedactPattern(_Strict):
    """Values of an own form, wherever they stand in a row: ``{"pattern": "K-\\d{6}", "name": "customer_no"}``."""

    pattern: str = Field(min_length=1, description="Regular expression in RE2's syntax; the case of letters does not count.")
    name: str = Field(min_length=1, description="What it stands for.")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        from stef_core.sensitive import compile_pattern

        compile_pattern(value)
        return value


def _entry_tag(entry: Any) -> str | None:
    """Which form an entry of `redact` has."""
    if isinstance(entry, str):
        return "column"
    if isinstance(entry, RedactKind) or (isinstance(entry, dict) and "kind" in entry):
        return "kind"
    return "pattern" if isinstance(entry, RedactPattern) or (isinstance(entry, dict) and "pattern" in entry) else None


_ENTRIES: dict[str, type[BaseModel]] = {"kind": RedactKind, "pattern": RedactPattern}
RedactEntry: TypeAlias = str | RedactKind | RedactPattern
_AnyEntry: TypeAlias = Annotated[
    Annotated[str, Tag("column")] | Annotated[RedactKind, Tag("kind")] | Annotated[RedactPattern, Tag("pattern")],
    Discriminator(
        _entry_tag,
        custom_error_type="redact_entry",
        custom_error_message='must be the name of a column, {"kind": …} or {"pattern": …, "name": …}',
    ),
]


class Rules(_Strict):
    """R_app of one application (method.md section 9)."""

    app_id: str = Field(default="default", min_length=1, description="Application these rules belong to.")
    version: str = Field(default="0", description="Version for people; the content hash decides.")
    dialect: str | None = Field(default=None, description="sqlglot dialect where a row names none.")
    column_mappings: dict[str, str] = Field(default={}, description="name: other name; symmetric and transitive.")
    value_mappings: dict[str, dict[str, Literal_]] = Field(default={}, description="column: {word: value}.")
    benign_filters: list[BenignFilter] = Field(default=[], description="Filters that may be there unasked.")
    critical_filters: list[str] = Field(default=[], description="Columns whose missing filter means not_applied.")
    metric_definitions: dict[str, MetricDefinition] = Field(default={}, description="word: what it computes.")
    safety_limit_min: int = Field(default=1000, ge=1, description="λ_min: from here on a LIMIT is a safety limit.")
    tolerate_order_by: bool = Field(default=True, description="Accept a default order that nobody asked for.")
    trust_enrichment: bool = Field(default=False, description="Filters that only the reformulation adds are required.")
    no_sql: Literal["score", "exclude"] = Field(default="score", description="exclude: a missing SQL is unscored (declined).")
    redact: list[_AnyEntry] = Field(
        default=[],
        description="What is neither stored nor sent to a model: literals of columns (globs), kinds of values, own patterns.",
    )
    judge_notes: list[str] = Field(default=[], description="Sentences handed to the LLM judge.")

    @field_validator("dialect")
    @classmethod
    def _known_dialect(cls, value: str | None) -> str | None:
        if value is None:
            return None
        from stef_core.dialects import known_dialects, sqlglot_dialect

        if sqlglot_dialect(value) is None:
            raise ValueError(f"is {value!r}; use one of {' '.join(known_dialects())}")
        return value

    @property
    def redacted_columns(self) -> tuple[str, ...]:
        """The globs of `redact`."""
        return tuple(entry for entry in self.redact if isinstance(entry, str))

    @property
    def redacted_values(self) -> tuple[RedactKind | RedactPattern, ...]:
        """The kinds and patterns of `redact`."""
        return tuple(entry for entry in self.redact if not isinstance(entry, str))

    @cached_property
    def canonical(self) -> str:
        """The rules as canonical JSON; the human version string takes no part."""
        return json.dumps(self.model_dump(exclude={"version"}), sort_keys=True, ensure_ascii=False, separators=(",", ":"))

    @cached_property
    def content_hash(self) -> str:
        """SHA-256 of `canonical`, first 16 hex digits."""
        return hashlib.sha256(self.canonical.encode()).hexdigest()[:16]

    @cached_property
    def bearing_hashes(self) -> dict[frozenset[str], str]:
        """What `stef_core.bearing.bearing_hash` found, by what rows have; at most one for each set of four things."""
        return {}

    @cached_property
    def _synonyms(self) -> dict[str, str]:
        parent: dict[str, str] = {}

        def root(name: str) -> str:
            while parent.setdefault(name, name) != name:
                name = parent[name]
            return name

        for left, right in self.column_mappings.items():
            a, b = sorted((root(left.casefold()), root(right.casefold())))
            parent[b] = a
        return {name: root(name) for name in parent}

    def same_column(self, left: str, right: str) -> bool:
        """Whether two names stand for one column under the mappings (symmetric, transitive)."""
        return self.representative(left) == self.representative(right)

    def representative(self, name: str) -> str:
        """One name for all that are mapped onto each other."""
        return self._synonyms.get(name.casefold(), name.casefold())

    def aliases(self, name: str) -> frozenset[str]:
        """All names that the mappings hold equal to this one, itself included."""
        root = self.representative(name)
        return frozenset({name.casefold(), *(n for n, r in self._synonyms.items() if r == root)})

    def mapped_value(self, column: str | None, word: Any) -> Any:
        """The value that a word stands for in a column; the word itself where nothing is mapped."""
        if not isinstance(word, str):
            return word
        for name, values in self.value_mappings.items():
            if column is None or self.same_column(name, column):
                for key, value in values.items():
                    if key.casefold() == word.casefold():
                        return value
        return word

    def changed(self, fields: Mapping[str, Any]) -> Rules:
        """These rules with other values of some fields, taken as they come."""
        # model_copy would take the cached hash of these rules along
        return Rules.model_construct(**{name: getattr(self, name) for name in Rules.model_fields} | dict(fields))

    def bearing_on(self, columns: frozenset[str], words: frozenset[str]) -> Rules:
        """The part of these rules that can bear on a row with these SQL columns and question lemmas (both lower-case).

        Mappings, definitions and filters whose column or word is nowhere in the row cannot change its score, so they are
        left out: the hash of what remains says which rows a change of rules touches.
        """

        def named(name: str) -> bool:
            return any(any(fnmatch.fnmatchcase(c, n) for c in columns) or _words(n) & words for n in self.aliases(name))

        return self.changed(
            {
                "column_mappings": {a: b for a, b in self.column_mappings.items() if named(a) or named(b)},
                "value_mappings": {
                    c: v for c, v in self.value_mappings.items() if named(c) or any(_words(w) & words for w in v)
                },
                "benign_filters": [f for f in self.benign_filters if named(f.column)],
                "critical_filters": [c for c in self.critical_filters if named(c)],
                "metric_definitions": {
                    w: m for w, m in self.metric_definitions.items() if _words(w) & words or named(m.column)
                },
                "redact": [e for e in self.redact if not isinstance(e, str) or named(e)],  # a value may stand anywhere
            }
        )


DEFAULT_RULES = Rules()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.casefold().replace("_", " ").split())


def parse_rules(text: str, source: str) -> Rules:
    """Validate the JSON text of one rules file.

    Args:
        text: JSON.
        source: Name of the file, for messages.

    Raises:
        RuleError: Not JSON, an unknown key, or a value of the wrong form; the message names the file and the path inside.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise RuleError(f"{source}: line {error.lineno}: not JSON: {error.msg}") from error
    if not isinstance(data, dict):
        raise RuleError(f"{source}: a rules file holds one JSON object, not {type(data).__name__}")
    data.pop("$schema", None)
    try:
        return Rules.model_validate(data)
    except ValidationError as error:
        raise RuleError("\n".join(_sentence(source, e) for e in error.errors())) from error


def load_rules(path: str | Path) -> Rules:
    """Read and validate one rules file.

    Raises:
        RuleError: The file cannot be read or is wrong.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RuleError(f"{path}: cannot be read: {error}") from error
    return parse_rules(text, str(path))


def load_rules_dir(path: str | Path) -> dict[str, Rules]:
    """Read every ``*.json`` of a folder (the published schema aside), keyed by `app_id`; ``default`` is always there.

    Raises:
        RuleError: The folder is absent, a file is wrong, or two files claim one application.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise RuleError(f"{folder}: no such folder of rules; set STEF_RULES or --rules to one")
    found: dict[str, Rules] = {}
    origin: dict[str, Path] = {}
    for file in sorted(folder.glob("*.json")):
        if file.name == "rules.schema.json":
            continue
        rules = load_rules(file)
        if rules.app_id in found:
            raise RuleError(f"{file}: app_id {rules.app_id!r} is claimed by {origin[rules.app_id]} too")
        found[rules.app_id], origin[rules.app_id] = rules, file
    found.setdefault("default", DEFAULT_RULES)
    return found


def rules_version(rules: dict[str, Rules]) -> str:
    """One version for a set of rules: the hash of all content hashes."""
    joined = "\n".join(f"{app}:{rules[app].content_hash}" for app in sorted(rules))
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def rules_schema() -> dict[str, Any]:
    """The JSON Schema of a rules file, published as ``rules/rules.schema.json``."""
    schema = Rules.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "STEF application rules (R_app)"
    schema["properties"]["$schema"] = {"type": "string"}
    return schema


def _sentence(source: str, error: Any) -> str:
    where = ""
    loc = error["loc"]
    if loc[0] == "redact":  # the form of an entry is no part of its path
        loc = tuple(part for n, part in enumerate(loc) if n != 2)
    for part in loc:
        where += f"[{part}]" if isinstance(part, int) else f".{part}" if where else str(part)
    if error["type"] == "extra_forbidden":
        known = ", ".join(_keys_at(error["loc"][:-1]))
        return f"{source}: {where}: unknown key; known keys: {known}"
    message = error["msg"].removeprefix("Value error, ")
    return f"{source}: {where}: {message[0].lower() + message[1:]} (got {error['input']!r:.60})"


def _keys_at(loc: tuple[Any, ...]) -> list[str]:
    model: type[BaseModel] = Rules
    if loc and loc[0] == "redact":
        model = _ENTRIES[loc[2]]
    elif loc and loc[0] == "benign_filters":
        model = BenignFilter
    elif loc and loc[0] == "metric_definitions":
        model = MetricDefinition
    return list(model.model_fields)
