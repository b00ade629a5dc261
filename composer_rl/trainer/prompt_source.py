"""Which tasks the next rollout samples: the curriculum's choice, with a cursor that is saved at the trained frontier.

TRL's own data loader runs one batch ahead of training and restarts on resume. Here the tasks are drawn at the
moment a rollout is due, so a checkpoint holds exactly the tasks that were trained on (cases B40 and B41).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from composer_rl.curricula.base import PREFERENCE
from composer_rl.types import Task

if TYPE_CHECKING:
    from composer_rl.curricula.base import Curriculum


class PromptSource:
    """Draws tasks through a curriculum and feeds the outcome of their rollouts back to it.

    Args:
        tasks: The training tasks; ids must be unique.
        curriculum: Chooses among their ids.
        seed: Seed of the choice.
    """

    def __init__(self, tasks: Sequence[Task], curriculum: Curriculum, *, seed: int) -> None:
        self._task_by_id = {task.task_id: task for task in tasks}
        if len(self._task_by_id) != len(tasks):
            raise ValueError(f"tasks must have unique ids: {len(tasks) - len(self._task_by_id)} are repeated")
        if not tasks:
            raise ValueError("tasks must not be empty: the environment has no training task")
        self._curriculum = curriculum
        self._curriculum.reset([task.task_id for task in tasks], seed=seed)
        self.num_drawn = 0

    def draw(self, num_prompts: int) -> list[Task]:
        """The next tasks, in the curriculum's order."""
        task_ids = self._curriculum.sample(num_prompts)
        self.num_drawn += num_prompts
        return [self._task_by_id[task_id] for task_id in task_ids]

    def task(self, task_id: str) -> Task:
        """The task of an id that was drawn."""
        return self._task_by_id[task_id]

    def record(self, outcomes: Sequence[tuple[str, bool]]) -> None:
        """Tell the curriculum which first attempts solved their task: (task id, solved) of every rollout."""
        attempts: dict[str, list[bool]] = {}
        for task_id, solved in outcomes:
            attempts.setdefault(task_id, []).append(solved)
        for task_id, results in attempts.items():
            self._curriculum.update(task_id, successes=sum(results), attempts=len(results))

    def metrics(self) -> dict[str, float]:
        """The curriculum's own figures, and how far it prefers its likeliest task where it may prefer one."""
        figures = self._curriculum.metrics()
        if self._curriculum.knobs():
            figures[PREFERENCE] = self._curriculum.preference()
        return figures

    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state of the curriculum and the cursor."""
        return {"num_drawn": self.num_drawn, "curriculum": self._curriculum.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where a checkpoint was written; the curriculum refuses another task set."""
        self._curriculum.load_state_dict(state["curriculum"])
        self.num_drawn = int(state["num_drawn"])
