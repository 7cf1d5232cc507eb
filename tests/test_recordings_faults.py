"""Recordings where the file, the disk, the process or the endpoint fails; and what they never hold."""

import asyncio
import json
import os
import pickle
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fault_server import FaultServer
from recorded_backend import LLM, Live, asking, lines
from test_recordings import FORK, ask, episodes, rows, start

from bamas_lite import CallError, Reply, Usage
from bamas_lite.endpoints import EndpointError, OpenAIChat
from bamas_lite.llm import RunStopped
from bamas_lite.pool import ATOMS, Pool
from bamas_lite.recordings import (
    CachedChat,
    RecordingError,
    RecordingMiss,
    SpendCapReached,
    export_ledger,
    export_recording,
    jobs,
    load_ledger,
    store,
    writer,
)
from bamas_lite.recordings.store import connect

POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a POSIX system")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "calls.sqlite"


def recorded(path, *texts):
    """A closed recording of some calls, and their replies."""
    chat = CachedChat(Live(), path)
    replies = ask(chat, *texts)
    chat.close()
    return replies


# --- paths and files ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", ["", " ", None, 5, "a\0b", b"bytes"])
def test_no_name_of_a_file(wrong):
    for inner in (Live(), None):
        with pytest.raises(ValueError, match="path = .*expected the name of a .sqlite file"):
            CachedChat(inner, wrong)


@pytest.mark.parametrize("inner", ["gpt-4", Live, object()])
def test_no_backend(path, inner):
    with pytest.raises(ValueError, match="backend = "):
        CachedChat(inner, path)
    assert not path.exists()


def test_a_folder(tmp_path):
    for inner in (Live(), None):
        with pytest.raises(RecordingError, match="is a folder"):
            CachedChat(inner, tmp_path)


def test_no_such_recording(path, tmp_path):
    for wrong in (path, path.with_suffix(".parquet")):
        with pytest.raises(RecordingError, match="no recording .*make one"):
            CachedChat(None, wrong)
    with pytest.raises(RecordingError, match="no recording"):
        export_recording(path, tmp_path / "calls.parquet")
    assert list(tmp_path.iterdir()) == []


def test_folders_are_made_and_a_file_in_their_place_is_named(tmp_path):
    deep = tmp_path / "a" / "b" / "calls.sqlite"
    recorded(deep, "1 + 1")
    assert deep.exists()
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordingError, match="calls.sqlite"):
        CachedChat(Live(), tmp_path / "file" / "calls.sqlite")


@pytest.mark.parametrize("content", [b"no database", b"SQLite format 3\0 but then something else" * 50, b"PAR1"])
def test_another_file(path, content):
    path.write_bytes(content)
    for inner in (Live(), None):
        with pytest.raises(RecordingError, match="is no recording"):
            CachedChat(inner, path)
    assert path.read_bytes() == content


def test_another_database(path):
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE songs (title)")
    connection.close()
    for inner in (Live(), None):
        with pytest.raises(RecordingError, match="is no recording of calls"):
            CachedChat(inner, path)


def test_an_empty_file_becomes_a_recording(path):
    path.touch()
    with pytest.raises(RecordingError, match="is no recording"):
        CachedChat(None, path)
    assert len(recorded(path, "1 + 1")) == 1


def test_a_recording_of_another_version(path, tmp_path):
    recorded(path, "1 + 1")
    exported = export_recording(path, tmp_path / "calls.parquet")
    connection = connect(path, write=True)
    connection.execute("UPDATE meta SET value = '2' WHERE name = 'version'")
    connection.close()
    message = "format version 2, this bamas_lite reads version 1"
    for inner in (Live(), None):
        with pytest.raises(RecordingError, match=message):
            CachedChat(inner, path)
    with pytest.raises(RecordingError, match=message):
        export_recording(path, tmp_path / "other.parquet")
    table = pq.read_table(exported)
    for meta, fault in (({b"version": b"2", b"kind": b"live", b"bound": b"plain"}, message), ({}, "is no recording")):
        meta = {b"bamas_lite.recording." + name: value for name, value in meta.items()}
        pq.write_table(table.replace_schema_metadata(meta), exported)
        with pytest.raises(RecordingError, match=fault):
            CachedChat(None, exported)


