"""The system calls that candidate code does not get, as a classic BPF program for seccomp(2).

A deny list, closed above: calls newer than the table answer ENOSYS, another instruction set's calls end the process.
It backs up the namespaces and, where there are none, is what stands between the candidate and the processes of the
same user: no sockets, no ptrace, no signals to others, no new namespaces, and no processes unless they are allowed.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from composer_rl.sandboxes.template import kernel

AUDIT_ARCH = {"x86_64": 0xC000_003E, "aarch64": 0xC000_00B7, "riscv64": 0xC000_00F3}
"""Instruction sets that the table covers, with the kernel's number for each."""
HIGHEST_CALL = 450
"""Newest system call that the table was written against (Linux 6.1)."""

# name: (x86_64, the generic table of aarch64 and riscv64); None where the call does not exist.
_NUMBERS: dict[str, tuple[int | None, int | None]] = {
    # processes of others
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "kcmp": (312, 272),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "kill": (62, 129),
    "tkill": (200, 130),
    "tgkill": (234, 131),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setparam": (142, 118),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "ioprio_set": (251, 30),
    "migrate_pages": (256, 238),
    "move_pages": (279, 239),
    "prlimit64": (302, 261),
    # new processes and programs
    "fork": (57, None),
    "vfork": (58, None),
    "clone": (56, 220),
    "clone3": (435, 435),
    "execve": (59, 221),
    "execveat": (322, 281),
    # network and shared objects that outlive a process
    "socket": (41, 198),
    "socketpair": (53, 199),
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    # memory that RLIMIT_AS does not see
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    "vmsplice": (278, 75),
    # namespaces, mounts, the machine
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "mount_setattr": (442, 442),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "iopl": (172, None),
    "ioperm": (173, None),
    "modify_ldt": (154, None),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "lookup_dcookie": (212, 18),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "nfsservctl": (180, 42),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "sync": (162, 81),
    "syncfs": (306, 267),
    "personality": (135, 92),
    # wide and seldom needed kernel surfaces
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "remap_file_pages": (216, 234),
    "fanotify_init": (300, 262),
    "open_by_handle_at": (304, 265),
    "name_to_handle_at": (303, 264),
    # ownership, and attributes that Landlock does not cover
    "chown": (92, None),
    "lchown": (94, None),
    "fchown": (93, 55),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "chmod": (90, None),
    "fchmod": (91, 52),
    "fchmodat": (268, 53),
    "truncate": (76, 45),
    "fallocate": (285, 47),
    "utime": (132, None),
    "utimes": (235, None),
    "utimensat": (280, 88),
    "futimesat": (261, None),
    # judged by their arguments
    "fcntl": (72, 25),
    "ioctl": (16, 29),
    "prctl": (157, 167),
}
_FILES = ("chmod", "fchmod", "fchmodat", "truncate", "fallocate", "utime", "utimes", "utimensat", "futimesat")
_PROCESSES = ("fork", "vfork", "execve", "execveat")

_CLONE_THREAD = 0x0001_0000
_CLONE_NEW_ANY = 0x7E02_0000
_AF_UNIX = 1
_FCNTL_DENIED = (8, 10, 15, 1024, 1026, 1031)  # SETOWN, SETSIG, SETOWN_EX, SETLEASE, NOTIFY, SETPIPE_SZ
_IOCTL_DENIED = (0x5412, 0x8901, 0x8902, 0x4008_6602, 0x401C_5820)  # TIOCSTI, (F|SIOC)SETOWN, inode flags twice

_LOAD, _JUMP, _JEQ, _JGT, _JGE, _JSET, _RETURN = 0x20, 0x05, 0x15, 0x25, 0x35, 0x45, 0x06
_LONGEST_JUMP = 255
_ALLOW, _KILL, _ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
_OFFSET_NUMBER, _OFFSET_ARCH, _OFFSET_ARGUMENTS = 0, 4, 16


def supported() -> bool:
    """Whether the table knows this machine's instruction set."""
    return kernel.LINUX and kernel.MACHINE in AUDIT_ARCH


