"""A reward function of the user's own under TRL's signature.

    def my_reward(prompts, completions, completion_ids, answer, **kwargs) -> list[float | None]: ...

    python train.py reward=function reward.function._target_=my_pkg.my_reward trusted_packages=[my_pkg]

The configuration binds it (`_partial_: true`), so keyword arguments with fixed values can stand beside `_target_`.
The function is passed what it has parameters for: prompts, completions, completion_ids, rollouts and the columns of
the dataset, or all of them when it takes `**kwargs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from composer_rl.rewards.base import RewardBatch, RewardFunction

_GIVEN = frozenset({"prompts", "completions", "completion_ids", "rollouts", "task_id"})
"""Arguments that need no column of the dataset."""


@dataclass(kw_only=True)
class FunctionReward(RewardFunction):
    """Calls `function` with TRL's keyword arguments."""

    function: Callable[..., Any]
    """Returns one number or None per completion. Must have a parameter `completions` or take `**kwargs`."""

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise ValueError(f"function must be callable, got {type(self.function).__name__}")
        if inspect.iscoroutinefunction(self._innermost()):
            raise ValueError(f"function must be synchronous, got the coroutine function {self.name}")
        if not self._takes_everything() and "completions" not in self._parameters():
            raise ValueError(
                f"function must have a parameter completions or take **kwargs, got {self.name}"
                f"({', '.join(self._parameters())})"
            )

    @property
    def name(self) -> str:
        inner = self._innermost()
        return str(getattr(inner, "__name__", type(inner).__name__))

    def required_columns(self) -> dict[str, str]:
        """Parameters without a default that only a column can fill."""
        empty = inspect.Parameter.empty
        return {
            name: "function"
            for name, parameter in self._parameters().items()
            if parameter.default is empty and name not in _GIVEN
        }

    def score(self, batch: RewardBatch) -> list[float | None]:
        """The function's scores.

        Raises:
            ValueError: when it needs something that the batch does not have, or returns nothing.
        """
        available: dict[str, Any] = {
            "prompts": batch.prompts,
            "completions": batch.completions,
            "completion_ids": batch.completion_ids,
            "rollouts": batch.rollouts,
            **batch.columns,
        }
        if not self._takes_everything():
            parameters = self._parameters()
            missing = [
                name
                for name, parameter in parameters.items()
                if name not in available and parameter.default is inspect.Parameter.empty
            ]
            if missing:
                columns = ", ".join(sorted(batch.columns)) or "none"
                raise ValueError(
                    f"reward {self.name} needs {', '.join(missing)}; the dataset has the columns: {columns}"
                )
            available = {name: value for name, value in available.items() if name in parameters}
        scores = self.function(**available)
        if scores is None:
            raise ValueError(f"reward {self.name} returned None, expected one score per completion")
        return list(scores)

    def _innermost(self) -> Any:
        inner = self.function
        while hasattr(inner, "func"):
            inner = inner.func
        return inner

    def _parameters(self) -> dict[str, inspect.Parameter]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        signature = inspect.signature(self.function)
        return {name: parameter for name, parameter in signature.parameters.items() if parameter.kind in kinds}

    def _takes_everything(self) -> bool:
        kinds = [parameter.kind for parameter in inspect.signature(self.function).parameters.values()]
        return inspect.Parameter.VAR_KEYWORD in kinds
