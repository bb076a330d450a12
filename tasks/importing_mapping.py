"""Which value of a stranger's row is which column of the log: named by a person, or guessed and told. Knows no Prefect."""

from __future__ import annotations

import base64
import datetime as dt
import difflib
import hashlib
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from stef_core.dialects import sqlglot_dialect
from stef_core.errors import InputError, RuleError
from stef_core.frames import OPTIONAL_LOG, QUERY_LOG, compact_json
from tasks import importing_traces as traces
from tasks.importing_files import BadRow, Row
from tasks.importing_paths import look_up, paths_of
from tasks.importing_values import find_sql, parse_json, question_of, read_moment, shown, sql_of, text_of
from tasks.labelled import WORDS

COLUMNS = (*QUERY_LOG, *OPTIONAL_LOG)
CONSTANTS = ("agent_id", "agent_version", "app_id", "dialect")
AGENT = "imported"  # agent_id of rows that name none
FURTHER_OF_TRACES = ("trace_id", "span_name", "model", "session_id")
# names that columns go by, best first, written without case and separators
NAMES: dict[str, tuple[str, ...]] = {
    "generated_sql": (
        "generatedsql", "predictedsql", "predsql", "agentsql", "modelsql", "llmsql", "outputsql", "responsesql", "finalsql",
        "sqlquery", "sql", "generatedquery", "predictedquery", "sqlstatement", "sqltext", "querysql", "prediction", "query",
        "output", "outputs", "answer", "response", "completion", "result",
    ),
    "user_question": (
        "userquestion", "question", "nlquestion", "naturallanguagequestion", "userquery", "nlquery", "naturallanguagequery",
        "userinput", "userprompt", "usermessage", "utterance", "nl", "query", "prompt", "input", "inputs", "request", "message",
        "messages", "text",
    ),
    "enriched_question": (
        "enrichedquestion", "rewrittenquestion", "rephrasedquestion", "reformulatedquestion", "reformulation",
        "standalonequestion", "refinedquestion", "contextualizedquestion", "enrichedquery", "rewrittenquery", "rephrasedquery",
    ),
    "asked_at": (
        "askedat", "timestamp", "createdat", "starttime", "startedat", "datetime", "eventtime", "requesttime", "querytime",
        "loggedat", "created", "asked", "when", "ts", "time", "date", "day", "dt",
    ),
    "query_id": ("queryid", "requestid", "messageid", "runid", "traceid", "spanid", "uuid", "id"),
    "agent_id": ("agentid", "agent", "agentname", "bot", "botid", "botname", "assistant", "assistantid", "assistantname"),
    "agent_version": ("agentversion", "promptversion", "modelversion", "version", "release"),
    "app_id": ("appid", "app", "application", "applicationid", "dbid", "database", "db", "databasename", "dbname"),
    "dialect": ("dialect", "sqldialect", "dbtype", "databasetype", "dbsystem", "engine"),
    "user_feedback": ("userfeedback", "feedback", "thumbs", "thumb", "thumbsup", "ishelpful", "helpful", "liked", "userrating"),
}  # fmt: skip
# names that mean either side: only what stands there tells
_EITHER = frozenset(
    "query output outputs answer response completion result prediction prompt input inputs request message messages text "
    "generatedquery predictedquery".split()
)  # fmt: skip
_GOLD = ("gold", "truth", "reference", "expected", "correct", "label")
_FEEDBACK: dict[str, bool | None] = {
    **WORDS,
    **dict.fromkeys(("up", "thumbs_up", "thumbsup", "thumbs up", "like", "liked", "positive", "helpful", "👍", "+1"), True),
    **dict.fromkeys(
        ("down", "thumbs_down", "thumbsdown", "thumbs down", "dislike", "disliked", "negative", "👎", "-1", "-1.0"), False
    ),
}
_ORDER = (
    "generated_sql", "user_question", "enriched_question", "asked_at", "query_id", "agent_id", "agent_version", "app_id",
    "dialect", "user_feedback",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """Where the values of one column come from; `path` and `constant` are None where they are made."""

    path: str | None = None
    constant: str | None = None
    how: str  # named, guessed, set, made


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnMap:
    """Where each column of the log comes from, and what goes with all rows of a file."""

    columns: Mapping[str, Taken]
    whole: frozenset[str]  # fields that are taken whole, so that they are no further columns
    date: dt.date | None
    time_format: str | None
    further: bool
    of_traces: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One row of the log. `values` has all of `COLUMNS`; `query_id` is None where it is still to be made from `digest`."""

    where: str
    day: dt.date
    values: dict[str, Any]
    further: dict[str, Any]
    digest: str
    remarks: tuple[str, ...] = field(default=())  # zoneless, fence, json, no_sql


class BadValue(Exception):  # noqa: N818  # is caught where it is raised for: it becomes a BadRow
    """A value that its column cannot take."""

    def __init__(self, column: str, reason: str) -> None:
        super().__init__(reason)
        self.column = column


def read_pairs(options: Sequence[str], flag: str, allowed: Sequence[str]) -> dict[str, str]:
    """``COLUMN=WHAT`` options as a dict.

    Raises:
        RuleError: One has another form, or names no column that may stand there.
    """
    pairs: dict[str, str] = {}
    for option in options:
        name, equals, what = option.partition("=")
        name = name.strip()
        if not equals:
            raise RuleError(f"{flag} {option}: write {flag} COLUMN={'VALUE' if flag == '--set' else 'FIELD'}")
        if name not in allowed:
            way = f"; {flag} takes {', '.join(allowed)}"
            raise RuleError(f"{flag} {option}: {name!r} is not one of them{_near(name, allowed)}{way}")
        pairs[name] = what.strip()
    return pairs


def choose(
    file: str,
    sample: Sequence[Mapping[str, Any]],
    *,
    named: Mapping[str, str],
    constants: Mapping[str, str],
    date: dt.date | None,
    time_format: str | None = None,
    further: bool = True,
    of_traces: bool = False,
) -> ColumnMap:
    """Decide where each column comes from.

    Args:
        file: Name of the file, for messages.
        sample: Its first rows.
        named: Path by column, as the user says; an empty one keeps a column from being guessed.
        constants: Value by column.
        date: Day of rows that have none.
        time_format: Form of the moments, of `datetime.strptime`.
        further: Whether fields that are no column go along.
        of_traces: Whether the rows were made by `importing_traces.answers`.

    Raises:
        InputError: A path leads nowhere in the sample, or question, SQL or day are not to be found.
        RuleError: A column is both named and set.
    """
    for name in constants:
        if named.get(name):
            raise RuleError(f"--map {name}={named[name]} and --set {name}={constants[name]}: say only one of them")
    columns = {name: Taken(constant=value, how="set") for name, value in constants.items() if value}
    seen = _Seen(sample)
    for name, path in named.items():
        if path:
            _check_path(file, name, path, sample, seen)
            columns[name] = Taken(path=path, how="named")
    open_ = [name for name in _ORDER if name not in columns and name not in named and not (name == "asked_at" and date)]
    if of_traces:
        for name in (name for name in open_ if name in traces.COLUMNS):
            path = traces.COLUMNS[name]
            if any(record.get(path) is not None for record in sample):
                columns[name] = Taken(path=path, how="guessed")
    else:
        used = {taken.path for taken in columns.values() if taken.path}
        for name in open_:
            found = _guess(name, seen, used)
            if found is not None:
                used.add(found)
                columns[name] = Taken(path=found, how="guessed")
    _check_whole(file, columns, seen, date, of_traces=of_traces)
    if "agent_id" not in columns:
        columns["agent_id"] = Taken(constant=AGENT, how="made")
    whole = frozenset(taken.path for taken in columns.values() if taken.path)
    return ColumnMap(columns=columns, whole=whole, date=date, time_format=time_format, further=further, of_traces=of_traces)


def shape(file: str, row: Row, mapping: ColumnMap) -> LogRow | BadRow:
    """One row of a file as a row of the log, or with the reason why it is none."""
    try:
        return _shape(row, mapping)
    except BadValue as error:
        record = {name: value for name, value in row.record.items() if name != traces.SPANS}
        return BadRow(file=file, where=row.where, column=error.column, reason=str(error), record=record)


def value_at(record: Mapping[str, Any], path: str) -> Any:
    """What stands at a path of a row; in rows of traces also in one of the spans, the answer's own first."""
    found = look_up(record, path)
    if found is None and traces.SPANS in record:
        found = next((value for span in record[traces.SPANS] if (value := look_up(span, path)) is not None), None)
    return found


def _shape(row: Row, mapping: ColumnMap) -> LogRow:
    remarks: list[str] = []
    raw = {name: _raw(row.record, taken) for name, taken in mapping.columns.items()}
    values: dict[str, Any] = dict.fromkeys(COLUMNS)

    def column(name: str) -> str:
        return mapping.columns[name].path or name

    question = question_of(raw["user_question"])
    if question is None or not question.strip():
        raise BadValue(column("user_question"), "holds no question")
    values["user_question"] = question
    values["enriched_question"] = question_of(raw.get("enriched_question"))
    values["generated_sql"], taken_out = sql_of(raw.get("generated_sql"))
    if values["generated_sql"] is None:
        remarks.append("no_sql")
    elif taken_out != "text":
        remarks.append(taken_out)
    for name in ("query_id", "agent_id", "agent_version", "app_id", "dialect"):
        if name in raw:
            values[name] = _plain_text(raw[name], column(name))
    if values["agent_id"] is None:
        raise BadValue(column("agent_id"), "names no agent; name one for all rows with --set agent_id=NAME")
    if "user_feedback" in raw:
        values["user_feedback"] = _feedback(raw["user_feedback"], column("user_feedback"))
    values["asked_at"], zoned = _asked_at(raw.get("asked_at"), mapping)
    if not zoned:
        remarks.append("zoneless")
    for name, value in values.items():
        if isinstance(value, str) and not _encodes(value):
            raise BadValue(column(name), "holds half a character (a lone surrogate), which is no text")
    kept = {"generated_sql"} if taken_out != "text" else set()  # what the SQL was taken out of goes along
    return LogRow(
        where=row.where,
        day=values["asked_at"].date(),
        values=values,
        further=_further(row.record, mapping, kept) if mapping.further else {},
        digest=_digest(values),
        remarks=tuple(remarks),
    )


def _raw(record: Mapping[str, Any], taken: Taken) -> Any:
    if taken.path is None:
        return taken.constant
    value = value_at(record, taken.path)
    return None if isinstance(value, float) and math.isnan(value) else value


def _plain_text(value: Any, column: str) -> str | None:
    if isinstance(value, dict | list):
        raise BadValue(column, f"is {shown(value)}; text is wanted, lead further into it with a dotted path")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # how frames write whole numbers beside gaps
    text = text_of(value)
    return text.strip() or None if text is not None else None


def _feedback(value: Any, column: str) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().casefold()
    if word not in _FEEDBACK:
        raise BadValue(column, f"is {shown(value)}; true or false is wanted, up or down, 1 or 0")
    return _FEEDBACK[word]


def _asked_at(value: Any, mapping: ColumnMap) -> tuple[dt.datetime, bool]:
    taken = mapping.columns.get("asked_at")
    if taken is None or value is None or (isinstance(value, str) and not value.strip()):
        if mapping.date is None:
            raise BadValue((taken.path if taken else None) or "asked_at", "is empty; --date is taken for such rows")
        return dt.datetime.combine(mapping.date, dt.time(), dt.UTC), True
    try:
        return read_moment(value, mapping.time_format)
    except ValueError as error:
        raise BadValue(taken.path or "asked_at", str(error)) from error


def _digest(values: Mapping[str, Any]) -> str:
    """What a row says, as an id: the same row has the same, in whichever file it comes."""
    said = [
        values[name] for name in ("agent_id", "agent_version", "app_id", "user_question", "enriched_question", "generated_sql")
    ]
    text = compact_json([*said, values["asked_at"].isoformat()])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def _further(record: Mapping[str, Any], mapping: ColumnMap, kept: Collection[str]) -> dict[str, Any]:
    if mapping.of_traces:
        fields: Iterable[str] = FURTHER_OF_TRACES
    else:
        keep = {mapping.columns[name].path for name in kept if name in mapping.columns}
        fields = [name for name in record if name not in mapping.whole or name in keep]
    further = {}
    for name in fields:
        value = _portable(record.get(name))
        if value is None:
            continue
        own = f"source_{name}" if name in COLUMNS or name == "dt" else name or "unnamed"
        while own != name and own in record:
            own = f"source_{own}"
        further[own] = value
    return further


def _portable(value: Any) -> Any:
    """A further value as text, number or truth; what is nested as JSON text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, Decimal):
        return str(value)
    text = text_of(value) or ""
    return text if _encodes(text) else text.encode("utf-8", "replace").decode()


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# --- guesses --------------------------------------------------------------------------------------------------------


class _Seen:
    """What stands where in a sample: values by path, in the order in which paths first appear."""

    def __init__(self, sample: Sequence[Mapping[str, Any]]) -> None:
        self.values: dict[str, list[Any]] = {}
        for record in sample:
            for path, value in paths_of({name: inner for name, inner in record.items() if name != traces.SPANS}):
                here = self.values.setdefault(path, [])
                if value is not None and value != "" and not (isinstance(value, float) and math.isnan(value)):
                    here.append(value)


def _guess(column: str, seen: _Seen, used: set[str]) -> str | None:
    best: tuple[int, int, int] | None = None
    found: str | None = None
    for place, (path, values) in enumerate(seen.values.items()):
        if path in used or not values or any(path.startswith(f"{other}.") for other in used if column == "user_question"):
            continue
        depth = path.count(".")
        for name in dict.fromkeys((_plain(path), _plain(path.rpartition(".")[2]))):
            if name in NAMES[column] and _fits(column, name, values):
                rank = (NAMES[column].index(name), depth, place)
                if best is None or rank < best:
                    best, found = rank, path
    if found is None and column == "generated_sql":  # whatever it is called
        for path, values in seen.values.items():
            if path not in used and values and _share_of_sql(values) >= 0.8 and not any(word in _plain(path) for word in _GOLD):
                return path
    if found is None and column == "asked_at":  # the only field that holds dates
        dates = [path for path, values in seen.values.items() if values and all(_is_date(value) for value in values)]
        return dates[0] if len(dates) == 1 and dates[0] not in used else None
    return found


def _fits(column: str, name: str, values: list[Any]) -> bool:
    """Whether what stands there can be that column."""
    if column == "generated_sql":
        # an object that holds the SQL further inside is taken there, where its path says so
        texts = [value for value in values if not isinstance(value, bool | int | float)]
        return len(texts) == len(values) and (name not in _EITHER or _share_of_sql(values) >= 0.5)
    if column == "user_question":
        asked = [text for value in values if (text := question_of(value))]
        if len(asked) < 0.5 * len(values) or any(isinstance(value, int | float) for value in values):
            return False
        return name not in _EITHER or _share_of_sql(values) < 0.2
    if column == "asked_at":
        return sum(_is_moment(value) for value in values) >= 0.5 * len(values)
    if any(isinstance(value, dict | list) or (isinstance(value, str) and parse_json(value) is not None) for value in values):
        return False
    if column == "query_id":
        return len({str(value) for value in values}) == len(values)
    if column == "user_feedback":
        return all(isinstance(value, bool) or str(value).strip().casefold() in _FEEDBACK for value in values)
    if column == "dialect":
        return all(isinstance(value, str) and sqlglot_dialect(value) is not None for value in values)
    return all(isinstance(value, str | int) for value in values)


def _share_of_sql(values: list[Any]) -> float:
    return sum(find_sql(value) is not None for value in values) / len(values)


def _is_moment(value: Any) -> bool:
    try:
        read_moment(value)
    except ValueError as error:
        return "--time-format" in str(error) and "may be read" in str(error)  # a date, only of which form is open
    return True


def _is_date(value: Any) -> bool:
    written = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d", value.strip()) is not None
    return (written or isinstance(value, dt.date)) and _is_moment(value)


def _plain(name: str) -> str:
    return re.sub(r"[\W_]+", "", name.casefold())


def _check_path(file: str, name: str, path: str, sample: Sequence[Mapping[str, Any]], seen: _Seen) -> None:
    if any(value_at(record, path) is not None for record in sample):
        return
    if path in seen.values:
        if name in ("user_question", "agent_id", "asked_at"):
            raise InputError(f"{file}: --map {name}={path}: {path} is empty in the first {len(sample):,} rows")
        return
    lacking = f"none of the first {len(sample):,} rows has {path}{_near(path, seen.values)}"
    raise InputError(f"{file}: --map {name}={path}: {lacking}; {_there(seen)}")


def _check_whole(file: str, columns: Mapping[str, Taken], seen: _Seen, date: dt.date | None, *, of_traces: bool) -> None:
    meant = {"user_question": "the question of the user", "generated_sql": "the SQL of the agent"}
    for name, what in meant.items():
        if name not in columns and not (of_traces and name == "generated_sql"):
            raise InputError(f"{file}: no field looks like {what}; name it with --map {name}=FIELD; {_there(seen)}")
    if "asked_at" not in columns and date is None:
        raise InputError(
            f"{file}: no field looks like the time of the question; name it with --map asked_at=FIELD, or say the day of all"
            f" rows with --date YYYY-MM-DD; {_there(seen)}"
        )


def _there(seen: _Seen) -> str:
    names = [path for path in seen.values if path.count(".") < 3]
    more = f" and {len(names) - 40} more" if len(names) > 40 else ""
    return f"fields there: {', '.join(names[:40])}{more}"


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f" (is {near[0]!r} meant?)" if near else ""


def told(mapping: ColumnMap, sample: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    """The mapping for a person: column, where it comes from, how that was found, and the first value."""
    for name in COLUMNS:
        taken = mapping.columns.get(name)
        if taken is not None and taken.path is not None:
            first = next((value for record in sample if (value := value_at(record, taken.path)) is not None), None)
            yield name, taken.path, taken.how, _first_value(name, first)
        elif taken is not None:
            yield name, "", "set" if taken.how == "set" else "default", taken.constant or ""
        elif name == "query_id":
            yield name, "", "made", "from what the row says"
        elif name == "asked_at" and mapping.date is not None:
            yield name, "", "set", f"{mapping.date}, by --date"


def _first_value(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "generated_sql":
        return sql_of(value)[0] or ""
    return (question_of(value) if name.endswith("question") else text_of(value)) or ""
