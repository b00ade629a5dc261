"""Log-probs of a batch of completions without computing a prompt twice and almost without padding.

TRL forwards every row as prompt + completion, padded to the longest of each. In a group of G samples the prompt is the
same G times, and episodes that end early are padded to the longest one. Here each different prompt runs once, its
keys and values are handed to its rows, and the rows run in a few batches of similar length:

    tokens forwarded = sum over different prompts of (P - 1) + sum over batches of rows * (longest completion of them)

The numbers and the gradient are those of the plain forward up to rounding: the keys of a prompt collect the gradient of
all its rows. Positions count padding on the left, as TRL's own forward does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache

from composer_rl.ops.causal_lm import cache_argument, forward_arguments

_LOG = logging.getLogger(__name__)

MAX_BATCHES = 4
"""Most batches of completions in one forward."""
BATCH_COST_TOKENS = 256
"""What one more batch costs, in forwarded tokens: a batch is split only where that saves more padding."""
PROBE_ROWS = 8
"""Rows of the first batch on which the plain forward is computed too."""
TOLERANCE, HALF_TOLERANCE = 1e-3, 0.2
"""Largest difference of a log-prob (nats) from the plain forward that rounding may make: fp32, 16 bits."""


class TokenScores(NamedTuple):
    """Of the completions of a batch, each `(B, C)`; 0 where the completion mask is 0."""

    logprobs: Tensor
    entropies: Tensor | None
    """Nats; None where the fused head of the model computes none."""


def unsupported_reason(model: Any, *, gradient_checkpointing: bool) -> str | None:
    """Why a causal LM (bare or wrapped by peft) cannot be forwarded this way; None when it can."""
    config = model.config.get_text_config()
    peft_configs = (getattr(model, "peft_config", None) or {}).values()
    layer_types = getattr(config, "layer_types", None)
    if layer_types is None:
        layer_types = [] if getattr(config, "sliding_window", None) is None else ["sliding_attention"]
    reasons = {
        "activations are recomputed in the backward pass (runtime.gradient_checkpointing)": gradient_checkpointing,
        "the adapter has virtual tokens": any(getattr(item, "is_prompt_learning", False) for item in peft_configs),
        "a layer has other than full attention": any(kind != "full_attention" for kind in layer_types),
        "the model keeps a state that is no key/value cache": bool(getattr(model, "_is_stateful", False)),
        "the model has an encoder": bool(getattr(config, "is_encoder_decoder", False)),
        "its forward takes no positions": not {"position_ids", "logits_to_keep"} <= forward_arguments(model),
    }
    return next((text for text, applies in reasons.items() if applies), None)


class CompactForward:
    """See the module text. `model` names the architecture; what is called may be it, a wrapper or its reference."""

    def __init__(self, model: Any) -> None:
        self._cache_argument = cache_argument(model)
        self._agrees: bool | None = None

    def checked(
        self,
        model: Any,
        input_ids: Tensor,
        attention_mask: Tensor,
        num_completion_tokens: int,
        *,
        max_rows: int | None,
        plain: Callable[..., Any],
    ) -> TokenScores | None:
        """As `__call__`, at most `max_rows` rows at once; None if this model does not agree with its plain forward.

        `plain` is TRL's `_get_per_token_logps_and_entropies`. Both are compared on a few rows of the first batch.
        """
        if self._agrees is None:
            few = slice(0, PROBE_ROWS)
            self._agrees = self._compare(model, input_ids[few], attention_mask[few], num_completion_tokens, plain)
        if not self._agrees:
            return None
        chunk = max_rows or len(input_ids)
        parts = [
            self(model, input_ids[i : i + chunk], attention_mask[i : i + chunk], num_completion_tokens)
            for i in range(0, len(input_ids), chunk)
        ]
        if len(parts) == 1:
            return parts[0]
        entropies = [part.entropies for part in parts if part.entropies is not None]
        return TokenScores(torch.cat([part.logprobs for part in parts]), torch.cat(entropies) if entropies else None)

    @torch.no_grad()
    def _compare(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, num_tokens: int, plain: Callable[..., Any]
    ) -> bool:
        expected = plain(model, input_ids, attention_mask, num_tokens)[0]
        found = self(model, input_ids, attention_mask, num_tokens).logprobs
        worst = float(((found - expected).abs() * attention_mask[:, -num_tokens:]).max())
        is_half = next(model.parameters()).dtype.itemsize < 4 or torch.is_autocast_enabled(input_ids.device.type)
        allowed = HALF_TOLERANCE if is_half else TOLERANCE
        if worst <= allowed:
            return True
        _LOG.warning(
            "sharing prompts changes a log-prob by %.3g nats with this model (allowed: %.3g); each row is forwarded "
            "whole instead, which is slower",
            worst,
            allowed,
        )
        return False

    def __call__(
        self, model: Any, input_ids: Tensor, attention_mask: Tensor, num_completion_tokens: int
    ) -> TokenScores:
        """Score the completions of a batch.

        Args:
            model: A causal LM with TRL's fused head (`add_fused_lm_head`), which also applies the temperature.
            input_ids: (B, P + C) long, prompts padded on the left, completions on the right.
            attention_mask: (B, P + C), 1 on tokens that are not padding; a prompt has at least one.
            num_completion_tokens: C.
        """
        width = input_ids.size(1) - num_completion_tokens
        prompt_ids, completion_ids = input_ids[:, :width], input_ids[:, width:]
        prompt_mask, completion_mask = attention_mask[:, :width], attention_mask[:, width:]
        prompts, prompt_of_row = torch.unique(
            torch.stack([prompt_ids, prompt_mask.to(prompt_ids.dtype)]), dim=1, return_inverse=True
        )
        prefix = self._forward_prompts(model, prompts[0], prompts[1])
        # A prompt's last token goes with the completions: its output predicts a different next token in each row.
        inputs = torch.cat([prompt_ids[:, -1:], completion_ids[:, :-1]], dim=1)
        lengths = completion_mask.sum(dim=1).tolist()
        parts: list[TokenScores] = []
        order: list[int] = []
        for rows in length_batches(lengths):
            length = max(1, max(lengths[row] for row in rows))
            index = torch.tensor(rows, device=input_ids.device)
            mask = completion_mask.index_select(0, index)[:, :length]
            output = model(
                input_ids=inputs.index_select(0, index)[:, :length],
                attention_mask=torch.cat([prompt_mask.index_select(0, index), mask[:, : length - 1]], dim=1),
                position_ids=torch.arange(width - 1, width - 1 + length, device=index.device).unsqueeze(0),
                shift_labels=completion_ids.index_select(0, index)[:, :length].masked_fill(mask == 0, -100),
                fused_lm_head=True,
                **{self._cache_argument: _hand_out(prefix, prompt_of_row.index_select(0, index))},
            )
            padding = (0, num_completion_tokens - length)
            entropies = output.entropy
            parts.append(
                TokenScores(F.pad(output.log_probs, padding), None if entropies is None else F.pad(entropies, padding))
            )
            order.extend(rows)
        place = torch.tensor(order, device=input_ids.device).argsort()
        logprobs = torch.cat([part.logprobs for part in parts]).index_select(0, place)
        kept = [part.entropies for part in parts if part.entropies is not None]
        return TokenScores(logprobs, torch.cat(kept).index_select(0, place) if kept else None)

    def _forward_prompts(self, model: Any, ids: Tensor, mask: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Keys and values of every prompt but for its last token, per layer `(U, H, P - 1, D)`; none for P = 1."""
        width = ids.size(1) - 1
        if width == 0:
            return []
        cache: Any = DynamicCache()
        model(
            input_ids=ids[:, :width],
            attention_mask=mask[:, :width],
            position_ids=torch.arange(width, device=ids.device).unsqueeze(0),
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_argument: cache},
        )
        return [(layer.keys, layer.values) for layer in cache.layers]