def number(name: str) -> int | None:
    """This machine's number of a system call of the table, None where the call does not exist."""
    return _NUMBERS[name][0 if kernel.MACHINE == "x86_64" else 1]


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _refuse(error: int = errno.EPERM) -> bytes:
    return _step(_RETURN, _ERRNO | error)


def _allow() -> bytes:
    return _step(_RETURN, _ALLOW)


def _argument(index: int) -> bytes:
    """Load the low half of an argument (the tested ones are 32 bits wide)."""
    return _step(_LOAD, _OFFSET_ARGUMENTS + 8 * index)


def _only(index: int, values: tuple[int, ...]) -> bytes:
    """Allow the call when the argument is one of the values."""
    tests = b"".join(_step(_JEQ, value, 0, 1) + _allow() for value in values)
    return _argument(index) + tests + _refuse()


def _except(index: int, values: tuple[int, ...]) -> bytes:
    """Allow the call unless the argument is one of the values."""
    tests = b"".join(_step(_JEQ, value, 0, 1) + _refuse() for value in values)
    return _argument(index) + tests + _allow()


def program(*, own_pid: int, processes: bool, attributes: bool) -> bytes:
    """The BPF program for a child whose pid is `own_pid`.

    `processes`: it may fork, exec and signal what it can see. `attributes`: it may change modes and times of files
    and reserve space (only where other files are out of reach and the scratch folder is a bounded mount).
    """
    bodies = {name: _refuse() for name in _NUMBERS}
    bodies |= dict.fromkeys(_FILES if attributes else (), _allow())
    bodies |= {
        "clone": _argument(0) + _step(_JSET, _CLONE_THREAD, 1, 0) + _refuse() + _allow(),
        "clone3": _refuse(errno.ENOSYS),  # its flags lie in memory, out of a filter's sight; libc falls back to clone
        "kill": _only(0, (own_pid,)),
        "tgkill": _only(0, (own_pid,)),
        "prlimit64": _only(0, (0, own_pid)),
        "socketpair": _only(0, (_AF_UNIX,)),
        "fcntl": _except(1, _FCNTL_DENIED),
        "ioctl": _except(1, _IOCTL_DENIED),
        "prctl": _except(0, (kernel.PR_SET_PDEATHSIG,)),
    }
    if processes:
        bodies["clone"] = _argument(0) + _step(_JSET, _CLONE_NEW_ANY, 0, 1) + _refuse() + _allow()
        bodies |= dict.fromkeys((*_PROCESSES, "kill", "tgkill"), _allow())
    cases = [(call, body) for name, body in bodies.items() if (call := number(name)) is not None]
    start = _step(_LOAD, _OFFSET_ARCH) + _step(_JEQ, AUDIT_ARCH[kernel.MACHINE], 1, 0) + _step(_RETURN, _KILL)
    start += _step(_LOAD, _OFFSET_NUMBER)
    start += _step(_JGT, HIGHEST_CALL, 0, 1) + _refuse(errno.ENOSYS)  # the x32 calls lie above as well
    return start + _search(sorted(cases))


def _search(cases: list[tuple[int, bytes]]) -> bytes:
    """Binary search for the call's number, then its body; every other call is allowed.

    The kernel walks the program once for every call number when it is installed, so short paths save a third of a
    millisecond per child over a linear list.
    """
    if len(cases) == 1:
        call, body = cases[0]
        return _step(_JEQ, call, 0, len(body) // 8) + body + _allow()
    middle = len(cases) // 2
    low, high = _search(cases[:middle]), _search(cases[middle:])
    skip = len(low) // 8
    first = cases[middle][0]
    if skip <= _LONGEST_JUMP:
        return _step(_JGE, first, skip, 0) + low + high
    return _step(_JGE, first, 0, 1) + _step(_JUMP, skip) + low + high


def install(code: bytes) -> None:
    """Put the program in force for this process and what it starts; needs PR_SET_NO_NEW_PRIVS. OSError if refused."""

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))

    wanted = Program(len(code) // 8, code)
    kernel.prctl(kernel.PR_SET_SECCOMP, kernel.SECCOMP_MODE_FILTER, "prctl(PR_SET_SECCOMP)", ctypes.byref(wanted))
