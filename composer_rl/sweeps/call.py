"""What the sweep plugins need to know of the command that started them, and what they hand back to it.

Hydra builds launchers and sweepers itself, so the two ends meet here.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer_rl.run import Outcome
    from composer_rl.sweeps.manifest import Manifest


class JobFailedError(Exception):
    """Tells Hydra that a job of a sweep failed; its error is already reported."""


class JobUnfinishedError(JobFailedError):
    """A job of a sweep was cut off, or runs in another process: the sweep can go on with it."""


@dataclass(kw_only=True)
class SweepCall:
    """One call of the command line."""

    flags: list[str] = field(default_factory=list)
    """Hydra's flags that every job must be given too (`--config-dir=...`)."""
    command: list[str] = field(default_factory=list)
    """The words that started this process."""
    manifest: Manifest | None = None
    """The sweep, once its first batch of jobs is launched; a sweeper may launch several."""
    keeps_earlier_jobs: bool = False
    """The jobs that sweep.json has from earlier calls are part of the sweep: a search knows its jobs one by one."""
    outcomes: list[Outcome] = field(default_factory=list)
    """How each job ended."""


_current: ContextVar[SweepCall | None] = ContextVar("sweep_call", default=None)


@contextmanager
def sweep_call(call: SweepCall) -> Iterator[None]:
    """Make `call` the current one."""
    token = _current.set(call)
    try:
        yield
    finally:
        _current.reset(token)


def current_call() -> SweepCall:
    """The current call; an empty one where Hydra is driven by something else (a test, a notebook)."""
    return _current.get() or SweepCall()
