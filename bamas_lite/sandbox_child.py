"""Inside the sandbox: a small server that runs each untrusted program in a fork of itself and relays what it computed.

The file is run as a script by a bare interpreter (see `isolation.py`) and needs the standard library only. It sends back
values, never verdicts. The server itself never reads a job: its fork does, so no memory that a program inherits holds
anything of an earlier job.

Job (JSON): `setup`, `program`, `values` (name -> encoded value), `steps` ([kind, source]), `nonce`, `limits`.
Its results are JSON lines [nonce, ...]: ["loaded"] or ["load", type, message], then for each step ["value", encoded]
or ["error", type, message]. The server packs them in chunks (code, length, bytes); see CODES.
"""

import collections
import datetime
import decimal
import fractions
import itertools
import json
import os
import random
import select
import signal
import struct
import sys
import time

try:
    import resource
except ImportError:  # Windows: time is the only limit
    resource = None

CODES = {"data": 0, "end": 1, "late": 2, "output": 3, "ready": 4}
HEADER = struct.Struct("!QdQ")  # bytes of the job, seconds, most bytes of output
CHUNK = struct.Struct("!BI")
USUAL_MODULES = ("abc array bisect calendar cmath copy dataclasses enum functools heapq inspect io math numbers operator "
                 "queue random re statistics string textwrap threading traceback types typing").split()
MOST_ITEMS = 100_000
CONTAINERS = {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset, "deque": collections.deque}
TEXTS = {"Fraction": (fractions.Fraction, fractions.Fraction), "Decimal": (decimal.Decimal, decimal.Decimal),
         "date": (datetime.date, datetime.date.fromisoformat),
         "datetime": (datetime.datetime, datetime.datetime.fromisoformat)}


class Opaque(TypeError):
    """A value that is no plain data."""


def encode(value, depth=0):
    """A JSON form of plain data, by exact base types, so that no `__eq__` of the program takes part in a comparison."""
    if depth > 60:
        raise Opaque("the value is nested too deep")
    if value is None or value is True or value is False:
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return ["int", hex(int.__int__(value))]
    if isinstance(value, float):
        return ["float", float.hex(float.__float__(value))]
    if isinstance(value, complex):
        return ["complex", float.hex(value.real), float.hex(value.imag)]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", bytes(value).hex()]
    if isinstance(value, dict):
        return ["dict", [[encode(k, depth + 1), encode(v, depth + 1)] for k, v in dict.items(value)]]
    for kind, base in CONTAINERS.items():
        if isinstance(value, base):
            items = [encode(item, depth + 1) for item in base.__iter__(value)]
            return [kind, sorted(items, key=json.dumps) if "set" in kind else items]
    if isinstance(value, range):
        return ["range", hex(value.start), hex(value.stop), hex(value.step)]
    for kind, (base, _) in TEXTS.items():
        if type(value) is base:
            return [kind, str(value)]
    if hasattr(type(value), "__next__") or isinstance(value, (type({}.keys()), type({}.values()), type({}.items()))):
        return ["iterator", [encode(item, depth + 1) for item in itertools.islice(value, MOST_ITEMS)]]
    raise Opaque("a value of type " + type(value).__name__ + " cannot leave the sandbox")


def decode(form):
    """Plain data from its JSON form."""
    if not isinstance(form, list):
        return form
    kind, *rest = form
    if kind == "int":
        return int(rest[0], 16)
    if kind == "float":
        return float.fromhex(rest[0])
    if kind == "complex":
        return complex(float.fromhex(rest[0]), float.fromhex(rest[1]))
    if kind == "bytes":
        return bytes.fromhex(rest[0])
    if kind in CONTAINERS:
        return CONTAINERS[kind](map(decode, rest[0]))
    if kind == "dict":
        return {decode(key): decode(value) for key, value in rest[0]}
    if kind == "range":
        return range(*(int(number, 16) for number in rest))
    if kind == "iterator":
        return iter([decode(item) for item in rest[0]])
    if kind in TEXTS:
        return TEXTS[kind][1](rest[0])
    raise ValueError("unknown form")


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
            result = "opaque", "TypeError", str(error)
        except BaseException as error:
            result = "error", type(error).__name__, str(error)[:200]
        send(*result)


