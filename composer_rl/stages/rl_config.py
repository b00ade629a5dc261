"""Settings of a run as TRL's GRPOConfig."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trl import GRPOConfig

    from composer_rl.optim.base import OptimizerSettings
    from composer_rl.po.base import PolicyObjective
    from composer_rl.po.batch import BatchPlan
    from composer_rl.rollouts.settings import RolloutSettings


def grpo_config(
    *,
    output_dir: Path,
    objective: PolicyObjective,
    optimizer: OptimizerSettings,
    rollout: RolloutSettings,
    plan: BatchPlan,
    device: str,
    max_steps: int,
    seed: int,
    reward_weights: list[float],
    **overrides: Any,
) -> GRPOConfig:
    """The GRPOConfig of a run; `overrides` win over everything else."""
    from trl import GRPOConfig

    on_cpu = device == "cpu"
    settings: dict[str, Any] = {
        "output_dir": str(output_dir),
        "max_steps": max_steps,
        "seed": seed,
        "temperature": rollout.temperature,
        "top_p": rollout.top_p,
        "top_k": rollout.top_k,
        "min_p": rollout.min_p or None,
        "max_completion_length": rollout.max_tokens,
        "reward_weights": reward_weights,
        # Rewards and tasks need the columns of the dataset.
        "remove_unused_columns": False,
        # The prompt source has its own cursor; the data loader only paces the loop.
        "ignore_data_skip": True,
        "dataloader_num_workers": 0,
        "dataloader_pin_memory": not on_cpu,
        # use_cpu alone would leave bfloat16 and activation checkpointing on.
        "use_cpu": on_cpu,
        "bf16": not on_cpu,
        "gradient_checkpointing": False,
        "disable_dropout": True,
        "logging_strategy": "steps",
        "logging_steps": 1,
        "report_to": [],
        "disable_tqdm": True,
        **objective.to_grpo_kwargs(),
        **optimizer.to_trainer_kwargs(),
        **plan.to_grpo_kwargs(),
    }
    return GRPOConfig(**(settings | overrides))
