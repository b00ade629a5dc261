"""A root folder of its own and nobody else in sight: user, pid, network, mount, ipc and host name namespaces."""

from __future__ import annotations

import errno
import os

from composer_rl.sandboxes.template import kernel, library

SCRATCH = "/tmp"
"""Where the scratch folder is mounted inside the new root."""
_NEW_ROOT = "/proc"  # an existing folder that holds nothing we bind; hidden below the new root from then on
_PIVOT_ROOT = {"x86_64": 155}.get(kernel.MACHINE, 41)
_KEPT_FLAGS = kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC


def may_drop_to(uid: int) -> bool:
    """Whether this process is a root that can become `uid` (a root of a namespace without that id cannot)."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            ranges = [tuple(map(int, line.split())) for line in file]
    except OSError:
        return True  # no /proc: let setresuid itself decide
    return any(first <= uid < first + count for first, _, count in ranges)


def enter(as_root: bool) -> None:
    """Unshare everything; the next forked child is pid 1 of the new pid namespace. OSError where refused."""
    kinds = kernel.CLONE_NEWPID | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET
    kinds |= kernel.CLONE_NEWIPC | kernel.CLONE_NEWUTS
    if as_root:
        kernel.unshare(kinds)
        return
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kinds | kernel.CLONE_NEWUSER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def build_root() -> None:
    """Replace / by a read-only root that holds the standard library, shared libraries and a few devices."""
    kernel.mount(None, "/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    data = "size=1m,nr_inodes=4096,mode=0755"
    kernel.mount("tmpfs", _NEW_ROOT, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, data)
    for folder in library.folders():
        _bind_folder(folder)
        for path in library.hidden(folder):
            flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC | kernel.MS_RDONLY
            kernel.mount("tmpfs", _NEW_ROOT + path, "tmpfs", flags, "size=0,nr_inodes=1,mode=0755")
    for link, target in library.links():
        if not os.path.lexists(_NEW_ROOT + link):
            os.makedirs(os.path.dirname(_NEW_ROOT + link), exist_ok=True)
            os.symlink(target, _NEW_ROOT + link)
    for path in library.DEVICES:
        if os.path.exists(path):
            _bind_file(path)
    if os.path.exists(library.LOADER_CACHE):
        _bind_file(library.LOADER_CACHE)
        _make_read_only(_NEW_ROOT + library.LOADER_CACHE)
    os.makedirs(_NEW_ROOT + SCRATCH, exist_ok=True)
    _switch_root()
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount(None, "/", None, flags)


def mount_scratch(*, size_mb: int, uid: int, gid: int) -> None:
    """A mount namespace of this child's own with an empty, bounded scratch folder that vanishes with the child."""
    kernel.unshare(kernel.CLONE_NEWNS)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    data = f"size={size_mb}m,nr_inodes=1024,mode=0700,uid={uid},gid={gid}"
    kernel.mount("tmpfs", SCRATCH, "tmpfs", flags, data)


def _bind_folder(path: str) -> None:
    target = _NEW_ROOT + path
    os.makedirs(target, exist_ok=True)
    kernel.mount(path, target, None, kernel.MS_BIND | kernel.MS_REC)
    _make_read_only(target)


def _bind_file(path: str) -> None:
    target = _NEW_ROOT + path
    os.makedirs(os.path.dirname(target), exist_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))
    kernel.mount(path, target, None, kernel.MS_BIND)


def _make_read_only(target: str) -> None:
    """Remount a bind mount read-only, keeping the flags that a user namespace may not clear."""
    kept = os.statvfs(target).f_flag & _KEPT_FLAGS
    flags = kernel.MS_REMOUNT | kernel.MS_BIND | kernel.MS_RDONLY | kernel.MS_NOSUID | kernel.MS_NODEV
    kernel.mount(None, target, None, flags | kept)


def _switch_root() -> None:
    os.chdir(_NEW_ROOT)
    try:
        kernel.syscall(_PIVOT_ROOT, "pivot_root", b".", b".")
        kernel.detach(".")
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        kernel.mount(".", "/", None, kernel.MS_MOVE)  # / is the initial ramdisk, which cannot be pivoted away
        os.chroot(".")
    os.chdir("/")
