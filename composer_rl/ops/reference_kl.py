"""Sample estimates of KL(policy || reference) on the policy's own tokens, as a loss.

    d = log pi - log ref of the sampled token
    k1 = d,    k2 = d^2 / 2,    k3 = exp(-d) + d - 1

Schulman, "Approximating KL divergence" (2020), with his r = ref / pi, so that k1 = -log r. k1 and k3 are unbiased
values, k2 is not; k2 and k3 are never negative. As losses they behave differently: on tokens that the policy has just
sampled, the expected gradient of k2 is that of KL(pi || ref), that of k1 is 0 (its gradient is the score function
alone), and that of k3 is the gradient of KL(ref || pi) (Tang and Munos, arXiv 2506.09477). k3 is what TRL uses.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from composer_rl.ops.logprobs import at_least_float32
from composer_rl.ops.reductions import Selection, check_reduction, check_same_shape

MAX_LOG_RATIO = 40.0
"""Limit of log ref - log pi inside k3: exp(40) is 2e17, far from a sane value and from float32's overflow at 88."""

ESTIMATORS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "k1": lambda difference: difference,
    "k2": lambda difference: 0.5 * difference.square(),
    "k3": lambda difference: (-difference).clamp(max=MAX_LOG_RATIO).expm1() + difference,
}
"""log pi - log ref (any shape) to the estimate, element by element, in nats."""


def reference_kl_loss(
    policy_logprobs: torch.Tensor,
    reference_logprobs: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    estimator: str = "k3",
    reduction: str = "batchmean",
) -> torch.Tensor:
    """KL divergence of the policy from a frozen reference, estimated on sampled tokens.

    Args:
        policy_logprobs: (B, T) log-probability in nats of each sampled token under the policy, with its graph.
        reference_logprobs: (B, T) of the same tokens under the reference; no gradient flows into it.
        mask: (B, T), 1 = the token counts; what stands under 0 and -100 is ignored. None = every token counts.
        estimator: k1, k2 or k3.
        reduction: batchmean and mean = sum / active tokens; sum; none = (B, T) with 0 at tokens that do not count.

    Returns:
        Scalar in nats (or (B, T) for none), at least float32; 0 attached to the graph where nothing is active.

    Raises:
        ValueError: shapes differ, or the estimator or the reduction is unknown.
    """
    check_reduction(reduction)
    if estimator not in ESTIMATORS:
        raise ValueError(f"estimator must be one of {', '.join(ESTIMATORS)}, got {estimator!r}")
    check_same_shape(policy_logprobs=policy_logprobs, reference_logprobs=reference_logprobs)
    tokens = Selection.of_mask(mask, policy_logprobs.shape)
    policy, reference = at_least_float32(tokens.pick(policy_logprobs), tokens.pick(reference_logprobs.detach()))
    return tokens.reduce(ESTIMATORS[estimator](policy - reference), reduction)
