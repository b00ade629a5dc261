"""All trackers of a run behind one object: a broken tracker is named once and left out, the run goes on."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from composer_rl.config.redact import redact
from composer_rl.errors import ComposerError
from composer_rl.trackers.base import RunInfo, Tracker
from composer_rl.trackers.console import ConsoleTracker
from composer_rl.trackers.jsonl import JsonlTracker

_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TrackerSet(Tracker):
    """The trackers of one run by name; `console` and `jsonl` are added when they are not named.

    Use it once: `start`, any number of `log` and `phase`, then `finish` in a finally.
    """

    trackers: dict[str, Tracker | None] = field(default_factory=dict)
    """Tracker by name; None leaves that one out. `console` and `jsonl` cannot be left out
    (`tracker.trackers.console.mode=off` silences the former)."""

    def __post_init__(self) -> None:
        self._active: dict[str, Tracker] = {}
        self._unfinished: dict[str, Tracker] = {}
        self._used = False
        self.trackers = dict(self.trackers)
        for name, factory in (("console", ConsoleTracker), ("jsonl", JsonlTracker)):
            if self.trackers.setdefault(name, factory()) is None:
                raise ValueError(f"trackers.{name} must stay on, got null; leave that override out")
        for name, tracker in self.trackers.items():
            if not isinstance(name, str) or not name:
                raise ValueError(f"trackers must be keyed by non-empty names, got the key {name!r}")
            if tracker is not None and not isinstance(tracker, Tracker):
                raise ValueError(f"trackers.{name} must be a Tracker, got {type(tracker).__name__}")

    @property
    def active(self) -> tuple[str, ...]:
        """Names of the trackers that are started and still work, in order."""
        return tuple(self._active)

    def start(self, info: RunInfo) -> None:
        """Start every tracker.

        An error that composer_rl raises on purpose (MissingExtraError, RunDirectoryError) ends those already
        started and is raised; any other failure leaves that tracker out, with a logged error. The configuration
        is searched for secrets once more before any tracker sees it.
        """
        if self._used:
            raise RuntimeError("TrackerSet.start was called twice; build a new TrackerSet for each run")
        self._used = True
        info = replace(info, config=redact(info.config))
        # The console comes first: somebody waits at it, and it keeps in order what the others print.
        ordered = sorted(self.trackers.items(), key=lambda item: item[0] != "console")
        try:
            for name, tracker in ordered:
                if tracker is not None and self._guard(name, "start", partial(tracker.start, info)):
                    self._active[name] = self._unfinished[name] = tracker
        except BaseException as error:
            self.finish("failed" if isinstance(error, Exception) else "interrupted", {})
            raise

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Hand flat scalars to every tracker. Raises TypeError or ValueError for a value that is no number."""
        numbers = {name: float(value) for name, value in metrics.items()}
        for name, tracker in list(self._active.items()):
            self._guard(name, "log", partial(tracker.log, dict(numbers), step=step))

    def phase(self, text: str) -> None:
        """Say what the run is doing now; "" when training goes on."""
        for name, tracker in list(self._active.items()):
            self._guard(name, "phase", partial(tracker.phase, text))

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Finish every started tracker exactly once, the console last.

        A second call does nothing. A tracker that failed earlier is finished too. One that raises does not keep
        the others from finishing; an interrupt that arrives meanwhile is raised after all have had their turn.
        """
        summary = redact(summary)
        unfinished, self._unfinished = self._unfinished, {}
        self._active = {}
        with contextlib.ExitStack() as stack:  # Runs every callback, last one first, whatever one of them raises.
            for name, tracker in unfinished.items():
                stack.callback(self._guard, name, "finish", partial(tracker.finish, status, summary))

    def _guard(self, name: str, action: str, call: Callable[[], None]) -> bool:
        """Run one tracker's method; on failure report it once and hand that tracker nothing more but `finish`."""
        try:
            call()
        except Exception as error:
            if action == "start" and isinstance(error, ComposerError):
                raise
            self._active.pop(name, None)
            text = " ".join(str(error).split()) or "no message"
            _LOG.error(
                "tracker %r failed in %s and is left out from now on; the run goes on. %s: %s",
                name,
                action,
                type(error).__name__,
                text,
                exc_info=_LOG.isEnabledFor(logging.DEBUG),
            )
            return False
        return True
