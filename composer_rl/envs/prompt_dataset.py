"""A prompt dataset of the user's own in place of an environment: one turn, scored by the reward group alone."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from composer_rl.envs.base import Environment, Episode
from composer_rl.errors import ConfigError
from composer_rl.types import Message, Split, StepResult, Task

if TYPE_CHECKING:
    from composer_rl.sandboxes.base import Sandbox

_HASH_RANGE = 2**32


@dataclass(kw_only=True)
class PromptDataset(Environment):
    """`env=dataset env.path=<file or folder>`.

    JSONL (`.jsonl`, `.json` with one object a line), Parquet, or a folder written by
    `datasets.Dataset.save_to_disk`. Every row needs the prompt column: a string, or a list of chat messages. All
    other columns reach the reward function by name, as with TRL.
    """

    path: Path
    """File or folder of the training prompts."""
    prompt_column: str = "prompt"
    """Column with the prompt."""
    system_prompt: str | None = None
    """Put before a prompt that is a string, or a message list without a system message."""
    heldout_path: Path | None = None
    """File or folder of the held-out prompts; None takes `heldout_fraction` of `path`, chosen by content hash."""
    heldout_fraction: float = 0.1
    """Share of `path` that is held out, range [0, 1); ignored with `heldout_path`."""
    max_turns: int = 1
    """Always 1: there is nothing that could answer a turn."""
    _tasks: dict[str, list[Task]] = field(default_factory=dict, init=False, repr=False)
    _where: dict[str, str] = field(default_factory=dict, init=False, repr=False)
    """File and row by task id."""

    def __post_init__(self) -> None:
        for name, path in (("path", self.path), ("heldout_path", self.heldout_path)):
            if path is not None and not Path(path).expanduser().exists():
                raise ValueError(f"{name} must exist, got {str(path)!r}")
        if not 0.0 <= self.heldout_fraction < 1.0:
            raise ValueError(f"heldout_fraction must be in [0, 1), got {self.heldout_fraction}")
        if self.max_turns != 1:
            raise ValueError(f"max_turns must be 1 for a prompt dataset, got {self.max_turns}")

    @property
    def grades(self) -> bool:
        """A dataset grades nothing."""
        return False

    def check(self) -> None:
        """Read the rows. Raises ConfigError naming the file and line of a row without a usable prompt."""
        if self._tasks:
            return
        rows = list(self._read(Path(self.path).expanduser()))
        if self.heldout_path is not None:
            heldout = list(self._read(Path(self.heldout_path).expanduser()))
            ids = {task.task_id for task in heldout}
            train = [task for task in rows if task.task_id not in ids]
        else:
            threshold = int(self.heldout_fraction * _HASH_RANGE)
            heldout = [task for task in rows if int(task.task_id[:8], 16) < threshold]
            train = [task for task in rows if int(task.task_id[:8], 16) >= threshold]
        if not train:
            raise ConfigError(f"env.path={self.path} has no training prompt left besides the held-out ones")
        names = dict.fromkeys(name for task in [*train, *heldout] for name in task.payload)
        for task in [*train, *heldout]:  # Rewards get whole columns: a row that lacks one has None there.
            for name in names:
                task.payload.setdefault(name, None)
        self._tasks = {"train": train, "heldout": heldout}

    @property
    def columns(self) -> frozenset[str] | None:
        """Columns that at least one row has; None before `check`."""
        return frozenset(self._tasks["train"][0].payload) if self._tasks else None

    def describe(self, task: Task) -> str:
        """File and row of the task."""
        return self._where[task.task_id]

    def open(self, sandbox: Sandbox) -> None:
        """Read the rows, unless `check` has."""
        self.check()

    def tasks(self, split: Split) -> Sequence[Task]:
        """Tasks of a split, in file order, duplicates of a row removed."""
        return self._tasks[split]

    def start(self, task: Task) -> Episode:
        """Begin an episode."""
        return Episode(task=task)

    def step(self, episodes: Sequence[Episode], actions: Sequence[str]) -> list[StepResult]:
        """Every answer ends its episode; the reward group scores it."""
        for episode in episodes:
            episode.num_turns += 1
        return [StepResult(reward=0.0, done=True) for _ in actions]

    def _read(self, path: Path) -> Iterator[Task]:
        seen: set[str] = set()
        for place, row in _rows(path):
            where = f"{path}, {place}"
            task = self._task(row, where=where)
            if task.task_id not in seen:
                seen.add(task.task_id)
                self._where.setdefault(task.task_id, where)
                yield task

    def _task(self, row: dict[str, Any], *, where: str) -> Task:
        if self.prompt_column not in row:
            raise ConfigError(
                f"{where}: no column {self.prompt_column!r} (it has {', '.join(sorted(row))}); set env.prompt_column"
            )
        prompt = self._messages(row[self.prompt_column], where=where)
        payload = {name: value for name, value in row.items() if name != self.prompt_column}
        digest = hashlib.sha256(json.dumps([prompt, payload], sort_keys=True, default=str).encode()).hexdigest()
        return Task(task_id=digest[:16], prompt=prompt, payload=payload)

    def _messages(self, prompt: Any, *, where: str) -> list[Message]:
        if isinstance(prompt, str):
            messages: list[Message] = [{"role": "user", "content": prompt}]
        elif isinstance(prompt, list) and prompt and all(_is_message(message) for message in prompt):
            messages = [dict(message) for message in prompt]
        else:
            raise ConfigError(
                f"{where}: column {self.prompt_column!r} must be a string or a non-empty list of messages with role "
                f"and content, got {type(prompt).__name__}"
            )
        if self.system_prompt is not None and messages[0]["role"] != "system":
            messages.insert(0, {"role": "system", "content": self.system_prompt})
        return messages


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str) and isinstance(value.get("content"), str)


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every row with its place in the file."""
    if path.is_dir():
        yield from _numbered(_saved_dataset(path))
    elif path.suffix == ".parquet":
        yield from _numbered(_parquet(path))
    elif path.suffix in {".jsonl", ".json", ".ndjson"}:
        yield from _json_lines(path)
    else:
        raise ConfigError(f"env.path={path}: unknown kind of file; give .jsonl, .parquet or a datasets folder")


def _numbered(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((f"row {number}", row) for number, row in enumerate(rows, start=1))


def _parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError.
        raise ConfigError(f"env.path={path}: not a Parquet file ({error})") from error
    return rows


def _json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except ValueError as error:  # Of the JSON, or of bytes that are no UTF-8.
                raise ConfigError(f"{path}, line {number}: not JSON ({error})") from error
            if not isinstance(row, dict):
                raise ConfigError(f"{path}, line {number}: must be an object, got {type(row).__name__}")
            yield f"line {number}", row


def _saved_dataset(path: Path) -> Iterator[dict[str, Any]]:
    import datasets

    try:
        loaded = datasets.load_from_disk(str(path))
    except (OSError, ValueError, KeyError, TypeError) as error:  # A damaged folder fails in all these ways.
        raise ConfigError(f"env.path={path}: not a folder written by datasets.save_to_disk ({error})") from error
    if isinstance(loaded, datasets.DatasetDict):
        if "train" not in loaded:
            raise ConfigError(f"env.path={path}: holds the splits {', '.join(loaded)}; point to one of them")
        loaded = loaded["train"]
    yield from loaded
