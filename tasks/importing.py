"""A folder of anybody's questions and SQL as the query log of data-contract.md. Knows no Prefect.

What is read is either all taken in, or nothing is; a file imported again takes the place of its earlier rows.

Source: data-contract.md, "Query log (in)".
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stef_core.errors import InputError, RuleError
from tasks.importing_files import CONTAINERS, BadRow, Row, Source, find_files, inspect, read_rows
from tasks.importing_mapping import ColumnMap, choose, shape
from tasks.importing_rows import PREFIX, Inbox, SourceRows
from tasks.importing_traces import FORMATS as TRACES
from tasks.importing_traces import Span, answers, spans_of, trace_format

FORMATS = ("auto", *CONTAINERS, *TRACES)
SAMPLE = 1_000  # rows that a mapping is chosen from
LOOKED_AT = 50  # rows by which traces are recognised
SHOWN = 5  # rows that a dry run shows
KEPT_BAD = 20  # refused rows that are told one by one


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How files are read."""

    named: Mapping[str, str] = field(default_factory=dict)  # path by column
    constants: Mapping[str, str] = field(default_factory=dict)  # value by column
    date: dt.date | None = None  # of rows without a time
    time_format: str | None = None
    format: str = "auto"
    encoding: str | None = None
    delimiter: str | None = None
    further: bool = True  # take fields along that are no column
    only_sql: bool = False  # leave answers without SQL aside


@dataclass(slots=True, kw_only=True)
class FileReport:
    """What became of one file; ``rows_in = written + refused + repeated + present + aside``."""

    path: str
    format: str
    mapping: ColumnMap
    sample: list[dict[str, Any]]  # first rows, as they came
    first: list[dict[str, Any]] = field(default_factory=list)  # first rows, as the log has them
    rows_in: int = 0
    written: int = 0  # in a dry run: would be, if the log holds none of them yet
    refused: int = 0
    repeated: int = 0  # a query_id that an earlier row has
    present: int = 0  # the log holds the row already, from another file
    aside: int = 0  # answers without SQL, where only those with SQL are wanted
    spans_aside: int = 0  # of traces: belong to no answer
    days: dict[dt.date, int] = field(default_factory=dict)
    remarks: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    rejects: str | None = None


@dataclass(slots=True, kw_only=True)
class Imported:
    """What an import did, or would do."""

    files: list[FileReport] = field(default_factory=list)
    bad: list[BadRow] = field(default_factory=list)  # the first ones
    refused: int = 0
    done: bool = False  # whether anything was written
    notes: list[str] = field(default_factory=list)

    @property
    def days(self) -> dict[dt.date, int]:
        """Rows by day, over all files."""
        total: Counter[dt.date] = Counter()
        for file in self.files:
            total.update(file.days)
        return dict(sorted(total.items()))


def import_files(
    names: Sequence[str], logs: str, options: Options, *, dry_run: bool = False, skip_bad: bool = False, replace: bool = False
) -> Imported:
    """Take files into a query log.

    Args:
        names: Files, folders or patterns.
        logs: Root of the log, a local folder; made where it is absent.
        options: How the files are read.
        dry_run: Read everything, and write nothing.
        skip_bad: Go on without rows that cannot be taken, and write them beside; else one of them stops the import.
        replace: Take away what the same files brought in under another agent, version or application.

    Returns:
        What was done. With refused rows and without `skip_bad` nothing was.

    Raises:
        InputError: A file cannot be read or understood; nothing is written.
        RuleError: An option or the log's folder cannot be; nothing is written.
    """
    root = _local(logs)
    if options.format not in FORMATS:
        raise RuleError(f"--format {options.format}: is not known; write one of {', '.join(FORMATS)}")
    paths = find_files(names)
    imported = Imported()
    outside = [path for path in paths if root.resolve() not in path.resolve().parents]
    if not outside:
        raise RuleError(f"{paths[0]}: lies in the log {logs} itself; name another --logs, or another file")
    if len(outside) < len(paths):
        imported.notes.append(f"files of the log {logs} itself were left out")
    paths = outside
    sources = list(_distinct(paths, options, imported))
    if dry_run:
        for source in sources:
            report, rows = _open(source, options)
            imported.files.append(report)
            for row in rows:
                _take(row, report, imported, None, None, options)
            report.written = sum(report.days.values())
        _refuse_nothing(imported)
        return imported
    inbox = None
    try:
        try:
            inbox = Inbox(root)
            _stage(inbox, sources, options, imported, skip_bad=skip_bad, replace=replace)
        finally:
            if inbox is not None:
                inbox.close(keep_root=imported.done)
    except OSError as error:
        raise RuleError(f"--logs {logs}: cannot be written: {error.strerror or error}") from error
    return imported