def test_an_exported_recording_cannot_be_recorded_into(path, tmp_path):
    recorded(path, "1 + 1")
    exported = export_recording(path, tmp_path / "calls.parquet")
    with pytest.raises(ValueError, match="can only be replayed"):
        CachedChat(Live(), exported)
    for again in (export_recording, export_ledger):
        with pytest.raises(RecordingError, match="is exported already"):
            again(exported, tmp_path / "again.parquet")
        with pytest.raises(ValueError, match="ends in .parquet"):
            again(path, tmp_path / "calls.csv")
    with pytest.raises(RecordingError, match="is no ledger"):
        load_ledger(exported)


@pytest.mark.parametrize("damage", [lambda content: content[:len(content) // 2], lambda content: b"",
                                    lambda content: content[:200] + bytes(300) + content[500:]])
def test_a_damaged_export(path, tmp_path, damage):
    recorded(path, *(f"1 + {number}" for number in range(20)))
    exported = export_recording(path, tmp_path / "calls.parquet")
    exported.write_bytes(damage(exported.read_bytes()))
    with pytest.raises(RecordingError, match="is damaged"):
        CachedChat(None, exported)


@pytest.mark.parametrize("make", ["recording", "ledger"])
def test_an_export_of_which_any_byte_is_wrong_is_read_as_it_was_or_is_damaged(path, tmp_path, make):
    texts = [f"1 + {number}" for number in range(20)]
    replies = recorded(path, *texts)
    file = (export_recording if make == "recording" else export_ledger)(path, tmp_path / "file.parquet")
    content = file.read_bytes()

    def read():
        return ask(CachedChat(None, file), *texts) if make == "recording" else load_ledger(file).to_csv()

    sound = read()
    assert make == "ledger" or sound == replies
    damaged = 0
    for place in range(0, len(content), 7):
        file.write_bytes(content[:place] + bytes([content[place] ^ 0x55]) + content[place + 1:])
        try:
            assert read() == sound, f"byte {place} changes what is read"
        except RecordingMiss:
            raise AssertionError(f"byte {place} makes a call disappear") from None
        except RecordingError as error:
            damaged += 1
            assert str(file) in str(error)
    assert damaged > len(content) / 7 / 3


DAMAGE = {"UPDATE calls SET text = CAST(x'ff' AS TEXT)": "calls", "UPDATE calls SET latency_s = 'abc'": "calls",
          "UPDATE calls SET prompt_tokens = 'many'": "calls", "UPDATE calls SET completion_tokens = -1": "calls",
          "UPDATE calls SET finish_reason = x'00'": "calls", "DROP TABLE calls": "calls",
          "UPDATE calls SET cached_tokens = NULL": "calls",
          "UPDATE meta SET value = CAST(x'ff' AS TEXT) WHERE name = 'kind'": "all",
          "UPDATE meta SET value = 'x' WHERE name = 'spent'": "totals",
          "DELETE FROM meta WHERE name = 'spent'": "totals",
          "UPDATE ledger SET cost = 'much'": "ledger", "UPDATE ledger SET time = NULL": "ledger",
          "UPDATE ledger SET llm = CAST(x'ff' AS TEXT)": "ledger", "DROP TABLE ledger": "ledger"}


@pytest.mark.parametrize("statement", DAMAGE)
def test_whatever_is_wrong_in_a_database_is_called_damage(path, tmp_path, statement):
    recorded(path, "1 + 1")
    connection = sqlite3.connect(path)
    connection.execute(statement)
    connection.commit()
    connection.close()
    unpaid = Live()
    uses = {"calls": [lambda: ask(CachedChat(None, path), "1 + 1"), lambda: ask(CachedChat(Live(), path), "1 + 1"),
                      lambda: export_recording(path, tmp_path / "x.parquet")],
            "totals": [lambda: CachedChat(Live(), path).spent_usd(), lambda: ask(CachedChat(unpaid, path), "1 + 2"),
                       lambda: CachedChat(Live(), path, spend_cap_usd=1).paid_calls()],
            "ledger": [lambda: export_ledger(path, tmp_path / "x.parquet")]}
    what = DAMAGE[statement]
    for use in sum(uses.values(), []) if what == "all" else uses[what]:
        with pytest.raises(RecordingError, match=f"{path}: is damaged: .*restore a copy"):
            use()
    assert not list(tmp_path.glob("x.*")) and unpaid.calls == 0


def test_a_damaged_database(path):
    recorded(path, *(f"{number} " + "words " * 500 for number in range(40)))
    content = path.read_bytes()
    path.write_bytes(content[:8192] + os.urandom(len(content) - 8192))
    with pytest.raises(RecordingError, match="damaged|no recording|malformed"):
        chat = CachedChat(None, path)
        for number in range(40):
            ask(chat, f"{number} " + "words " * 500)


@POSIX
def test_symbolic_links(path, tmp_path):
    (tmp_path / "there").mkdir()
    real, link = tmp_path / "there" / "real.sqlite", path
    link.symlink_to(real)   # to a file that is not there yet
    chat = CachedChat(Live(), link)
    replies = ask(chat, "1 + 1")
    assert ask(CachedChat(Live(latency_s=60), real), "1 + 1") == replies == ask(CachedChat(None, link), "1 + 1")
    assert not Path(f"{link}-wal").exists() and Path(f"{real}-wal").exists()   # one log beside the file, for all names
    circle = tmp_path / "circle.sqlite"
    circle.symlink_to(circle)
    with pytest.raises(RecordingError, match="circle.sqlite"):
        CachedChat(Live(), circle)


@pytest.mark.parametrize("name", ["calls with spaces?.sqlite", "calls#1%20.sqlite", "Anrufe-ä-漢.sqlite", "no suffix"])
def test_odd_names(tmp_path, name):
    if os.name == "nt" and "?" in name:
        pytest.skip("no such names on Windows")
    replies = recorded(tmp_path / name, "1 + 1")
    assert ask(CachedChat(None, tmp_path / name), "1 + 1") == replies
    assert [file.name for file in tmp_path.iterdir()] == [name]


def test_a_recording_that_is_deleted_while_it_is_used(path):
    chat = CachedChat(Live(), path)
    ask(chat, "1 + 1")
    for file in path.parent.iterdir():
        file.unlink()
    with pytest.raises(RecordingError, match="deleted or replaced"):
        ask(chat, "1 + 2")
    assert chat.inner.calls == 1   # nothing was paid for what could not be kept
    assert len(ask(CachedChat(Live(), path), "1 + 2")) == 1


# --- who may read and write --------------------------------------------------------------------------------------


def as_another_user(work) -> str:
    """What `work` answers when it is run by a user to whom permissions apply: root may write everywhere."""
    if os.geteuid() != 0:
        return work()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgid(65534)
            os.setuid(65534)
            answer = work()
        except BaseException as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    with open(read, encoding="utf-8") as pipe:
        answer = pipe.read()
    os.waitpid(child, 0)
    return answer


@pytest.fixture
def shared(tmp_path):
    """A folder that other users reach and may write to, until it is made read-only."""
    for folder in (tmp_path, *list(tmp_path.parents)[:3]):   # one more under pytest-xdist
        if folder.stat().st_uid == os.geteuid():
            folder.chmod(folder.stat().st_mode | 0o055)
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o777)
    yield folder
    folder.chmod(0o777)


