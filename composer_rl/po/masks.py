"""Masks of a policy objective: what may silently take part of a batch out of the loss, and what to do about it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer_rl.po.engagement import OFF_POLICY_MASKED, SAMPLING_MASKED

if TYPE_CHECKING:
    from composer_rl.po.base import PolicyObjective


def objective_masks(objective: PolicyObjective) -> dict[str, str]:
    """Logged share of what each mask that is switched on removes -> its setting, and what to change."""
    masks = {}
    mode = objective.vllm_importance_sampling_mode
    if objective.vllm_importance_sampling_correction and mode.endswith("mask"):
        masks[SAMPLING_MASKED] = (
            f"po.vllm_importance_sampling_mode={mode}: the sampler's log-probs differ from the trainer's, over a whole "
            "completion in the sequence modes; use token_truncate, raise po.vllm_importance_sampling_clip_max, or let "
            "the sampler compute in the model's precision"
        )
    if objective.off_policy_mask_threshold is not None:
        masks[OFF_POLICY_MASKED] = (
            f"po.off_policy_mask_threshold={objective.off_policy_mask_threshold:g}: raise it, or lower "
            "po.updates_per_rollout or the learning rate"
        )
    if objective.mask_truncated_completions:
        masks["completions/clipped_ratio"] = (
            "po.mask_truncated_completions=true: completions hit the length limit; raise rollout.max_new_tokens and "
            "rollout.max_tokens"
        )
    return masks
