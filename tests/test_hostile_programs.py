"""The catalog `hostile_programs.txt` against each way of protection: none passes, none harms, all end in time."""

import contextlib
import itertools
import os
import re
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from bamas_lite.isolation import WAYS, IsolationError
from bamas_lite.sandbox import Limits, run_python

TESTS = ("assert f(2) == 4", "assert f('ab') == 'abab'")
GOOD = "def f(x):\n    return x * 2\n"
SLACK_SECONDS = 10.0
NAMED_PROCESS = b"86421"   # what a program of the catalog gives another one as argument
ENTRY = re.compile(r"^### (.+?)(?: \[([a-z ]+)\])? -> (.+)\n((?:(?!###|===).*\n?)*)", re.MULTILINE)
CATALOG = {name: SimpleNamespace(needs=set(needs.split()), reasons=reasons.split(" or "), program=program)
           for name, needs, reasons, program in ENTRY.findall(
               Path(__file__).with_name("hostile_programs.txt").read_text(encoding="utf-8"))}
NOT_EVERYWHERE = {   # need: (whether it is met, why not)
    "linux": (lambda protection: sys.platform == "linux", "other systems do not enforce it"),
    "files": (lambda protection: "limits" not in protection or "no files of others" in protection,
              "limits alone leave it the files of its user"),
    "network": (lambda protection: "limits" not in protection or "no network" in protection,
                "limits alone leave it the network"),
    "signals": (lambda protection: "limits" not in protection or "no network" in protection
                or "as another user" in protection, "limits alone do not keep it from its user's processes"),
    "memory": (lambda protection: "no network" in protection if "limits" in protection
               else "no filter" not in protection, "limits on processes do not count this memory"),
    "disk": (lambda protection: "limits" not in protection, "limits hold each file, not all together"),
}


def _protection(way):
    try:
        return run_python("", isolation=way).protection
    except IsolationError as error:
        return f"none: {error}"


@pytest.fixture(scope="module", params=WAYS)
def way(request):
    """Each way that works on this system, with what it says of itself."""
    protection = _protection(request.param)
    if protection.startswith("none"):
        pytest.skip(protection)
    return SimpleNamespace(name=request.param, protection=protection, waiting=_left())


@pytest.fixture
def outside(monkeypatch):
    """Everything outside that a program could harm, read or call; any user may."""
    folder = Path(tempfile.mkdtemp(prefix="outside-"))
    folder.chmod(0o777)
    key = "sk-canary-" + secrets.token_hex(8)
    for name in ("canary", "test.py"):
        (folder / name).write_text(f"{key}\n{TESTS}\n", encoding="utf-8")
        (folder / name).chmod(0o666)
    monkeypatch.setenv("SOME_API_KEY", key)
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(socket.create_server(("127.0.0.1", 0)))]
        port = listeners[0].getsockname()[1]
        packets = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        packets.bind(("127.0.0.1", port))
        listeners.append(packets)
        if hasattr(socket, "AF_UNIX"):
            for kind, name in ((socket.SOCK_STREAM, "unix"), (socket.SOCK_DGRAM, "unix.packets")):
                listeners.append(stack.enter_context(socket.socket(socket.AF_UNIX, kind)))
                listeners[-1].bind(str(folder / name))
                (folder / name).chmod(0o777)
            listeners[2].listen()
        for listener in listeners:
            listener.setblocking(False)
        yield SimpleNamespace(folder=folder, key=key, port=port, listeners=listeners, before=_seen(folder))
    shutil.rmtree(folder, ignore_errors=True)


def _seen(folder):
    """Names, contents, modes and times in a folder."""
    return {path.name: (path.read_bytes() if path.is_file() else b"", path.lstat().st_mode, path.lstat().st_mtime_ns)
            for path in sorted(folder.iterdir())} if folder.is_dir() else None


def _filled(program, outside):
    for word, text in (("CANARY", outside.folder / "canary"), ("FOLDER", outside.folder), ("PORT", outside.port),
                       ("UNIX", outside.folder / "unix"), ("SECRET", "sk-canary-"),
                       ("PROJECT", Path(__file__).parent.parent), ("TEST", outside.folder / "test.py")):
        program = re.sub(rf"\b{word}\b", lambda _, text=text: str(text).replace("\\", "\\\\"), program)
    return program


