"""`stage=rl`: train the policy on rollouts of the environment."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer_rl.config.suggest import did_you_mean
from composer_rl.errors import ConfigError
from composer_rl.stages.base import RunContext, Stage, StageResult
from composer_rl.trainer.zero_variance import skip_rule

if TYPE_CHECKING:
    from composer_rl.envs.base import Environment
    from composer_rl.po.base import PolicyObjective
    from composer_rl.rewards.base import RewardFunction
    from composer_rl.rollouts.settings import RolloutSettings


@dataclass(kw_only=True)
class RLStage(Stage):
    """Samples rollouts, scores them, and takes policy-gradient steps with TRL's trainer."""

    max_steps: int = 150
    """Optimizer steps, at least 1; `max_steps` on the command line wins."""
    eval_every: int = 10
    """Optimizer steps between held-out evaluations, at least 0; 0 evaluates at the start and the end only."""
    num_heldout: int | None = 200
    """Held-out tasks per evaluation, at least 1; None takes all."""
    save_every: int = 50
    """Optimizer steps between checkpoints to resume from, at least 0; 0 writes none but the final model."""
    keep_checkpoints: int = 2
    """Checkpoints to resume from that are kept, at least 2: the newest may be cut off by a kill."""
    rollouts_every: int = 5
    """Optimizer steps between entries in rollouts.jsonl, at least 1."""
    rollouts_per_step: int = 4
    """Rollouts written then, at least 0."""

    def __post_init__(self) -> None:
        minimum = {
            "max_steps": 1,
            "eval_every": 0,
            "save_every": 0,
            "keep_checkpoints": 2,
            "rollouts_every": 1,
            "rollouts_per_step": 0,
        }
        for name, least in minimum.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.num_heldout is not None and self.num_heldout < 1:
            raise ValueError(f"num_heldout must be at least 1, or null for all, got {self.num_heldout}")

    @property
    def required_groups(self) -> tuple[str, ...]:
        return ("po", "loss", "env", "sandbox", "model", "curriculum", "optim", "reward", "rollout", "runtime")

    def check(self, components: dict[str, Any], *, max_steps: int | None = None) -> None:
        """Batch divisibility, sampling against the objective, rewards against the environment."""
        objective: PolicyObjective = components["po"]
        rollout: RolloutSettings = components["rollout"]
        env: Environment = components["env"]
        try:
            objective.batch_plan(
                num_rows=rollout.prompts_per_rollout * objective.num_generations,
                micro_batch_size=components["runtime"].micro_batch_size,
            )
            objective.check_sampling(
                use_vllm=rollout.backend == "vllm", top_p=rollout.top_p, top_k=rollout.top_k, min_p=rollout.min_p
            )
            if objective.overlong_penalty is not None:
                objective.overlong_penalty.resolve_cache_tokens(rollout.max_tokens)
        except ValueError as error:
            raise ConfigError(
                f"po, rollout and runtime do not fit together: {error} (completions per rollout = "
                f"rollout.prompts_per_rollout={rollout.prompts_per_rollout} x "
                f"po.num_generations={objective.num_generations})"
            ) from error
        if objective.dynamic_sampling != "off":
            rule = skip_rule(
                beta=objective.beta,
                entropy_bonus=objective.entropy_coef != 0.0,
                top_entropy_quantile=objective.top_entropy_quantile,
                aux_loss=False,
                multi_objective_aggregation=objective.multi_objective_aggregation,
                num_channels=len(components["loss"].channels),
            )
            if not rule.allowed:
                raise ConfigError(
                    f"po.dynamic_sampling={objective.dynamic_sampling} cannot be combined with: {rule.reason}; set "
                    "po.dynamic_sampling='off' or leave the other setting out"
                )
        if rollout.backend == "vllm" and importlib.util.find_spec("vllm") is None:
            raise ConfigError(
                "rollout.backend=vllm needs vLLM, which is not installed; install it with: pip install vllm (a GPU is "
                "needed), or use rollout=default"
            )
        _check_columns(components["reward"], env)
        if components["reward"].uses_grades and not env.grades:
            raise ConfigError(
                "reward reads the environment's grade, but this environment does not grade; choose "
                "reward=answer_match or reward=function"
            )
        if max_steps is not None and max_steps < 1:
            raise ConfigError(f"max_steps must be at least 1, got {max_steps}")

    def run(self, context: RunContext) -> StageResult:
        """Train, evaluate, save."""
        from composer_rl.stages.rl_session import RLSession

        return RLSession(self, context).run()


def _check_columns(reward: RewardFunction, env: Environment) -> None:
    """Refuse a reward that reads a column which no row has. Raises ConfigError."""
    known = env.columns
    for column, setting in reward.required_columns().items():
        if known is not None and column not in known:
            hint = did_you_mean(column, known, what="its columns") or "; it has none beside the prompt"
            raise ConfigError(f"reward.{setting} needs the column {column!r}, which no row of the dataset has{hint}")
