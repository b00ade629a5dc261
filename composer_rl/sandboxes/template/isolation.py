"""The ways of keeping candidate code apart from the machine; a template uses exactly one.

`namespaces`: a root, a pid table and a network of its own. `setuid`: root drops to an unprivileged user.
`landlock`: an ordinary user's process limited by Landlock. `none`: resource limits only (allow_weak).
Each lays seccomp on top (`none` where it exists). `prepare` runs once in the template, `confine` in every child.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from composer_rl.sandboxes.template import cleanup, kernel, landlock, library, namespaces, seccomp

_PRELOADED_WHERE_UNREADABLE = (
    "array", "base64", "calendar", "cmath", "contextlib", "decimal", "fractions", "graphlib", "hashlib", "io",
    "numbers", "pprint", "queue", "statistics", "struct", "textwrap", "threading", "time", "unicodedata", "uuid",
)  # fmt: skip


@dataclass(kw_only=True)
class Isolation:
    """Resource limits and, where it exists, seccomp: the base of the others and the mode called `none`."""

    uid: int
    """User id that a root's child becomes; the group id is the same number."""
    scratch_root: str
    """This worker's own folder for scratch folders, used where none can be mounted."""
    limits: dict[str, Any]
    """Fields of `Limits`."""
    name: str = "none"
    strict: bool = False
    """Whether a step that fails makes the template unusable."""
    separate_pids: bool = False
    """Whether every child has a pid namespace, so that its end is the end of all it started."""
    _landlock: int | None = field(default=None, init=False)
    _folder: str = field(default="", init=False)

    def prepare(self) -> str:
        """Set up the template; returns what is in force, in words. OSError names what is missing."""
        self._folder = os.path.join(self.scratch_root, "scratch")
        os.mkdir(self._folder, 0o700)
        if os.geteuid() == 0:
            os.chmod(self.scratch_root, 0o711)
            os.chown(self._folder, self.uid, self.uid)
        return "seccomp" if seccomp.supported() else "resource limits only"

    def before_fork(self) -> None:
        """Called in the template right before it forks a child."""

    def after_fork(self) -> None:
        """Called in the template right after it forked a child."""

    def after_job(self) -> None:
        """Called in the template when the child is reaped."""
        os.chmod(self._folder, 0o700)
        cleanup.empty_folder(self._folder)

    def discard(self) -> None:
        """Called in the template when its parent is gone: leave no file behind."""
        if os.path.isdir(self.scratch_root):
            cleanup.remove_tree(self.scratch_root)

    def enter_scratch(self) -> None:
        """In the child: make the scratch folder the working directory."""
        os.chdir(self._folder)

    def drop_privileges(self) -> None:
        """In the child: become an unprivileged user; nothing of the child can undo it."""
        if os.geteuid() == 0:
            with contextlib.suppress(OSError):
                self._become_user()

    def confine(self, close_descriptors: Callable[[], None]) -> None:
        """In the child, last step: no new privileges, no descriptors, paths or calls that are not needed."""
        if kernel.LINUX:
            kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1, "prctl(PR_SET_NO_NEW_PRIVS)")
        if self._landlock is not None:
            landlock.restrict(self._landlock)
        close_descriptors()
        if seccomp.supported():
            seccomp.install(self._filter())

    def _filter(self) -> bytes:
        processes = self.limits["max_processes"] > 0
        return seccomp.program(own_pid=os.getpid(), processes=processes, attributes=False)

    def _become_user(self) -> None:
        os.setgroups([])
        os.setgid(self.uid)
        os.setuid(self.uid)

    def _rules(self) -> list[tuple[str, int]]:
        rules = [(self._folder, landlock.SCRATCH), (library.LOADER_CACHE, landlock.READ)]
        rules += [(path, landlock.DEVICE) for path in library.DEVICES]
        for folder in library.folders():
            rules.append((folder, landlock.LIST))
            for part in library.readable_parts(folder, library.hidden(folder)):
                rules.append((part, landlock.READ))
        return rules


