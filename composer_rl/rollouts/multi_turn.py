"""Batched episodes of several turns: sample, let the environment answer, go on with the rows that are not done.

All rows of a batch take their turns together, so each turn is one batch for the model and one call for the
environment. A conversation grows by ids only (`splice`): what is trained on is exactly what was sampled, and tool
turns and hints carry a 0 in `env_mask`. A rollout that goes wrong (cut off, no room for the tool turn) is data with
stop reason "length", not an exception.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_rl.errors import RolloutError
from composer_rl.rollouts.base import RolloutBatch, RolloutEnvironment, RolloutHints, RolloutStats
from composer_rl.rollouts.sampler import BatchedSampler, SampledTurn, SamplingSession, context_length
from composer_rl.rollouts.splice import TurnRenderer
from composer_rl.types import Message, Rollout, RolloutTurn, StepResult, StopReason, Task

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from composer_rl.rollouts.sampling import SamplingParams
    from composer_rl.rollouts.settings import RolloutSettings


@dataclass(kw_only=True)
class _Row:
    """One episode under way."""

    task: Task
    episode: Any
    prompt_ids: list[int]
    room: int
    """Tokens that may follow the prompt."""
    completion_ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    env_mask: list[int] = field(default_factory=list)
    turns: list[RolloutTurn] = field(default_factory=list)
    stop_reason: StopReason | None = None

    def append(self, ids: Sequence[int], logprobs: Sequence[float], mask: int) -> None:
        self.completion_ids.extend(ids)
        self.logprobs.extend(logprobs)
        self.env_mask.extend([mask] * len(ids))

    @property
    def left(self) -> int:
        """Tokens of the budget that are left."""
        return self.room - len(self.completion_ids)

    def finish(self) -> Rollout:
        assert self.stop_reason is not None
        return Rollout(
            task_id=self.task.task_id,
            prompt_ids=self.prompt_ids,
            completion_ids=self.completion_ids,
            logprobs=self.logprobs,
            env_mask=self.env_mask,
            turns=self.turns,
            reward=self.turns[-1].reward,
            stop_reason=self.stop_reason,
        )


class MultiTurnRollout:
    """Runs episodes of one environment with one sampler.

    Args:
        environment: already open.
        renderer: of the policy's tokenizer.
        sampler: its stop ids are normally `renderer.stop_ids`.
        max_new_tokens: most tokens of one assistant turn.
        max_tokens: most tokens after the prompt, tool turns included.
        max_rows: episodes in one batch; more run one batch after another. None: all at once.
        hints: shows the hint of a failed turn before the next one (ablations); None shows none.

    Raises:
        ConfigError: `environment.max_turns` is more than 1 and the chat template cannot carry several turns.
    """

    def __init__(
        self,
        environment: RolloutEnvironment,
        renderer: TurnRenderer,
        sampler: BatchedSampler,
        *,
        max_new_tokens: int,
        max_tokens: int,
        max_rows: int | None = None,
        hints: RolloutHints | None = None,
    ) -> None:
        if environment.max_turns > 1:
            _ = renderer.facts
        self.environment = environment
        self.renderer = renderer
        self.sampler = sampler
        self.hints = hints
        self._max_new_tokens = max_new_tokens
        self._max_tokens = max_tokens
        self._max_rows = max_rows

    @classmethod
    def from_settings(
        cls,
        environment: RolloutEnvironment,
        tokenizer: PreTrainedTokenizerBase,
        settings: RolloutSettings,
        *,
        seed: int,
        model: Any = None,
        hints: RolloutHints | None = None,
        sampling: SamplingParams | None = None,
    ) -> MultiTurnRollout:
        """Build renderer and sampler too.

        `model`, if given, adds the end ids of its generation config to the stop ids. `sampling` replaces that of the
        settings (evaluation). Under data parallelism give every process its own seed.
        """
        renderer = TurnRenderer(tokenizer, stop_ids=() if model is None else generation_stop_ids(model))
        return cls(
            environment,
            renderer,
            BatchedSampler(sampling or settings.sampling, stop_ids=renderer.stop_ids, seed=seed),
            max_new_tokens=settings.max_new_tokens,
            max_tokens=settings.max_tokens,
            max_rows=settings.max_rows,
            hints=hints,
        )

    def run(
        self,
        model: Any,
        tasks: Sequence[Task],
        *,
        num_samples: int | Sequence[int],
        max_turns: int | None = None,
    ) -> RolloutBatch:
        """Sample `num_samples` (for all tasks, or for each) episodes of every task, task by task.

        Args:
            model: a causal LM; its training mode is restored.
            tasks: the same task may occur several times.
            num_samples: episodes of each task, at least 1.
            max_turns: fewer turns than the environment allows; None leaves it to the environment.

        Raises:
            RolloutError: a prompt leaves no room for one turn in the model's context (named before anything is
                sampled), the environment breaks its contract, or the model's probabilities are not finite.
            SandboxError: from the environment, when its sandbox broke.
        """
        counts = [num_samples] * len(tasks) if isinstance(num_samples, int) else list(num_samples)
        if len(counts) != len(tasks) or (counts and min(counts) < 1):
            raise ValueError(f"num_samples must be at least 1 for each of {len(tasks)} tasks, got {num_samples}")
        turns = self.environment.max_turns if max_turns is None else min(max_turns, self.environment.max_turns)
        if turns < 1:
            raise ValueError(f"max_turns must be at least 1, got {turns}")
        batch = RolloutBatch()
        with _seconds(batch.stats, "render_s"):
            prompts = [self.renderer.prompt_ids(task.prompt) for task in tasks]
        rooms = self._rooms(tasks, prompts, context_length(model))
        for part in _waves(counts, self._max_rows):
            groups = [
                [
                    _Row(
                        task=tasks[index],
                        episode=self.environment.start(tasks[index]),
                        prompt_ids=prompts[index],
                        room=rooms[index],
                    )
                    for _ in range(count)
                ]
                for index, count in part
            ]
            with self.sampler.session(model) as session:
                self._run_wave(session, groups, turns, batch)
        return batch

    def _rooms(self, tasks: Sequence[Task], prompts: Sequence[list[int]], context: int) -> list[int]:
        """Tokens that may follow each prompt."""
        for task, prompt in zip(tasks, prompts, strict=True):
            if len(prompt) + self._max_new_tokens > context:
                raise RolloutError(
                    f"the prompt of task {task.task_id} has {len(prompt)} tokens; with "
                    f"rollout.max_new_tokens={self._max_new_tokens} it does not fit the model's context of {context}"
                )
        return [min(self._max_tokens, context - len(prompt)) for prompt in prompts]

    def _run_wave(
        self, session: SamplingSession, groups: Sequence[list[_Row]], max_turns: int, batch: RolloutBatch
    ) -> None:
        """Play one batch of episodes to their ends and add them to `batch`."""
        stats = batch.stats
        rows = [row for group in groups for row in group]
        with _seconds(stats, "generate_s"):
            prompts = [group[0].prompt_ids for group in groups]
            samples = [len(group) for group in groups]
            session.start(prompts, samples, capacity=self._max_new_tokens, retain=max_turns > 1)
        active = list(range(len(rows)))
        for turn in range(1, max_turns + 1):
            current = [rows[index] for index in active]
            with _seconds(stats, "generate_s"):
                sampled = session.sample([min(self._max_new_tokens, row.left) for row in current])
            results = self._grade(current, sampled, stats)
            for row, drawn, result in zip(current, sampled, results, strict=True):
                row.stop_reason = _stop_reason(row, drawn, result, is_last=turn == max_turns)
            with _seconds(stats, "render_s"):
                given = self._follow(current, sampled, results)
            active, ids = [active[place] for place in given], list(given.values())
            if not active:
                break
            stats.num_given_tokens += sum(map(len, ids))
            with _seconds(stats, "generate_s"):
                session.extend(active, ids, capacity=self._max_new_tokens)
        stats.num_rollouts += len(rows)
        stats.num_turns += sum(len(row.turns) for row in rows)
        stats.num_hints += sum(turn.hint is not None for row in rows for turn in row.turns)
        stats.num_tokens += session.totals.num_tokens
        stats.num_steps += session.totals.num_steps
        stats.kept_mass += session.totals.kept_mass
        batch.rollouts.extend(row.finish() for row in rows)

    def _grade(self, rows: Sequence[_Row], sampled: Sequence[SampledTurn], stats: RolloutStats) -> list[StepResult]:
        """Record the sampled turns and let the environment answer them."""
        with _seconds(stats, "render_s"):
            texts = self.renderer.texts([turn.ids for turn in sampled])
        with _seconds(stats, "environment_s"):
            results = self.environment.step([row.episode for row in rows], texts)
        if len(results) != len(rows):
            raise RolloutError(f"the environment returned {len(results)} results for {len(rows)} episodes")
        for row, turn, text, result in zip(rows, sampled, texts, results, strict=True):
            start = len(row.completion_ids)
            row.append(turn.ids, turn.logprobs, 1)
            row.turns.append(
                RolloutTurn(
                    start=start, end=len(row.completion_ids), text=text, reward=result.reward, error=result.error
                )
            )
        return results

    def _follow(
        self, rows: Sequence[_Row], sampled: Sequence[SampledTurn], results: Sequence[StepResult]
    ) -> dict[int, list[int]]:
        """By place in `rows`, the ids between this turn and the next one, for the rows that have a next one.

        A row whose budget does not hold them and one more token stops here, with reason "length".
        """
        places = [place for place, row in enumerate(rows) if row.stop_reason is None]
        hints = {place: self._hint(results[place]) for place in places}
        messages: list[list[Message]] = []
        for place in places:
            observation = results[place].observation
            if observation is None:
                raise RolloutError(
                    f"the environment neither ended the episode of task {rows[place].task.task_id} nor answered it"
                )
            hint = hints[place]
            messages.append([observation] if hint is None else [observation, {"role": "user", "content": hint}])
        follow: dict[int, list[int]] = {}
        for place, shown, ids in zip(places, messages, self.renderer.following_ids(messages), strict=True):
            row = rows[place]
            ids = [*self.renderer.ending_ids(sampled[place].ids), *ids]
            if len(ids) >= row.left:
                row.stop_reason = "length"
                continue
            row.append(ids, [0.0] * len(ids), 0)
            row.turns[-1].observation = str(shown[0]["content"])
            row.turns[-1].hint = hints[place]
            follow[place] = ids
        return follow

    def _hint(self, result: StepResult) -> str | None:
        if self.hints is None or result.error is None:
            return None
        return self.hints.generate(result.error.kind, result.error.meta)


def generation_stop_ids(model: Any) -> tuple[int, ...]:
    """End ids of a model's generation config, where chat models list all of theirs."""
    found = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if found is None:
        return ()
    return (found,) if isinstance(found, int) else tuple(found)


def _stop_reason(row: _Row, drawn: SampledTurn, result: StepResult, *, is_last: bool) -> StopReason | None:
    """Why a row ends after this turn; None when it goes on. A last turn that was cut off counts as length."""
    if result.reward >= 1.0:
        return "solved"
    if row.left == 0:
        return "length"
    if result.done or is_last:
        return "max_turns" if drawn.stopped else "length"
    return None


def _waves(counts: Sequence[int], max_rows: int | None) -> Iterator[list[tuple[int, int]]]:
    """Split (task, number of episodes) into batches of at most `max_rows` episodes, in order."""
    wave: list[tuple[int, int]] = []
    room = max_rows
    for index, count in enumerate(counts):
        while count:
            taken = count if room is None else min(count, room)
            wave.append((index, taken))
            count -= taken
            if room is not None:
                room -= taken
                if room == 0:
                    yield wave
                    wave, room = [], max_rows
    if wave:
        yield wave


@contextmanager
def _seconds(stats: RolloutStats, name: str) -> Iterator[None]:
    """Add the wall-clock seconds of the body to a field of `stats`."""
    start = time.perf_counter()
    try:
        yield
    finally:
        setattr(stats, name, getattr(stats, name) + time.perf_counter() - start)
