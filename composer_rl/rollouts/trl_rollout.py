"""Our rollouts as TRL's `rollout_func`.

TRL 1.16 calls `rollout_func(prompts, trainer)` with every prompt already repeated `num_generations` times (its
docstring says otherwise) and without the other dataset columns, and reads prompt_ids, completion_ids, logprobs and
env_mask; any further list is added to the rows, one entry a completion, and handed to the reward functions.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from typing import Any

from composer_rl.errors import RolloutError
from composer_rl.rollouts.base import RolloutBatch, RolloutStats
from composer_rl.rollouts.multi_turn import MultiTurnRollout
from composer_rl.types import Message, Task


class TRLRollout:
    """Callable for `GRPOTrainer(rollout_func=...)`; `for_rows` is for a trainer that knows its dataset rows.

    Args:
        rollout: runs the episodes.
        tasks: every task that a prompt or a `task_id` column may mean.
    """

    def __init__(self, rollout: MultiTurnRollout, tasks: Iterable[Task]) -> None:
        self.rollout = rollout
        self._by_id = {task.task_id: task for task in tasks}
        self._by_prompt: dict[str, list[Task]] = {}
        for task in self._by_id.values():
            self._by_prompt.setdefault(_key(task.prompt), []).append(task)
        self.last_batch = RolloutBatch()
        """Rollouts of the latest call."""
        self.stats = RolloutStats()
        """Totals since `take_stats`."""

    def __call__(self, prompts: Sequence[Sequence[Message]], trainer: Any) -> dict[str, Any]:
        """One episode for each entry of `prompts`, in order.

        Raises RolloutError for a prompt that is no task's, or that several tasks share: their rows need `for_rows`.
        """
        return self._sample(trainer, [self._task_of(prompt) for prompt in prompts])

    def for_rows(self, trainer: Any, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """One episode for each dataset row, in order; rows name their task in the column `task_id`."""
        tasks = []
        for row in rows:
            task = self._by_id.get(row["task_id"])
            if task is None:
                raise RolloutError(f"dataset row with task_id={row['task_id']!r}, which is not a task of this run")
            tasks.append(task)
        return self._sample(trainer, tasks)

    def take_stats(self) -> RolloutStats:
        """Figures since the last call of this method."""
        taken, self.stats = self.stats, RolloutStats()
        return taken

    def _sample(self, trainer: Any, tasks: Sequence[Task]) -> dict[str, Any]:
        # Neighbours with the same task are the samples of one prompt and share its keys and values.
        groups = [list(group) for _, group in groupby(tasks, key=lambda task: task.task_id)]
        with policy_of(trainer) as model:
            batch = self.rollout.run(
                model, [group[0] for group in groups], num_samples=[len(group) for group in groups]
            )
        self.last_batch = batch
        self.stats.add(batch.stats)
        return {
            "prompt_ids": [rollout.prompt_ids for rollout in batch.rollouts],
            "completion_ids": [rollout.completion_ids for rollout in batch.rollouts],
            "logprobs": [rollout.logprobs for rollout in batch.rollouts],
            "env_mask": [rollout.env_mask for rollout in batch.rollouts],
            "rollout": batch.rollouts,
        }

    def _task_of(self, prompt: Sequence[Message]) -> Task:
        found = self._by_prompt.get(_key(prompt), [])
        if len(found) != 1:
            what = "is not the prompt of any task" if not found else f"is shared by {len(found)} tasks"
            raise RolloutError(f"a prompt of the training set {what}: {_key(prompt)[:200]}")
        return found[0]


@contextmanager
def policy_of(trainer: Any) -> Iterator[Any]:
    """The trainer's policy, unwrapped and gathered as TRL does for its own generation, under its autocast."""
    from trl.distributed import DistributedBackend
    from trl.models.utils import unwrap_model_for_generation

    args = trainer.args
    with (
        unwrap_model_for_generation(
            trainer.model_wrapped,
            trainer.accelerator,
            gather_deepspeed3_params=args.ds3_gather_for_generation,
            gradient_checkpointing_kwargs=args.gradient_checkpointing_kwargs,
        ) as model,
        DistributedBackend(trainer.accelerator).summon_full_params(trainer.model_wrapped, recurse=False),
        trainer.accelerator.autocast(),
    ):
        yield model


def _key(prompt: Sequence[Message]) -> str:
    """Messages as text; a dataset may add null columns to a message, which do not count."""
    return json.dumps([{name: value for name, value in sorted(m.items()) if value is not None} for m in prompt])
