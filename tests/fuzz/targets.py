"""What is fuzzed: each function takes any input and raises where a promise is broken.

The promises: nothing but a `StefError` comes out, the result is JSON, the same input gives the same result, nothing hangs, and
what rules redact stands in nothing that is stored. hypothesis and atheris call the same functions.
"""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from stef_core import QueryRecord, evaluate
from stef_core.errors import RuleError, StefError
from stef_core.evaluate import conclude_many, examine_many
from stef_core.extract.question_offline import OfflineReader
from stef_core.judge.symbolic import SymbolicJudge
from stef_core.limits import row_limits
from stef_core.rows import examined_frame, findings_frame, judged_frame
from stef_core.rules import parse_rules
from tests.logs import DAY, table

SECONDS, SLACK_S = 5.0, 10.0  # for a heavy row; beyond what a row may take, on a busy machine
SECRET = "K-482913"
PLACE = "\u00a7"  # stands for the secret in a text
RULES = parse_rules(
    json.dumps({"app_id": "default", "version": "1", "redact": [{"pattern": r"K-\d{6}", "name": "customer_no"}, "email"]}),
    "rules",
)
DIALECTS = (None, "postgres", "mysql", "bigquery", "tsql", "snowflake", "sqlite", "oracle", "no such dialect")


def evaluated(record: QueryRecord) -> str:
    """The evaluation of a row as JSON text, after holding it to the promises."""
    start = time.process_time()
    with row_limits(seconds=SECONDS, memory_mb=1_024):
        first = json.dumps(evaluate(record).to_json(), sort_keys=True, allow_nan=False)
        second = json.dumps(evaluate(record).to_json(), sort_keys=True, allow_nan=False)
    assert first == second, "the same row is evaluated in two ways"
    taken = time.process_time() - start
    assert taken < SLACK_S, f"a row took {taken:.1f} seconds"
    return first


def stored(record: QueryRecord) -> int:
    """See that nothing that is stored of a row holds the secret; how many rows of scores are stored."""
    with row_limits(seconds=SECONDS, memory_mb=1_024):
        examined = examine_many([record], [RULES], OfflineReader())
        evaluations = conclude_many(examined, [RULES], SymbolicJudge())
    frames = [
        examined_frame(examined, [record], [RULES]),
        judged_frame(evaluations, [record], [RULES], judge="symbolic", model=None),
        findings_frame(evaluations, [record], [RULES], day=DAY, run_id="r"),
    ]
    for frame in frames:
        text = json.dumps([[str(cell) for cell in row] for row in frame.rows()], ensure_ascii=False)
        assert SECRET.casefold() not in text.casefold(), f"the secret is stored: {text}"
    return frames[1].height


def sql(text: str, dialect: str | None = None) -> None:
    """The reader of SQL, with all that follows it."""
    evaluated(QueryRecord(query_id="q", user_question="How many open orders?", generated_sql=text, dialect=dialect))


def question(text: str, enriched: str | None = None) -> None:
    """The reader of questions, with all that follows it."""
    statement = "SELECT city, COUNT(*) FROM orders WHERE status = 'open' GROUP BY city"
    evaluated(QueryRecord(query_id="q", user_question=text, enriched_question=enriched, generated_sql=statement))


def redacted(asked: str, statement: str, dialect: str | None = None) -> None:
    """What rules redact, in any place of a row."""
    asked, statement = (_writable(text).replace(PLACE, SECRET) for text in (asked, statement))
    stored(QueryRecord(query_id="q", user_question=asked, generated_sql=statement, dialect=dialect))


def rules(text: str) -> None:
    """The loader of rules."""
    with contextlib.suppress(RuleError):
        assert parse_rules(text, "rules.json").content_hash == parse_rules(text, "rules.json").content_hash


def parquet(data: bytes) -> None:
    """The reader of the query log, given the bytes of a file."""
    from tasks.query_log import read_partition

    root = Path(tempfile.mkdtemp())
    try:
        folder = root / f"dt={DAY}"
        folder.mkdir()
        (folder / "part-0.parquet").write_bytes(data)
        with contextlib.suppress(StefError):
            read_partition(str(root), DAY)
    finally:
        shutil.rmtree(root)


def parquet_values(*values: Any) -> None:
    """The reader of the query log, given a file with these questions and statements, and all that follows."""
    from stef_core.frames import records_of
    from tasks.query_log import read_partition

    root = Path(tempfile.mkdtemp())
    try:
        folder = root / f"dt={DAY}"
        folder.mkdir()
        data = pa.array([_bytes(value) for value in values], pa.binary())
        texts = pa.Array.from_buffers(pa.string(), len(data), data.buffers())  # as a writer leaves it that checks nothing
        pq.write_table(table(len(values), user_question=texts, generated_sql=texts), folder / "part-0.parquet")
        try:
            partition = read_partition(str(root), DAY)
        except StefError:
            return
        for record in records_of(partition.lazy().collect()):
            evaluated(record)
            stored(record)
    finally:
        shutil.rmtree(root)


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogatepass")


def _writable(text: str) -> str:
    return text.encode("utf-8", "replace").decode("utf-8")  # no frame holds half a character


