"""What the answer cache holds, and what pruning takes, while runs use it too."""

from __future__ import annotations

import datetime as dt
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flows import cli
from stef_core.errors import RuleError
from stef_core.llm import StoredAnswer
from tasks.answer_cache import SqliteAnswerCache
from tasks.cache_upkeep import Kept, Wish, cache_stats, prune_cache

DAY = 86_400.0
NOW = 1_000 * DAY
ANSWER = StoredAnswer(text="{}", model="m", schema_name="verdict", step="json_schema", tokens_in=100, tokens_out=10)
REFUSED = StoredAnswer(text="declined", reason="judge_refused", model="m", schema_name="verdict", tokens_in=100)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.sqlite"


def put(file: Path, days_ago: float, **answers: StoredAnswer) -> None:
    with SqliteAnswerCache(file, clock=lambda: NOW - days_ago * DAY) as cache:
        cache.put_many(answers)


def use(file: Path, days_ago: float, *keys: str) -> None:
    with SqliteAnswerCache(file, clock=lambda: NOW - days_ago * DAY) as cache:
        assert set(cache.get_many(keys)) == set(keys)


def keys(file: Path) -> set[str]:
    with sqlite3.connect(file) as connection:
        found = {key for (key,) in connection.execute("SELECT key FROM answers")}
    connection.close()
    return found


def fill(file: Path, count: int = 2000) -> None:
    """Answers of 1,000 bytes, ``k0`` the longest unused."""
    with SqliteAnswerCache(file, clock=lambda: NOW) as cache, cache.transaction() as connection:
        connection.executemany(
            "INSERT INTO answers VALUES (?, ?, NULL, 'm', 'verdict', 'text', 1, 1, 1, ?, NULL)",
            [(f"k{n}", "x" * 1000, NOW - DAY * (count - n)) for n in range(count)],
        )


# --- stats ---


def test_figures_are_those_of_what_was_kept_and_used(file: Path) -> None:
    put(file, 9, a=ANSWER, b=ANSWER, c=REFUSED)
    put(file, 2, d=replace(ANSWER, model="n", schema_name="question", tokens_in=5))
    use(file, 1, "a", "c")
    use(file, 0.5, "a")

    found = cache_stats(file)

    assert found.kept == (
        Kept(
            model="m", schema="verdict", answers=2, failures=1, tokens_in=300, tokens_out=20, hits=3, saved_in=300, saved_out=20
        ),
        Kept(model="n", schema="question", answers=1, tokens_in=5, tokens_out=10),
    )
    assert (found.oldest, found.newest, found.last_used) == tuple(
        dt.datetime.fromtimestamp(NOW - days * DAY, dt.UTC) for days in (9, 2, 0.5)
    )
    assert (found.exists, found.journal, found.total("answers")) == (True, "wal", 3)
    assert found.size_bytes == file.stat().st_size


def test_what_was_saved_stays_told_when_the_answers_have_gone(file: Path) -> None:
    put(file, 9, a=ANSWER)
    use(file, 1, "a")

    prune_cache(file, Wish(model="m"), now=NOW)

    assert cache_stats(file).kept == (Kept(model="m", schema="verdict", hits=1, saved_in=100, saved_out=10),)


def test_a_file_that_is_not_there_holds_nothing_and_is_not_made(file: Path) -> None:
    found, pruned = cache_stats(file), prune_cache(file, Wish(failures=True))

    assert (found.exists, found.kept, found.size_bytes, pruned.answers, pruned.left) == (False, (), 0, 0, 0)
    assert not file.exists()


# --- prune ---


def test_answers_go_by_when_they_were_last_asked_for(file: Path) -> None:
    put(file, 200, forgotten=ANSWER, asked=ANSWER)
    put(file, 10, fresh=ANSWER)
    use(file, 5, "asked")

    pruned = prune_cache(file, Wish(older_than_s=90 * DAY), now=NOW)

    assert keys(file) == {"asked", "fresh"}
    assert (pruned.answers, pruned.failures, pruned.left, pruned.dry_run, pruned.note) == (1, 0, 2, False, None)


