"""Which masks an objective has switched on, and what is said about them."""

from __future__ import annotations

from composer_rl.po.base import PolicyObjective


def test_only_masks_that_are_switched_on_are_named() -> None:
    assert set(PolicyObjective().masks()) == {"sampling/masked_share"}
    assert PolicyObjective(vllm_importance_sampling_mode="token_truncate").masks() == {}
    assert PolicyObjective(vllm_importance_sampling_correction=False).masks() == {}
    masks = PolicyObjective(off_policy_mask_threshold=0.5, mask_truncated_completions=True).masks()
    assert masks["policy/off_policy_masked_share"].startswith("po.off_policy_mask_threshold=0.5: raise it")
    assert "rollout.max_new_tokens" in masks["completions/clipped_ratio"]