def set_limits(limits, others):
    """Lower what this process may use, beside `others` processes of its user; what the system lacks stays as it is."""
    for name, value in limits if resource else ():
        value += others if name == "RLIMIT_NPROC" else 0
        try:
            resource.setrlimit(getattr(resource, name), (value, value))
        except (AttributeError, ValueError, OSError):
            pass


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


def run_job(size, out, spare):
    """Read the job and run it; the descriptor `out` takes its results. Does not return."""
    job = json.loads(read_exactly(0, size))
    framed = out is None
    out = os.dup(1) if framed else out
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, encoding="utf-8", closefd=False) for fd, mode in
                                         ((0, "r"), (1, "w"), (2, "w")))
    os.environ.clear()
    del sys.argv[1:]
    set_limits(job["limits"], spare)
    random.seed(0)
    nonce, dumps, write, leave = job["nonce"], json.dumps, write_all, os._exit

    def send(*result):
        line = (dumps([nonce, *result]) + "\n").encode()
        write(out, CHUNK.pack(CODES["data"], len(line)) + line if framed else line)

    perform(job, send)
    leave(0)


def serve_once():
    """Without `fork` (Windows) each process takes one job; the parent watches the clock."""
    header = read_exactly(0, HEADER.size)
    if len(header) == HEADER.size:
        run_job(HEADER.unpack(header)[0], None, 0)


class Server:
    """Forks one process for each job, relays its results, ends and removes everything that the job leaves behind."""

    def __init__(self, own_user):
        self.folder = os.getcwd()
        self.alone = os.getpid() == 1  # process 1 of a namespace: every other process there is a job's
        self.others = 1 if self.alone or own_user else count_tasks()
        self.buffer = bytearray(1 << 16)
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)

    def serve(self):
        """Run jobs until the parent closes the pipe, or a job leaves something that cannot be removed."""
        while len(header := read_exactly(0, HEADER.size)) == HEADER.size:
            size, seconds, most = HEADER.unpack(header)
            out, write_end = os.pipe()
            job = os.fork()
            if not job:
                os.close(out)
                os.setsid()
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(self.woken)
                run_job(size, write_end, self.others)
            os.close(write_end)
            end = self.relay(job, out, time.monotonic() + seconds, most)
            os.close(out)
            self.kill(job)
            try:
                remove_contents(self.folder)
            except OSError:
                tell(end, "last")
                return
            tell(end)

    def relay(self, job, out, deadline, most):
        """Pass results on until the job ends, is late or sends too much; say which."""
        sent, running = 0, True
        while True:
            left = max(0.0, deadline - time.monotonic()) if running else 0.0
            ready = select.select([out, self.woken], [], [], left)[0]
            if self.woken in ready:
                os.read(self.woken, 4096)
            if out in ready:
                count = os.readv(out, [self.buffer])
                if not count:
                    return "end"
                sent += count
                if sent > most:
                    return "output"
                write_all(1, CHUNK.pack(CODES["data"], count))
                write_all(1, memoryview(self.buffer)[:count])
                self.buffer[:count] = bytes(count)  # a later fork must not find it
            elif not running:
                return "end"
            if running and time.monotonic() >= deadline:
                return "late"
            running = running and os.waitpid(job, os.WNOHANG)[0] == 0

    def kill(self, job):
        """End every process that the job left."""
        while True:
            try:
                if self.alone:
                    os.kill(-1, signal.SIGKILL)
                else:
                    os.killpg(job, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass
            try:
                if not os.waitpid(-1, os.WNOHANG)[0]:
                    for process in () if self.alone else children():
                        os.kill(process, signal.SIGKILL)
                    os.waitpid(-1, 0)
            except ChildProcessError:
                return


def children():
    """Processes whose parent is this one; on Linux orphans of a job are among them (see `harden`)."""
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            with open("/proc/" + name + "/stat", encoding="utf-8", errors="replace") as file:
                if int(file.read().rpartition(")")[2].split()[1]) == os.getpid():
                    found.append(int(name))
        except (OSError, ValueError, IndexError):
            pass
    return found


def count_tasks():
    """Processes and threads that this user has already: the system's limit counts them too."""
    count = 0
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():
        try:
            if name.isdigit() and os.stat("/proc/" + name).st_uid == os.geteuid():
                count += len(os.listdir("/proc/" + name + "/task"))
        except OSError:
            pass
    return count or 1 << 16  # not known here (macOS): no limit of ours


def remove_contents(folder):
    """Empty a folder whatever its depth and modes: what is in a sub-folder moves up before the sub-folder goes."""
    serial = itertools.count()
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                for inner in os.listdir(entry.path):
                    if os.path.isdir(os.path.join(entry.path, inner)):
                        os.chmod(os.path.join(entry.path, inner), 0o700)
                    os.rename(os.path.join(entry.path, inner), os.path.join(folder, "moved%d" % next(serial)))
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)