def test_conditions_must_all_be_met(file: Path) -> None:
    other = replace(REFUSED, model="n")
    put(file, 100, old=ANSWER, old_failure=REFUSED, other_failure=other)
    put(file, 1, new=ANSWER, new_failure=REFUSED)

    pruned = prune_cache(file, Wish(older_than_s=90 * DAY, model="m", failures=True), now=NOW)

    assert keys(file) == {"old", "other_failure", "new", "new_failure"}
    assert (pruned.answers, pruned.failures) == (0, 1)


def test_what_is_known_of_a_removed_answer_goes_with_it(file: Path) -> None:
    put(file, 1, a=ANSWER)
    use(file, 1, "a")
    with SqliteAnswerCache(file) as cache, cache.transaction() as connection:
        connection.execute("INSERT INTO shared VALUES ('a', 'w', 0)")

    prune_cache(file, Wish(model="m"), now=NOW)

    with sqlite3.connect(file) as connection:
        left = [connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("answers", "uses", "shared")]
    connection.close()
    assert left == [0, 0, 0]


@pytest.mark.parametrize("max_bytes", [1_500_000, 300_000, 0])
def test_the_longest_unused_go_until_the_file_fits(file: Path, max_bytes: int) -> None:
    fill(file)
    use(file, 0, "k3")
    before = file.stat().st_size

    pruned = prune_cache(file, Wish(max_bytes=max_bytes), now=NOW)

    left = keys(file)
    size = file.stat().st_size
    assert before > 2_000_000
    assert pruned.size_bytes == size
    assert pruned.freed_bytes == before - size
    assert pruned.left == len(left) == 2000 - pruned.answers
    if max_bytes:
        assert 0.85 * max_bytes < size <= max_bytes
        assert left == {"k3", *(f"k{n}" for n in range(2000 - len(left) + 1, 2000))}
    else:
        assert left == set()


def test_a_file_that_fits_keeps_everything(file: Path) -> None:
    fill(file, 50)

    pruned = prune_cache(file, Wish(max_bytes=10_000_000), now=NOW)

    assert (pruned.answers, pruned.left, pruned.freed_bytes) == (0, 50, 0)


def test_a_dry_run_foresees_what_a_run_does_and_removes_nothing(file: Path) -> None:
    fill(file)
    wish = Wish(older_than_s=1900 * DAY, max_bytes=1_000_000)
    before = file.read_bytes()

    foreseen = prune_cache(file, wish, now=NOW, dry_run=True)

    assert file.read_bytes() == before
    done = prune_cache(file, wish, now=NOW)
    assert foreseen.dry_run
    assert foreseen.answers == pytest.approx(done.answers, rel=0.1)
    assert foreseen.left == 2000 - foreseen.answers
    assert foreseen.size_bytes == pytest.approx(done.size_bytes, rel=0.1)
    assert foreseen.freed_bytes == pytest.approx(done.freed_bytes, rel=0.1)


def test_an_empty_wish_is_refused(file: Path) -> None:
    put(file, 1, a=ANSWER)

    with pytest.raises(RuleError, match="name --older-than, --model, --failures or --max-size"):
        prune_cache(file, Wish())

    assert keys(file) == {"a"}