@POSIX
@FORK
def test_a_read_only_folder(shared):
    shared.chmod(0o555)

    def record():
        with pytest.raises(RecordingError) as fault:
            CachedChat(Live(), shared / "calls.sqlite")
        return str(fault.value)

    answer = as_another_user(record)
    assert "cannot be opened or made" in answer or "may not be written" in answer


@POSIX
@FORK
def test_a_recording_in_a_read_only_folder_can_be_replayed_but_not_extended(shared):
    path = shared / "calls.sqlite"
    (reply,) = recorded(path, "1 + 1")
    path.chmod(0o444)
    shared.chmod(0o555)
    assert as_another_user(lambda: ask(CachedChat(None, path), "1 + 1")[0].text) == reply.text

    def extend():
        live = Live()
        with pytest.raises(RecordingError) as fault:
            ask(CachedChat(live, path), "1 + 2")
        return f"{live.calls} calls, {fault.value}"

    answer = as_another_user(extend)
    assert answer.startswith("0 calls") and "may not be written to" in answer


@POSIX
@FORK
def test_an_export_to_a_full_disk_blames_the_target(path, tmp_path):
    recorded(path, *(f"{number} " + os.urandom(2000).hex() for number in range(20)))
    target = tmp_path / "to" / "calls.parquet"
    script = ("import resource, sys\n"
              "from bamas_lite.recordings import RecordingError, export_ledger, export_recording\n"
              "import bamas_lite.recordings.files\n"
              "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
              "for export in (export_recording, export_ledger):\n"
              "    try:\n        export(*sys.argv[1:])\n"
              "    except RecordingError as error:\n        print(error)\n")
    done = subprocess.run([sys.executable, "-B", "-c", script, path, target], capture_output=True, text=True,
                          check=True)
    for line in done.stdout.splitlines():
        assert line.startswith(f"export {target}: cannot be written (") and f"recording {path} is as it was" in line
    assert len(done.stdout.splitlines()) == 2
    assert list(target.parent.iterdir()) == []   # no half file is left


