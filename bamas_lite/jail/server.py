"""A small server that runs each untrusted program in a fork of itself and relays what it computed: values, no verdicts.

The server never reads a job, its fork does: so no memory that a program inherits holds anything of an earlier job.

A job (JSON) has `prelude` (set-up that the program may use), `program`, `steps` ([kind, source, values by name]), `own`
(the names that prelude and steps bind), `classes` (those whose objects may leave), `items` (how many of an iterator
are read), `nonce` and `limits`. Its results are JSON lines [nonce, ...]: ["loaded"] or ["load", type, message]; then
for each step ["value", encoded], ["opaque", type] or ["error", type, message]. They travel in chunks: code (CODES),
length, bytes.
"""

import json
import linecache
import os
import random
import select
import signal
import struct
import sys
import time
import types

from . import refusals, system
from .values import Opaque, decode, encode

CODES = {"data": 0, "end": 1, "late": 2, "busy": 3, "output": 4, "ready": 5}
HEADER = struct.Struct("!QdQ")  # bytes of the job, seconds, most bytes of output
CHUNK = struct.Struct("!BI")
USUAL_MODULES = ("abc array bisect calendar cmath copy dataclasses enum functools heapq inspect io math numbers "
                 "operator queue re statistics string textwrap threading traceback types typing").split()


def write_all(fd, data):
    """Write every byte."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view):]


def read_exactly(fd, size):
    """Read `size` bytes; fewer only if the other side is gone."""
    parts = []
    while size and (part := os.read(fd, min(size, 1 << 20))):
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def tell(code, text=""):
    """Send one chunk to the parent."""
    write_all(1, CHUNK.pack(CODES[code], len(text)) + text.encode())


def perform(job, send):
    """Run prelude and program as the module `solution`, and the steps in names of their own; send their results.

    The steps see the program's names too, but those of the prelude as they were before the program ran.
    """
    module = sys.modules["solution"] = types.ModuleType("solution")
    names, tests, source = vars(module), {}, job["program"]
    module.__file__ = "<program>"  # with the source in linecache: for `inspect`
    linecache.cache["<program>"] = len(source), None, source.splitlines(True), "<program>"
    try:
        exec(compile(job["prelude"], "<setup>", "exec"), names)
        tests.update((name, names[name]) for name in job["own"] if name in names)
        exec(compile(source, "<program>", "exec"), names)
    except BaseException as error:
        send("load", type(error).__name__[:200], str(error)[:200])
        return
    send("loaded")
    for kind, source, values in job["steps"]:
        try:
            tests.update((name, value) for name, value in names.items() if name not in job["own"])
            tests.update((name, decode(form, tests)) for name, form in values.items())
            value = eval(compile(source, "<test>", "exec" if kind == "exec" else "eval"), tests)
            result = "value", encode(bool(value) if kind == "truth" else value, job["classes"], job["items"])
        except Opaque as error:
            result = "opaque", str(error)
        except BaseException as error:
            result = "error", type(error).__name__[:200], str(error)[:200]
        send(*result)


def run_job(size, out, others):
    """In a process of its own: read the job, run it, send results to the descriptor `out` (None: to the parent)."""
    job = json.loads(read_exactly(0, size))
    framed = out is None
    out = os.dup(1) if framed else out
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.closerange(3, out)
    os.closerange(out + 1, 256)
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, encoding="utf-8", closefd=False) for fd, mode in
                                         ((0, "r"), (1, "w"), (2, "w")))
    os.environ.clear()
    del sys.argv[1:]
    system.set_limits(job["limits"], others)
    random.seed(0)
    os.cpu_count = os.process_cpu_count = lambda: 2  # pools of default size fit into the limits on any machine
    nonce, dumps, write, leave = job["nonce"], json.dumps, write_all, os._exit  # the program may replace what it finds

    def send(*result):
        line = (dumps([nonce, *result]) + "\n").encode()
        write(out, CHUNK.pack(CODES["data"], len(line)) + line if framed else line)

    perform(job, send)
    leave(0)


class Server:
    """Forks one process for each job, relays its results, ends and removes everything that the job leaves behind.

    Started by root it stays root, with next to no capabilities, and its jobs get the rights of `user`. Whatever touches
    what a job may have touched is done with the job's rights too, in a fork.
    """

    def __init__(self, libc, user, setup):
        self.libc, self.user = libc, user
        self.alone = os.getpid() == 1  # process 1 of a namespace: every other process there is a job's
        self.files = None if self.alone else self.file_rules(setup)
        self.refuses_calls = bool(libc) and self.refuse_calls()
        self.kill = (lambda: self.as_job(system.kill_all)) if user else system.kill_all if self.alone else None
        self.buffer = bytearray(1 << 16)
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def file_rules(self, setup):
        """What a job may do with files where no wall hides them; None if the kernel cannot hold it to that."""
        if not self.libc:
            return None
        import ctypes
        try:
            files = refusals.Files(self.libc, ctypes, setup["read_only"], setup["hidden"], setup["folder"])
        except OSError:
            return None

        def load():
            files.restrict()
            import hashlib  # noqa: F401 - with a library of its own, which may lie anywhere
            import socket  # noqa: F401
        return files if system.in_fork(load) else None

    def refuse_calls(self):
        """Leave jobs fewer system calls, and this process, which needs none of these; False if that is not possible."""
        import ctypes
        try:
            refusals.refuse_calls(self.libc, ctypes)
        except OSError:
            return False
        return True

    def protection(self):
        """What of its parts is there, as text."""
        parts = ["as another user"] if self.user else ["as root"] if hasattr(os, "geteuid") and not os.geteuid() else []
        if not self.alone:
            parts += ["no files of others"] * bool(self.files) + ["no network"] * self.refuses_calls
        elif not self.refuses_calls:
            parts.append("no filter of system calls")
        return "".join(", " + part for part in parts)

    def serve(self):
        """Run jobs until the parent closes the pipe, or a job leaves more files than are worth removing."""
        while len(header := read_exactly(0, HEADER.size)) == HEADER.size:
            size, seconds, most = HEADER.unpack(header)
            out, write_end = os.pipe()
            # The limit on processes is the user's: as a user who has others, a job gets its share beside them.
            others = 0 if self.user else 1 if self.alone else system.count_tasks()
            self.make_folder()
            job = os.fork()
            if not job:
                self.enter_job()
                run_job(size, write_end, others)
            os.close(write_end)
            try:
                end = self.relay(job, out, time.monotonic() + seconds, most)
            finally:
                os.close(out)
                if not (self.alone and system.alone()):
                    system.end_all(job, self.kill)
                clean = self.nothing_left() or self.clean()
            tell(end, "" if clean else "last")
            if not clean:
                return

    def make_folder(self):
        """The job's folder."""
        os.mkdir("job", 0o700)
        if self.user:
            os.chown("job", self.user, self.user)

    def enter_job(self):
        """In the fork: its own session, folder and user."""
        os.setsid()
        if self.user:
            system.become(self.user)
        os.chdir("job")
        if self.libc:
            self.libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # end with the server; a new user would have undone it
        if self.files:
            self.files.restrict()
        if self.refuses_calls and not (self.user or self.alone):
            import ctypes
            refusals.refuse_calls(self.libc, ctypes, only=os.getpid())
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    def as_job(self, action):
        """Do what touches a job with the job's rights; True if it raised nothing."""
        def act():
            if self.user:
                system.become(self.user, guarded=True)
            action()
        return system.in_fork(act)

    def nothing_left(self):
        """Whether the job left nothing behind, as nearly all do: then no fork is needed to remove it."""
        if not (self.alone or self.refuses_calls):
            return False
        try:
            os.rmdir("job")
        except OSError:
            return False
        import ctypes
        if not os.listdir(".") and (self.refuses_calls or not system.shared_left(self.libc, ctypes)):
            return True
        self.make_folder()
        return False

    def clean(self):
        """Remove what a job left; False if that did not work, or is not worth it. Its processes have ended."""
        def remove():
            if self.libc and (self.user or self.alone) and not self.refuses_calls:
                import ctypes
                system.remove_shared(self.libc, ctypes)
            if self.user:  # its folder is in one of root's: there the name cannot lead elsewhere
                os.chmod("job", 0o700)
                os.chdir("job")
            system.remove_contents(".", 2000 if self.alone else None)
        if not self.as_job(remove):
            return False
        if self.user:
            os.rmdir("job")
        return True

    def relay(self, job, out, deadline, most):
        """Pass results on until the job ends, is late, has used up its processor time or sends too much; say which.

        Raises:
            BrokenPipeError: the parent is gone.
        """
        sent, status, poll = 0, None, select.poll()
        poll.register(0, 0)  # the job reads it; here only its end matters
        for fd in (out, self.woken):
            poll.register(fd, select.POLLIN)
        while True:
            left = max(0.0, deadline - time.monotonic()) if status is None else 0.0
            ready = dict(poll.poll(left * 1000))
            if 0 in ready:
                raise BrokenPipeError
            if self.woken in ready:
                os.read(self.woken, 4096)
            if out in ready:
                count = os.readv(out, [self.buffer])
                sent += count
                if sent > most:
                    return "output"
                if count:
                    write_all(1, CHUNK.pack(CODES["data"], count))
                    write_all(1, memoryview(self.buffer)[:count])
                    self.buffer[:count] = bytes(count)  # a later fork must not find it
                else:
                    poll.unregister(out)
            elif status is not None:
                busy = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU
                return "busy" if busy else "end"
            if status is None:
                if time.monotonic() >= deadline:
                    return "late"
                ended, code = os.waitpid(job, os.WNOHANG)
                status = code if ended else None


