"""The seam between environments and everything that samples from or evaluates a policy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from composer_rl.types import Split, StepResult, Task, ToolSpec

if TYPE_CHECKING:
    from composer_rl.engagement import Knob
    from composer_rl.sandboxes.base import Sandbox


@dataclass(kw_only=True)
class Episode:
    """State of one attempt at a task; environments subclass it."""

    task: Task
    num_turns: int = 0
    """Assistant turns taken so far."""


@dataclass(kw_only=True)
class Environment(ABC):
    """Base of all environments. Torch-free: it reads text and returns text."""

    max_turns: int = 3
    """Assistant turns per episode, at least 1."""

    @property
    def grades(self) -> bool:
        """Whether StepResult.reward is a grade; False where the reward group alone scores answers."""
        return True

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:
        """The tools that answers may call; empty where an answer is no tool call. Read by rollout.backend=trl|vllm."""
        return ()

    def knobs(self) -> list[Knob]:
        """Settings that are switched on, with the metric that shows that each one acted: here, further turns."""
        from composer_rl.engagement import Knob

        if self.max_turns == 1:
            return []
        return [
            Knob(
                name="max_turns",
                metric="rollout/num_turns",
                threshold=1.0,
                advice="every episode ended with its first turn",
            )
        ]

    def check(self) -> None:
        """Read what the user gave (files of prompts) as far as it goes without torch, before a run starts.

        Raises ConfigError naming the file and the line or row. Nothing to read by default.
        """
        return

    @property
    def columns(self) -> frozenset[str] | None:
        """Columns that reach a reward function beside the prompt, after `check`; None where that is not known."""
        return None

    def describe(self, task: Task) -> str:
        """Where a task comes from, for error messages."""
        return f"task {task.task_id}"

    @abstractmethod
    def open(self, sandbox: Sandbox) -> None:
        """Take the sandbox that runs model-written code (already open) and prepare the tasks."""

    @abstractmethod
    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a fixed order. The two splits are disjoint by task id and by body."""

    @abstractmethod
    def start(self, task: Task) -> Episode:
        """Begin an episode."""

    @abstractmethod
    def step(self, episodes: Sequence[Episode], actions: Sequence[str]) -> list[StepResult]:
        """Advance each episode by one assistant turn, grading the whole batch at once.

        A malformed action is a StepResult with an error, never an exception.
        """