def _local(logs: str) -> Path:
    if "://" in logs:
        raise RuleError(f"--logs {logs}: import writes to a local folder; copy it there afterwards, its layout stays the same")
    root = Path(logs).expanduser()
    if root.exists() and not root.is_dir():
        raise RuleError(f"--logs {logs}: is a file; name a folder")
    return root


def _distinct(paths: Iterable[Path], options: Options, imported: Imported) -> Iterator[Source]:
    container = options.format if options.format in CONTAINERS else None
    seen: dict[str, Path] = {}
    for path in paths:
        source = inspect(path, container, options.encoding, options.delimiter)
        if source.sha256 in seen:
            imported.notes.append(f"{path}: holds the same as {seen[source.sha256]}; it is read once")
            continue
        seen[source.sha256] = path
        yield source


def _stage(
    inbox: Inbox, sources: Sequence[Source], options: Options, imported: Imported, *, skip_bad: bool, replace: bool
) -> None:
    stems = [_stem(source, options) for source in sources]
    refused: dict[str, Path] = {}
    for source, stem in zip(sources, stems, strict=True):
        report, rows = _open(source, options)
        imported.files.append(report)
        kept = inbox.kept(stem)
        refused[stem] = inbox.folder / f"{stem}.jsonl"
        for row in rows:
            _take(row, report, imported, kept, refused[stem], options)
        taken = report.mapping.columns.get("query_id")
        meant = report.mapping.of_traces or taken is None or taken.how == "named"
        merged = inbox.merge(kept, stem, report.path, ids_are_meant=meant)
        report.days, report.repeated, report.present = merged.days, merged.repeated, merged.present
        report.written = sum(merged.days.values())
        for bad in merged.bad:
            _refuse(bad, report, imported, refused[stem])
        if merged.repeats:
            more = "" if merged.repeated == len(merged.repeats) else " and others"
            report.notes.append(f"repeated query_ids, of which the first row is kept: {', '.join(merged.repeats)}{more}")
    if imported.refused and not skip_bad:
        return
    _refuse_nothing(imported)
    for source, stem, report in zip(sources, stems, imported.files, strict=True):
        also = _begin(source) if replace else None
        before, gone = inbox.publish(stem, also=also)
        if before:
            report.notes.append(f"{report.path} had been imported before; its rows were put in place of the earlier ones")
        if inbox.others(stem, _begin(source)):
            report.notes.append(
                f"{report.path} is also in the log under another agent, version or application; --replace takes those rows away"
            )
        if gone:
            report.notes.append(f"rows that an earlier import of {report.path} had put on {', '.join(gone)} were taken away")
        rejects = inbox.rejects(stem, refused[stem])
        report.rejects = str(rejects) if rejects else None
    imported.done = True


def _refuse_nothing(imported: Imported) -> None:
    if not sum(file.rows_in for file in imported.files):
        names = ", ".join(file.path for file in imported.files[:3])
        raise InputError(f"{names}: no row to import")


def _begin(source: Source) -> str:
    return f"{PREFIX}{source.sha256[:16]}-"


def _stem(source: Source, options: Options) -> str:
    """Name of a source's files: by what it holds, and for whom; so that it replaces itself and nobody else."""
    whom = json.dumps([options.constants.get(name) for name in ("agent_id", "agent_version", "app_id")])
    return f"{_begin(source)}{hashlib.sha256(whom.encode()).hexdigest()[:8]}"


