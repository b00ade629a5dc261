"""Forward what the trainer logs to the run's trackers, and keep what the end of the run needs."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from composer_rl.trackers.base import Tracker
    from composer_rl.trainer.timings import Timings

_RENAMED = {"step_time": "time/trl_step_s"}
_END_OF_TRAINING = "train_runtime"


class MetricsCallback(TrainerCallback):
    """Sends scalars to the tracker and to the engagement accumulator; measures the optimizer and token throughput."""

    def __init__(self, tracker: Tracker, timings: Timings, observers: list[Any]) -> None:
        self._tracker = tracker
        self._timings = timings
        self._observers = observers
        self._optimizer_start: float | None = None
        self._last_tokens = 0.0
        self._last_time = time.perf_counter()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the clock of the throughput."""
        self._last_time = time.perf_counter()
        self._last_tokens = float(state.num_input_tokens_seen)

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Gradients are clipped; the optimizer runs now."""
        self._optimizer_start = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The optimizer has run."""
        if self._optimizer_start is not None:
            self._timings.add("optimizer", time.perf_counter() - self._optimizer_start)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Forward one log record."""
        if not state.is_world_process_zero or not logs or _END_OF_TRAINING in logs:
            return
        metrics = {_RENAMED.get(name, name): float(value) for name, value in logs.items() if _is_scalar(value)}
        now = time.perf_counter()
        if "num_tokens" in metrics and now > self._last_time:
            metrics["tokens_per_s"] = (metrics["num_tokens"] - self._last_tokens) / (now - self._last_time)
            self._last_tokens, self._last_time = metrics["num_tokens"], now
        for observer in self._observers:
            observer.observe(metrics)
        self._tracker.log(metrics, step=state.global_step)


def _is_scalar(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
