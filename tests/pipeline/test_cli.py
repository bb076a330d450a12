"""The command line apart from scoring: explain, rules, and what users get wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flows import cli

ROOT = Path(__file__).parents[2]
LINE = {
    "query_id": "a",
    "agent_id": "clerk",
    "user_question": "How many orders came in 2024?",
    "generated_sql": "SELECT COUNT(*) FROM orders WHERE year = 2024",
    "dialect": "duckdb",
}
KEYS = {
    "query_id", "status", "reason", "question_spec", "enriched_spec", "sql_spec", "alignment", "enrichment", "verdict", "score",
    "findings",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STEF_DEBUG", "")  # --debug sets it for the process
    return tmp_path


def lines_file(path: Path, *lines: Any) -> Path:
    encoded = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    path.write_bytes(b"\n".join(encoded) + b"\n")
    return path


def explained(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[list[dict[str, Any]], str]:
    code = cli.run(["explain", *arguments])
    out, err = capsys.readouterr()
    assert code == 0, err
    return [json.loads(line) for line in out.splitlines()], err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    code = cli.run(list(arguments))
    out, err = capsys.readouterr()
    assert (code, out, len(err.splitlines())) == (2, "", 1), err
    return err.removeprefix("error: ").rstrip("\n")


def test_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    from importlib.metadata import version

    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"stef {version('stef-pipeline')}\n"


def test_only_commands_that_exist_are_offered(capsys: pytest.CaptureFixture[str]) -> None:
    cli.run(["--help"])

    text = capsys.readouterr().out
    assert all(name in text for name in ("demo", "score", "explain", "report", "rules"))
    assert cli.run(["levitate"]) == 2


def test_one_answer_is_explained_to_a_person(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["explain", "-q", LINE["user_question"], "-s", LINE["generated_sql"]])

    out = capsys.readouterr().out
    assert code == 0
    assert "Φ" in out
    assert max(map(len, out.splitlines())) <= 100


def test_one_answer_is_explained_to_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    (found,), err = explained(capsys, "-q", LINE["user_question"], "-s", LINE["generated_sql"], "--json")

    assert set(found) >= KEYS
    assert (found["status"], err) == ("scored", "")
    assert found["sql_spec"]["filters"] == [{"column": "year", "op": "=", "value": 2024}]


def test_sql_may_come_from_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("SELECT name FROM customers"))

    (found,), _ = explained(capsys, "-q", "Names of all customers", "-s", "-", "--json")

    assert found["sql_spec"]["projections"] == ["name"]


def test_rules_of_a_file_apply_whatever_its_application(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "shop.json").write_text('{"app_id": "shop", "no_sql": "exclude"}')

    (found,), _ = explained(capsys, "-q", "How many?", "-s", "", "--rules", "shop.json", "--json")

    assert (found["status"], found["reason"]) == ("unscored", "declined")


def test_application_without_rules_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "rules").mkdir()
    (folder / "rules" / "shop.json").write_text('{"app_id": "shop"}')

    message = refused(capsys, "explain", "-q", "x", "-s", "SELECT 1", "--rules", "rules", "--app", "crm")

    assert message == "--app crm: has no rules; there are rules for default, shop"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["score", "--date", "2026-02-30"],
            "Invalid value for '--date': '2026-02-30' is no day of the calendar; write YYYY-MM-DD; see stef score --help",
        ),
        (["score", "--to", "tomorrow"], "Invalid value for '--to': 'tomorrow' is no day of the calendar; write YYYY-MM-DD; "),
        (["score", "--datum", "x"], "No such option: --datum (Possible options: --date); see stef score --help"),
        (["rules", "check"], "Missing argument 'FILE…'; see stef rules check --help"),
        (["levitate"], "No such command 'levitate'; see stef --help"),
        (["report", "--out"], "Option '--out' requires an argument; "),
    ],
)
def test_wrong_use_is_told_in_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert refused(capsys, *arguments).startswith(message)


def test_help_is_shown_where_a_command_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    code = cli.run(["rules"])

    out, err = capsys.readouterr()
    assert (code, err) == (2, "")
    assert "schema" in out


def test_a_file_is_not_explained_into_itself(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines_file(folder / "in.jsonl", LINE)
    before = file.read_bytes()

    message = refused(capsys, "explain", "--file", "in.jsonl", "--output", str(file))

    assert message == f"--output {file}: is the file that is read; choose another"
    assert file.read_bytes() == before


def test_home_of_prefect_that_cannot_be_made_is_told_before_prefect_starts(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "home").write_text("")
    monkeypatch.setenv("PREFECT_HOME", str(folder / "home"))

    message = refused(capsys, "score", "--date", "2026-03-02", "--logs", "logs")

    assert message == f"{folder / 'home'}: cannot be written: File exists; set PREFECT_HOME to a folder that can"


def test_server_that_does_not_start_is_an_endpoint_out_of_reach(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("Timed out while attempting to connect to ephemeral Prefect API server.")  # Prefect's words

    monkeypatch.setattr("tasks.settings.load_settings", fail)

    assert cli.run(["report"]) == 3
    assert capsys.readouterr().err.startswith("error: the Prefect server of this run did not start; ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "explain takes either --question and --sql, or --file"),
        (["-q", "x"], "explain takes --question and --sql together"),
        (["-q", "x", "-s", "y", "--file", "z"], "explain takes either --question and --sql, or --file"),
        (["--file", "nowhere.jsonl"], "nowhere.jsonl: cannot be read: No such file or directory"),
        (["-q", "x", "-s", "y", "--judge", "oracle"], "--judge: input should be 'symbolic' or 'openai' (got 'oracle')"),
        (["-q", "x", "-s", "y", "--rules", "none"], "none: no such folder of rules; set STEF_RULES or --rules to one"),
    ],
)
def test_explain_says_what_is_wrong_with_its_arguments(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert refused(capsys, "explain", *arguments) == message


def test_a_file_is_explained_in_order_and_bad_lines_give_a_line_too(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad: list[Any] = [
        b"{not json",
        b"[1, 2]",
        LINE | {"query_id": "n", "user_question": 12},
        b'{"query_id": "\xff"}',
        LINE | {"query_id": "r", "rules": {"benign_filter": []}},
        LINE | {"query_id": "t", "asked_at": "yesterday"},
        b"[" * 100_000,
        b'{"x": ' + b"9" * 5000 + b"}",
    ]
    file = lines_file(folder / "in.jsonl", LINE, *bad, b"", LINE | {"query_id": "z"})

    found, err = explained(capsys, "--file", str(file))

    ids = [line["query_id"] for line in found]
    assert ids == ["a", "line-2", "line-3", "n", "line-5", "r", "t", "line-8", "line-9", "z"]
    assert [line["status"] for line in found] == ["scored", *["unscored"] * 8, "scored"]
    assert all(set(line) >= KEYS for line in found)
    reasons = [line["reason"] for line in found[1:-1]]
    assert all(reason.startswith(f"bad_line: line {n}: ") for n, reason in enumerate(reasons, 2))
    assert reasons[2] == "bad_line: line 4: user_question is 12; it must be text or null"
    assert "rules: benign_filter: unknown key" in reasons[4]
    assert err == "8 of 10 lines were bad; their reasons stand in the output\n"


def test_a_line_may_bring_its_own_rules(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    declined = LINE | {"generated_sql": None}
    file = lines_file(folder / "in.jsonl", declined, declined | {"rules": {"no_sql": "exclude"}}, declined | {"rules": None})

    found, _ = explained(capsys, "--file", str(file))

    assert [line["status"] for line in found] == ["scored", "unscored", "scored"]


def test_more_lines_than_a_batch_keep_their_order(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines_file(folder / "in.jsonl", *(b"oops" if i % 3 == 0 else LINE | {"query_id": f"q{i}"} for i in range(200)))

    found, _ = explained(capsys, "--file", str(file))

    assert [line["query_id"] for line in found] == [f"line-{i + 1}" if i % 3 == 0 else f"q{i}" for i in range(200)]


def test_file_comes_from_stdin_and_goes_to_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xef\xbb\xbf" + json.dumps(LINE).encode())))

    printed, _ = explained(capsys, "--file", "-", "--output", "out.jsonl")

    (found,) = [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").splitlines()]
    assert (printed, found["query_id"]) == ([], "a")


def test_text_that_has_no_utf8_still_gives_valid_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines_file(folder / "in.jsonl", LINE | {"query_id": "\ud800"}, LINE | {"query_id": "ü"})

    found, _ = explained(capsys, "--file", str(file))

    assert [line["query_id"] for line in found] == ["\ud800", "ü"]


def test_reader_of_a_pipe_that_has_seen_enough_is_no_error(folder: Path) -> None:
    file = lines_file(folder / "in.jsonl", *(LINE | {"query_id": f"q{i}"} for i in range(400)))
    program = "from flows import cli; import sys; sys.exit(cli.run(['explain', '--file', sys.argv[1]]))"
    arguments = [sys.executable, "-c", program, str(file)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        running.stdout.close()

        told = running.stderr.read()

    assert (running.returncode, told) == (0, b"")


def test_rules_check_tells_every_fault_of_every_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.json").write_text('{"app_id": "shop", "version": "3"}')
    (folder / "twin.json").write_text('{"app_id": "shop"}')
    (folder / "bad.json").write_text('{"app_id": "crm", "benign_filters": [{"column": "a", "op": "eq"}], "colour": 1}')

    code = cli.run(["rules", "check", "good.json", "bad.json", "twin.json"])

    out, err = capsys.readouterr()
    assert code == 2
    assert out.startswith("good.json: ok (app shop, version 3, ")
    assert "bad.json: benign_filters[0].op: " in err
    assert "bad.json: colour: unknown key" in err
    assert "twin.json: app_id 'shop' is claimed by good.json too" in err


def test_rules_check_is_content_with_good_files(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "good.json").write_text('{"app_id": "shop"}')

    code = cli.run(["rules", "check", "--json", "good.json"])

    (file,) = json.loads(capsys.readouterr().out)["files"]
    assert (code, file["ok"], file["app_id"]) == (0, True, "shop")


def test_rules_schema_is_the_one_published(capsys: pytest.CaptureFixture[str]) -> None:
    published = ROOT / "rules" / "rules.schema.json"

    assert cli.run(["rules", "schema"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(published.read_text(encoding="utf-8"))


def test_wrong_settings_are_told_before_anything_starts(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "stef.toml").write_text('logz = "x"\n')

    assert refused(capsys, "score", "--date", "2026-03-02").startswith("stef.toml: logz: unknown key; known keys: ")


def test_unexpected_error_is_one_line_and_debug_shows_where(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise KeyError("planted")

    monkeypatch.setattr("tasks.settings.load_settings", fail)
    first = cli.run(["report"])
    _, quiet = capsys.readouterr()

    second = cli.run(["--debug", "report"])

    _, loud = capsys.readouterr()
    assert (first, second) == (70, 70)
    assert quiet == "error: unexpected KeyError: 'planted' (STEF_DEBUG=1 shows where)\n"
    assert "Traceback" in loud


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def interrupt_inside_prefect(*_: Any, **__: Any) -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        raise ValueError("Task run is not set")  # noqa: B904  # as Prefect's engine does


@pytest.mark.parametrize("interrupt", [interrupt, interrupt_inside_prefect])
def test_interruption_is_told_and_has_its_own_code(
    interrupt: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tasks.settings.load_settings", interrupt)

    assert cli.run(["report"]) == 130
    assert capsys.readouterr().err == "interrupted; nothing was half-written, run the command again to go on\n"
