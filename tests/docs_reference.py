"""The pages of docs/reference/, made from the code: commands, settings, tables, Python names, reasons of unscored rows."""

from __future__ import annotations

import inspect
import re
import tempfile
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

import duckdb
import typer
from annotated_types import Ge, Gt, Le, Lt
from pydantic.fields import FieldInfo

import stef_core
from flows import cli
from stef_core.backfill import MENDABLE
from stef_core.llm import Reason
from tasks.settings import FALLBACKS, PREFIX, SECRETS, Settings
from tasks.warehouse import connect
from tasks.warehouse.sql import comments

EXIT_CODES = {
    cli.DONE: "done",
    cli.GATE_FAILED: "a gate failed; nothing of that day was published",
    cli.BAD_INPUT: "bad input or settings",
    cli.UNREACHED: "the endpoint or the warehouse could not be reached",
    cli.CRASHED: "a fault of STEF itself",
    cli.INTERRUPTED: "interrupted; the same command goes on",
}

# what `query_scores.reason` may say; those of a model's answer go by `Reason`
OWN_REASONS = {
    "question_missing": ("The log has no question in this row.", "mend the log"),
    "sql_unparseable": ("No dialect reads the SQL, yet it looks like a query.", "name the `dialect` in the log or the rules"),
    "declined": ("There is no SQL, and the rules say `no_sql: exclude`.", "nothing: the rules ask for it"),
    "evaluator_error": ("This code failed on the row.", "report it with the message in `verdict_reasons`"),
}
MODEL_REASONS: Mapping[str, tuple[str, str]] = {
    "judge_unavailable": ("No usable response after all attempts.", "score the day again when the endpoint is back"),
    "judge_refused": ("The model, or a content filter before it, declined.", "ask another model"),
    "judge_truncated": ("The answer was cut off at its limit of tokens.", "ask another model"),
    "judge_empty": ("The response held no text.", "score the day again"),
    "judge_invalid": ("The answer was outside its schema, also after one request to mend it.", "ask another model"),
    "judge_rejected": (
        "The endpoint refuses the request as such: 400, 401, 404 …",
        "read the message; mend key, address or model",
    ),
    "budget_exhausted": ("The run may spend no more; the request was not sent.", "score the day again, or raise `STEF_MAX_…`"),
}


def made(title: str, text: str, source: str) -> list[str]:
    """The head of a page that is made."""
    told = textwrap.wrap(text, 128, break_on_hyphens=False)
    return [f"# {title}", "", *told, "", f"Made from {source} by `make docs`."]


def cell(text: object) -> str:
    """Text that may stand in a cell of a table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


# --- commands -------------------------------------------------------------------------------------------------------


def commands(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command with its name, those of groups included, in the order of ``stef --help``."""
    found = group if group is not None else typer.main.get_command(cli.app)
    if not hasattr(found, "commands"):
        yield " ".join(path), found
        return
    for name, inner in found.commands.items():
        yield from commands(inner, (*path, name))


def cli_page() -> str:
    """``docs/reference/cli.md``: every command with its arguments, options and defaults."""
    lines = made(
        "Commands",
        "What `stef … --help` says, on one page. An option that shares its name with a [setting](settings.md), such as "
        "`--warehouse`, goes before that setting, and its default is the setting's.",
        "`flows/cli.py`",
    )
    lines += ["", "Before a command may stand:", "", *_options(typer.main.get_command(cli.app))]
    lines += ["", "| exit code | meaning |", "|---|---|", *(f"| {code} | {text} |" for code, text in EXIT_CODES.items())]
    for name, command in commands():
        lines += ["", f"## stef {name}", "", " ".join((command.help or "").split())]
        if command.params:
            lines += ["", *_options(command)]
    return "\n".join(lines) + "\n"


def _options(command: Any) -> list[str]:
    return [
        "| option | value | default | what |",
        "|---|---|---|---|",
        *(f"| {_spelled(p)} | {_value(p)} | {_default(p)} | {cell(p.help or '')} |" for p in command.params if not p.hidden),
    ]


def _is_option(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "option")


def _spelled(parameter: Any) -> str:
    if not _is_option(parameter):
        return f"`{cell(parameter.metavar or parameter.name.upper())}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _value(parameter: Any) -> str:
    if not _is_option(parameter):
        return "needed" if parameter.required else ""
    if parameter.is_flag:
        return ""
    annotation = parameter.type_descriptor.annotation
    inner = get_args(annotation)[0] if get_args(annotation) else annotation
    shown = parameter.metavar or {"str": "text", "Path": "path", "int": "number", "float": "number"}[inner.__name__]
    return f"{cell(shown)}, repeated" if parameter.multiple else cell(shown)


