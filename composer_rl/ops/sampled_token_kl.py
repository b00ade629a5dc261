"""Reverse KL on the sampled token alone, for engines that give log-probabilities and no logits.

    L = ratio * stop_grad(log S - log T) * log S,    ratio = min(stop_grad(S / old), cap)

S and T are student's and teacher's probability of the token that the old policy sampled. Its gradient is an unbiased
estimate of the gradient of KL(S || T) where the cap does not bind: a policy gradient with log T - log S as the reward.
Its value is no divergence and may be negative.

Sampled-token form: OPSD (arXiv 2601.18734; siyan-zhao/OPSD at 590ec26). Importance ratio with a cap of 2: SDPO
(arXiv 2601.20802; lasgroup/SDPO at 0e6d510). Departures: the ratio is limited before the exponential, so that it
cannot overflow, and a missing sampler log-probability (NaN) means no correction instead of a NaN loss.
"""

from __future__ import annotations

import math

import torch

from composer_rl.ops.logprobs import at_least_float32
from composer_rl.ops.reductions import Selection, check_reduction, check_same_shape


def capped_importance_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor, *, cap: float = 2.0) -> torch.Tensor:
    """min(exp(logprobs - old_logprobs), cap) without a gradient.

    Args:
        logprobs: (...) log-probability in nats of each token under the current policy.
        old_logprobs: (...) under the policy that sampled it. NaN = unknown: the ratio is 1 there.
        cap: upper limit, above 0. A token at the cap was clipped: report how many are.

    Returns:
        (...) in [0, cap], at least float32.

    Raises:
        ValueError: shapes differ, or cap is not above 0.
    """
    check_same_shape(logprobs=logprobs, old_logprobs=old_logprobs)
    if not cap > 0:
        raise ValueError(f"ratio_cap must be above 0, got {cap}")
    new, old = at_least_float32(logprobs.detach(), old_logprobs.detach())
    log_ratio = torch.where(old.isnan(), 0.0, new - old)
    return log_ratio.clamp(max=math.log(cap)).exp().clamp(max=cap)


def sampled_token_reverse_kl(
    student_logprobs: torch.Tensor,
    teacher_logprobs: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    old_logprobs: torch.Tensor | None = None,
    ratio_cap: float = 2.0,
    reduction: str = "batchmean",
) -> torch.Tensor:
    """Surrogate loss whose gradient estimates that of the reverse KL divergence.

    Args:
        student_logprobs: (B, T) log-probability in nats of each sampled token under the student, with its graph.
        teacher_logprobs: (B, T) of the same tokens under the teacher; no gradient flows into it.
        mask: (B, T), 1 = the token counts; what stands under 0 and -100 is ignored. None = every token counts.
        old_logprobs: (B, T) under the policy that sampled, for the importance ratio; None = the student sampled
            itself, ratio 1. NaN entries get ratio 1 too.
        ratio_cap: upper limit of the importance ratio, above 0; 2.0 in SDPO.
        reduction: batchmean and mean = sum / active tokens; sum; none = (B, T) with 0 at tokens that do not count.

    Returns:
        Scalar (or (B, T) for none), at least float32; 0 attached to the graph where nothing is active.

    Raises:
        ValueError: shapes differ, ratio_cap is not above 0, or the reduction is unknown.
    """
    check_reduction(reduction)
    check_same_shape(student_logprobs=student_logprobs, teacher_logprobs=teacher_logprobs)
    tokens = Selection.of_mask(mask, student_logprobs.shape)
    student, teacher = at_least_float32(tokens.pick(student_logprobs), tokens.pick(teacher_logprobs))
    losses = (student - teacher).detach() * student
    if old_logprobs is not None:
        check_same_shape(student_logprobs=student_logprobs, old_logprobs=old_logprobs)
        losses = capped_importance_ratio(student, tokens.pick(old_logprobs), cap=ratio_cap) * losses
    return tokens.reduce(losses, reduction)
