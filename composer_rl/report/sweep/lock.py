"""Is a run alive? A run holds its folder's lock for as long as its process lives, however that ends."""

from __future__ import annotations

from pathlib import Path

from composer_rl.config.rundir import LOCK_NAME


def is_held(run_dir: Path) -> bool | None:
    """Whether a process on this machine holds the run folder; None where that cannot be told."""
    try:
        import fcntl

        with (run_dir / LOCK_NAME).open("rb") as lock:
            # A shared lock: two reports that look at the same time do not take each other for a run.
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except (ImportError, OSError):
        return None
    return False