@dataclass(kw_only=True)
class NamespaceIsolation(Isolation):
    """A root, pid table, network and scratch mount of the child's own; the template is pid 1 of its namespace."""

    name: str = "namespaces"
    strict: bool = True
    separate_pids: bool = True
    _own_pids: int = field(default=-1, init=False)
    _as_root: bool = field(default=False, init=False)
    _program: bytes = field(default=b"", init=False)

    def unshare(self) -> None:
        """In the launcher, before the template is forked."""
        _need_seccomp()
        self._as_root = namespaces.may_drop_to(self.uid)
        namespaces.enter(self._as_root)

    def prepare(self) -> str:
        self._own_pids = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        _prefer_for_oom()
        namespaces.build_root()
        processes = self.limits["max_processes"] > 0
        self._program = seccomp.program(own_pid=1, processes=processes, attributes=True)
        user = f"uid {self.uid}" if self._as_root else "user namespace without capabilities"
        return f"namespaces (pid, network, mount, ipc), own root folder, {user}, seccomp"

    def before_fork(self) -> None:
        kernel.unshare(kernel.CLONE_NEWPID)

    def after_fork(self) -> None:
        kernel.setns(self._own_pids, kernel.CLONE_NEWPID)

    def after_job(self) -> None:
        """Nothing to do: pids and mounts went with the child."""

    def discard(self) -> None:
        """Nothing to do: this mode writes no file."""

    def enter_scratch(self) -> None:
        uid, gid = (self.uid, self.uid) if self._as_root else (os.geteuid(), os.getegid())
        namespaces.mount_scratch(size_mb=self.limits["scratch_mb"], uid=uid, gid=gid)
        os.chdir(namespaces.SCRATCH)

    def drop_privileges(self) -> None:
        if self._as_root:
            self._become_user()
        else:
            kernel.drop_capabilities()

    def _filter(self) -> bytes:
        return self._program


@dataclass(kw_only=True)
class SetuidIsolation(Isolation):
    """Root drops to an unprivileged user; Landlock hides other users' readable files where the kernel has it."""

    name: str = "setuid"
    strict: bool = True

    def prepare(self) -> str:
        _need_seccomp()
        if not namespaces.may_drop_to(self.uid):
            raise PermissionError(f"not root, or user id {self.uid} does not exist here: cannot change user")
        super().prepare()
        _prefer_for_oom()
        if landlock.version() > 0:
            self._landlock = landlock.ruleset(self._rules())
        in_force = f"uid {self.uid}, {'Landlock, ' if self._landlock is not None else ''}seccomp"
        if not _readable_by_all(library.standard_library()):
            for module in _PRELOADED_WHERE_UNREADABLE:
                __import__(module)
            in_force += f"; only common modules, as no other user can read {library.standard_library()}"
        return in_force

    def drop_privileges(self) -> None:
        self._become_user()


@dataclass(kw_only=True)
class LandlockIsolation(Isolation):
    """An ordinary user's process that Landlock limits to the standard library and its scratch folder."""

    name: str = "landlock"
    strict: bool = True

    def prepare(self) -> str:
        _need_seccomp()
        if os.geteuid() == 0:
            raise PermissionError("running as root: root is not confined by Landlock and seccomp alone")
        super().prepare()
        _prefer_for_oom()
        self._landlock = landlock.ruleset(self._rules())
        return f"Landlock version {landlock.version()}, seccomp, same user"


MODES: dict[str, type[Isolation]] = {
    "namespaces": NamespaceIsolation,
    "setuid": SetuidIsolation,
    "landlock": LandlockIsolation,
    "none": Isolation,
}
"""Isolation by name, strongest first."""


def _need_seccomp() -> None:
    if not seccomp.supported():
        raise OSError(f"no seccomp filter for this system ({kernel.MACHINE})")


def _prefer_for_oom() -> None:
    """Let a machine short of memory end candidates before it ends the trainer; not all kernels offer it."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write("500")
    except OSError:
        return


def _readable_by_all(path: str) -> bool:
    while True:
        if not os.stat(path).st_mode & 0o001:
            return False
        if path == "/":
            return True
        path = os.path.dirname(path)
