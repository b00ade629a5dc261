"""Who generates the completions of a training run, as arguments of the trainer.

composer    our own sampler and episodes, through TRL's rollout_func
trl, vllm   TRL's generation; in an environment that grades, with TRL's tool loop over `environment_factory`
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from composer_rl.errors import ConfigError

if TYPE_CHECKING:
    from composer_rl.rewards.base import RewardFunction, TRLReward
    from composer_rl.stages.policy import Policy

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Generation:
    """What a backend adds to the trainer's arguments and to GRPOConfig."""

    trainer_kwargs: dict[str, Any] = field(default_factory=dict)
    config_kwargs: dict[str, Any] = field(default_factory=dict)
    reward_functions: list[TRLReward] = field(default_factory=list)
    reward_weights: list[float] = field(default_factory=list)


def composer_generation(policy: Policy, reward: RewardFunction) -> Generation:
    """Our sampler: rollouts reach the reward functions as records."""
    from composer_rl.rewards.base import as_trl_functions

    functions, weights = as_trl_functions(reward)
    return Generation(
        trainer_kwargs={
            "sample_rollouts": policy.training_rollout.for_rows,
            "step_metrics": policy.take_metrics,
        },
        reward_functions=functions,
        reward_weights=weights,
    )


def trl_generation(policy: Policy, reward: RewardFunction) -> Generation:
    """TRL's own generation. A reward that reads grades is replaced by the environment's `get_reward`."""
    from composer_rl.rewards.base import as_trl_functions
    from composer_rl.rollouts.trl_environment import trl_environment_factory

    if not policy.env.grades:
        functions, weights = as_trl_functions(reward)
        return Generation(reward_functions=functions, reward_weights=weights)
    if reward.uses_grades:
        _LOG.info("rollout.backend=trl: the reward is the environment's grade of the last call, without a discount")
    functions, weights = ([], []) if reward.uses_grades else as_trl_functions(reward)
    _check_tool_template(policy)
    return Generation(
        trainer_kwargs={
            "environment_factory": trl_environment_factory(policy.env, policy.env.tasks("train"), policy.env.tool_specs)
        },
        config_kwargs={"max_tool_calling_iterations": max(policy.env.max_turns - 1, 1)},
        reward_functions=functions,
        reward_weights=weights,
    )


def vllm_generation(policy: Policy, reward: RewardFunction) -> Generation:
    """As `trl_generation`, on a vLLM engine in this process."""
    generation = trl_generation(policy, reward)
    vllm = {"use_vllm": True, "vllm_mode": "colocate"}
    return Generation(
        trainer_kwargs=generation.trainer_kwargs,
        config_kwargs=generation.config_kwargs | vllm,
        reward_functions=generation.reward_functions,
        reward_weights=generation.reward_weights,
    )


BACKENDS: dict[str, Callable[[Policy, RewardFunction], Generation]] = {
    "composer": composer_generation,
    "trl": trl_generation,
    "vllm": vllm_generation,
}
"""Generation by `rollout.backend`."""


def _check_tool_template(policy: Policy) -> None:
    from trl.chat_template_utils import supports_tool_calling

    if not supports_tool_calling(policy.tokenizer):
        raise ConfigError(
            "rollout.backend=trl needs a chat template that renders tool calls, which this model's does not; use "
            "rollout=default, or a model with a tool-calling template"
        )
