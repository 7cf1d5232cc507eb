"""Keeping untrusted Python away from everything else: starts the sandbox's servers and talks to them.

Three ways, of which the first that works here is taken:
- `bubblewrap`: the program bwrap builds namespaces that hold nothing but the system's and the interpreter's files;
- `namespaces`: on Linux without bwrap the server builds them itself, as root or where the kernel lets users do it;
- `limits`: a process with limits and a clean environment only. Linux can refuse it network and files of others all the
  same (Landlock since 5.13, seccomp); elsewhere it sees the user's. The first program that runs so says so, once.

Behind each of them Linux also refuses system calls that a program for a task never needs: `jail/refusals.py`.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

from bamas_lite.jail.server import CHUNK, CODES, HEADER, read_exactly, write_all

WAYS = ("bubblewrap", "namespaces", "limits")
JAIL = Path(__file__).resolve().with_name("jail")
SYSTEM = ("/usr", "/lib", "/lib64", "/lib32", "/bin")
START_SECONDS = 20.0
GRACE_SECONDS = 3.0
"""The server keeps the time of its jobs; one that is this much later than it should be is ended."""

PROBE = json.dumps({"prelude": "", "program": "import hashlib\nimport socket\n", "own": [], "classes": [], "items": 1,
                    "steps": [], "nonce": "probe", "limits": []}).encode()
"""A right program: a server that cannot load it is not used. Its imports come late, after the change of the user."""

SAID = "BAMAS_SANDBOX_SAID"
"""Environment variable, set once it was said that programs run with limits only: processes started later keep quiet."""

_log = logging.getLogger(__name__)
_NAMES = {code: name for name, code in CODES.items()}
_FORKS = hasattr(os, "fork")


class IsolationError(RuntimeError):
    """A sandbox that cannot be started."""


class _Absent(IsolationError):
    """This system does not have it at all."""


def _interpreter() -> str:
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def _read_only() -> list[str]:
    """What the sandbox sees: the system's programs and libraries, and the interpreter's, where links to it lead too."""
    prefixes = {sys.base_prefix, os.path.realpath(sys.base_prefix), str(Path(_interpreter()).parent.parent)}
    return [*SYSTEM, *sorted(path for path in prefixes if not any(Path(path).is_relative_to(top) for top in SYSTEM))]


def _hidden() -> list[str]:
    """What must not be seen of it: this project, with its reference answers, and installed packages."""
    folders = {JAIL.parent.parent, *(Path(path).resolve() for path in sys.path if path.endswith("-packages"))}
    seen = sorted(folder for folder in folders if folder.is_dir()
                  and any(folder.is_relative_to(top) for top in _read_only()))
    return [str(folder) for folder in seen if not any(other in folder.parents for other in seen)]


def _bubblewrap() -> list[str]:
    """The command before the interpreter's own. As root there is no user namespace: in one, root stays root."""
    program = shutil.which("bwrap")
    if program is None:
        raise _Absent("bubblewrap (bwrap) is not installed")
    kinds = ["pid", "net", "ipc", "uts"] if os.geteuid() == 0 else ["all"]
    first = 'echo 1000 > /proc/self/oom_score_adj; exec "$0" "$@"'  # to be ended when memory runs out
    command = ["/bin/sh", "-c", first, program, *(f"--unshare-{kind}" for kind in kinds), "--cap-drop", "ALL",
               "--as-pid-1"]
    if os.geteuid() == 0:
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"):  # to become another user, which ends them
            command += ["--cap-add", capability]
    if os.geteuid() == 0 or not os.stat(program).st_mode & stat.S_ISUID:
        command += ["--cap-add", "CAP_SYS_ADMIN"]  # to limit the number of files, which ends it too
    for path in map(Path, _read_only()):
        for parent in list(path.parents)[-2::-1]:
            command += ["--perms", "0755", "--dir", str(parent)]
        if path.is_symlink():
            command += ["--symlink", str(path.readlink()), str(path)]
        elif path.exists():
            command += ["--ro-bind", str(path), str(path)]
    for folder in _hidden():
        command += ["--tmpfs", folder, "--remount-ro", folder]
    return [*command, "--dev", "/dev", "--remount-ro", "/dev", "--ro-bind", str(JAIL), "/jail",
            "--size", str(32 << 20), "--tmpfs", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]