def main():
    """Isolate this process as argument 1 (JSON: way, folder, user, read_only, hidden) says, then serve."""
    setup = json.loads(sys.argv[1])
    sys.path.pop(0)  # where this package was found
    for name in USUAL_MODULES:
        __import__(name)
    os.umask(0o022)
    if os.name == "nt":
        import msvcrt
        for fd in (0, 1):
            msvcrt.setmode(fd, os.O_BINARY)
    libc = None
    if sys.platform == "linux":
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        system.go_first()
        if setup["way"] == "namespaces":
            system.enter_namespaces(libc, ctypes, setup["read_only"], setup["hidden"])
        elif setup["way"] == "bubblewrap":
            system.limit_files(libc, ctypes)
    os.chdir(setup["folder"])
    if not hasattr(os, "fork"):  # Windows: each process takes one job, and the parent watches the clock and cleans up
        tell("ready")
        if header := read_exactly(0, HEADER.size):
            run_job(HEADER.unpack(header)[0], None, 0)
        return
    user = system.other_user(setup["user"])
    if libc:
        system.harden(libc)
    server = Server(libc, user, setup)
    tell("ready", server.protection())
    try:
        server.serve()
    except BrokenPipeError:
        pass
    if setup["way"] == "limits":
        os.chdir("/")
        os.rmdir(setup["folder"])


if __name__ == "__main__":
    main()
