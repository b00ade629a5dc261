"""TensorBoard event files in the run directory: `tensorboard --logdir <run dir>`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer_rl.errors import MissingExtraError
from composer_rl.trackers.base import RunInfo, Tracker
from composer_rl.trackers.summary import error_text, final_metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@dataclass(kw_only=True)
class TensorboardTracker(Tracker):
    """Writes scalars at their step, the configuration and the final figures as text."""

    subdirectory: str = "tensorboard"
    """Folder below the run directory."""
    flush_s: int = 10
    """Longest time in seconds between a scalar and its being on disk, at least 1."""

    def __post_init__(self) -> None:
        self._writer: SummaryWriter | None = None
        self._last_step = 0
        if not self.subdirectory or self.subdirectory.startswith("/") or ".." in self.subdirectory.split("/"):
            raise ValueError(f"subdirectory must be a folder below the run directory, got {self.subdirectory!r}")
        if self.flush_s < 1:
            raise ValueError(f"flush_s must be at least 1, got {self.flush_s}")

    def start(self, info: RunInfo) -> None:
        """Open an event file. A resumed run tells TensorBoard to hide what lies beyond its checkpoint.

        Raises MissingExtraError without tensorboard.
        """
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            if error.name != "tensorboard":
                raise
            raise MissingExtraError("tracker tensorboard", package="tensorboard", extra="tensorboard") from error
        purge_step = info.resume_step + 1 if info.resume_step is not None else None
        self._last_step = info.resume_step or 0
        self._writer = SummaryWriter(
            str(info.run_dir / self.subdirectory), purge_step=purge_step, flush_secs=self.flush_s
        )
        self._writer.add_text("config", _as_code(json.dumps(info.config, indent=2, default=str)), self._last_step)

    def log(self, metrics: dict[str, float], *, step: int) -> None:
        """Add one scalar a metric."""
        if self._writer is None:
            raise RuntimeError("TensorboardTracker.log was called before start or after finish")
        self._last_step = max(self._last_step, step)
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def finish(self, status: str, summary: dict[str, Any]) -> None:
        """Write status and final figures as text and close the file."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        lines = [f"status: {status}", *(f"{name}: {value:g}" for name, value in final_metrics(summary).items())]
        if text := error_text(summary):
            lines.append(f"error: {text}")
        try:
            writer.add_text("result", _as_code("\n".join(lines)), self._last_step)
        finally:
            writer.close()


def _as_code(text: str) -> str:
    """TensorBoard renders Markdown; an indented block shows the text as it is."""
    return "\n".join("    " + line for line in text.splitlines())
