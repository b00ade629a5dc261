"""The few kernel calls that Python's os module lacks, through ctypes; every failure is an OSError that names it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys

CLONE_NEWNS = 0x0002_0000
CLONE_NEWUTS = 0x0400_0000
CLONE_NEWIPC = 0x0800_0000
CLONE_NEWUSER = 0x1000_0000
CLONE_NEWPID = 0x2000_0000
CLONE_NEWNET = 0x4000_0000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 0x20, 0x1000, 0x2000, 0x4000, 0x4_0000
MNT_DETACH = 2

PR_SET_PDEATHSIG = 1
PR_SET_SECCOMP = 22
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4
SECCOMP_MODE_FILTER = 2

LINUX = sys.platform == "linux"
"""Whether the calls of this module exist at all."""
MACHINE = platform.machine()
"""Instruction set as the kernel names it ("x86_64", "aarch64", "riscv64")."""

_libc = ctypes.CDLL(None, use_errno=True)
_CAPABILITY_VERSION_3 = 0x2008_0522


def _check(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move this process (or, for the pid namespace, its next child) into new namespaces."""
    _check(_libc.unshare(flags), f"unshare({flags:#x})")


def setns(fd: int, flags: int) -> None:
    """Join the namespace that a /proc/<pid>/ns descriptor names."""
    _check(_libc.setns(fd, flags), "setns")


def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
    """mount(2), with None for the arguments that a given use ignores."""
    encoded = [None if text is None else os.fsencode(text) for text in (source, target, kind, data)]
    result = _libc.mount(encoded[0], encoded[1], encoded[2], ctypes.c_ulong(flags), encoded[3])
    _check(result, f"mount({source or kind} on {target})")


def detach(target: str) -> None:
    """Unmount now or as soon as nothing uses it."""
    _check(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount({target})")


def prctl(option: int, value: int, what: str, third: object = 0) -> None:
    """prctl(2) with two or three arguments."""
    argument = ctypes.c_ulong(third) if isinstance(third, int) else third
    _check(_libc.prctl(option, ctypes.c_ulong(value), argument, ctypes.c_ulong(0), ctypes.c_ulong(0)), what)


def syscall(number: int, what: str, *arguments: object) -> int:
    """A system call without a libc wrapper; int arguments are passed as unsigned long."""
    converted = [ctypes.c_ulong(value) if isinstance(value, int) else value for value in arguments]
    return _check(_libc.syscall(ctypes.c_long(number), *converted), what)


def drop_capabilities() -> None:
    """Empty the effective, permitted, inheritable and ambient capability sets of this thread."""
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, "prctl(PR_CAP_AMBIENT)")
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    data = (ctypes.c_uint32 * 6)()
    _check(_libc.capset(header, data), "capset")
