"""Room on the disk that is kept for the last record of a run, so that a full disk cannot hide how the run ended."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from pathlib import Path

RESERVE_NAME = ".reserve"
_BYTES = 256 * 1024
_FULL_BELOW = 64 * 1024
"""Free bytes under which a disk counts as full, whatever the error said: libraries lose the errno."""


def reserve_space(run_dir: Path) -> None:
    """Write the reserve. Raises OSError, and leaves nothing behind, on a disk that has no room for it."""
    path = run_dir / RESERVE_NAME
    try:
        with open(path, "wb") as stream:
            stream.write(os.urandom(_BYTES))  # Zeros may take no room on a compressing file system.
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        release_space(run_dir)
        raise


def release_space(run_dir: Path) -> None:
    """Give the room back. Idempotent; never raises."""
    with contextlib.suppress(OSError):
        (run_dir / RESERVE_NAME).unlink(missing_ok=True)


def is_disk_full(error: BaseException, run_dir: Path) -> bool:
    """Whether a run ended because its disk is full: by the errors behind `error`, or by a look at the disk."""
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT):
            return True
        if os.strerror(errno.ENOSPC) in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    try:
        return isinstance(error, Exception) and shutil.disk_usage(run_dir).free < _FULL_BELOW
    except OSError:
        return False