def drop_user(user):
    """Become another user, if root: limits on processes do not bind root. True if it worked."""
    for number in (user, 65534):
        try:
            os.chown(".", number, number)
            os.setgroups([])
            os.setresgid(number, number, number)
            os.setresuid(number, number, number)
            return True
        except OSError:
            pass
    return False


def harden(libc):
    """On Linux: no new privileges, no capabilities, no tracing of this process; adopt orphans; end with the parent."""
    no_new_privileges, not_dumpable, adopt, drop_capability = (38, 1), (4, 0), (36, 1), 24
    for capability in range(64):
        libc.prctl(drop_capability, capability, 0, 0, 0)
    libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24))
    for option in (no_new_privileges, not_dumpable, adopt):
        libc.prctl(*option, 0, 0, 0)


def enter_namespaces(libc, ctypes, read_only, hidden):
    """Linux without bubblewrap: a process tree, network, and file system of our own. Returns in a fork, as process 1.

    Raises:
        OSError: the kernel does not allow it.
    """
    mounts, processes, network, ipc, names, users = 0x20000, 0x20000000, 0x40000000, 0x8000000, 0x4000000, 0x10000000
    nosuid, nodev, remount, bind, move, recursive, private = 2, 4, 32, 4096, 8192, 16384, 1 << 18
    everything = mounts | processes | network | ipc | names
    user, group = os.geteuid(), os.getegid()

    def check(result, what):
        if result:
            number = ctypes.get_errno()
            raise OSError(number, what + ": " + os.strerror(number))

    def mount(source, target, kind, flags, data=None):
        arguments = (text.encode() if text else None for text in (source, target, kind))
        check(libc.mount(*arguments, ctypes.c_ulong(flags), data.encode() if data else None), "mount " + target)

    def show(path, flags):
        target = root + path
        if os.path.isdir(path):
            os.makedirs(target, exist_ok=True)
        else:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            open(target, "w").close()
        mount(path, target, None, bind | recursive)
        locked = os.statvfs(target).f_flag & 0x3FF & ~remount  # a user namespace may not lift what the system has set
        mount(None, target, None, remount | bind | nosuid | flags | locked)

    if user or libc.unshare(everything):
        check(libc.unshare(everything | users), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", "%d %d 1" % (user, user)),
                           ("gid_map", "%d %d 1" % (group, group))):
            with open("/proc/self/" + name, "w", encoding="ascii") as file:
                file.write(text)
    outside = os.fork()
    if outside:  # this process only waits, so that the parent has one to wait for
        os.close(0)
        os.close(1)
        os.waitpid(outside, 0)
        os._exit(0)
    libc.prctl(1, signal.SIGKILL, 0, 0, 0)
    mount(None, "/", None, private | recursive)
    root = "/proc"  # any folder that is there and not needed
    mount("tmpfs", root, "tmpfs", nosuid | nodev, "size=4m,nr_inodes=4096,mode=755")
    for path in read_only:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            show(path, 1 | nodev)
    for path in hidden:
        mount("tmpfs", root + path, "tmpfs", 1 | nosuid | nodev)
    for path in ("/dev/null", "/dev/urandom"):
        show(path, 0)
    os.mkdir(root + "/tmp")
    mount("tmpfs", root + "/tmp", "tmpfs", nosuid | nodev, "size=32m,nr_inodes=1024,mode=755")
    os.chdir(root)
    mount(".", "/", None, move)
    os.chroot(".")
    mount(None, "/", None, remount | bind | 1 | nosuid | nodev)
    os.chdir("/tmp")


def main():
    """Isolate this process as argument 1 (JSON: way, folder, user, read_only, hidden) says, then serve."""
    setup = json.loads(sys.argv[1])
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
        Server(dropped).serve()
    else:
        serve_once()


if __name__ == "__main__":
    main()
