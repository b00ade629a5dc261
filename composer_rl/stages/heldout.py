"""First-attempt solve rate and recovery of a policy on held-out tasks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from composer_rl.trainer.rollout_metrics import rollout_metrics
from composer_rl.types import Rollout, Task

if TYPE_CHECKING:
    from composer_rl.rewards.base import RewardFunction
    from composer_rl.trainer.callbacks.rollout_log import RolloutLog

SampleRollouts = Callable[..., list[Rollout]]
"""(model, tasks, *, num_samples, seed, max_turns) -> rollouts, task-major."""

RECOVERY_TURNS = 2
"""Turns of a held-out episode: the first attempt, and one to repair it."""


class HeldoutEvaluator:
    """Samples one episode per held-out task, always with the same random numbers, so that steps compare.

    Args:
        tasks: Held-out tasks.
        sample: Samples rollouts of the current policy at temperature 1, without hints.
        seed: Seed of that sampling.
        log: Where a few of the rollouts are kept; None keeps none.
        reward: Scores the answers where the environment does not grade them.
    """

    def __init__(
        self,
        tasks: Sequence[Task],
        *,
        sample: SampleRollouts,
        seed: int,
        log: RolloutLog | None = None,
        reward: RewardFunction | None = None,
    ) -> None:
        self._tasks = list(tasks)
        self._sample = sample
        self._seed = seed
        self._log = log
        self._reward = reward

    def __call__(self, model: Any, step: int) -> dict[str, float]:
        """Flat metrics: `heldout/solve_rate` (first attempt), `heldout/recovery_rate` (second turn after a failed
        first), `heldout/num_tasks`; `heldout/reward` instead of the rates where nothing grades.
        """
        rollouts = self._sample(model, self._tasks, num_samples=1, seed=self._seed, max_turns=RECOVERY_TURNS)
        if self._log is not None:
            self._log.write(rollouts, step=step, split="heldout")
        metrics = {"heldout/num_tasks": float(len(self._tasks))}
        if self._reward is not None:
            return metrics | _mean_reward(self._reward, self._tasks, rollouts)
        figures = rollout_metrics(rollouts, prefix="heldout")
        metrics["heldout/solve_rate"] = figures["heldout/solve_rate_first"]
        if "heldout/recovery_rate" in figures:
            metrics["heldout/recovery_rate"] = figures["heldout/recovery_rate"]
            metrics["heldout/num_first_errors"] = float(sum(not rollout.solved_first for rollout in rollouts))
        return metrics


def _mean_reward(reward: RewardFunction, tasks: Sequence[Task], rollouts: Sequence[Rollout]) -> dict[str, float]:
    from composer_rl.rewards.base import as_trl

    columns = {name: [task.payload.get(name) for task in tasks] for name in tasks[0].payload} if tasks else {}
    columns["task_id"] = [task.task_id for task in tasks]  # As in training.
    completions = [[{"role": "assistant", "content": turn.text} for turn in rollout.turns] for rollout in rollouts]
    scores = as_trl(reward)(
        [task.prompt for task in tasks],
        completions,
        [rollout.completion_ids for rollout in rollouts],
        rollout=list(rollouts),
        **columns,
    )
    scored = [score for score in scores if score is not None]
    return {"heldout/reward": sum(scored) / len(scored)} if scored else {}
