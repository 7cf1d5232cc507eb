"""What the Linux kernel refuses to a program: system calls (seccomp) and, where there is no wall, files (Landlock).

Both need no rights. They are inherited by whatever a program starts, and nothing lifts them.
"""

import errno
import os
import struct

ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}  # what seccomp calls it; column of CALLS
CALLS = {
    # a network, and other programs' sockets: only pairs that are connected to each other are left
    "socket": (41, 198), "socketpair": (53, 199),
    # memory that no limit on processes counts, or that outlives them
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "semget": (64, 190), "semop": (65, 193),
    "semtimedop": (220, 192), "semctl": (66, 191), "msgget": (68, 186), "msgsnd": (69, 189), "msgrcv": (70, 188),
    "msgctl": (71, 187), "memfd_create": (319, 279), "memfd_secret": (447, 447), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "process_madvise": (440, 440),
    "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240), "prlimit64": (302, 261),
    # parts of the kernel that have often had errors, and namespaces, which give access to more of it
    "io_uring_setup": (425, 425), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "unshare": (272, 97), "setns": (308, 268), "clone": (56, 220), "clone3": (435, 435), "mount": (165, 40),
    "open_tree": (428, 428), "fsopen": (430, 430), "open_by_handle_at": (304, 265),
}
SIGNALS = ("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo")
NEW_NAMESPACES = 0x7E020000
STREAM = 1

LOAD, AND, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000


def call_filter(architecture, only=None):
    """The seccomp program as bytes.

    Args:
        architecture: the machine's name, as `os.uname` gives it.
        only: a process; then the program is another one: signals may go to this process alone.

    Raises:
        OSError: an architecture whose numbers are not known here.
    """
    if architecture not in ARCHITECTURES or struct.calcsize("P") != 8:
        raise OSError("the numbers of system calls are not known for " + architecture)
    name, column = ARCHITECTURES[architecture]
    refused, argument = (RETURN, 0, 0, REFUSE | errno.EPERM), lambda number: (LOAD, 0, 0, 16 + 8 * number)
    allowed = RETURN, 0, 0, ALLOW
    lines = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, name), refused, (LOAD, 0, 0, 0), (AT_LEAST, 0, 1, 1 << 30), refused]
    for call, numbers in CALLS.items():
        if (call in SIGNALS) != (only is not None):
            continue
        then = [refused]
        if call == "clone":
            then = [argument(0), (ANY_BIT, 0, 1, NEW_NAMESPACES), refused, allowed]
        elif call == "clone3":  # its arguments are in memory: the C library then takes `clone`
            then = [(RETURN, 0, 0, REFUSE | errno.ENOSYS)]
        elif call == "socketpair":  # a pair of another type could send to other addresses
            then = [argument(1), (AND, 0, 0, 0xF), (EQUAL, 0, 1, STREAM), allowed, refused]
        elif call == "prlimit64":  # 0 is the process itself
            then = [argument(0), (EQUAL, 0, 1, 0), allowed, refused]
        elif only is not None:  # 0 is the process itself or its group
            then = [argument(0), (EQUAL, 2, 0, 0), (EQUAL, 1, 0, only), refused, allowed]
        lines += [(EQUAL, 0, len(then), numbers[column]), *then]
    return b"".join(struct.pack("=HBBI", *line) for line in (*lines, allowed))


def refuse_calls(libc, ctypes, only=None):
    """Leave this process fewer system calls: `call_filter`. It costs more than a fork, which inherits it.

    Raises:
        OSError: the kernel does not do it.
    """
    program = call_filter(os.uname().machine, only)
    text = ctypes.create_string_buffer(program, len(program))
    head = ctypes.create_string_buffer(struct.pack("HP", len(program) // 8, ctypes.addressof(text)))
    if libc.prctl(22, 2, ctypes.addressof(head), 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


class Files:
    """A Landlock rule set: nothing but system folders can be read, nothing but `folder` written.

    Raises:
        OSError: the kernel does not have it, or a folder cannot be opened.
    """

    EXECUTE, WRITE, READ, LIST, TRUNCATE, DEVICES = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
    CREATE, ADD, RESTRICT = 444, 445, 446  # the same numbers on each architecture

    def __init__(self, libc, ctypes, read_only, hidden, folder):
        self.libc, self.ctypes = libc, ctypes
        version = self._call(self.CREATE, None, 0, 1)
        self._all = (1 << (13 if version < 2 else 14 if version < 3 else 15 if version < 5 else 16)) - 1
        network, scope = (3 if version >= 4 else None), (3 if version >= 6 else None)  # TCP; sockets and signals
        asked = b"".join(struct.pack("=Q", part) for part in (self._all, network, scope) if part is not None)
        self._rules = self._call(self.CREATE, asked, len(asked), 0)
        for path in map(os.path.realpath, read_only):
            self._show(path, [os.path.realpath(inner) for inner in hidden])
        for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
            self._allow(path, self.READ | self.WRITE)
        self._allow(folder, self._all & ~self.DEVICES)

    def _show(self, path, hidden):
        """Allow reading in a folder; of folders that are hidden below it not more than their names can be seen."""
        inside = [other for other in hidden if (other + "/").startswith(path + "/")]
        if not inside:
            self._allow(path, self.READ | self.LIST | self.EXECUTE)
        elif path not in inside:
            self._allow(path, self.LIST)
            for entry in os.scandir(path):
                if not entry.is_symlink():
                    self._show(entry.path, inside)

    def _allow(self, path, rights):
        if os.path.exists(path):
            rights &= self._all if os.path.isdir(path) else self.EXECUTE | self.WRITE | self.READ | self.TRUNCATE
            fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            self._call(self.ADD, self._rules, 1, struct.pack("=Qi", rights & self._all, fd), 0)
            os.close(fd)

    def restrict(self):
        """Apply the rules to this process."""
        self._call(self.RESTRICT, self._rules, 0)

    def _call(self, number, *arguments):
        long = self.ctypes.c_long
        result = self.libc.syscall(*(long(part) if isinstance(part, int) else part for part in (number, *arguments)))
        if result < 0:
            raise OSError(self.ctypes.get_errno(), "landlock")
        return result
