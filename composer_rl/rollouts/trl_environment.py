"""Our environments as TRL environments, so that TRL's own tool loop can train on our tasks.

TRL 1.16 makes one instance a rollout from `environment_factory`, calls `reset(**row)` with the dataset row, offers
every public method as a tool and asks `get_reward()` at the end. What that road cannot do: an answer that TRL does
not parse as a tool call ends the rollout without a word from the environment, and solving the task does not end it.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from composer_rl.errors import RolloutError
from composer_rl.rollouts.base import RolloutEnvironment
from composer_rl.types import Task, ToolSpec

SOLVED = "solved"
"""What a tool answers when it solved the task."""
_RESERVED = ("reset", "get_reward")


class TRLEpisode:
    """One rollout under TRL. Subclasses made by `trl_environment_factory` add the tools as methods."""

    _environment: RolloutEnvironment
    _tasks: Mapping[str, Task]

    def __init__(self) -> None:
        self._episode: Any = None
        self._reward = 0.0
        self._done = True

    def reset(self, **row: Any) -> None:
        """Begin the task named by the row's column `task_id`; the prompt is the row's.

        Raises RolloutError when the row names no task.
        """
        task = self._tasks.get(row.get("task_id", ""))
        if task is None:
            raise RolloutError(f"dataset row with task_id={row.get('task_id')!r}, which is not a task of this run")
        self._episode = self._environment.start(task)
        self._reward, self._done = 0.0, False

    def get_reward(self) -> float:
        """Grade of the last answer; 0 when no tool was called."""
        return self._reward

    def _act(self, action: str) -> str:
        """Give the environment one answer and return what the policy sees next."""
        if self._done:
            raise RolloutError("the episode is over")
        result = self._environment.step([self._episode], [action])[0]
        self._reward, self._done = result.reward, result.done
        if result.reward >= 1.0:
            return SOLVED
        if result.observation is not None:
            return str(result.observation["content"])
        return result.error.message if result.error is not None else ""


def trl_environment_factory(
    environment: RolloutEnvironment, tasks: Iterable[Task], tools: Sequence[ToolSpec]
) -> Callable[[], TRLEpisode]:
    """A value for `GRPOTrainer(environment_factory=...)`.

    Args:
        environment: already open; its answers are JSON objects `{"name": <tool>, "arguments": {...}}` where there
            are tools, and free text otherwise.
        tasks: every task that a dataset row may name in its column `task_id`.
        tools: one method each, with all arguments optional so that leaving one out is the environment's error to
            report. Empty: one method `answer(text)`.

    Raises:
        ValueError: for a tool name that cannot be a method.
    """
    members: dict[str, Any] = {"_environment": environment, "_tasks": {task.task_id: task for task in tasks}}
    for tool in tools:
        if not tool.name.isidentifier() or tool.name.startswith("_") or tool.name in _RESERVED:
            raise ValueError(f"tool {tool.name!r} cannot be a method of a TRL environment; rename it")
        members[tool.name] = _method(tool, _call_text)
    if not tools:
        answer = ToolSpec(name="answer", description="Give your answer.", parameters={"text": "The answer."})
        members[answer.name] = _method(answer, _free_text)
    return type("ComposerEnvironment", (TRLEpisode,), members)


def _call_text(name: str, arguments: Mapping[str, Any]) -> str:
    return json.dumps({"name": name, "arguments": dict(arguments)}, ensure_ascii=False)


def _free_text(name: str, arguments: Mapping[str, Any]) -> str:
    return str(arguments.get("text") or "")


def _method(tool: ToolSpec, write: Callable[[str, Mapping[str, Any]], str]) -> Callable[..., str]:
    """A method with the signature and docstring that transformers reads a tool's schema from.

    It takes any argument: names outside the signature reach the environment, which knows what to say about them.
    """

    def method(self: TRLEpisode, **arguments: Any) -> str:
        return self._act(write(tool.name, arguments))

    lines = [tool.description, ""]
    if tool.parameters:
        lines += ["Args:", *(f"    {name}: {text}" for name, text in tool.parameters.items()), ""]
    lines += ["Returns:", "    What happened."]
    receiver = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    optional = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=str) for name in tool.parameters
    ]
    method.__name__, method.__qualname__ = tool.name, f"ComposerEnvironment.{tool.name}"
    method.__doc__ = "\n".join(lines)
    method.__annotations__ = dict.fromkeys(tool.parameters, str) | {"return": str}
    method.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [receiver, *optional], return_annotation=str
    )
    return method
