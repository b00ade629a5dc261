"""A policy with everything that is needed to sample from it: model, tokenizer, environment, sandbox, sampler."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from composer_rl.errors import ConfigError
from composer_rl.rollouts.multi_turn import MultiTurnRollout
from composer_rl.rollouts.sampler import context_length
from composer_rl.rollouts.sampling import SamplingParams
from composer_rl.rollouts.template_check import refusals
from composer_rl.rollouts.trl_rollout import TRLRollout
from composer_rl.stages.quiet import quiet_libraries
from composer_rl.trainer.callbacks.rollout_log import RolloutLog
from composer_rl.trainer.checkpoint import decode_generator_state, encode_generator_state
from composer_rl.types import Message, Rollout, Task

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.envs.base import Environment
    from composer_rl.rollouts.sampler import BatchedSampler
    from composer_rl.stages.base import RunContext

ROLLOUT_FILE = "rollouts.jsonl"
EVALUATION_SAMPLING = SamplingParams(temperature=1.0)
"""Held-out figures are taken at temperature 1 without truncation, whatever training samples from."""


class SamplerState:
    """State of a sampler's generator as JSON."""

    def __init__(self, sampler: BatchedSampler) -> None:
        self._sampler = sampler

    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state."""
        state = self._sampler.state_dict()
        return state | {"generator": encode_generator_state(state["generator"])}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue the random numbers of a checkpoint."""
        self._sampler.load_state_dict(state | {"generator": decode_generator_state(state["generator"])})


class Policy:
    """What `open_policy` yields.

    Attributes:
        model: The causal language model, on its device.
        tokenizer: With a chat template.
        env: Open, with its sandbox.
        rollout_log: Writes to rollouts.jsonl of the run.
        training_rollout: Samples the episodes to train on, from the run's own sampler.
        sampler_state: State of that sampler.
    """

    def __init__(
        self, *, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, env: Environment, context: RunContext
    ) -> None:
        stage = context.components["stage"]
        self.model = model
        self.tokenizer = tokenizer
        self.env = env
        self._context = context
        training = self._rollout(seed=context.seed + int(os.environ.get("RANK", "0")), sampling=None)
        self.training_rollout = TRLRollout(training, env.tasks("train"))
        self.sampler_state = SamplerState(training.sampler)
        self.rollout_log = RolloutLog(
            context.run_dir / ROLLOUT_FILE,
            prompt_of=self._prompts().__getitem__,
            per_step=getattr(stage, "rollouts_per_step", 8),
        )

    def _rollout(self, *, seed: int, sampling: SamplingParams | None) -> MultiTurnRollout:
        hint = self._context.components.get("hint")
        return MultiTurnRollout.from_settings(
            self.env,
            self.tokenizer,
            self._context.components["rollout"],
            seed=seed,
            model=self.model,
            hints=hint if sampling is None and getattr(hint, "in_rollout", False) else None,
            sampling=sampling,
        )

    def _prompts(self) -> dict[str, list[Message]]:
        return {task.task_id: task.prompt for split in ("train", "heldout") for task in self.env.tasks(split)}

    def sample(
        self, model: Any, tasks: Sequence[Task], *, num_samples: int, seed: int, max_turns: int | None = None
    ) -> list[Rollout]:
        """Episodes for measuring: temperature 1, no hints, the same random numbers for the same seed."""
        evaluation = self._rollout(seed=seed, sampling=EVALUATION_SAMPLING)
        return evaluation.run(model, tasks, num_samples=num_samples, max_turns=max_turns).rollouts

    def take_metrics(self) -> dict[str, float]:
        """Timings and counts of the training episodes since the last call."""
        stats = self.training_rollout.take_stats()
        return stats.metrics() if stats.num_rollouts else {}


def check_prompt_lengths(env: Environment, tokenizer: Any, model: Any, *, max_new_tokens: int) -> None:
    """Refuse a prompt that cannot be rendered or leaves no room for an answer now, not when a step happens to draw it.

    A token is at least one byte, so only prompts with more bytes than the room has tokens are tokenized.

    Raises:
        ConfigError: naming where the prompt comes from, and its length and the room in tokens.
    """
    room = context_length(model) - max_new_tokens
    for split in ("train", "heldout"):
        for task in env.tasks(split):
            try:
                text = tokenizer.apply_chat_template(task.prompt, tokenize=False, add_generation_prompt=True)
            except refusals() as error:
                raise ConfigError(f"the chat template refuses the prompt of {env.describe(task)}: {error}") from error
            if len(text.encode()) <= room:
                continue
            length = len(tokenizer(text, add_special_tokens=False)["input_ids"])
            if length > room:
                raise ConfigError(
                    f"the prompt of {env.describe(task)} has {length} tokens; with "
                    f"rollout.max_new_tokens={max_new_tokens} at most {room} fit the model's context of "
                    f"{room + max_new_tokens}"
                )


@contextmanager
def open_policy(context: RunContext) -> Iterator[Policy]:
    """Start the sandbox, open the environment, load the model; everything is closed at the end."""
    components = context.components
    quiet_libraries()
    context.trackers.phase("loading the model")
    with components["sandbox"] as sandbox:
        env: Environment = components["env"]
        env.open(sandbox)
        model, tokenizer = components["model"].load(components["runtime"].torch_device())
        check_prompt_lengths(env, tokenizer, model, max_new_tokens=components["rollout"].max_new_tokens)
        context.trackers.phase("")
        yield Policy(model=model, tokenizer=tokenizer, env=env, context=context)
