"""A small server that runs each untrusted program in a fork of itself and relays what it computed: values, no verdicts.

The server never reads a job, its fork does: so no memory that a program inherits holds anything of an earlier job.

A job (JSON) has `setup`, `program`, `values` (name -> encoded), `steps` ([kind, source]), `nonce` and `limits`. Its
results are JSON lines [nonce, ...]: ["loaded"] or ["load", type, message]; then for each step ["value", encoded],
["opaque", type] or ["error", type, message]. They travel in chunks: code (CODES), length, bytes.
"""

import json
import os
import random
import select
import signal
import struct
import sys
import time

from .system import count_tasks, drop_user, end_all, enter_namespaces, harden, remove_contents, set_limits
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
    """Run set-up, program and steps in one namespace; send one result for each step."""
    names = {"__name__": "solution", "__builtins__": __builtins__}
    early = True
    try:
        exec(compile(job["setup"], "<setup>", "exec"), names)
    except NameError:
        early = False  # set-up may build objects of a class that the program defines: then it runs after it
    try:
        exec(compile(job["program"], "<program>", "exec"), names)
        if not early:
            exec(compile(job["setup"], "<setup>", "exec"), names)
    except BaseException as error:
        send("load", type(error).__name__, str(error)[:200])
        return
    send("loaded")
    names.update((name, decode(form)) for name, form in job["values"].items())
    for kind, source in job["steps"]:
        try:
            value = eval(compile(source, "<test>", "exec" if kind == "exec" else "eval"), names)
            result = "value", encode(bool(value) if kind == "truth" else value)
        except Opaque as error:
            result = "opaque", str(error)
        except BaseException as error:
            result = "error", type(error).__name__, str(error)[:200]
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
    set_limits(job["limits"], others)
    random.seed(0)
    nonce, dumps, write, leave = job["nonce"], json.dumps, write_all, os._exit  # the program may replace what it finds

    def send(*result):
        line = (dumps([nonce, *result]) + "\n").encode()
        write(out, CHUNK.pack(CODES["data"], len(line)) + line if framed else line)

    perform(job, send)
    leave(0)


class Server:
    """Forks one process for each job, relays its results, ends and removes everything that the job leaves behind."""

    def __init__(self, libc, own_user):
        self.libc = libc
        self.folder = os.getcwd()
        self.alone = os.getpid() == 1  # process 1 of a namespace: every other process there is a job's
        self.others = 1 if self.alone or own_user else count_tasks()
        self.buffer = bytearray(1 << 16)
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self):
        """Run jobs until the parent closes the pipe, or a job leaves more files than are worth removing."""
        while len(header := read_exactly(0, HEADER.size)) == HEADER.size:
            size, seconds, most = HEADER.unpack(header)
            out, write_end = os.pipe()
            job = os.fork()
            if not job:
                os.setsid()
                if self.libc:
                    self.libc.prctl(1, signal.SIGKILL, 0, 0, 0)  # end with the server
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                signal.signal(signal.SIGINT, signal.default_int_handler)
                run_job(size, write_end, self.others)
            os.close(write_end)
            end = self.relay(job, out, time.monotonic() + seconds, most)
            os.close(out)
            end_all(job, self.alone)
            try:
                remove_contents(self.folder, 2000 if self.alone else None)
            except OSError:
                tell(end, "last")
                return
            tell(end)

    def relay(self, job, out, deadline, most):
        """Pass results on until the job ends, is late, has used up its processor time or sends too much; say which."""
        sent, status, watched = 0, None, [out, self.woken]
        while True:
            left = max(0.0, deadline - time.monotonic()) if status is None else 0.0
            ready = select.select(watched, [], [], left)[0]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if out in ready:
                count = os.readv(out, [self.buffer])
                sent += count
                if sent > most:
                    return "output"
                if not count:
                    watched = [self.woken]
                write_all(1, CHUNK.pack(CODES["data"], count))
                write_all(1, memoryview(self.buffer)[:count])
                self.buffer[:count] = bytes(count)  # a later fork must not find it
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
    if os.name == "nt":
        import msvcrt
        for fd in (0, 1):
            msvcrt.setmode(fd, os.O_BINARY)
    libc = None
    if sys.platform == "linux":
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
        if setup["way"] == "namespaces":
            enter_namespaces(libc, ctypes, setup["read_only"], setup["hidden"])
    os.chdir(setup["folder"])
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    dropped = root and drop_user(setup["user"])
    if libc:
        harden(libc)
    tell("ready", ", as another user" if dropped else ", as root" if root else "")
    if hasattr(os, "fork"):
        Server(libc, dropped).serve()
    else:  # Windows: each process takes one job, and the parent watches the clock
        run_job(HEADER.unpack(read_exactly(0, HEADER.size))[0], None, 0)


if __name__ == "__main__":
    main()
