"""Attention of many completions to the prompts they share and to their own tokens."""

from __future__ import annotations

import torch
from torch import Tensor

SCORE_ELEMENTS = 2**25
"""Attention scores held at once, in elements; more queries take several passes."""


def shared_attention(
    queries: Tensor,
    prefix: Tensor,
    suffix: Tensor,
    *,
    prefix_mask: Tensor | None,
    suffix_mask: Tensor,
    scaling: float,
) -> Tensor:
    """Softmax attention over the prompt's and the row's own columns together.

    Args:
        queries: `(R, N, Hq, D)`; the R rows are U groups of R / U rows, in order.
        prefix: `(2, Hkv, U, P, D)`, keys and values of each group's prompt.
        suffix: `(2, Hkv, R, C, D)`, keys and values of each row's own tokens; finite also where masked.
        prefix_mask: `(Hkv * U, 1, P)` added to the scores; None when all prompts have P tokens.
        suffix_mask: `(Hkv * R, N, C)` added to the scores, where the first two sizes may be 1.
        scaling: factor of the scores.

    Returns:
        `(R, N, Hq * D)`.
    """
    num_rows, num_queries, num_heads, _ = queries.shape
    block = max(1, SCORE_ELEMENTS // (num_rows * num_heads * (prefix.shape[3] + suffix.shape[3])))
    if num_queries <= block:
        return _attend(queries, prefix, suffix, prefix_mask, suffix_mask, scaling)
    parts = []
    for start in range(0, num_queries, block):
        mask = suffix_mask if suffix_mask.shape[1] == 1 else suffix_mask[:, start : start + block]
        parts.append(_attend(queries[:, start : start + block], prefix, suffix, prefix_mask, mask, scaling))
    return torch.cat(parts, dim=1)


def _attend(
    queries: Tensor, prefix: Tensor, suffix: Tensor, prefix_mask: Tensor | None, suffix_mask: Tensor, scaling: float
) -> Tensor:
    num_rows, num_queries, num_heads, head_dim = queries.shape
    num_kv, num_groups, prompt_columns = prefix.shape[1], prefix.shape[2], prefix.shape[3]
    repeats = num_heads // num_kv
    per_row = num_queries * repeats
    per_group = num_rows // num_groups * per_row

    grouped = queries.view(num_rows, num_queries, num_kv, repeats, head_dim).permute(2, 0, 1, 3, 4).contiguous()
    by_group = grouped.view(num_kv * num_groups, per_group, head_dim)
    by_row = grouped.view(num_kv * num_rows, per_row, head_dim)
    prefix_scores = _scores(by_group, prefix[0].flatten(0, 1), prefix_mask, scaling)
    if repeats > 1 and suffix_mask.shape[1] > 1:
        suffix_mask = suffix_mask.repeat_interleave(repeats, dim=1)
    suffix_scores = _scores(by_row, suffix[0].flatten(0, 1), suffix_mask, scaling)
    scores = torch.cat((prefix_scores.view(num_kv * num_rows, per_row, prompt_columns), suffix_scores), dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(queries.dtype)

    prefix_weights = weights.view(num_kv * num_groups, per_group, -1)[..., :prompt_columns]
    mixed = torch.bmm(prefix_weights, prefix[1].flatten(0, 1)).view(num_kv * num_rows, per_row, head_dim)
    mixed = torch.baddbmm(mixed, weights[..., prompt_columns:], suffix[1].flatten(0, 1))
    mixed = mixed.view(num_kv, num_rows, num_queries, repeats, head_dim).permute(1, 2, 0, 3, 4)
    return mixed.reshape(num_rows, num_queries, num_heads * head_dim)


def _scores(queries: Tensor, keys: Tensor, mask: Tensor | None, scaling: float) -> Tensor:
    """`scaling * queries @ keys^T + mask`, batched; the mask is broadcast."""
    if mask is None:
        return torch.baddbmm(queries.new_empty(1), queries, keys.transpose(1, 2), beta=0, alpha=scaling)
    return torch.baddbmm(mask, queries, keys.transpose(1, 2), alpha=scaling)


def additive_mask(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `valid`, -inf elsewhere. Every query sees at least one prompt token, so no row is all -inf."""
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill_(~valid, float("-inf"))
