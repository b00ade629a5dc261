"""Error sites: conversations that end in a failed tool call, as data that can be frozen, shipped and replayed.

A set of sites that stays the same lets recoveries be compared between policies and between hints: what is measured
is the answer after the error, not the luck of which errors a policy makes.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from composer_rl.envs.base import Environment, Episode
from composer_rl.errors import ConfigError
from composer_rl.types import Message, Rollout, Task, ToolError

MICRO_SITES = Path(__file__).parent / "substrates" / "micro" / "error_sites.jsonl.gz"
"""The shipped set: errors of the tiny model's floor on held-out tasks of the embedded testbed at temperature 1."""


@dataclass(frozen=True, kw_only=True)
class ErrorSite:
    """A task and the failed answers that led to the error."""

    task: Task
    answers: tuple[str, ...]
    """Assistant turns in order, the last one being the failed call; not empty."""
    kind: str
    """Error kind of the last one."""

    def to_json(self) -> str:
        """One line of a sites file."""
        task = {"task_id": self.task.task_id, "prompt": self.task.prompt, "payload": self.task.payload}
        return json.dumps({"task": task, "answers": list(self.answers), "kind": self.kind}, ensure_ascii=False)

    @classmethod
    def from_json(cls, line: str) -> ErrorSite:
        """Inverse of `to_json`."""
        record = json.loads(line)
        return cls(task=Task(**record["task"]), answers=tuple(record["answers"]), kind=record["kind"])


@dataclass(frozen=True, kw_only=True)
class ReplayedSite:
    """A site as the environment sees it now."""

    site: ErrorSite
    episode: Episode
    """State after the failed answers; take `fork()` before stepping it."""
    messages: list[Message]
    """The conversation up to and including the tool turn of the error."""
    error: ToolError

    def fork(self) -> Episode:
        """A copy of the episode that can be stepped on its own."""
        return copy.deepcopy(self.episode)


def replay(env: Environment, sites: Sequence[ErrorSite]) -> list[ReplayedSite]:
    """Play the failed answers of each site again, in batches.

    Raises ConfigError when the environment answers otherwise than the site says: the sites belong to another
    environment or another version of it.
    """
    episodes = [env.start(site.task) for site in sites]
    messages: list[list[Message]] = [list(site.task.prompt) for site in sites]
    errors: list[ToolError | None] = [None] * len(sites)
    for turn in range(max((len(site.answers) for site in sites), default=0)):
        active = [index for index, site in enumerate(sites) if len(site.answers) > turn]
        answers = [sites[index].answers[turn] for index in active]
        results = env.step([episodes[index] for index in active], answers)
        for index, answer, result in zip(active, answers, results, strict=True):
            if result.error is None or result.done:
                raise ConfigError(f"error site of task {sites[index].task.task_id}: its answers end the episode")
            errors[index] = result.error
            tool_turn = result.observation or {"role": "tool", "content": result.error.message}
            messages[index] += [{"role": "assistant", "content": answer}, tool_turn]
    replayed = []
    for site, episode, conversation, error in zip(sites, episodes, messages, errors, strict=True):
        if error is None or error.kind != site.kind:
            found = None if error is None else error.kind
            raise ConfigError(f"error site of task {site.task.task_id}: expected {site.kind}, the replay gave {found}")
        replayed.append(ReplayedSite(site=site, episode=episode, messages=conversation, error=error))
    return replayed


def collect(rollouts: Iterable[Rollout], tasks: Iterable[Task]) -> list[ErrorSite]:
    """Sites of sampled episodes: every failed first answer, and every repeated failure on a second one.

    Only turns that were followed by another one count, so that the error left the policy a chance.
    """
    by_id = {task.task_id: task for task in tasks}
    sites = []
    for rollout in rollouts:
        for index, turn in enumerate(rollout.turns[:2]):
            if turn.error is None or index + 1 == len(rollout.turns):
                break
            if index == 0 or turn.error.kind == "repeated_failure":
                answers = tuple(each.text for each in rollout.turns[: index + 1])
                sites.append(ErrorSite(task=by_id[rollout.task_id], answers=answers, kind=turn.error.kind))
    return sites


def read_sites(path: Path) -> list[ErrorSite]:
    """Sites of a file (JSONL, gzip when its name ends in .gz). Raises ConfigError when it cannot be read."""
    try:
        raw = path.read_bytes()
        text = (gzip.decompress(raw) if path.suffix == ".gz" else raw).decode()
        sites = [ErrorSite.from_json(line) for line in text.splitlines() if line.strip()]
    except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
        raise ConfigError(f"{path} cannot be read as error sites: {type(error).__name__}: {error}") from error
    if not sites:
        raise ConfigError(f"{path} has no error sites")
    return sites


def write_sites(path: Path, sites: Sequence[ErrorSite]) -> None:
    """Write a sites file; the same sites give the same bytes."""
    data: Any = "".join(site.to_json() + "\n" for site in sites).encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)