def _hand_out(prefix: Sequence[tuple[Tensor, Tensor]], prompt_of_row: Tensor) -> DynamicCache:
    """A cache with one row per completion; the gradient of the rows adds up in the prompt."""
    cache = DynamicCache()
    for layer, (keys, values) in enumerate(prefix):
        cache.update(keys.index_select(0, prompt_of_row), values.index_select(0, prompt_of_row), layer)
    return cache


def length_batches(lengths: Sequence[int]) -> list[list[int]]:
    """Rows by length, cut into at most MAX_BATCHES batches so that tokens plus the cost of the batches are least.

    A batch costs (its rows) * (its longest row) + BATCH_COST_TOKENS. Exact, by dynamic programming over the different
    lengths.
    """
    order = sorted(range(len(lengths)), key=lambda row: (lengths[row], row))
    ends = [i + 1 for i in range(len(order)) if i + 1 == len(order) or lengths[order[i + 1]] > lengths[order[i]]]
    best: dict[int, tuple[float, list[int]]] = {0: (0.0, [])}
    for _ in range(min(MAX_BATCHES, len(ends))):
        extended = dict(best)
        for end in ends:
            for start, (cost, cuts) in best.items():
                if start >= end:
                    continue
                total = cost + (end - start) * max(1, lengths[order[end - 1]]) + BATCH_COST_TOKENS
                if end not in extended or total < extended[end][0]:
                    extended[end] = (total, [*cuts, end])
        best = extended
    cuts = best[len(order)][1]
    return [order[start:end] for start, end in zip([0, *cuts[:-1]], cuts, strict=True)]
