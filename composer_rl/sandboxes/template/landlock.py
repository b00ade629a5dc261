"""File access of an ordinary process limited to named paths, by Linux's Landlock (kernel 5.13 and later)."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

from composer_rl.sandboxes.template import kernel

_CREATE, _ADD_RULE, _RESTRICT = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_SYM = (1 << bit for bit in (7, 8, 9, 10, 12))
_REFER, _TRUNCATE, _IOCTL_DEVICE = (1 << bit for bit in (13, 14, 15))
_ALL_FIRST = (1 << 13) - 1
_ALL_NETWORK = 3
_ALL_SCOPES = 3

READ = _EXECUTE | _READ_FILE | _READ_DIR
"""Rights on library folders."""
LIST = _READ_DIR
"""Right to list a folder, and those below it, without reading a file."""
DEVICE = _READ_FILE | _WRITE_FILE
"""Rights on /dev/null and its like."""
SCRATCH = READ & ~_EXECUTE | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _MAKE_SYM
SCRATCH |= _REFER | _TRUNCATE
"""Rights on the scratch folder; rights that the kernel does not know yet are left out."""
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEVICE


def version() -> int:
    """The kernel's Landlock version, 0 when it has none."""
    if not kernel.LINUX:
        return 0
    try:
        return kernel.syscall(_CREATE, "landlock_create_ruleset", None, 0, _VERSION_FLAG)
    except OSError:
        return 0


def _handled(level: int) -> int:
    rights = _ALL_FIRST
    for needed, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEVICE)):
        if level >= needed:
            rights |= right
    return rights


def ruleset(rules: Iterable[tuple[str, int]]) -> int:
    """A ruleset descriptor that grants each path (and what is below it) its rights, and nothing else anywhere.

    Paths that do not exist are left out. Raises OSError where Landlock is missing.
    """
    level = version()
    handled = _handled(level)
    fields = [handled] + [_ALL_NETWORK] * (level >= 4) + [_ALL_SCOPES] * (level >= 6)
    attributes = (ctypes.c_uint64 * len(fields))(*fields)
    size = ctypes.sizeof(attributes)
    fd = kernel.syscall(_CREATE, "landlock_create_ruleset", ctypes.byref(attributes), size, 0)
    for path, rights in rules:
        try:
            target = os.open(path, getattr(os, "O_PATH", 0) | os.O_CLOEXEC)
        except (FileNotFoundError, PermissionError):
            continue
        try:
            allowed = rights & handled
            if not os.path.isdir(path):
                allowed &= _FILE_RIGHTS
            beneath = allowed.to_bytes(8, "little") + target.to_bytes(4, "little")
            kernel.syscall(_ADD_RULE, f"landlock_add_rule({path})", fd, _PATH_BENEATH, beneath, 0)
        finally:
            os.close(target)
    return fd


def restrict(fd: int) -> None:
    """Put a ruleset in force for this process; needs PR_SET_NO_NEW_PRIVS."""
    kernel.syscall(_RESTRICT, "landlock_restrict_self", fd, 0)
