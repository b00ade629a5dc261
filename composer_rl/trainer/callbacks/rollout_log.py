"""Write a few rollouts per step to rollouts.jsonl, for people to read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import orjson
from transformers import TrainerCallback

from composer_rl.types import Message, Rollout, Split


class RolloutLog:
    """Appends rollouts to `rollouts.jsonl`; each record is one line and is flushed.

    Args:
        path: The file.
        prompt_of: Chat messages of a task id.
        per_step: Rollouts kept per call, spread over different tasks and outcomes.
    """

    def __init__(self, path: Path, *, prompt_of: Callable[[str], list[Message]], per_step: int) -> None:
        self._path = path
        self._prompt_of = prompt_of
        self._per_step = per_step

    def write(self, rollouts: Sequence[Rollout], *, step: int, split: Split) -> None:
        """Keep some of the rollouts: failed and solved ones in turn, one a task."""
        by_task = {rollout.task_id: rollout for rollout in reversed(rollouts)}
        failed = [rollout for rollout in by_task.values() if not rollout.solved_first]
        solved = [rollout for rollout in by_task.values() if rollout.solved_first]
        chosen = [rollout for pair in zip(failed, solved, strict=False) for rollout in pair] or failed or solved
        with open(self._path, "ab") as stream:
            for rollout in chosen[: self._per_step]:
                stream.write(orjson.dumps(_encodable(self._record(rollout, step, split))) + b"\n")

    def _record(self, rollout: Rollout, step: int, split: Split) -> dict[str, Any]:
        return {
            "step": step,
            "split": split,
            "task_id": rollout.task_id,
            "reward": rollout.reward,
            "stop_reason": rollout.stop_reason,
            "prompt": self._prompt_of(rollout.task_id),
            "turns": [
                {
                    "text": turn.text,
                    "reward": turn.reward,
                    "error_kind": turn.error.kind if turn.error else None,
                    "error_message": turn.error.message if turn.error else None,
                    "observation": turn.observation,
                    "hint": turn.hint,
                }
                for turn in rollout.turns
            ],
        }


def _encodable(value: Any) -> Any:
    """The value with every half of a surrogate pair replaced: model-written JSON can name one, UTF-8 cannot."""
    if isinstance(value, str):
        return value.encode("utf-8", errors="replace").decode("utf-8")
    if isinstance(value, dict):
        return {_encodable(key): _encodable(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    return value


class RolloutLogCallback(TrainerCallback):
    """Logs rollouts of the training batch every `every` steps."""

    def __init__(self, log: RolloutLog, *, every: int, rollouts: Callable[[], Sequence[Rollout]]) -> None:
        self._log = log
        self._every = every
        self._rollouts = rollouts

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Write some rollouts of the step that just ended."""
        if state.is_world_process_zero and state.global_step % self._every == 0:
            self._log.write(self._rollouts(), step=state.global_step, split="train")
