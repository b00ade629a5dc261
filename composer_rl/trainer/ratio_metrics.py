"""Figures of a micro-batch that show whether ratio, entropy and off-policy knobs acted; TRL 1.16 logs none of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(kw_only=True)
class PolicyForward:
    """What the policy forward of the last micro-batch gave, detached."""

    logprobs: torch.Tensor
    """(B, C) log-probability of each completion token at the sampling temperature."""
    entropies: torch.Tensor | None
    """(B, C) entropy in nats of the distribution that each completion token was drawn from."""


def ratio_metrics(forward: PolicyForward, old_logprobs: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """`policy/ratio_max` and `policy/log_ratio_abs_mean` over the tokens where `mask` (B, C) is 1.

    A micro-batch without such a token gives {}.
    """
    log_ratio = (forward.logprobs - old_logprobs)[mask.bool()]
    if log_ratio.numel() == 0:
        return {}
    return {
        "policy/ratio_max": float(log_ratio.max().exp()),
        "policy/log_ratio_abs_mean": float(log_ratio.abs().mean()),
    }


def entropy_mask_metrics(
    forward: PolicyForward,
    mask: torch.Tensor,
    *,
    quantile: float,
    high_entropy_mask: Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor],
) -> dict[str, float]:
    """`policy/entropy_masked_share`: tokens that top_entropy_quantile takes out, as a share of those in `mask`."""
    if forward.entropies is None or not mask.any():
        return {}
    kept = high_entropy_mask(forward.entropies, mask, 1.0 - quantile)
    return {"policy/entropy_masked_share": 1.0 - float((kept * mask).sum() / mask.sum())}


def sampling_mask_metrics(weights: torch.Tensor, mask: torch.Tensor) -> dict[str, float]:
    """`sampling/masked_share`: tokens that the correction of the sampler takes out, as a share of those in `mask`.

    `weights` is (B, 1) or (B, C), 0 where the correction masks a sequence or a token. Sequence weights multiply the
    ratios of all tokens, so a small gap per token takes out every long completion (case B34).
    """
    if not mask.any():
        return {}
    return {"sampling/masked_share": float(((weights == 0) * mask).sum() / mask.sum())}


def off_policy_metrics(
    forward: PolicyForward,
    inputs: dict[str, torch.Tensor],
    mask: torch.Tensor,
    *,
    threshold: float,
    off_policy_mask: Callable[..., torch.Tensor],
) -> dict[str, float]:
    """`policy/off_policy_masked_share`: rows that off_policy_mask_threshold takes out."""
    old = inputs.get("old_per_token_logps", forward.logprobs)
    kept = off_policy_mask(
        advantages=inputs["advantages"].view(-1, 1),
        per_token_logps=forward.logprobs,
        sampling_per_token_logps=inputs.get("sampling_per_token_logps", old),
        mask=mask,
        off_policy_threshold=threshold,
    )
    return {"policy/off_policy_masked_share": 1.0 - float(kept.float().mean())}