@POSIX
def test_half_files_of_killed_exports_are_removed_those_of_running_ones_are_not(path, tmp_path):
    recorded(path, "1 + 1")
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    folder = tmp_path / "to"
    folder.mkdir()
    running = f"calls.parquet.{os.getppid()}.tmp"
    for name in (f"calls.parquet.{dead.pid}.tmp", running, "calls.parquet.mine.tmp", f"other.parquet.{dead.pid}.tmp"):
        (folder / name).write_bytes(b"half")
    export_recording(path, folder / "calls.parquet")
    assert {file.name for file in folder.iterdir()} == {"calls.parquet", running, "calls.parquet.mine.tmp",
                                                        f"other.parquet.{dead.pid}.tmp"}


@POSIX
@FORK
def test_an_export_to_a_read_only_folder(shared, path):
    recorded(path, "1 + 1")
    path.chmod(0o666)
    source = shared / "calls.sqlite"
    shutil.copy(path, source)
    source.chmod(0o666)
    (shared / "locked").mkdir()
    (shared / "locked").chmod(0o555)

    def export():
        with pytest.raises(RecordingError, match="cannot be written"):
            export_recording(source, shared / "locked" / "calls.parquet")
        return "refused"

    assert as_another_user(export) == "refused"


# --- locked, full ------------------------------------------------------------------------------------------------


