"""The answer cache: what is kept stays, for every thread and process, and for nobody else's eyes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stef_core.errors import RuleError, TransientError
from stef_core.llm import StoredAnswer
from tasks.answer_cache import Journal, SqliteAnswerCache, file_system_of, is_on_network

ANSWER = StoredAnswer(text='{"a": "ü"}', model="m", schema_name="s", step="json_schema", tokens_in=3, tokens_out=4, calls=2)
REFUSED = StoredAnswer(text="declined", reason="judge_refused", model="m", schema_name="s", calls=1)


ROOT = Path(__file__).parents[2]
HEAD = """
import itertools, os, sys
from stef_core.errors import TransientError
from stef_core.llm import StoredAnswer as S
from tasks.answer_cache import SqliteAnswerCache as C
"""


def command(code: str, *arguments: object) -> list[str]:
    return [sys.executable, "-c", HEAD + textwrap.dedent(code), *map(str, arguments)]


def in_another_process(code: str, *arguments: object) -> str:
    """What Python prints in a process of its own that knows the cache as C, a stored answer as S."""
    return subprocess.run(command(code, *arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


@contextlib.contextmanager
def script(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Such a process while it runs; killed at the end."""
    with subprocess.Popen(command(code, *arguments), cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def damage(file: Path) -> None:
    """Overwrite all but the first pages of a database."""
    content = file.read_bytes()
    file.write_bytes(content[: 6 * 16384] + b"\xa5" * (len(content) - 6 * 16384))


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


def test_answers_of_a_thousand_bytes_share_a_page(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({f"{n:064}": replace(ANSWER, text="x" * 1000) for n in range(1000)})

    assert file.stat().st_size < 1_400_000


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


def test_a_second_cache_on_the_file_does_not_let_go_of_the_locks_of_the_first(file: Path) -> None:
    with SqliteAnswerCache(file) as first, SqliteAnswerCache(file):
        in_another_process("with C(sys.argv[1]) as c: c.put_many({'theirs': S(text='{}')})", file)
        first.put_many({"ours": ANSWER})  # into a log that the other process must not have taken away as nobody's

        found = in_another_process("with C(sys.argv[1]) as c: print(*sorted(c.get_many(['ours', 'theirs'])))", file)

    assert found == "ours theirs\n"


WRITE_FOR_EVER = """
import threading
def write(thread):
    for n in itertools.count():
        key = f"{sys.argv[3]}-{thread}-{n}"
        cache.put_many({key: S(text=key * 20)})
        assert key in cache.get_many([key, "absent"])
        with told: print(key, flush=True)
told = threading.Lock()
with C(sys.argv[1], journal=sys.argv[2]) as cache:
    threads = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
"""


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_what_was_kept_outlives_every_kill_of_every_process(file: Path, journal: str) -> None:
    pick = random.Random(11)
    kept: list[str] = []

    def run(name: str, lines: int) -> None:
        with script(WRITE_FOR_EVER, file, journal, name) as writer:
            assert writer.stdout is not None
            told = [writer.stdout.readline().rstrip("\n") for _ in range(lines)]
            writer.send_signal(signal.SIGKILL)
            kept.extend(told + writer.stdout.read().split("\n")[:-1])  # a line cut in two was not told

    for attempt in range(3):
        workers = [threading.Thread(target=run, args=(f"{attempt}-{n}", pick.randint(5, 60))) for n in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()

    assert len(kept) > 100
    with SqliteAnswerCache(file) as cache:
        assert {key: answer.text for key, answer in cache.get_many(kept).items()} == {key: key * 20 for key in kept}
        with cache.session() as connection:
            assert connection.execute("PRAGMA journal_mode").fetchone() == (journal,)
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_process_that_was_forked_opens_the_file_anew(file: Path) -> None:
    told = in_another_process(
        """
        cache = C(sys.argv[1])
        cache.put_many({"before": S(text="{}")})
        child = os.fork()
        if child == 0:
            cache.put_many({"child": S(text="{}")})
            found = set(cache.get_many(["before", "child"])) == {"before", "child"}
            cache.close()
            os._exit(0 if found else 1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        cache.put_many({"parent": S(text="{}")})
        print(code, cache.count())
        """,
        file,
    )

    assert told == "0 3\n"


def test_a_text_that_has_no_utf8_is_kept_and_takes_no_other_with_it(file: Path) -> None:
    odd = {"surrogate": replace(ANSWER, text="a\ud800b"), "nul": replace(ANSWER, text="a\0b"), "plain": ANSWER}
    with SqliteAnswerCache(file) as cache:
        cache.put_many(odd)

    with SqliteAnswerCache(file) as cache:
        assert cache.get_many(list(odd)) == odd


# --- files that cannot be used ---


def test_a_full_disk_is_told_and_what_was_kept_stays(file: Path) -> None:
    told = in_another_process(
        """
        import resource, signal
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with C(sys.argv[1]) as cache:
            resource.setrlimit(resource.RLIMIT_FSIZE, (800_000, resource.RLIM_INFINITY))
            for n in itertools.count():
                try: cache.put_many({str(n): S(text="x" * 10_000)})
                except TransientError as error:
                    print(n, len(cache.get_many([str(i) for i in range(n + 1)])), error, sep=" | ")
                    break
        """,
        file,
    )

    kept, found, message = told.strip().split(" | ")
    assert 10 < int(kept) == int(found)
    assert message.startswith(f"{file}: the answer cache cannot be used: ")
    with SqliteAnswerCache(file) as cache:
        assert cache.count() == int(kept)


@pytest.mark.parametrize("journal", ["wal", "delete"])
def test_a_file_that_cannot_be_written_is_read(journal: Journal) -> None:
    # a folder of its own: another user may not enter those of the tests
    folder = Path(tempfile.mkdtemp())
    file = folder / "answers.sqlite"
    with SqliteAnswerCache(file, journal=journal) as cache:
        cache.put_many({"k": ANSWER})
    try:
        file.chmod(0o444)
        folder.chmod(0o555)
        told = in_another_process(
            """
            if os.geteuid() == 0: os.setresuid(65534, 65534, 65534)  # nothing is forbidden to root
            with C(sys.argv[1]) as cache:
                print(cache.read_only, *cache.get_many(["k", "l"]))
                try: cache.put_many({"l": S(text="{}")})
                except TransientError as error: print(error)
            """,
            file,
        )
    finally:
        folder.chmod(0o755)
        shutil.rmtree(folder)

    assert told == f"True k\n{file}: cannot be written; set STEF_CACHE to a file that can\n"


def test_a_damaged_file_is_refused_by_name_when_it_is_read(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({str(n): replace(ANSWER, text="x" * 500) for n in range(200)})
    damage(file)

    with (
        SqliteAnswerCache(file) as cache,
        pytest.raises(RuleError, match=r"answers\.sqlite: is damaged, or no answer cache: .*; move it away, or set STEF_CACHE"),
    ):
        cache.get_many([str(n) for n in range(200)])


@pytest.mark.parametrize("journal", ["auto", "wal"])
def test_a_database_of_something_else_is_refused_and_left_alone(file: Path, journal: Journal) -> None:
    file.parent.mkdir()
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    file.chmod(0o644)
    before = file.read_bytes()

    with pytest.raises(RuleError, match="it is a database of something else; set STEF_CACHE to another file"):
        SqliteAnswerCache(file, journal=journal)

    assert (file.read_bytes(), stat.S_IMODE(file.stat().st_mode)) == (before, 0o644)


def test_a_folder_in_the_place_of_the_file_is_refused_and_left_alone(file: Path) -> None:
    file.mkdir(parents=True, mode=0o755)

    with pytest.raises(RuleError, match="no answer cache can be kept there: it is no file; set STEF_CACHE"):
        SqliteAnswerCache(file)

    assert stat.S_IMODE(file.stat().st_mode) == 0o755


def test_an_answer_that_cannot_be_stored_is_told_as_any_other_fault(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        with pytest.raises(TransientError, match="cannot be used"):
            cache.put_many({"k": replace(ANSWER, tokens_in=10**30)})
        cache.put_many({"k": ANSWER})

        assert cache.get_many(["k"]) == {"k": ANSWER}


# --- file systems ---


@pytest.fixture
def network(file: Path) -> Path:
    """The list of mounts of a machine on which the file lies on NFS."""
    device = file.parent.parent.stat().st_dev
    here = f"{os.major(device)}:{os.minor(device)}"
    mounts = file.parents[1] / "mountinfo"
    mounts.write_text(
        "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
        f"95 27 {here} / /data\\040store rw,relatime shared:1 master:2 - nfs4 server:/export rw,vers=4.2\n"
    )
    return mounts


def journal_of(cache: SqliteAnswerCache) -> str:
    with cache.session() as connection:
        return str(connection.execute("PRAGMA journal_mode").fetchone()[0])


def test_a_new_file_has_a_log_on_a_disk_and_a_rollback_journal_on_a_network(file: Path, network: Path, tmp_path: Path) -> None:
    with (
        SqliteAnswerCache(file, mounts=tmp_path / "absent") as on_disk,
        SqliteAnswerCache(f"{file}2", mounts=network) as remote,
    ):
        remote.put_many({"k": ANSWER})

        assert (journal_of(on_disk), journal_of(remote)) == ("wal", "delete")
        assert remote.get_many(["k"]) == {"k": ANSWER}


def test_a_file_that_comes_to_a_network_loses_its_log_and_never_gets_it_back_by_itself(file: Path, network: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({"k": ANSWER})

    journals = []
    for arguments in ({"mounts": network}, {}, {"journal": "wal"}):
        with SqliteAnswerCache(file, **arguments) as cache:
            journals.append(journal_of(cache))
            assert cache.get_many(["k"]) == {"k": ANSWER}

    assert journals == ["delete", "delete", "wal"]


def test_a_log_that_others_use_on_a_network_is_refused(file: Path, network: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tasks.answer_cache.SWITCH_TIMEOUT_S", 0.1)
    with (
        SqliteAnswerCache(file, journal="wal"),
        pytest.raises(
            RuleError, match="'wal', 'delete' is wanted on a network file system; end them, or set STEF_CACHE_JOURNAL=wal"
        ),
    ):
        SqliteAnswerCache(file, mounts=network)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("ext4", False), ("overlay", False), ("nfs", True), ("cifs", True), ("fuse.sshfs", True), ("fuseblk", False)],
)
def test_file_systems_that_hosts_share_are_known(file: Path, network: Path, kind: str, expected: bool) -> None:
    network.write_text(network.read_text().replace(" - nfs4 ", f" - {kind} "))

    assert file_system_of(file.parents[1], network) == kind
    assert is_on_network(file.parents[1], network) is expected


def test_a_machine_that_lists_no_file_systems_has_local_ones(tmp_path: Path) -> None:
    assert not is_on_network(tmp_path, tmp_path / "absent")


# --- uses ---


def test_uses_are_noted_in_one_go_when_the_cache_is_closed(file: Path) -> None:
    with SqliteAnswerCache(file, clock=lambda: 1000.0) as cache:
        cache.put_many({"k": ANSWER, "r": REFUSED})
    with SqliteAnswerCache(file, clock=lambda: 2000.0) as cache:
        cache.get_many(["k", "absent"])
        cache.get_many(["k", "r"])
        with cache.session() as connection:
            before = connection.execute("SELECT count(*) FROM uses").fetchone()

    with sqlite3.connect(file) as connection:
        uses = connection.execute("SELECT key, used_at FROM uses ORDER BY key").fetchall()
        hits = connection.execute("SELECT model, schema_name, hits, tokens_in, tokens_out FROM hits").fetchall()
    connection.close()
    assert before == (0,)
    assert uses == [("k", 2000.0), ("r", 2000.0)]
    assert hits == [("m", "s", 3, 2 * ANSWER.tokens_in, 2 * ANSWER.tokens_out)]


def test_a_file_of_an_earlier_version_gets_what_it_lacks(file: Path) -> None:
    with SqliteAnswerCache(file) as cache:
        cache.put_many({"k": ANSWER})
        with cache.session() as connection:
            for table in ("uses", "hits", "shared"):
                connection.execute(f"DROP TABLE {table}")

    with SqliteAnswerCache(file) as cache:
        assert cache.get_many(["k"]) == {"k": ANSWER}

    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT key FROM uses").fetchall() == [("k",)]
    connection.close()