def _default(parameter: Any) -> str:
    if parameter.required:
        return "needed" if _is_option(parameter) else ""
    if parameter.is_flag and parameter.secondary_opts and parameter.default is not None:
        return f"`{(parameter.opts if parameter.default else parameter.secondary_opts)[0]}`"
    if parameter.default is None or parameter.default is False or parameter.default in ((), []):
        return ""
    return f"`{cell(parameter.default)}`"


# --- settings -------------------------------------------------------------------------------------------------------


def settings_page() -> str:
    """``docs/reference/settings.md``: every setting with its form and default."""
    lines = made(
        "Settings",
        "Flag > environment (`STEF_*`) > `stef.toml` > default. A key of `stef.toml` is the name without `STEF_`, in small "
        "letters: `coverage_min = 0.9`. Secrets come from the environment only. `STEF_CONFIG` names another settings file, "
        "`STEF_DEBUG=1` shows tracebacks and Prefect's log.",
        "`tasks/settings.py`",
    )
    lines += ["", "| setting | form | default | what |", "|---|---|---|---|"]
    for name, field in Settings.model_fields.items():
        what = field.description or ""
        if name in FALLBACKS:
            what += f" `{FALLBACKS[name]}` where it is unset."
        lines.append(f"| `{PREFIX}{name.upper()}` | {_form(name, field)} | {default_of(name, field)} | {cell(what)} |")
    return "\n".join(lines) + "\n"


def _form(name: str, field: FieldInfo) -> str:
    if name in SECRETS:
        return "secret"
    inner = [part for part in get_args(field.annotation) or (field.annotation,) if part is not type(None)]
    if all(isinstance(part, str) for part in inner):
        return " or ".join(f"`{part}`" for part in inner)
    if isinstance(field.default, dict):
        return "table, or JSON"
    (kind,) = inner
    shown = {"str": "text", "Path": "path", "int": "whole number", "float": "number", "bool": "`true` or `false`"}[
        kind.__name__
    ]
    bounds = [bound for bound in field.metadata if isinstance(bound, Ge | Gt | Le | Lt)]
    return ", ".join([shown, *map(_bound, bounds)])


def _bound(bound: Ge | Gt | Le | Lt) -> str:
    match bound:
        case Ge(ge=value):
            return f"from {value}"
        case Gt(gt=value):
            return f"above {value}"
        case Le(le=value):
            return f"to {value}"
        case Lt(lt=value):
            return f"below {value}"


def default_of(name: str, field: FieldInfo) -> str:
    """A setting's default as the documentation writes it; empty where there is none."""
    if field.default is None or name in SECRETS:
        return ""
    value = str(field.default).lower() if isinstance(field.default, bool) else str(field.default)
    return f"`{value.removesuffix('.0')}`"


# --- tables ---------------------------------------------------------------------------------------------------------


def tables_page() -> str:
    """``docs/reference/tables.md``: every table and view of the warehouse, with the type and meaning of each column."""
    types = column_types()
    lines = made(
        "Tables of the warehouse",
        "The database says the same of each table and column (`COMMENT ON`). Types are DuckDB's; PostgreSQL has `text` for "
        "`VARCHAR` and `double precision` for `DOUBLE`. Those that begin with `staging.` are not for BI; in PostgreSQL they "
        "lie in `stef_staging`. [bi.md](../bi.md) answers ten questions with these tables.",
        "`tasks/warehouse/comments.toml` and the migrations",
    )
    for kind, is_view in (("Tables", False), ("Views", True)):
        lines += ["", f"## {kind}"]
        for name, columns in comments().items():
            if name.startswith("v_") == is_view:
                lines += ["", f"### {name}", "", columns["table"], "", "| column | type | what |", "|---|---|---|"]
                what = {column: text for column, text in columns.items() if column != "table"}
                lines += [f"| `{column}` | {types[name][column]} | {cell(text)} |" for column, text in what.items()]
    return "\n".join(lines) + "\n"