class _Server:
    """A server process (`jail.server`) and the pipes to it. IsolationError: `way` does not work here."""

    def __init__(self, way: str, python: str) -> None:
        if way != "limits" and sys.platform != "linux":
            raise _Absent(f"{way} needs Linux")
        prefix = _bubblewrap() if way == "bubblewrap" else []
        self._folder = None
        if way == "limits":
            self._folder = tempfile.mkdtemp(prefix="bamas-")
            os.chmod(self._folder, 0o711)  # root's: a job of another user can neither rename nor replace what is in it
        setup = {"way": way, "folder": self._folder or "/tmp", "read_only": _read_only(),
                 "hidden": _hidden(), "user": random.SystemRandom().randrange(1 << 27, 1 << 28)}
        try:
            self._process = subprocess.Popen(
                [*prefix, python, "-s", "-S", "-B", "-P", "-X", "utf8", "-m", "jail.server", json.dumps(setup)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                start_new_session=True,
                env={"PYTHONHASHSEED": "0", "PYTHONPATH": "/" if prefix else str(JAIL.parent)}
                | ({"SYSTEMROOT": os.environ["SYSTEMROOT"]} if os.name == "nt" else {}))
        except OSError as error:
            self._remove_folder()
            raise IsolationError(f"{way}: {python} cannot be started ({error})") from None
        with self._killed_after(START_SECONDS):
            kind, text = self._chunk()
        if kind == "ready" and _FORKS and b"loaded" not in self.run(PROBE, START_SECONDS, 1000)[1]:
            kind = "a right program fails"  # such as: another user may not read the interpreter's library
        if kind != "ready":
            self.close()
            raise IsolationError(f"{way} does not work here with {python}: {kind}")
        self.way = way
        self.protection = way + text.decode() + ("" if python == _interpreter() else f", with {python}")
        self.usable = True

    def run(self, job: bytes, seconds: float, output_bytes: int) -> tuple[str, bytes]:
        """Run one job: how it ended ("end", "late", "output", or "lost" with the server), and what it sent."""
        output = bytearray()
        with self._killed_after(seconds + (GRACE_SECONDS if _FORKS else 0.0)) as late:
            with contextlib.suppress(OSError):
                write_all(self._process.stdin.fileno(), HEADER.pack(len(job), seconds, output_bytes) + job)
            while (chunk := self._chunk())[0] == "data" and len(output) <= output_bytes:
                output += chunk[1]
        kind, last = chunk
        self.usable = _FORKS and kind not in ("data", "lost") and not last
        if kind == "data":
            kind = "output"
        elif kind == "lost" and late.is_set():
            kind = "late"
        elif kind == "lost" and not _FORKS:
            kind = "end"
        return kind, bytes(output)

    def _chunk(self) -> tuple[str, bytes]:
        pipe = self._process.stdout.fileno()
        head = read_exactly(pipe, CHUNK.size)
        if len(head) < CHUNK.size:
            return "lost", b""
        code, size = CHUNK.unpack(head)
        return _NAMES[code], read_exactly(pipe, size)

    @contextlib.contextmanager
    def _killed_after(self, seconds: float) -> Iterator[threading.Event]:
        late = threading.Event()

        def kill() -> None:
            late.set()
            self._kill()

        timer = threading.Timer(seconds, kill)
        timer.daemon = True
        timer.start()
        try:
            yield late
        finally:
            timer.cancel()

    def _kill(self) -> None:
        with contextlib.suppress(OSError):
            if _FORKS:
                os.killpg(self._process.pid, signal.SIGKILL)
            else:
                self._process.kill()

    def close(self) -> None:
        """End the process. It removes its folder, unless it was killed: then what ran in it has ended too."""
        self._process.stdin.close()
        try:  # no timer: where the interpreter ends, no thread can be started any more
            self._process.wait(GRACE_SECONDS if _FORKS else 0.0)
        except subprocess.TimeoutExpired:
            self._kill()
            self._process.wait()
        self._process.stdout.close()
        self._remove_folder()

    def _remove_folder(self) -> None:
        if self._folder:
            with contextlib.suppress(OSError, RecursionError):
                shutil.rmtree(self._folder)  # follows no link, not even one that appears meanwhile

    def forget(self) -> None:
        """Give up a server that belongs to the process from which this one was forked."""
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.returncode = 0


def _begin(way: str) -> _Server:
    """A server. One that fails though it is there gets a second attempt; so does the system's Python, if root's own
    cannot be read by another user."""
    pythons = [_interpreter()]
    if way == "limits" and _FORKS and os.geteuid() == 0:
        pythons.append(os.path.realpath("/usr/bin/python3"))
    for attempt, python in enumerate((pythons[0], *pythons)):
        try:
            return _Server(way, python)
        except _Absent:
            raise
        except IsolationError:
            if attempt == len(pythons):
                raise
    raise AssertionError


class _Pool:
    """Servers that wait for a job; at most one per processor is at work."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start without servers."""
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(max(2, os.cpu_count() or 1))
        self._idle: dict[str, list[_Server]] = {way: [] for way in WAYS}
        self._ways: tuple[str, ...] = WAYS

    def run(self, job: bytes, seconds: float, output_bytes: int, way: str | None) -> tuple[str, bytes, str]:
        """Run a job in a server that is free, or in a new one."""
        with self._slots:
            server, fresh = self._take(way)
            if way is None and server.way == "limits":
                _say(server.protection)
            kind, output = server.run(job, seconds, output_bytes)
            if kind == "lost" and not output and not fresh:  # it had died while it waited
                server.close()
                server = self._start(way)
                kind, output = server.run(job, seconds, output_bytes)
            if server.usable:
                with self._lock:
                    self._idle[server.way].append(server)
            else:
                server.close()
            return kind, output, server.protection

    def protection(self) -> str:
        """How the next program will be isolated."""
        with self._slots:
            server = self._take(None)[0]
            with self._lock:
                self._idle[server.way].append(server)
            return server.protection

    def _take(self, way: str | None) -> tuple[_Server, bool]:
        if way is not None and way not in WAYS:
            raise ValueError(f"isolation = {way!r}: expected None or one of {', '.join(WAYS)}")
        with self._lock:
            for candidate in (way,) if way else self._ways:
                if self._idle[candidate]:
                    return self._idle[candidate].pop(), False
        return self._start(way), True

    def _start(self, way: str | None) -> _Server:
        errors: list[str] = []
        for candidate in (way,) if way else self._ways:
            try:
                server = _begin(candidate)
            except IsolationError as error:
                errors.append(str(error))
                continue
            if way is None and len(self._ways) > 1:
                self._ways = (candidate,)  # from now on nothing weaker
            return server
        raise IsolationError("; ".join(errors))

    def close(self) -> None:
        """End every server."""
        with self._lock:
            for servers in self._idle.values():
                while servers:
                    servers.pop().close()

    def forked(self) -> None:
        """In a forked process: the servers are the parent's."""
        for servers in self._idle.values():
            for server in servers:
                server.forget()
        self.reset()


_pool = _Pool()
run_job = _pool.run
close = _pool.close
atexit.register(_pool.close)
if _FORKS:
    os.register_at_fork(after_in_child=_pool.forked)


def _say(protection: str) -> None:
    """Say once that there is no wall: a log record, which Python shows on stderr where no logging is set up."""
    if SAID not in os.environ:
        os.environ[SAID] = "1"
        _log.warning("%s", _described(protection))


def _described(protection: str) -> str:
    limits = "with limits on time, memory, processes and output"
    if not protection.startswith("limits"):
        return (f"Programs run behind a wall ({protection}), {limits}: they see no network and none of your files. "
                "This does not protect against errors in the kernel itself.")
    if not _FORKS:
        limits = "with limits on time and output"
    can = [] if "no network" in protection else ["use the network"]
    if "no files of others" not in protection:
        can.append("read what their user can, which may include your files and the reference answers in data/tasks")
    can.append("fill the disk with files")
    advice = (" With bubblewrap installed they run behind a wall." if sys.platform == "linux" else "")
    return (f"Programs run {limits} only ({protection}): they can {', and '.join(can)}. Do not run programs here that "
            f"you do not trust.{advice}")


def sandbox_protection() -> str:
    """How programs are kept apart on this system, and what that does not prevent.

    Raises:
        IsolationError: no sandbox can be started.
    """
    return _described(_pool.protection())
