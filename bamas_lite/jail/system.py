"""What the operating system can do to keep a process apart, where it can: limits, users, namespaces, cleaning up."""

import os
import signal
import struct

try:
    import resource
except ImportError:  # Windows: time is the only limit
    resource = None

FEW_FILES = b"size=32m,nr_inodes=1024,mode=755"
"""Options of the file system that holds a job's folder."""


def set_limits(limits, others):
    """Lower what this process may use, beside `others` processes of its user; what the system lacks stays as it is."""
    for name, value in limits if resource else ():
        value += others if name == "RLIMIT_NPROC" else 0
        try:
            resource.setrlimit(getattr(resource, name), (value, value + (name == "RLIMIT_CPU")))
        except (AttributeError, ValueError, OSError):
            pass


def go_first():
    """Let the kernel end this process and what it starts before any other when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("1000")
    except OSError:  # under bubblewrap, where its parent has done it
        pass


def end_all(job, kill):
    """End every process that a job left: `kill` reaches them all, else the job's group and orphans are ended."""
    while True:
        try:
            if kill:
                kill()
            else:
                os.killpg(job, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass
        try:
            if not os.waitpid(-1, os.WNOHANG)[0]:
                for process in () if kill else children():
                    os.kill(process, signal.SIGKILL)
                os.waitpid(-1, 0)
        except ChildProcessError:
            return


def kill_all():
    """End every other process that this one may end."""
    os.kill(-1, signal.SIGKILL)


def alone():
    """Whether no other process is left in a tree of which this is process 1; False also where that is not known."""
    try:
        os.kill(-1, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass
    return False


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


def remove_contents(folder, most=None):
    """Empty a folder, whatever its depth and modes: what is in a sub-folder moves up before the sub-folder goes.

    Raises:
        OSError: there are more than `most` files.
    """
    removed, prefix = 0, os.urandom(8).hex()
    while entries := list(os.scandir(folder)):
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, 0o700)
                for inner in os.listdir(entry.path):
                    path = os.path.join(entry.path, inner)
                    if os.path.isdir(path) and not os.path.islink(path):
                        os.chmod(path, 0o700)  # else it could not be moved
                    os.rename(path, os.path.join(folder, f"{prefix}-{removed}"))
                    removed += 1
                os.rmdir(entry.path)
            else:
                os.unlink(entry.path)
            removed += 1
            if most is not None and removed > most:
                raise OSError("too many files")


def remove_shared(libc, ctypes):
    """Remove the System V shared memory, message queues and semaphores of this user: they outlive processes."""
    buffer = ctypes.create_string_buffer(1024)
    for control, highest, status in ((lambda number, what: libc.shmctl(number, what, buffer), 14, 15),
                                     (lambda number, what: libc.msgctl(number, what, buffer), 12, 13),
                                     (lambda number, what: libc.semctl(number, 0, what, buffer), 19, 20)):
        for index in range(control(0, highest) + 1):
            number = control(index, status)
            if number >= 0:
                control(number, 0)


def shared_left(libc, ctypes):
    """Whether System V objects are left in this IPC namespace; True also where that is not known."""
    buffer = ctypes.create_string_buffer(1024)
    counts = []
    for control, info, place in ((lambda what: libc.shmctl(0, what, buffer), 14, 0),
                                 (lambda what: libc.msgctl(0, what, buffer), 12, 0),
                                 (lambda what: libc.semctl(0, 0, what, buffer), 19, 7)):
        counts.append(struct.unpack_from("i", buffer, 4 * place)[0] if control(info) >= 0 else 1)
    return any(counts)


def become(user, guarded=False):
    """Become another user, if root; `guarded`: with its rights, but out of reach of its signals."""
    os.setgroups([])
    os.setgid(user)
    if guarded and hasattr(os, "setresuid"):
        os.setresuid(user + 1, user, user + 1)
    else:
        os.setuid(user)


def in_fork(action):
    """Run `action` in a fork; True if it raised nothing."""
    fork = os.fork()
    if fork:
        return os.waitpid(fork, 0)[1] == 0
    try:
        action()
        os._exit(0)
    finally:
        os._exit(1)


def other_user(number):
    """A user whose rights the programs get, if root may give them (limits on processes do not bind root), or None."""
    for user in (2 * number, 61_000 + number % 2000 * 2):  # a container may know only small numbers
        if hasattr(os, "geteuid") and os.geteuid() == 0 and in_fork(lambda user=user: become(user)):
            return user
    return None


def harden(libc):
    """On Linux: no new privileges, no tracing of this process, adopt orphans; of root's capabilities keep those to
    become another user and to give away a folder."""
    no_new_privileges, not_dumpable, adopt, drop_capability = (38, 1), (4, 0), (36, 1), 24
    for capability in range(64):
        libc.prctl(drop_capability, capability, 0, 0, 0)
    kept = 1 << 0 | 1 << 6 | 1 << 7 if os.geteuid() == 0 else 0  # CAP_CHOWN, CAP_SETGID, CAP_SETUID
    libc.capset(struct.pack("=Ii", 0x20080522, 0), struct.pack("=6I", kept, kept, 0, 0, 0, 0))
    for option in (no_new_privileges, not_dumpable, adopt):
        libc.prctl(*option, 0, 0, 0)


def limit_files(libc, ctypes):
    """Under bubblewrap, which can limit only their size: limit the number of files too, where that is allowed."""
    mounts, nosuid, nodev = 0x20000, 2, 4
    if libc.unshare(mounts) == 0:
        libc.mount(b"tmpfs", b"/tmp", b"tmpfs", ctypes.c_ulong(nosuid | nodev), FEW_FILES)


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
        locked = os.statvfs(target).f_flag & 0xF  # read-only, nosuid, nodev, noexec: a user namespace may not lift them
        mount(None, target, None, remount | bind | nosuid | flags | locked)

    if user or libc.unshare(everything):
        check(libc.unshare(everything | users), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"),
                           ("gid_map", f"{group} {group} 1")):
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
        os.makedirs(os.path.dirname(root + path), exist_ok=True)
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        elif os.path.exists(path):
            show(path, 1 | nodev)
    for path in hidden:
        mount("tmpfs", root + path, "tmpfs", 1 | nosuid | nodev)
    for path in ("/dev/null", "/dev/urandom"):
        show(path, 0)
    os.makedirs(root + "/tmp", exist_ok=True)
    mount("tmpfs", root + "/tmp", "tmpfs", nosuid | nodev, FEW_FILES.decode())
    os.chdir(root)
    mount(".", "/", None, move)
    os.chroot(".")
    mount(None, "/", None, remount | bind | 1 | nosuid | nodev)
    os.chdir("/tmp")
