"""`PO_OBJECTIVES`: the reference's menu of named objectives, each a dict of `trl.GRPOConfig` fields.

These are the reference's values, kept for scripts that build a GRPOConfig themselves. Where they differ from the
papers, `conf/po/*.yaml`, which `train.py` uses, follows the paper:
- dapo: the paper normalises advantages by the group's standard deviation (section 4.1), 16 samples, 16 updates.
- gspo: with the default epsilon 0.2 a sequence ratio is never clipped; the paper uses 3e-4 and 4e-4.
- cispo: ScaleRL scales by the batch's standard deviation and computes the head in fp32.
- Fully on-policy (TRL's default batch layout) every clip is inert, whatever the preset says.
"""

from __future__ import annotations

from typing import Any

PO_OBJECTIVES: dict[str, dict[str, Any]] = {
    # DeepSeekMath, arXiv 2402.03300
    "grpo": {"loss_type": "grpo", "scale_rewards": "group", "importance_sampling_level": "token"},
    # arXiv 2503.20783
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    # TRL
    "bnpo": {"loss_type": "bnpo", "scale_rewards": "batch"},
    # arXiv 2503.14476
    "dapo": {
        "loss_type": "dapo",
        "scale_rewards": "none",
        "epsilon_high": 0.28,
        "mask_truncated_completions": True,
        "beta": 0.0,
    },
    # arXiv 2507.18071
    "gspo": {"loss_type": "grpo", "scale_rewards": "group", "importance_sampling_level": "sequence"},
    # MiniMax-M1, arXiv 2506.13585; the cap is ScaleRL's
    "cispo": {"loss_type": "cispo", "scale_rewards": "none", "epsilon_high": 5.0},
}
"""Objective name -> GRPOConfig keyword arguments."""