WRITE = """
import sys
from stef_core.llm import StoredAnswer
from tasks.answer_cache import SqliteAnswerCache
with SqliteAnswerCache(sys.argv[1]) as cache:
    for n in range(400):
        cache.put_many({f"new{n}": StoredAnswer(text="y" * 1000, model="m", schema_name="verdict")})
        assert f"new{n}" in cache.get_many([f"new{n}"])
        print(n, flush=True)
"""


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_run_that_writes_meanwhile_loses_nothing(file: Path, journal: str) -> None:
    with SqliteAnswerCache(file, journal=journal):  # type: ignore[arg-type]
        pass
    fill(file)
    with subprocess.Popen([sys.executable, "-c", WRITE, str(file)], cwd=ROOT, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "0\n"
        pruned = prune_cache(file, Wish(older_than_s=DAY / 2), now=NOW)
        writer.communicate()

    assert writer.returncode == 0
    assert pruned.answers == 2000
    assert keys(file) == {f"new{n}" for n in range(400)}


# --- the commands ---


@pytest.fixture
def chosen(file: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(file.parent)
    monkeypatch.setenv("STEF_CACHE", str(file))
    return file


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.run(["cache", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_cache_is_shown_within_100_columns(chosen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = "an-organisation-with-a-long-name/A-Model-With-A-Longer-Name-70B-Instruct-Turbo"
    put(chosen, 1, a=ANSWER, b=replace(ANSWER, model=name, tokens_in=123_456_789), c=REFUSED)
    use(chosen, 0, "a", "b")

    code, out, err = run(capsys, "stats")

    assert (code, err) == (0, "")
    assert "2 answers, 1 settled failures" in out
    assert "Saved    2 requests, 123,456,909 tokens" in out
    assert max(map(len, out.splitlines()[5:])) <= 100
    assert "verdict" in out


def test_a_cache_is_told_to_a_program(chosen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    put(chosen, 1, a=ANSWER, c=REFUSED)

    code, out, _ = run(capsys, "stats", "--json")

    told = json.loads(out)
    assert code == 0
    assert (told["file"], told["exists"], told["answers"], told["failures"], told["hits"]) == (str(chosen), True, 1, 1, 0)
    assert told["oldest"] == dt.datetime.fromtimestamp(NOW - DAY, dt.UTC).isoformat()
    assert told["last_used"] is None
    assert [(each["model"], each["schema"], each["answers"]) for each in told["by_model"]] == [("m", "verdict", 1)]


def test_a_missing_cache_is_told_kindly(chosen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "stats") == (0, f"No answers are kept yet: {chosen} is made when a model is first asked.\n", "")
    code, out, _ = run(capsys, "stats", "--json")
    assert (code, json.loads(out)["answers"], json.loads(out)["exists"]) == (0, 0, False)
    assert run(capsys, "prune", "--failures")[0] == 0
    assert not chosen.exists()


@pytest.mark.parametrize("command", [("stats",), ("prune", "--failures")], ids=lambda command: command[0])
def test_a_path_that_cannot_be_read_is_told_in_one_line(
    chosen: Path, capsys: pytest.CaptureFixture[str], command: tuple[str, ...]
) -> None:
    chosen.mkdir()

    code, out, err = run(capsys, *command)

    assert (code, out) == (2, "")
    assert err.startswith(f"error: {chosen}: no answer cache can be kept there: ")
    assert len(err.splitlines()) == 1


def test_pruning_tells_what_it_removed_and_freed(chosen: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fill(chosen, 500)

    code, dry, _ = run(capsys, "prune", "--max-size", "200KB", "--dry-run")
    done, out, _ = run(capsys, "prune", "--max-size", "200KB", "--json")
    again, nothing, _ = run(capsys, "prune", "--max-size", "200KB", "--older-than", "12000w")

    told = json.loads(out)
    assert (code, done, again) == (0, 0, 0)
    assert "settled failures would go" in dry
    assert told["answers"] + told["left"] == 500
    assert 0 < told["size_bytes"] <= 200_000
    assert told["freed_bytes"] > 200_000
    assert nothing.startswith(f"0 answers and 0 settled failures removed, {told['left']} left\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "nothing says which answers are to go"),
        (("--older-than", "soon"), "'soon' is no age; write hours, days or weeks, as in 12h, 90d or 8w"),
        (("--max-size", "12"), "'12' is no size; write it as in 500MB, 1.5GB or 200MiB"),
        (("--max-size", "3IB"), "'3IB' is no size"),
    ],
)
def test_a_prune_that_is_not_understood_removes_nothing(
    chosen: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    put(chosen, 1, a=ANSWER)

    code, out, err = run(capsys, "prune", *arguments)

    assert (code, out) == (2, "")
    assert message in err
    assert keys(chosen) == {"a"}


@pytest.mark.parametrize(
    ("text", "count"), [("500MB", 500_000_000), ("1.5 gb", 1_500_000_000), ("200KiB", 204_800), ("7B", 7), ("1GiB", 2**30)]
)
def test_sizes_are_read(text: str, count: int) -> None:
    from flows.commands_cache import read_size

    assert read_size(text) == count


@pytest.mark.parametrize(("text", "seconds"), [("12h", 43_200), ("90d", 90 * DAY), ("1.5w", 10.5 * DAY)])
def test_ages_are_read(text: str, seconds: float) -> None:
    from flows.commands_cache import read_age

    assert read_age(text) == seconds
