"""The answer cache: what is kept stays, for every thread and process, and for nobody else's eyes."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stef_core.errors import RuleError, TransientError
from stef_core.llm import StoredAnswer
from tasks.answer_cache import SqliteAnswerCache

ANSWER = StoredAnswer(text='{"a": "ü"}', model="m", schema_name="s", step="json_schema", tokens_in=3, tokens_out=4, calls=2)
REFUSED = StoredAnswer(text="declined", reason="judge_refused", model="m", schema_name="s", calls=1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sub" / "answers.sqlite"


def test_what_was_kept_is_there_after_a_restart(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({"k": ANSWER})
        cache.put_many({"r": REFUSED})

    with SqliteAnswerCache(file) as cache:
        assert cache.get_many(["k", "r", "absent"]) == {"k": ANSWER, "r": REFUSED}
        assert cache.count() == 2


def test_an_answer_replaces_a_failure_and_nothing_replaces_an_answer(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({"k": REFUSED})
        cache.put_many({"k": ANSWER})
        cache.put_many({"k": REFUSED})
        cache.put_many({"k": replace(ANSWER, text="{}")})

        assert cache.get_many(["k"]) == {"k": ANSWER}


def test_more_keys_than_one_query_takes_are_found(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        for n in range(0, 2400, 400):
            cache.put_many({str(n): ANSWER})

        assert set(cache.get_many([str(n) for n in range(2500)])) == {"0", "400", "800", "1200", "1600", "2000"}
        assert cache.get_many([]) == {}


def test_only_the_owner_may_read_the_file_and_its_log(file: Path) -> None:
    file.parent.mkdir()
    file.touch(0o644)

    with SqliteAnswerCache(file) as cache:
        cache.put_many({"k": ANSWER})
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in file.parent.iterdir()}

    assert modes == {"answers.sqlite": 0o600, "answers.sqlite-wal": 0o600, "answers.sqlite-shm": 0o600}


def test_the_age_of_an_answer_is_kept(file: Path) -> None:
    with SqliteAnswerCache(file, clock=lambda: 1234.5) as cache:
        cache.put_many({"k": ANSWER})

    with sqlite3.connect(file) as connection:
        (age,) = connection.execute("SELECT created_at FROM answers").fetchone()
    connection.close()
    assert age == 1234.5


def test_threads_may_share_a_cache(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:

        def write(number: int) -> None:
            for n in range(50):
                cache.put_many({f"{number}-{n}": ANSWER})
                assert cache.get_many([f"{number}-{n}"])

        threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert cache.count() == 400


def test_processes_may_open_and_write_one_file_at_once(file: Path) -> None:
    script = (
        "import sys; from tasks.answer_cache import SqliteAnswerCache as C; from stef_core.llm import StoredAnswer as S\n"
        "sys.stdin.readline()\n"
        "with C(sys.argv[1]) as c:\n"
        "    for n in range(60): c.put_many({f'{sys.argv[2]}-{n}': S(text='{}')})\n"
    )
    root = Path(__file__).parents[2]
    writers = [
        subprocess.Popen([sys.executable, "-c", script, str(file), str(n)], stdin=subprocess.PIPE, cwd=root) for n in range(4)
    ]
    for writer in writers:
        writer.communicate(b"\n")

    assert [writer.returncode for writer in writers] == [0] * 4
    with SqliteAnswerCache(file) as cache:
        assert cache.count() == 240


def test_a_file_that_is_no_cache_is_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("these are my notes, and not a cache of any kind " * 50)

    with pytest.raises(RuleError, match=r"notes\.txt.*STEF_CACHE"):
        SqliteAnswerCache(file)


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("x")

    with pytest.raises(RuleError, match="taken"):
        SqliteAnswerCache(tmp_path / "taken" / "answers.sqlite")


def test_a_closed_cache_says_so(file: Path) -> None:
    cache = SqliteAnswerCache(file)
    cache.close()
    cache.close()

    with pytest.raises(TransientError, match="closed"):
        cache.get_many(["k"])