def column_types() -> dict[str, dict[str, str]]:
    """Types of the columns of a new DuckDB warehouse, by table or view."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "w.duckdb"
        with connect(f"duckdb:///{file}") as store:
            store.migrate()
        with duckdb.connect(file, read_only=True) as connection:
            rows = connection.execute(
                "SELECT table_schema, table_name, column_name, data_type FROM information_schema.columns"
            ).fetchall()
    found: dict[str, dict[str, str]] = {}
    for schema, table, column, kind in rows:
        found.setdefault(table if schema == "main" else f"{schema}.{table}", {})[column] = kind
    return found


# --- Python ---------------------------------------------------------------------------------------------------------


def python_page() -> str:
    """``docs/reference/python.md``: the public names of `stef_core` with signature and first line of the docstring."""
    lines = made(
        "From Python",
        "The public names of `stef_core`. They are pure: no clock, no environment, no network of their own, no state. All "
        "arguments of the records go by name; records are frozen.",
        "`stef_core/__init__.py`",
    )
    public = {name: getattr(stef_core, name) for name in stef_core.__all__}
    errors = {name for name, thing in public.items() if isinstance(thing, type) and issubclass(thing, Exception)}
    for title, names in (
        ("Functions", [name for name, thing in public.items() if inspect.isfunction(thing)]),
        ("Records", [name for name, thing in public.items() if isinstance(thing, type) and name not in errors]),
        ("Errors", [name for name in public if name in errors]),
        ("Values", [name for name, thing in public.items() if not callable(thing)]),
    ):
        lines += ["", f"## {title}"]
        for name in names:
            thing = public[name]
            if title == "Values":
                lines += ["", f"`{name}`: {type(thing).__name__}, now `{thing!r}`."]
                continue
            summary = _summary(thing)
            if title == "Errors":
                lines += ["", f"`{name}` ({', '.join(base.__name__ for base in thing.__bases__)}): {summary}"]
            else:
                lines += ["", f"### {name}", "", summary, "", "```python", _signature(name, thing), "```"]
    return "\n".join(lines) + "\n"


def _summary(thing: Any) -> str:
    first = (inspect.getdoc(thing) or "").splitlines()[0]
    # the papers behind a docstring are for who reads the code
    return re.sub(r" \((?:method|data-contract)\.md[^)]*\)", "", first).replace("``", "`")


def _signature(name: str, thing: Any) -> str:
    found = inspect.signature(thing)
    fields = getattr(thing, "model_fields", {})
    parameters = []
    for each in found.parameters.values():
        kind = _annotated(fields[each.name]) if each.name in fields else each.annotation
        parameters.append(f"{each.name}: {kind}" + ("" if each.default is each.empty else f" = {each.default!r}"))
    answer = "" if isinstance(thing, type) else f" -> {found.return_annotation}"
    return "\n".join([f"{name}(", *(f"    {parameter}," for parameter in parameters), f"){answer}"])


def _annotated(field: FieldInfo) -> str:
    text = re.sub(r"\b(?:typing|stef_core\.rules)\.", "", inspect.formatannotation(field.annotation))
    # what tells the forms of an entry apart is no part of its form
    text = re.sub(r"Annotated\[(\w+), Tag\(tag='\w+'\)\]", r"\1", text)
    return re.sub(r"Annotated\[Union\[([\w, ]+)\], Discriminator\(.*\)\]", lambda m: m[1].replace(", ", " | "), text)


# --- reasons --------------------------------------------------------------------------------------------------------


def reasons() -> dict[tuple[str, ...], tuple[str, str]]:
    """Every value that `query_scores.reason` may have, those that mean the same together: what happened, and what to do."""
    found: dict[tuple[str, ...], tuple[str, str]] = {(name,): told for name, told in OWN_REASONS.items()}
    for name in get_args(Reason):
        found[tuple(dict.fromkeys((name, name.replace("judge_", "question_reader_"))))] = MODEL_REASONS[name]
    return found


def reasons_page() -> str:
    """``docs/reference/reasons.md``: why a row may be unscored."""
    lines = made(
        "Reasons of unscored rows",
        "A row that cannot be scored is kept, with `status` `unscored` and its `reason` in `query_scores`; it lowers coverage, "
        "not Φ. SQL that is missing, or is not one query that reads, is the agent's fault: such a row is scored 0 and has no "
        "reason. `judge_…` is said of the request for the verdict, `question_reader_…` of the one that reads the question. "
        "Rows that are asked anew are those that `stef backfill` scores again though nothing has changed.",
        "`stef_core/llm.py` and `stef_core/evaluate.py`",
    )
    lines += ["", "| reason | what happened | what to do | asked anew |", "|---|---|---|---|"]
    for names, (what, cure) in reasons().items():
        spelled = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {spelled} | {cell(what)} | {cell(cure)} | {'yes' if MENDABLE.issuperset(names) else 'no'} |")
    return "\n".join(lines) + "\n"
