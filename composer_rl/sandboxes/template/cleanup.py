"""Removal of a folder that hostile code has filled."""

from __future__ import annotations

import os


def remove_tree(folder: str) -> None:
    """Remove a folder whose processes are gone, whatever nesting, modes or symlinks it holds.

    Sub-folders are moved up beside the folder before they are emptied, so neither path length nor open
    descriptors grow with depth, and no symlink is followed.
    """
    parent = os.open(os.path.dirname(folder), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        pending = [os.path.basename(folder)]
        moved = 0
        while pending:
            name = pending.pop()
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            try:
                for entry in os.listdir(fd):
                    if _is_folder(entry, fd):
                        os.chmod(entry, 0o700, dir_fd=fd)
                        moved += 1
                        aside = f"{os.path.basename(folder)}.{moved}"
                        os.rename(entry, aside, src_dir_fd=fd, dst_dir_fd=parent)
                        pending.append(aside)
                    else:
                        os.unlink(entry, dir_fd=fd)
            finally:
                os.close(fd)
            os.rmdir(name, dir_fd=parent)
    finally:
        os.close(parent)


def _is_folder(name: str, fd: int) -> bool:
    mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
    return (mode & 0o170000) == 0o040000