def _open(source: Source, options: Options) -> tuple[FileReport, Iterator[Row | BadRow]]:
    """A file's mapping, and its rows; those of traces are made when all its spans have been read."""
    rows = read_rows(source)
    head = list(itertools.islice(rows, SAMPLE))
    kind = options.format if options.format in TRACES else None
    if options.format == "auto":  # an exporter may write metrics among its spans
        kinds = (trace_format(row.record) for row in head[:LOOKED_AT] if isinstance(row, Row))
        kind = next((found for found in kinds if found), None)
    stream: Iterator[Row | BadRow] = itertools.chain(head, rows)
    aside = 0
    if kind is not None:
        made, aside = _answers(stream, kind, options)
        stream = iter(made)
        head = made[:SAMPLE]
        if not any(isinstance(row, Row) for row in made):
            raise InputError(f"{source.path}: no question is recorded in its spans ({aside:,}); {_no_content(kind)}")
    sample = [row.record for row in head if isinstance(row, Row)]
    if not sample and not any(isinstance(row, BadRow) for row in head):
        raise InputError(f"{source.path}: holds no rows")
    if not sample:
        raise InputError(f"{source.path}: none of its first {len(head)} rows can be read; {head[0]}")
    mapping = choose(
        str(source.path),
        sample,
        named=options.named,
        constants=options.constants,
        date=options.date,
        time_format=options.time_format,
        further=options.further,
        of_traces=kind is not None,
    )
    report = FileReport(
        path=str(source.path), format=_told_format(source, kind), mapping=mapping, sample=sample[:SHOWN], spans_aside=aside
    )
    report.notes += source.notes
    return report, stream


def _answers(stream: Iterable[Row | BadRow], kind: str, options: Options) -> tuple[list[Row | BadRow], int]:
    spans: list[Span] = []
    bad: list[Row | BadRow] = []
    for row in stream:
        if isinstance(row, BadRow):
            bad.append(row)
        else:
            spans += spans_of(row.record, kind, row.where)
    rows, aside = answers(spans, named=any(options.named.get(name) for name in ("user_question", "generated_sql")))
    return [*bad, *rows], aside


def _no_content(kind: str) -> str:
    if kind == "otel":
        return (
            "instrumentations leave texts out until they are told to record them"
            " (OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT=true); if it stands elsewhere, say where:"
            " --map user_question=attributes.NAME"
        )
    return "export them with inputs and outputs, or say where it stands: --map user_question=FIELD"


def _told_format(source: Source, kind: str | None) -> str:
    names = {"otel": "OpenTelemetry", "langfuse": "Langfuse", "langsmith": "LangSmith"}
    containers = {"csv": "CSV", "json": "JSON", "jsonl": "JSON lines", "parquet": "Parquet"}
    parts = [names[kind]] if kind else []
    parts.append(containers[source.container])
    if source.container == "csv" and source.delimiter != ",":
        parts.append({"\t": "tabs", ";": "semicolons", "|": "bars"}.get(source.delimiter, repr(source.delimiter)))
    if source.encoding not in ("", "utf-8"):
        parts.append({"cp1252": "windows-1252"}.get(source.encoding, source.encoding))
    if source.packed:
        parts.append("gzip")
    return ", ".join(parts)


def _take(
    row: Row | BadRow, report: FileReport, imported: Imported, kept: SourceRows | None, refused: Path | None, options: Options
) -> None:
    report.rows_in += 1
    made = row if isinstance(row, BadRow) else shape(report.path, row, report.mapping)
    if isinstance(made, BadRow):
        _refuse(made, report, imported, refused)
        return
    if options.only_sql and "no_sql" in made.remarks:
        report.aside += 1
        return
    report.remarks.update(made.remarks)
    if len(report.first) < SHOWN:
        report.first.append(made.values)
    if kept is None:
        report.days[made.day] = report.days.get(made.day, 0) + 1
    else:
        kept.add(made)


def _refuse(bad: BadRow, report: FileReport, imported: Imported, refused: Path | None) -> None:
    report.refused += 1
    imported.refused += 1
    if len(imported.bad) < KEPT_BAD:
        imported.bad.append(bad)
    if refused is not None:
        line = {"file": bad.file, "where": bad.where, "column": bad.column, "reason": bad.reason, "record": bad.record}
        with refused.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line, default=str) + "\n")
