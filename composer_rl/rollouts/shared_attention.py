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
    suffix_mask: Tensor | None,
    scaling: float,
) -> Tensor:
    """Softmax attention over the prompt's and the row's own columns together.

    Args:
        queries: `(R, N, Hq, D)`; the R rows are U groups of R / U rows, in order.
        prefix: `(2, Hkv, U, P, D)`, keys and values of each group's prompt.
        suffix: `(2, Hkv, R, W, D)`, keys and values of each row's own tokens.
        prefix_mask: `(U, P)` added to the scores; None when all prompts have P tokens.
        suffix_mask: `(R, N or 1, C)` with C <= W, added to the scores of the first C own columns; None for no mask.
        scaling: factor of the scores.

    Returns:
        `(R, N, Hq * D)`.
    """
    num_rows, num_queries, num_heads, head_dim = queries.shape
    num_kv, num_groups, prompt_columns = prefix.shape[1], prefix.shape[2], prefix.shape[3]
    columns = prompt_columns + suffix.shape[3]
    block = max(1, SCORE_ELEMENTS // (num_rows * num_heads * columns))
    if num_queries > block:
        parts = []
        for start in range(0, num_queries, block):
            piece = suffix_mask
            if suffix_mask is not None and suffix_mask.shape[1] > 1:
                piece = suffix_mask[:, start : start + block]
            parts.append(
                shared_attention(
                    queries[:, start : start + block],
                    prefix,
                    suffix,
                    prefix_mask=prefix_mask,
                    suffix_mask=piece,
                    scaling=scaling,
                )
            )
        return torch.cat(parts, dim=1)

    repeats = num_heads // num_kv
    per_row = num_queries * repeats
    per_group = num_rows // num_groups * per_row
    grouped = (queries * scaling).view(num_rows, num_queries, num_kv, repeats, head_dim)
    grouped = grouped.permute(2, 0, 1, 3, 4).contiguous()  # (Hkv, R, N, repeats, D)

    by_group = grouped.view(num_kv * num_groups, per_group, head_dim)
    prefix_scores = torch.bmm(by_group, prefix[0].flatten(0, 1).transpose(1, 2))
    if prefix_mask is not None:
        prefix_scores.view(num_kv, num_groups, per_group, -1).add_(prefix_mask[:, None])
    by_row = grouped.view(num_kv * num_rows, per_row, head_dim)
    suffix_scores = torch.bmm(by_row, suffix[0].flatten(0, 1).transpose(1, 2))
    if suffix_mask is not None:
        masked = suffix_scores.view(num_kv, num_rows, num_queries, repeats, -1)
        masked[..., : suffix_mask.shape[2]].add_(suffix_mask[:, :, None])

    scores = torch.cat(
        (prefix_scores.view(num_kv * num_rows, per_row, -1), suffix_scores.view(num_kv * num_rows, per_row, -1)), -1
    )
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(queries.dtype)
    prefix_weights = weights.view(num_kv * num_groups, per_group, columns)[..., :prompt_columns]
    mixed = torch.bmm(prefix_weights, prefix[1].flatten(0, 1)).view(num_kv * num_rows, per_row, head_dim)
    mixed = torch.baddbmm(mixed, weights[..., prompt_columns:], suffix[1].flatten(0, 1))
    mixed = mixed.view(num_kv, num_rows, num_queries, repeats, head_dim)
    return mixed.permute(1, 2, 0, 3, 4).reshape(num_rows, num_queries, num_heads * head_dim)


def additive_mask(valid: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where `valid`, -inf elsewhere. Every query sees at least one prompt token, so no row is all -inf."""
    return torch.zeros(valid.shape, dtype=dtype, device=valid.device).masked_fill_(~valid, float("-inf"))
