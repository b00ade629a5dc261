"""Losses on preference pairs: DPO, IPO and SimPO.

    h     = (log pi(chosen) - log pi(rejected)) - (log ref(chosen) - log ref(rejected))
    DPO   = -log sigmoid(beta h)                        Rafailov et al., arXiv 2305.18290, eq. 7
    IPO   = (h - 1 / (2 beta))^2                        Azar et al., arXiv 2310.12036, eq. 17 (their tau is our beta)
    SimPO = -log sigmoid(beta (r_c - r_r) - gamma)      Meng et al., arXiv 2405.14734, eq. 6

log pi and log ref are sums over the tokens of a response (`sequence_logprob`), r is the mean over them
(`avg_sequence_logprob`). All are averaged over pairs. A pair whose response lost its tokens to truncation says
nothing: mask it out.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F

from composer_rl.ops.logprobs import at_least_float32
from composer_rl.ops.reductions import Selection, check_reduction, check_same_shape


def simpo_loss(
    chosen_avg_logprobs: torch.Tensor,
    rejected_avg_logprobs: torch.Tensor,
    *,
    beta: float = 2.0,
    gamma: float = 1.0,
    mask: torch.Tensor | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Preference loss on length-averaged log-probabilities, without a reference model.

    The defaults are those of the reference API; the paper tunes beta within 2.0 to 2.5 and gamma within 0.3 to 1.6.

    Args:
        chosen_avg_logprobs: (B,) mean log-probability in nats of the chosen response's tokens.
        rejected_avg_logprobs: (B,) the same of the rejected response.
        beta: scale of the difference.
        gamma: target margin, in units of the scaled difference.
        mask: (B,), 1 = the pair counts; values under a 0 may be NaN. None = every pair counts.
        reduction: mean or batchmean = sum / counted pairs; sum; none = (B,).

    Returns:
        Scalar, at least float32; 0 attached to the graph where no pair counts.

    Raises:
        ValueError: shapes differ, or the reduction is unknown.
    """
    check_reduction(reduction)
    check_same_shape(chosen_avg_logprobs=chosen_avg_logprobs, rejected_avg_logprobs=rejected_avg_logprobs)
    pairs = Selection.of_mask(mask, chosen_avg_logprobs.shape)
    chosen, rejected = at_least_float32(pairs.pick(chosen_avg_logprobs), pairs.pick(rejected_avg_logprobs))
    return pairs.reduce(-F.logsigmoid(beta * (chosen - rejected) - gamma), reduction)


def dpo_loss(
    chosen_logprobs: torch.Tensor,
    rejected_logprobs: torch.Tensor,
    chosen_ref_logprobs: torch.Tensor,
    rejected_ref_logprobs: torch.Tensor,
    *,
    beta: float = 0.1,
    mask: torch.Tensor | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Direct preference optimisation.

    Args:
        chosen_logprobs: (B,) log-probability in nats of the chosen response under the policy, summed over tokens.
        rejected_logprobs: (B,) the same of the rejected response.
        chosen_ref_logprobs: (B,) of the chosen response under the frozen reference.
        rejected_ref_logprobs: (B,) of the rejected response under the frozen reference.
        beta: strength of the pull towards the reference, above 0; the paper uses 0.1 to 0.5.
        mask, reduction: as in `simpo_loss`.

    Returns:
        Scalar, at least float32; 0 attached to the graph where no pair counts.

    Raises:
        ValueError: shapes differ, or a setting is out of range or unknown.
    """
    pairs, margins = _margins(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs, beta, mask, reduction
    )
    return pairs.reduce(-F.logsigmoid(beta * margins), reduction)


def ipo_loss(
    chosen_logprobs: torch.Tensor,
    rejected_logprobs: torch.Tensor,
    chosen_ref_logprobs: torch.Tensor,
    rejected_ref_logprobs: torch.Tensor,
    *,
    beta: float = 0.1,
    mask: torch.Tensor | None = None,
    reduction: str = "mean",
) -> torch.Tensor:
    """Identity preference optimisation: the margin is drawn to 1 / (2 beta) instead of to infinity.

    Arguments, return value and errors as in `dpo_loss`. The paper's h is over whole responses; TRL divides each
    log-probability by its length first, which a caller gets by passing means instead of sums.
    """
    pairs, margins = _margins(
        chosen_logprobs, rejected_logprobs, chosen_ref_logprobs, rejected_ref_logprobs, beta, mask, reduction
    )
    return pairs.reduce((margins - 1 / (2 * beta)).square(), reduction)


def _margins(
    chosen: torch.Tensor,
    rejected: torch.Tensor,
    chosen_ref: torch.Tensor,
    rejected_ref: torch.Tensor,
    beta: float,
    mask: torch.Tensor | None,
    reduction: str,
) -> tuple[Selection, torch.Tensor]:
    """The pairs that count, and how much more than the reference the policy prefers the chosen side of each (N,)."""
    check_reduction(reduction)
    if not beta > 0:
        raise ValueError(f"beta must be above 0, got {beta}")
    check_same_shape(
        chosen_logprobs=chosen,
        rejected_logprobs=rejected,
        chosen_ref_logprobs=chosen_ref,
        rejected_ref_logprobs=rejected_ref,
    )
    pairs = Selection.of_mask(mask, chosen.shape)
    chosen, rejected, chosen_ref, rejected_ref = at_least_float32(
        *map(pairs.pick, (chosen, rejected, chosen_ref, rejected_ref))
    )
    return pairs, (chosen - rejected) - (chosen_ref - rejected_ref)
