"""What candidate code may read: the interpreter's standard library and the shared libraries it loads.

Site packages are left out, because composer_rl itself (and with it the generator of held-out tasks) may live there.
"""

from __future__ import annotations

import os
import sys

_SYSTEM = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/nix/store", "/gnu/store")
_HIDDEN_NAMES = ("site-packages", "dist-packages")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
"""Device files that a program may expect."""
LOADER_CACHE = "/etc/ld.so.cache"
"""Index of shared libraries, read by the dynamic loader."""


def standard_library() -> str:
    """The folder of the standard library, without symlinks."""
    return os.path.realpath(os.path.dirname(os.__file__))


def folders() -> list[str]:
    """Existing library folders, real paths, none inside another."""
    wanted = [*_SYSTEM, os.path.join(sys.base_prefix, "lib"), os.path.join(sys.base_exec_prefix, "lib")]
    real = {os.path.realpath(path) for path in [*wanted, standard_library()] if os.path.isdir(path)}
    return sorted(path for path in real if not any(path.startswith(other + "/") for other in real))


def links() -> list[tuple[str, str]]:
    """System folders that are symlinks, such as /lib -> usr/lib, as (path, target)."""
    return [(path, os.readlink(path)) for path in _SYSTEM if os.path.islink(path) and os.path.isdir(path)]


def hidden(folder: str) -> list[str]:
    """Folders of installed packages directly below a library folder, or below a python folder in it."""
    found = []
    for parent in [folder, *_subfolders(folder, "python")]:
        found += [path for name in _HIDDEN_NAMES if os.path.isdir(path := os.path.join(parent, name))]
    return found


def readable_parts(folder: str, without: list[str]) -> list[str]:
    """Paths that together cover a folder except the ones left out (for rules that can only grant)."""
    if folder in without:
        return []
    if not any(path.startswith(folder + "/") for path in without):
        return [folder]
    parts = []
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if not os.path.islink(path):
            parts += readable_parts(path, without)
    return parts


def _subfolders(folder: str, start: str) -> list[str]:
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    paths = [os.path.join(folder, name) for name in names if name.startswith(start)]
    return [path for path in paths if os.path.isdir(path) and not os.path.islink(path)]
