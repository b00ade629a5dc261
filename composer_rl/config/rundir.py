"""Run folders: claimed atomically, never written twice unless the user resumes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from composer_rl.errors import RunDirectoryError

RESULT_NAME = "result.json"
LOCK_NAME = ".lock"
_IGNORED = {LOCK_NAME, ".hydra"}
"""What may be in a fresh folder: our own lock, and Hydra's notes where the user switched them on."""


@dataclass(kw_only=True)
class RunDirectory:
    """A claim on a folder, held for as long as the run lasts. Use as a context manager."""

    path: Path
    """Absolute."""
    _lock: int = -1

    @classmethod
    def claim(cls, path: Path, *, resume: bool) -> RunDirectory:
        """Create the folder if needed and take it.

        A lock in the folder is held by the operating system until this process ends, however it ends, so that two
        processes never share a folder. Raises RunDirectoryError when another run is using it, when it is not
        empty and `resume` is false, when there is nothing to resume, or when it cannot be written.
        """
        directory = cls.hold(path)
        try:
            check_available(directory.path, resume=resume)
        except RunDirectoryError:
            directory.release()
            raise
        return directory

    @classmethod
    def hold(cls, path: Path) -> RunDirectory:
        """Create the folder if needed and take it, whatever is in it (a sweep).

        Raises RunDirectoryError when another process holds it or when it cannot be written.
        """
        path = path.absolute()
        directory = cls(path=path)
        make(path)
        try:
            directory._acquire()
        except OSError as error:
            raise _unwritable(path, error) from error
        return directory

    def _acquire(self) -> None:
        import fcntl

        lock = os.open(self.path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(lock, 64, 0).decode(errors="replace").strip()
            os.close(lock)
            raise RunDirectoryError(
                f"{self.path} is in use by another run" + (f" (process {owner})" if owner else "")
            ) from error
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        self._lock = lock

    def release(self) -> None:
        """Give the folder up. Idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        self.release()


def check_available(path: Path, *, resume: bool, setting: str = "hydra.run.dir") -> None:
    """Raise RunDirectoryError when a run may not start in `path`; `setting` chooses another one. Only looks."""
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"the run folder {path} is a file")
    found = sorted(entry.name for entry in path.iterdir() if entry.name not in _IGNORED) if path.is_dir() else []
    if resume and RESULT_NAME not in found:
        raise RunDirectoryError(f"nothing to resume in {path}: it has no {RESULT_NAME}; leave resume=true out")
    if found and not resume:
        remedy = "add resume=true to go on with it, or " if RESULT_NAME in found else ""
        raise RunDirectoryError(
            f"the run folder {path} is not empty ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''}); "
            f"{remedy}choose another {setting}"
        )


def make(path: Path) -> None:
    """Create a folder and those above it. Raises RunDirectoryError where that is not possible."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(path, error) from error


@contextmanager
def disk_errors_named(path: Path) -> Iterator[None]:
    """Turn an OSError of the first writes into a run folder (a full disk) into a RunDirectoryError that names it."""
    try:
        yield
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(f"cannot write the run folder {path}: {error.strerror or error}")


def remove_if_empty(path: Path) -> None:
    """Remove a folder that Hydra made for a run that never started."""
    if path.is_dir() and not any(path.iterdir()):
        path.rmdir()
