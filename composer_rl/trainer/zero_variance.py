"""Skip the forward and backward of rows whose group has no reward variance, without changing the loss.

Every advantage of such a group is 0, so its rows add nothing to the policy gradient; only the divisor of the loss
knows that they exist. `skip` keeps them in the divisor (the loss agrees with TRL's to about 1e-6); `drop` takes
them out of it, as DAPO (arXiv 2503.14476, section 3.2) trains on groups with variance alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

ACTIVE_KEY = "policy_active"
"""Batch key: (B,) long, 1 where the row's group has reward variance."""
SCALE_KEY = "policy_scale"
"""Batch key: 0-d float, the factor that TRL's loss over the active rows is multiplied by."""

Divisor = Literal["rows", "local_tokens", "window_tokens"]
DIVISOR_OF_LOSS: dict[str, Divisor] = {
    "grpo": "rows",
    "dr_grpo": "rows",
    "sapo": "rows",
    "luspo": "rows",
    "bnpo": "local_tokens",
    "dapo": "window_tokens",
    "cispo": "window_tokens",
    "vespo": "window_tokens",
}
"""What TRL 1.16 divides the summed loss of a micro-batch by, per loss_type."""

_ROW_KEYS_LEFT_PADDED = ("prompt_ids", "prompt_mask")


@dataclass(frozen=True, kw_only=True)
class SkipRule:
    """Whether rows without variance may be left out under the settings of a run, and why not."""

    allowed: bool
    reason: str = ""


def skip_rule(
    *,
    beta: float,
    entropy_bonus: bool,
    top_entropy_quantile: float,
    aux_loss: bool,
    multi_objective_aggregation: str,
    num_channels: int,
) -> SkipRule:
    """Rows with advantage 0 still matter to terms that are not multiplied by the advantage: then none is skipped."""
    blockers = {
        "beta > 0 (the KL term acts on every row)": beta != 0.0,
        "an entropy bonus (it acts on every row)": entropy_bonus,
        "top_entropy_quantile < 1 (its threshold is taken over every row)": top_entropy_quantile < 1.0,
        "a router auxiliary loss (it acts on every row)": aux_loss,
        "multi_objective_aggregation other than sum_then_normalize (advantages are centred over the batch)": (
            multi_objective_aggregation != "sum_then_normalize"
        ),
        "loss channels (they may act on rows without variance)": num_channels > 0,
    }
    active = [text for text, blocks in blockers.items() if blocks]
    return SkipRule(allowed=not active, reason="; ".join(active))


def rows_with_variance(rewards: torch.Tensor, num_generations: int) -> torch.Tensor:
    """(N,) long: 1 where the group of the row has at least two different rewards.

    `rewards` is (N,) float with NaN for unscorable rows, groups of `num_generations` consecutive rows. A group with
    fewer than two scorable rows has no variance.
    """
    import torch

    grouped = rewards.view(-1, num_generations)
    low = torch.nan_to_num(grouped, nan=float("inf")).amin(dim=1)
    high = torch.nan_to_num(grouped, nan=float("-inf")).amax(dim=1)
    return (high > low).long().repeat_interleave(num_generations)


def window_scales(
    micro_batches: list[dict[str, torch.Tensor]], *, loss_type: str, mode: Literal["skip", "drop"]
) -> list[torch.Tensor]:
    """Factor for each micro-batch of one accumulation window, given that TRL will see only its active rows.

    A micro-batch without any active row gets 0: one of its rows is still forwarded so that the loss keeps a graph.
    """
    import torch

    divisor = DIVISOR_OF_LOSS[loss_type]
    active_rows = [float(batch[ACTIVE_KEY].sum()) for batch in micro_batches]
    scales: list[float] = []
    for batch, active in zip(micro_batches, active_rows, strict=True):
        if active == 0:
            scales.append(0.0)
        elif divisor == "window_tokens":
            scales.append(1.0)
        elif divisor == "rows":
            if mode == "skip":
                scales.append(active / len(batch[ACTIVE_KEY]))
            else:
                scales.append(active * len(micro_batches) / sum(active_rows))
        elif mode == "skip":
            tokens = loss_mask(batch).sum(dim=1).float()
            scales.append(float((tokens * batch[ACTIVE_KEY]).sum() / tokens.sum().clamp(min=1.0)))
        else:
            scales.append(1.0)
    return [torch.tensor(scale, device=micro_batches[0][ACTIVE_KEY].device) for scale in scales]


def loss_mask(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    """(B, C): 1 on the completion tokens that the policy sampled and the loss counts."""
    if "tool_mask" in batch:
        return batch["completion_mask"] * batch["tool_mask"]
    return batch["completion_mask"]


def active_rows(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The batch with only its active rows (one row when there is none), columns that became all padding removed."""
    keep = batch[ACTIVE_KEY].bool().clone()
    if not keep.any():
        keep[0] = True
    num_rows = len(keep)
    selected = {
        key: value[keep] if getattr(value, "ndim", 0) > 0 and len(value) == num_rows else value
        for key, value in batch.items()
    }
    return trim_padding(selected)


def trim_padding(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Cut columns that are padding in every row: on the left of the prompt, on the right of the completion."""
    width = batch["completion_ids"].size(1)
    prompt_start = int(batch["prompt_mask"].any(dim=0).long().argmax())
    used = batch["completion_mask"].any(dim=0)
    completion_end = int(used.nonzero().max()) + 1 if used.any() else 1
    trimmed = dict(batch)
    for key, value in batch.items():
        if key in _ROW_KEYS_LEFT_PADDED:
            trimmed[key] = value[:, prompt_start:]
        elif getattr(value, "ndim", 0) == 2 and value.size(1) == width:
            trimmed[key] = value[:, :completion_end]
    return trimmed
