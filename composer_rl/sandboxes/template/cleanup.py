"""Removal of a folder that hostile code has filled."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator


def remove_tree(folder: str) -> None:
    """Remove a folder whose processes are gone, whatever nesting, modes or symlinks it holds."""
    _clear(folder, keep=False)


def empty_folder(folder: str) -> None:
    """Remove all that is in a folder, and leave the folder itself."""
    _clear(folder, keep=True)


def _clear(folder: str, keep: bool) -> None:
    """Empty folders one by one, after moving their sub-folders up beside the first.

    So neither path length nor open descriptors grow with depth, and no symlink is followed.
    """
    top = os.path.basename(folder)
    parent = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        pending = [top]
        num_moved = 0
        while pending:
            name = pending.pop()
            for entry, fd in _entries(name, parent):
                if _is_folder(entry, fd):
                    os.chmod(entry, 0o700, dir_fd=fd)
                    num_moved += 1
                    aside = f"{top}.{num_moved}"
                    os.rename(entry, aside, src_dir_fd=fd, dst_dir_fd=parent)
                    pending.append(aside)
                else:
                    os.unlink(entry, dir_fd=fd)
            if not keep or name != top:
                os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _entries(name: str, parent: int) -> Iterator[tuple[str, int]]:
    """Names in a folder with the folder's descriptor, which is open until the last one was taken."""
    fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        for entry in os.listdir(fd):
            yield entry, fd
    finally:
        os.close(fd)


def _is_folder(name: str, fd: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode)