def test_a_locked_recording(path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_S", 0.2)
    recorded(path, "1 + 1")
    chat = CachedChat(Live(), path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    assert len(ask(chat, "1 + 1")) == 1   # reading does not wait
    with pytest.raises(RecordingError, match="locked by another program for 0.2 s"):
        ask(chat, "1 + 2")
    with pytest.raises(RecordingError, match="locked by another program"):
        CachedChat(Live(), path)
    assert chat.inner.calls == 0
    other.execute("COMMIT")
    other.close()
    assert len(ask(chat, "1 + 2")) == 1 and chat.inner.calls == 1


def test_a_recording_that_is_locked_when_a_call_fails_blocks_nobody_afterwards(path, monkeypatch):
    monkeypatch.setattr(store, "BUSY_S", 0.2)

    class Locks(Live):
        def answer(self, llm, messages, max_tokens):
            if self.calls == 1:
                self.other = sqlite3.connect(path, isolation_level=None)
                self.other.execute("BEGIN EXCLUSIVE")
                raise CallError("503")
            return super().answer(llm, messages, max_tokens)

    chat = CachedChat(Locks(), path)
    with pytest.raises(RecordingError, match="locked by another program"):
        ask(chat, "1 + 1")
    chat.inner.other.close()
    assert len(ask(chat, "1 + 1")) == 1 and chat.inner.calls == 2


@pytest.fixture
def small_disk(monkeypatch):
    """Connections that may not make the file larger than it is, once `small_disk.full` is set."""
    class Disk:
        connections = []

        def set(self, full: bool) -> None:
            for connection in self.connections:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                connection.execute(f"PRAGMA max_page_count = {pages + 1 if full else 10**6}")

    disk = Disk()

    def limited(path, *, write):
        connection = connect(path, write=write)
        disk.connections.append(connection)
        return connection

    monkeypatch.setattr(writer, "connect", limited)
    return disk


def test_a_disk_that_is_full_when_a_paid_answer_arrives(path, small_disk):
    class Fills(Live):
        def answer(self, llm, messages, max_tokens):
            if self.calls == 2:
                small_disk.set(True)   # after the claim, before the answer
            return Reply("word " * 5000, Usage(20, 30), 0.1)

    chat = CachedChat(Fills(), path)
    first = ask(chat, "1 + 1")
    with pytest.raises(RecordingError, match="disk is full.*what was saved before is kept; 1 paid answers are kept in "
                                             f"{path}-unsaved"):
        ask(chat, "1 + 2")
    with pytest.raises(RecordingError, match="disk is full"):   # no call is made that could not be kept
        ask(chat, "1 + 3")
    assert chat.inner.calls == 2 and ask(chat, "1 + 1") == first
    small_disk.set(False)
    assert len(ask(chat, "1 + 2")) == 1 and chat.inner.calls == 2   # saved when there was room, not paid again
    assert chat.paid_calls() == 2
    chat.close()
    assert rows(path, "PRAGMA integrity_check") == [("ok",)] and rows(path, "SELECT count(*) FROM claims") == [(0,)]


def test_what_could_not_be_saved_is_saved_when_the_recording_is_closed(path, small_disk):
    class Fills(Live):
        def answer(self, llm, messages, max_tokens):
            small_disk.set(True)
            return Reply("word " * 5000, Usage(20, 30), 0.1)

    chat = CachedChat(Fills(), path)
    with pytest.raises(RecordingError, match="disk is full"):
        ask(chat, "1 + 1")
    small_disk.set(False)
    chat.close()
    assert len(ask(CachedChat(None, path), "1 + 1")) == 1


class Fills(Live):
    """The disk is full when its answers arrive."""

    def __init__(self, disk, together=1, **options):
        super().__init__(**options)
        self.disk, self.together = disk, together

    def answer(self, llm, messages, max_tokens):
        if self.calls == self.together:
            self.disk.set(True)
        return Reply(f"{messages[-1]['content']}: " + "word " * 5000, Usage(20, 30), 0.1)


def test_a_paid_answer_that_found_no_room_survives_even_a_kill(path, small_disk, monkeypatch):
    monkeypatch.setattr(writer.Writer, "close", lambda self: None)   # as after kill -9: nothing is put in order
    chat = CachedChat(Fills(small_disk, together=3, latency_s=0.05), path)

    async def calls():
        return await asyncio.gather(*(chat.complete(LLM, asking(text), max_tokens=64) for text in ("1", "2", "3")),
                                    return_exceptions=True)

    faults = asyncio.run(calls())
    assert all(isinstance(fault, RecordingError) for fault in faults)
    counts = [int(re.search("([0-9]+) paid answers are kept", str(fault))[1]) for fault in faults]
    assert max(counts) == 3 and len(list(Path(f"{path}-unsaved").iterdir())) == 3
    small_disk.set(False)
    again = CachedChat(Live(), path.with_name("copy.sqlite"))   # a recording of its own
    shutil.copy(path, again.path)
    shutil.copy(f"{path}-wal", f"{again.path}-wal")
    shutil.copytree(f"{path}-unsaved", f"{again.path}-unsaved")
    again = CachedChat(Live(), again.path)
    assert [reply.text[:2] for reply in ask(again, "1", "2", "3")] == ["1:", "2:", "3:"] and again.inner.calls == 0
    assert again.paid_calls() == 3 and not Path(f"{again.path}-unsaved").exists()
    assert rows(again.path, "SELECT count(*) FROM claims") == [(0,)]
    assert rows(again.path, "SELECT value FROM meta WHERE name = 'unconfirmed'") == [("0",)]


def test_what_was_put_aside_is_booked_once(path, small_disk):
    chat = CachedChat(Fills(small_disk), path)
    with pytest.raises(RecordingError, match="disk is full"):
        ask(chat, "1 + 1")
    shutil.copytree(f"{path}-unsaved", path.with_name("copy"))
    small_disk.set(False)
    assert len(ask(chat, "1 + 1")) == 1
    shutil.copytree(path.with_name("copy"), f"{path}-unsaved")   # as after a kill before the file was removed
    ask(chat, "1 + 2")
    assert chat.paid_calls() == 2 and rows(path, "SELECT count(*) FROM ledger") == [(2,)]
    (Path(f"{path}-unsaved")).mkdir()
    (Path(f"{path}-unsaved") / "x.1.paid.json").write_text("{")
    with pytest.raises(RecordingError, match="x.1.paid.json: is damaged"):
        ask(chat, "1 + 3")
    assert chat.inner.calls == 2


def test_where_nothing_can_be_put_aside_answers_stay_in_memory_and_their_loss_is_told(path, small_disk, monkeypatch):
    Path(f"{path}-unsaved").write_text("a file where the folder would be")
    chat = CachedChat(Fills(small_disk), path)
    with pytest.raises(RecordingError, match="; 1 paid answers are kept in memory only"):
        ask(chat, "1 + 1")
    caught = []
    monkeypatch.setattr(writer.warnings, "warn", lambda text, *_, **__: caught.append(text))
    chat.close()
    assert len(caught) == 1 and "1 paid answers could not be saved" in caught[0]


def test_with_little_room_on_the_disk_no_call_is_made(path, monkeypatch):
    first = recorded(path, "1 + 1")
    free = shutil.disk_usage(path.parent).free
    monkeypatch.setattr(jobs, "LEAST_FREE", 2 * free)
    chat = CachedChat(Live(), path)
    with pytest.raises(RecordingError, match="its disk is full but for .* MB; no call is made with less than"):
        ask(chat, "1 + 2")
    assert ask(chat, "1 + 1") == first and chat.inner.calls == 0
    assert rows(path, "SELECT count(*) FROM claims") == [(0,)]
    monkeypatch.setattr(jobs, "LEAST_FREE", free // 2)
    assert len(ask(chat, "1 + 2")) == 1


@POSIX
def test_a_file_that_may_not_grow(path, tmp_path):
    script = ("import asyncio, resource, signal, sys\n"
              "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
              "from recorded_backend import LLM, Live, asking, note\n"
              "from bamas_lite.recordings import CachedChat, RecordingError\n"
              "chat = CachedChat(Live(), sys.argv[1])\n"
              "async def calls():\n"
              "    for number in range(1000):\n"
              "        await chat.complete(LLM, asking(f'{number} ' + 'words ' * 2000), max_tokens=64)\n"
              "        print(number)\n"
              "resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, 600_000))\n"
              "try:\n    asyncio.run(calls())\n"
              "except RecordingError as error:\n    print(error)\n"
              "print(chat.inner.calls, file=sys.stderr)\n")
    done = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True,
                          env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})
    *numbers, message = done.stdout.splitlines()
    paid = int(done.stderr)
    again = CachedChat(Live(), path)   # goes on where that ended: no answer that was paid is lost
    for number in range(paid):
        ask(again, f"{number} " + "words " * 2000)
    assert again.inner.calls == 0 and again.paid_calls() == paid >= len(numbers)
    again.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert "disk full" in message or "disk is full" in message
    assert rows(path, "PRAGMA integrity_check") == [("ok",)]
    replay = CachedChat(None, path)
    assert len(numbers) > 3
    for number in numbers:   # all that was handed out is there
        assert ask(replay, f"{number} " + "words " * 2000)[0].text.startswith(number)


# --- kill -9 -----------------------------------------------------------------------------------------------------


@POSIX
@FORK
def test_files_that_a_killed_process_left_are_read(path, tmp_path):
    log = tmp_path / "log"
    process = start(path, log, "1", 200)
    while len([words for words in lines(log) if words[0] == "got"]) < 50:
        pass
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert Path(f"{path}-wal").stat().st_size > 0
    got = {words[1]: words[2] for words in lines(log) if words[0] == "got"}
    replay = CachedChat(None, path)   # reads the -wal file of the killed process
    known = dict(rows(path, "SELECT key, text FROM calls"))
    assert len(known) >= len(got) >= 50
    assert set(got.values()) <= {text.replace(" ", "_") for text in known.values()}
    exported = export_recording(path, tmp_path / "calls.parquet")
    assert CachedChat(None, exported).name == replay.name
    (found,) = [text for text, in rows(path, "SELECT text FROM calls WHERE request LIKE '%1 + 0\"%'")]
    assert ask(replay, "1 + 0")[0].text == ask(CachedChat(None, exported), "1 + 0")[0].text == found


@POSIX
@FORK
def test_a_log_of_a_killed_process_in_a_read_only_folder_is_read_or_refused_but_not_overlooked(shared, tmp_path):
    log, path = tmp_path / "log", shared / "calls.sqlite"
    process = start(path, log, "1", 200)
    while len([words for words in lines(log) if words[0] == "got"]) < 50:
        pass
    process.kill()
    process.join()
    os.unlink(f"{path}-shm")
    for file in shared.iterdir():
        file.chmod(0o444)
    shared.chmod(0o555)

    def replay():
        try:
            return ask(CachedChat(None, path), "1 + 0")[0].text
        except RecordingError as error:
            return f"refused: {error}"

    answer = as_another_user(replay)
    assert answer.startswith(("1 + 0 of", "refused"))
    assert "no recorded answer" not in answer


def test_closing_leaves_one_file(path):
    chat = CachedChat(Live(), path)
    ask(chat, "1 + 1")
    assert len(list(path.parent.iterdir())) > 1
    chat.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert len(ask(chat, "1 + 1", "1 + 2")) == 2 and chat.inner.calls == 2   # and opens again when it is needed


def test_a_script_that_ends_leaves_one_file(path):
    script = ("import asyncio, sys\nfrom recorded_backend import LLM, Live, asking\n"
              "from bamas_lite.recordings import CachedChat\nchat = CachedChat(Live(), sys.argv[1])\n"
              "asyncio.run(chat.complete(LLM, asking('1 + 1'), max_tokens=64))\n")
    subprocess.run([sys.executable, "-c", script, path], check=True,
                   env={**os.environ, "PYTHONPATH": str(Path(__file__).parent)})
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    assert len(ask(CachedChat(None, path), "1 + 1")) == 1


def test_a_recording_that_nobody_uses_any_more_is_closed(path):
    chat = CachedChat(Live(), path)
    ask(chat, "1 + 1")
    del chat
    assert [file.name for file in path.parent.iterdir()] == [path.name]


# --- secrets -----------------------------------------------------------------------------------------------------

KEY = "-".join(("sk", "very", "secret", "0123456789"))   # no file of the project may hold what looks like a key


def live_llm(server, **fields):
    return LLM.model_copy(update={"base_url": server.base_url, "api_key_env": "TOY_API_KEY", "model": "toy", **fields})


def test_files_hold_neither_key_nor_header_nor_path_nor_address(path, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_API_KEY", KEY)
    with FaultServer(keys={KEY}, faults={"refusal": 0.2, "empty choices": 0.3, "missing usage": 0.1}, seed=2) as server:
        llm, chat = live_llm(server), CachedChat(OpenAIChat(max_retries=0), path)

        async def calls():
            async def one(number):
                try:
                    return await chat.complete(llm, asking(f"1 + {number}"), max_tokens=64)
                except CallError:
                    return None
            try:
                return await asyncio.gather(*map(one, range(30)))
            finally:
                await chat.aclose()

        replies = asyncio.run(calls())
        assert 5 < sum(reply is not None for reply in replies) < 30 and server.requests[0].key == KEY
        exported = export_recording(path, tmp_path / "calls.parquet")
        ledger = export_ledger(path, tmp_path / "ledger.parquet")
        files = [path, Path(f"{path}-wal"), Path(f"{path}-shm"), exported, ledger]
        assert path.stat().st_size + files[1].stat().st_size > 10_000
        # parquet is compressed: look at its texts too
        texts = [rows(path, f"SELECT * FROM {table}") for table in ("meta", "calls", "owners", "claims", "ledger")]
        haystack = b"".join(file.read_bytes() for file in files) + repr(texts).encode() + load_ledger(ledger).to_csv(
            ).encode()
        for secret in (KEY, KEY[5:], "Bearer", "uthorization", "TOY_API_KEY", str(Path.home()), str(tmp_path),
                       server.base_url, f":{server.port}", socket.gethostname()):
            assert secret.encode() not in haystack, secret
    assert b"1 + 7" in haystack


def test_a_request_that_holds_the_key_is_refused(path, monkeypatch):
    monkeypatch.setenv("TOY_API_KEY", KEY)
    live = Live()
    for llm, text in ((LLM.model_copy(update={"api_key_env": "TOY_API_KEY"}), f"my key is {KEY}"),
                      (LLM.model_copy(update={"api_key_env": "TOY_API_KEY", "extra_body": {"key": KEY}}), "1 + 1")):
        with pytest.raises(RecordingError, match="contains the value of TOY_API_KEY") as refused:
            asyncio.run(CachedChat(live, path).complete(llm, asking(text), max_tokens=64))
        assert KEY not in str(refused.value)
    assert live.calls == 0 and KEY.encode() not in path.read_bytes()


@pytest.mark.parametrize("value", [KEY + "\n", KEY, 'quoted"key\\with', f"  {KEY}\t"])
def test_no_key_of_the_pool_gets_into_a_recording_however_it_is_written(path, monkeypatch, value):
    monkeypatch.setenv("ANOTHER_API_KEY", value)
    pool = Pool(name="two", llms=[LLM.model_copy(update={"api_key_env": "ANOTHER_API_KEY"}),
                                  LLM.model_copy(update={"name": "local", "tier": 2})])
    live = OpenAIChat(pool)
    for text in (f"my key is {value.strip()}", json.dumps({"key": value.strip()})):
        with pytest.raises(RecordingError, match="contains the value of ANOTHER_API_KEY"):
            asyncio.run(CachedChat(live, path).complete(pool.llms[1], asking(text), max_tokens=64))
    assert "ANOTHER_API_KEY" in pickle.loads(pickle.dumps(live)).key_variables


# --- with the real client ----------------------------------------------------------------------------------------


def test_with_faults_each_request_is_billed_once_and_the_recording_knows_the_bill(path, monkeypatch, tmp_path):
    faults = {"429": 0.04, "500": 0.04, "dropped": 0.04, "malformed json": 0.03, "html": 0.03, "empty choices": 0.02,
              "refusal": 0.03, "cut reply": 0.03, "empty choices billed": 0.03, "overrun": 0.03}
    with FaultServer(faults=faults, seed=5) as server:
        llm = live_llm(server, api_key_env=None)
        for _ in range(2):   # the second time all is answered from the file
            chat = CachedChat(OpenAIChat(backoff_s=0.001), path)

            async def calls(chat=chat):
                async def one(number):
                    try:
                        return await chat.complete(llm, asking(f"1 + {number}"), max_tokens=64)
                    except CallError as error:
                        return str(error), error.usage
                try:
                    return await asyncio.gather(*map(one, range(150)))
                finally:
                    await chat.aclose()

            outcomes = asyncio.run(calls())
        billed = Counter(repr(request.body) for request in server.billed)
        assert len(billed) == 150 and set(billed.values()) == {1}
        assert chat.spent_usd() == pytest.approx(server.cost_atoms({"toy": llm}) / ATOMS / 1e6, rel=1e-12)
    exported = export_recording(path, tmp_path / "calls.parquet")
    for file in (path, exported):   # and replays answer all of it, failures too
        assert asyncio.run(calls(CachedChat(None, file))) == outcomes
    assert any(isinstance(outcome, tuple) for outcome in outcomes)


def test_what_attempts_without_an_answer_may_have_cost_counts_against_the_cap(path):
    with FaultServer(plan=lambda body, attempt: "dropped" if attempt < 2 else None) as server:
        llm = live_llm(server, api_key_env=None)
        chat = CachedChat(OpenAIChat(backoff_s=0.001), path)

        async def call():
            try:
                await chat.complete(llm, asking("1 + 1"), max_tokens=64)
            finally:
                await chat.aclose()

        asyncio.run(call())
        worst = llm.cost_atoms(chat.bound_prompt_tokens(llm, asking("1 + 1")), 64)
        assert rows(path, "SELECT status, unconfirmed FROM ledger") == [("ok", str(2 * worst))]
        chat = CachedChat(OpenAIChat(), path, spend_cap_usd=chat.spent_usd() + 2 * worst / ATOMS / 1e6)
        with pytest.raises(SpendCapReached, match="may have cost"):
            asyncio.run(chat.complete(llm, asking("1 + 2"), max_tokens=64))


def test_the_cap_holds_while_a_call_is_repeated(path):
    with FaultServer(plan=lambda body, attempt: "dropped") as server:
        llm = live_llm(server, api_key_env=None)
        chat = CachedChat(OpenAIChat(backoff_s=0.001, max_retries=5), path)
        worst = llm.cost_atoms(chat.bound_prompt_tokens(llm, asking("1 + 1")), 64)
        chat = CachedChat(chat.inner, path, spend_cap_usd=2.5 * worst / ATOMS / 1e6)

        async def call():
            try:
                await chat.complete(llm, asking("1 + 1"), max_tokens=64)
            finally:
                await chat.aclose()

        with pytest.raises(SpendCapReached, match="attempts of which broke off"):
            asyncio.run(call())
        assert len(server.requests) == 2   # without the cap 6
        assert rows(path, "SELECT status, unconfirmed FROM ledger") == [("unconfirmed", str(2 * worst))]


def test_a_wrong_key_stops_the_run_and_costs_nothing(path, monkeypatch):
    monkeypatch.setenv("TOY_API_KEY", KEY)
    with FaultServer(keys={"another"}) as server:
        chat = CachedChat(OpenAIChat(), path)

        async def call():
            try:
                await chat.complete(live_llm(server), asking("1 + 1"), max_tokens=64)
            finally:
                await chat.aclose()

        with pytest.raises(EndpointError, match="TOY_API_KEY"):
            asyncio.run(call())
    assert chat.paid_calls() == 0 and rows(path, "SELECT count(*) FROM claims") == [(0,)]
    assert rows(path, "SELECT value FROM meta WHERE name = 'unconfirmed'") == [("0",)]


def test_a_fault_inside_an_episode_ends_the_run_not_the_episode(path, small_disk):
    class Fills(Live):
        def answer(self, llm, messages, max_tokens):
            small_disk.set(True)
            return Reply("word " * 5000, Usage(20, 30), 0.1)

    with pytest.raises(RunStopped, match="disk is full"):
        episodes(CachedChat(Fills(), path))
