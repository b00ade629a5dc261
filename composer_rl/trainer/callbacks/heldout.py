"""Evaluate on held-out tasks before, during and after training."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

if TYPE_CHECKING:
    from composer_rl.trackers.base import Tracker
    from composer_rl.trainer.timings import Timings


class HeldoutCallback(TrainerCallback):
    """Runs `evaluate` at step 0, every `every` steps and after the last one.

    `evaluate(model, step)` returns flat metrics under `heldout/`. Step 0 is kept as "before"; on resume it comes
    from the checkpoint, not from the trained weights.
    """

    def __init__(
        self,
        evaluate: Callable[[Any, int], dict[str, float]],
        *,
        every: int,
        tracker: Tracker,
        timings: Timings,
    ) -> None:
        self._evaluate = evaluate
        self._every = every
        self._tracker = tracker
        self._timings = timings
        self.before: dict[str, float] = {}
        self.latest: dict[str, float] = {}
        self.latest_step = -1

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure the policy that training starts from."""
        if not self.before:
            self.measure(model, state)
            self.before = dict(self.latest)

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure every `every` optimizer steps; the last step is left to on_train_end."""
        if self._every and state.global_step % self._every == 0 and state.global_step < state.max_steps:
            self.measure(model, state)

    def on_train_end(self, args: Any, state: Any, control: Any, model: Any = None, **kwargs: Any) -> None:
        """Measure the policy that training ended with."""
        if self.latest_step != state.global_step:
            self.measure(model, state)

    def measure(self, model: Any, state: Any) -> None:
        """Evaluate now and log the figures at the state's step."""
        self._tracker.phase("measuring held-out tasks")
        with self._timings.measure("eval"):
            self.latest = self._evaluate(model, state.global_step)
        self._tracker.phase("")
        self.latest_step = state.global_step
        self._tracker.log(self.latest, step=state.global_step)

    def result(self) -> dict[str, float]:
        """`<name>_before` and `<name>_after` of every rate, counts as they are."""
        metrics: dict[str, float] = {}
        for name, value in self.latest.items():
            if name.startswith("heldout/num_"):
                metrics[name] = value
            else:
                metrics[f"{name}_after"] = value
                if name in self.before:
                    metrics[f"{name}_before"] = self.before[name]
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """What a resumed run needs: the figures of step 0."""
        return {"before": self.before}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the figures of step 0 from a checkpoint."""
        self.before = dict(state["before"])
