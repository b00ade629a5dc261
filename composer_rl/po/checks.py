"""Range and combination checks of `PolicyObjective`, torch-free so that bad input fails before anything is loaded.

They carry what TRL 1.16 checks in GRPOConfig and in the constructor of GRPOTrainer, and refuse what TRL accepts in
silence although it cannot act as named.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from composer_rl.po.base import PolicyObjective

CLIPPED_LOSSES = frozenset({"grpo", "bnpo", "dr_grpo", "dapo", "luspo"})
"""Loss types with PPO's clipped token term; the only ones that read epsilon and delta."""

_FIELDS_OF_LOSS = {
    "sapo": ("sapo_temperature_pos", "sapo_temperature_neg"),
    "vespo": ("vespo_k_pos", "vespo_lambda_pos", "vespo_k_neg", "vespo_lambda_neg"),
}
_ABOVE_ZERO = (
    "epsilon",
    "epsilon_high",
    "off_policy_mask_threshold",
    "sapo_temperature_pos",
    "sapo_temperature_neg",
    "vespo_lambda_pos",
    "vespo_lambda_neg",
    "vllm_importance_sampling_clip_max",
)
_AT_LEAST_ZERO = ("beta", "vespo_k_pos", "vespo_k_neg", "vllm_importance_sampling_clip_min")
_AT_LEAST_ONE = ("num_iterations", "updates_per_rollout", "dynamic_sampling_max_rounds")


def check_ranges(objective: PolicyObjective) -> None:
    """Single-field ranges; NaN and infinity are outside all of them."""
    for name in _ABOVE_ZERO:
        value = getattr(objective, name)
        if value is not None and not (value > 0.0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number above 0, got {value}")
    for name in _AT_LEAST_ZERO:
        value = getattr(objective, name)
        if value is not None and not (value >= 0.0 and math.isfinite(value)):
            raise ValueError(f"{name} must be a finite number of at least 0, got {value}")
    for name in _AT_LEAST_ONE:
        value = getattr(objective, name)
        if value < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
    if objective.num_generations < 2:
        raise ValueError(
            f"num_generations must be at least 2, got {objective.num_generations}: "
            "an advantage compares a completion with others of the same prompt"
        )
    if not 0.0 <= objective.top_entropy_quantile <= 1.0:
        raise ValueError(f"top_entropy_quantile must be in [0, 1], got {objective.top_entropy_quantile}")
    if not math.isfinite(objective.entropy_coef):
        raise ValueError(f"entropy_coef must be finite, got {objective.entropy_coef}")


def check_clipping(objective: PolicyObjective) -> None:
    """The clip bounds against the loss type that reads them (cases B37, B38)."""
    loss_type, high = objective.loss_type, objective.epsilon_high
    if loss_type == "cispo":
        if high is None or high < 1.0:
            raise ValueError(
                f"epsilon_high must be at least 1 with loss_type=cispo, got {high}: it is the absolute cap of the "
                "ratio there (ScaleRL: 5.0), not a distance from 1, and left unset TRL caps the ratio at epsilon, "
                "which scales every gradient down"
            )
    elif loss_type not in CLIPPED_LOSSES and high is not None:
        raise ValueError(f"epsilon_high must be unset with loss_type={loss_type}, which does not clip, got {high}")
    if objective.delta is None:
        return
    if loss_type not in CLIPPED_LOSSES:
        raise ValueError(
            f"delta must be unset with loss_type={loss_type}, which does not read it, got {objective.delta}"
        )
    bound = 1.0 + objective.effective_epsilon_high
    if not (objective.delta > bound and math.isfinite(objective.delta)):
        raise ValueError(
            f"delta must be above 1 + epsilon_high = {bound:g}, got {objective.delta}: below it the upper clip "
            "could never act"
        )


def check_kl(objective: PolicyObjective) -> None:
    """Only the estimator that TRL computes is available so far."""
    if objective.kl_estimator != "k3":
        raise ValueError(
            f"kl_estimator must be k3, got {objective.kl_estimator}: TRL's KL term is k3, and k1 and k2 need the "
            "loss channel reference_kl, which this version does not have"
        )


def check_loss_type(objective: PolicyObjective) -> None:
    """The level of the ratio, and settings that belong to another loss type."""
    level = objective.importance_sampling_level
    if objective.loss_type == "luspo" and level != "sequence":
        raise ValueError(
            f"importance_sampling_level must be sequence with loss_type=luspo, got {level}: luspo multiplies a "
            "sequence-level loss by the length of the row (arXiv 2602.05261)"
        )
    if objective.loss_type == "vespo" and level != "token":
        raise ValueError(
            f"importance_sampling_level must be token with loss_type=vespo, got {level}: vespo forms its own sequence "
            "weight from token ratios"
        )
    defaults = {field.name: field.default for field in fields(objective)}
    for loss_type, names in _FIELDS_OF_LOSS.items():
        if objective.loss_type == loss_type:
            continue
        for name in names:
            value = getattr(objective, name)
            if value != defaults[name]:
                raise ValueError(
                    f"{name} is read by loss_type={loss_type} only, got {value} with loss_type={objective.loss_type}"
                )


def check_vllm_bounds(objective: PolicyObjective) -> None:
    """Bounds of the sampler correction."""
    low, high = objective.vllm_importance_sampling_clip_min, objective.vllm_importance_sampling_clip_max
    if low is not None and high is not None and low >= high:
        raise ValueError(
            f"vllm_importance_sampling_clip_min must be below vllm_importance_sampling_clip_max, got {low} and {high}"
        )
    mode = objective.vllm_importance_sampling_mode
    if objective.vllm_importance_sampling_correction and mode.endswith("truncate") and low is None and high is None:
        raise ValueError(
            f"vllm_importance_sampling_mode={mode} needs vllm_importance_sampling_clip_max or "
            "vllm_importance_sampling_clip_min, got neither"
        )


def check_sampling(
    objective: PolicyObjective, *, use_vllm: bool, top_p: float, top_k: int, min_p: float | None
) -> None:
    """The sampler correction against the sampling settings (case B32) and against vespo."""
    if not (use_vllm and objective.vllm_importance_sampling_correction):
        return
    mode = objective.vllm_importance_sampling_mode
    if objective.loss_type == "vespo" and not mode.startswith("token"):
        raise ValueError(
            f"vllm_importance_sampling_mode must be token_truncate or token_mask with loss_type=vespo, got {mode}"
        )
    truncations = {"top_p": (top_p, top_p < 1.0), "top_k": (top_k, top_k > 0), "min_p": (min_p, bool(min_p))}
    active = [f"{name}={value}" for name, (value, truncates) in truncations.items() if truncates]
    if active:
        raise ValueError(
            f"vllm_importance_sampling_correction must be false with truncated sampling ({', '.join(active)}): the "
            "sampler's probabilities are renormalised on the kept tokens, so the correction is biased by the kept mass"
        )
