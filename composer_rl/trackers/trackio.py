"""Trackio: a local dashboard (`trackio show --project <name>`), or a Hugging Face Space.

All runs of a project live in Trackio's own store, which is what its dashboard compares: `TRACKIO_DIR`, by default a
folder of the Hugging Face cache. Trackio reads that variable when it is imported, so a store per run is not possible.
"""

from __future__ import annotations

import contextlib
import io
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.base import RunInfo, Tracker
from composer_rl.trackers.summary import final_metrics

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trackio import Run

_LOG = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TrackioTracker(Tracker):
    """Logs to one Trackio run, named `<run name> <run id>` so that equal run names do not collide."""

    project: str = "composer-rl"
    """Trackio project; letters, digits, "-" and "_"."""
    space_id: str | None = None
    """Hugging Face Space that shows the run; None keeps it on this machine."""
    system_metrics: bool = False
    """Sample CPU and GPU in a background thread."""

    def __post_init__(self) -> None:
        self._run: Run | None = None
        self._last_step = 0
        if not self.project or not self.project.replace("-", "").replace("_", "").isalnum():
            raise ValueError(f"project must be made of letters, digits, '-' and '_', got {self.project!r}")

    def start(self, info: RunInfo) -> None:
        """Open the run; a resumed one goes on with its rows. Raises MissingExtraError without trackio."""
        try:
            import trackio
        except ModuleNotFoundError as error:
            if error.name != "trackio":
                raise
            raise MissingExtraError("tracker trackio", package="trackio", extra="trackio") from error
        with _quiet():
            self._run = trackio.init(
                project=self.project,
                name=f"{info.run_name} {info.run_id}",
                group=info.group,
                space_id=self.space_id,
                config={**info.config, "tags": list(info.tags)},
                resume="allow" if info.resume_step is not None else "never",
                embed=False,
                auto_log_gpu=self.system_metrics,
                auto_log_cpu=self.system_metrics,
            )

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Queue one row; Trackio's thread writes it."""
        if self._run is None:
            raise RuntimeError("TrackioTracker.log was called before start or after finish")
        self._last_step = step
        self._run.log(dict(metrics), step=step)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Add the final figures as a last row and write out what is queued."""
        import trackio

        run, self._run = self._run, None
        if run is None:
            return
        with _quiet():
            try:
                run.log({"status": status, **final_metrics(summary)}, step=self._last_step)
            finally:
                trackio.finish()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Trackio prints its progress; keep it for the debug log."""
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        if text := printed.getvalue().strip():
            _LOG.debug("trackio: %s", text)