def command(words: list[str], stdin: str = "") -> None:
    """The command line: whatever is typed ends with an exit code that is no fault of ours."""
    from flows import cli

    before, out, err = sys.stdin, io.TextIOWrapper(io.BytesIO(), encoding="utf-8"), io.StringIO()
    sys.stdin = io.TextIOWrapper(io.BytesIO(stdin.encode("utf-8", "surrogatepass")), encoding="utf-8", errors="surrogateescape")
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = cli.run(words)
    finally:
        sys.stdin = before
    assert code in (0, 1, 2, 3), f"exit code {code} for {words}: {err.getvalue()[-2000:]}"
    assert "Traceback" not in err.getvalue(), err.getvalue()[-2000:]


def explain_line(data: bytes) -> None:
    """A line of ``stef explain --file``."""
    from stef_core.lines import explain_lines
    from stef_core.rules import DEFAULT_RULES

    with row_limits(seconds=SECONDS, memory_mb=1_024):
        for answer in explain_lines([data], lambda _: DEFAULT_RULES, SymbolicJudge(), OfflineReader()):
            json.dumps(answer, allow_nan=False)


def _split(data: bytes) -> tuple[str, str, int]:
    text = data[1:].decode("utf-8", "surrogatepass" if data[:1] < b"\x40" else "replace") if _decodes(data) else ""
    left, _, right = text.partition("\n\n")
    return left, right, data[0] if data else 0


def _decodes(data: bytes) -> bool:
    try:
        data[1:].decode("utf-8", "surrogatepass" if data[:1] < b"\x40" else "replace")
    except UnicodeDecodeError:
        return False
    return True


def fuzz_sql(data: bytes) -> None:
    """Bytes as SQL in some dialect."""
    text, _, number = _split(data)
    sql(text, DIALECTS[number % len(DIALECTS)])


def fuzz_question(data: bytes) -> None:
    """Bytes as a question and its reformulation."""
    left, right, _ = _split(data)
    question(left, right or None)


def fuzz_redacted(data: bytes) -> None:
    """Bytes as a question and SQL around a secret."""
    left, right, number = _split(data)
    redacted(left + PLACE, right.replace("?", f"'{PLACE}'"), DIALECTS[number % len(DIALECTS)])


def fuzz_rules(data: bytes) -> None:
    """Bytes as a file of rules."""
    rules(data.decode("utf-8", "replace"))


def fuzz_explain(data: bytes) -> None:
    """Bytes as command line: words apart by NUL."""
    words = [word.decode("utf-8", "surrogateescape") for word in data.split(b"\0")]
    command(["explain", *words] if words[:1] != ["rules"] else ["rules", "check", *words[1:]])


_SQL = (
    b"\x00SELECT a, COUNT(*) FROM t JOIN u ON t.id = u.id WHERE b = 'x' AND c IN (1, 2) GROUP BY a ORDER BY 2 DESC LIMIT 5",
    b"\x01WITH c AS (SELECT a FROM t) SELECT * FROM c WHERE a > (SELECT AVG(a) FROM c) UNION SELECT 1",
    b"\x05SELECT CASE WHEN a = 1 THEN 'x' ELSE 'y' END, SUM(b) OVER (PARTITION BY c ORDER BY d) FROM t QUALIFY 1 = 1",
    b"\x04```sql\nSELECT TOP 5 [a b] FROM t WHERE d >= DATEADD(day, -7, GETDATE())\n```",
)
_QUESTIONS = (
    b"\x40How many open orders from Peru in 2020 per customer, sorted by amount descending, top 5?\n\nCount orders; "
    b"open refers to status = 'open'",
    b"\x40List the names of stores that opened between 1 March 2021 and 5 April 2021 but not in Lima",
)
_RULES = json.dumps(
    {
        "app_id": "shop",
        "version": "1",
        "redact": ["email", {"pattern": r"K-\d+", "name": "n"}],
        "column_mappings": {"a": "b"},
        "benign_filters": [{"column": "a", "op": "=", "value": 1}],
        "metric_definitions": {"m": {"func": "sum", "column": "x"}},
    }
).encode()
_LINE = b'{"query_id": "1", "user_question": "How many?", "generated_sql": "SELECT 1", "asked_at": "2026-01-01"}'
# by name: the target, and inputs that a run begins with
TARGETS: Mapping[str, tuple[Callable[[bytes], None], tuple[bytes, ...]]] = {
    "sql": (fuzz_sql, _SQL),
    "question": (fuzz_question, _QUESTIONS),
    "redacted": (fuzz_redacted, (b"\x40How many orders of\n\nSELECT COUNT(*) FROM t WHERE customer = ? AND email LIKE ?",)),
    "rules": (fuzz_rules, (_RULES,)),
    "parquet": (parquet, ()),
    "explain": (fuzz_explain, (b"-q\0How many?\0-s\0SELECT COUNT(*) FROM t\0--json", b"--file\0-", b"rules\0/nowhere")),
    "line": (explain_line, (_LINE,)),
}


def seeds(name: str) -> tuple[bytes, ...]:
    """Inputs that a run begins with."""
    if name != "parquet":
        return TARGETS[name][1]
    sink = io.BytesIO()
    pq.write_table(table(2), sink, compression="none")
    return (sink.getvalue(),)
