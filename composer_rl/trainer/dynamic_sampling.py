"""DAPO's dynamic sampling (arXiv 2503.14476, section 3.2): fill the batch with groups that have reward variance.

TRL 1.16 has none. Departure from the paper: the number of rounds is bounded, and what is still missing after the
last one is filled with groups without variance, so that a step never hangs on a task pool that is solved.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from composer_rl.trainer.zero_variance import ACTIVE_KEY, loss_mask

if TYPE_CHECKING:
    import torch

_LEFT_PADDED = frozenset({"prompt_ids", "prompt_mask"})
_PADDING_VALUE = {"tool_mask": 1}


def select_rows(batch: dict[str, torch.Tensor], rows: torch.Tensor) -> dict[str, torch.Tensor]:
    """Keep the rows at the given indices; 0-d entries stay."""
    return {key: value if value.ndim == 0 else value[rows] for key, value in batch.items()}


def group_indices(active: torch.Tensor, num_generations: int, *, wanted: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Row indices of up to `wanted` groups with variance, and of all groups without."""
    import torch

    groups = active.view(-1, num_generations)[:, 0].bool()
    rows = torch.arange(len(active), device=active.device).view(-1, num_generations)
    return rows[groups][:wanted].flatten(), rows[~groups].flatten()


def concatenate(batches: list[dict[str, torch.Tensor]], *, pad_token_id: int) -> dict[str, torch.Tensor]:
    """Stack the rows of several generation batches, padding prompts on the left and completions on the right.

    All batches carry the same keys. 0-d entries are taken from the first batch; `num_items_in_batch` has to be
    recomputed by the caller.
    """
    import torch

    merged: dict[str, torch.Tensor] = {}
    for key, first in batches[0].items():
        if first.ndim == 0:
            merged[key] = first
            continue
        parts = [batch[key] for batch in batches]
        if first.ndim >= 2:
            width = max(part.size(1) for part in parts)
            value = pad_token_id if key.endswith("_ids") else _PADDING_VALUE.get(key, 0)
            parts = [_pad_columns(part, width, value=value, left=key in _LEFT_PADDED) for part in parts]
        merged[key] = torch.cat(parts)
    return merged


def _pad_columns(tensor: torch.Tensor, width: int, *, value: float, left: bool) -> torch.Tensor:
    import torch

    missing = width - tensor.size(1)
    if missing == 0:
        return tensor
    return torch.nn.functional.pad(tensor, (missing, 0) if left else (0, missing), value=value)


def num_loss_tokens(batch: dict[str, torch.Tensor], *, active_only: bool) -> torch.Tensor:
    """0-d float: tokens of the batch that the loss counts, on this rank."""
    tokens = loss_mask(batch).sum(dim=1)
    if active_only:
        tokens = tokens * batch[ACTIVE_KEY]
    return tokens.sum().float()