def _calls(listeners):
    """How many of the listening sockets were reached."""
    reached = 0
    for listener in listeners:
        with contextlib.suppress(BlockingIOError):
            if listener.type == socket.SOCK_STREAM:
                listener.accept()[0].close()
            else:
                listener.recv(100)
            reached += 1
    return reached


_setups = set()


def _left():
    """Processes below the servers of this process (they carry the last argument of their server for life), or with the
    argument that one of the programs gives. Where no program runs these are the servers' own in their namespaces."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().rstrip(b"\0")
            if b"jail.server" in line or line.endswith(NAMED_PROCESS):
                status = (folder / "status").read_text(encoding="utf-8")
                found.append((line.rpartition(b"\0")[2], f"PPid:\t{os.getpid()}\n" in status))
    _setups.update(setup for setup, ours in found if ours)
    return sum((setup in _setups or setup == NAMED_PROCESS) and not ours for setup, ours in found)


def _falls_to(least, seconds=5.0):
    end = time.monotonic() + seconds
    while (left := _left()) > least and time.monotonic() < end:
        time.sleep(0.02)
    return left <= least


@pytest.mark.parametrize("name", CATALOG)
def test_a_hostile_program_neither_passes_nor_harms(name, way, outside):
    entry = CATALOG[name]
    for need in sorted(entry.needs):
        if not NOT_EVERYWHERE[need][0](way.protection):
            pytest.skip(NOT_EVERYWHERE[need][1])
    limits = Limits(seconds=0.2 if entry.reasons[0] == "took more than" else 60.0, memory_bytes=256 << 20,
                    output_bytes=1 << 18)
    start = time.monotonic()
    outcome = run_python(_filled(entry.program, outside), tests=TESTS, inputs=("f(2)",), entry_point="f",
                         limits=limits, isolation=way.name)
    took = time.monotonic() - start

    assert not outcome.passed
    assert any(reason in outcome.reason for reason in entry.reasons), outcome   # and not for an error of its own
    assert outside.key not in repr(outcome)
    assert _seen(outside.folder) == outside.before
    assert _calls(outside.listeners) == 0
    assert _falls_to(way.waiting)
    assert took < limits.seconds + SLACK_SECONDS
    assert run_python(GOOD, tests=TESTS, entry_point="f", isolation=way.name).passed   # the next one is graded rightly


UNGUARDED = """
import sys
exec(compile(sys.stdin.read(), "<program>", "exec"), names := {"__name__": "solution"})
try:
    passed = names["f"](2) == 4
except BaseException:
    passed = False
print("passes" if passed is True else "fails", flush=True)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="some of the attacks are for Linux")
@pytest.mark.parametrize("name", [
    "calls home", "calls home from another program", "sends a packet", "talks to a local socket", "listens",
    "sends through a pair of sockets", "reads its environment", "finds its old environment in memory",
    "reads a file with a key", "reads the file with its tests", "reads the reference answers", "moves a file away",
    "follows a link out of its folder", "makes a second name for a file outside", "changes rights and times",
    "fills the folder of temporary files", "fills files in memory", "writes a large file", "writes many files",
    "returns a number that equals everything", "returns what equals everything", "deletes files"])
def test_without_the_sandbox_it_would_get_through(name, outside, tmp_path):
    """The attacks themselves work: what stops them above is the sandbox."""
    done = subprocess.run([sys.executable, "-I", "-c", UNGUARDED], input=_filled(CATALOG[name].program, outside),
                          cwd=tmp_path, capture_output=True, text=True, encoding="utf-8", timeout=60)
    harmed = _seen(outside.folder) != outside.before or _calls(outside.listeners) > 0
    assert done.stdout == "passes\n" or harmed, done.stderr


def test_the_catalog_is_read_as_a_whole():
    text = Path(__file__).with_name("hostile_programs.txt").read_text(encoding="utf-8")
    assert len(CATALOG) == text.count("\n### ") > 30
    assert set(itertools.chain(*(entry.needs for entry in CATALOG.values()))) == NOT_EVERYWHERE.keys()
