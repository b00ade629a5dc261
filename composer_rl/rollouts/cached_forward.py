"""Decoding through the model's own forward and a transformers cache, for every architecture without a special path.

Prompts are padded on the left and run once each; the cache is then repeated to the samples. Sliding-window,
recurrent and hybrid caches keep their own layout, so a multi-turn continuation does not edit them: `extend` runs the
whole conversation of the rows that go on again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from composer_rl.ops.causal_lm import cache_argument, forward_arguments
from composer_rl.rollouts.decoder_base import Decoder


class CachedForwardDecoder(Decoder):
    """See the module text. `model` is what is called, peft wrapper included, already in eval mode."""

    def __init__(self, model: Any) -> None:
        from transformers import DynamicCache

        self._model = model
        self._new_cache = lambda: DynamicCache(config=model.config)
        self._cache: Any = None
        accepted = forward_arguments(model)
        self._cache_argument = cache_argument(model)
        self._takes_positions = "position_ids" in accepted
        self._takes_logits_to_keep = "logits_to_keep" in accepted
        self._device: torch.device = model.get_input_embeddings().weight.device
        self._seen = torch.empty(0, dtype=torch.long, device=self._device)
        """`(A, columns)`, 1 where a row has a token: the attention mask."""
        self._positions = self._seen
        """`(A,)`, position of the next token."""

    def prefill(
        self, prompts: Sequence[Sequence[int]], samples: Sequence[int], *, capacity: int, retain: bool
    ) -> Tensor:
        logits = self._run(prompts)
        if max(samples) > 1:
            index = torch.repeat_interleave(
                torch.arange(len(prompts), device=self._device), torch.tensor(samples, device=self._device)
            )
            self.keep(index)
            logits = logits.index_select(0, index)
        return logits

    def step(self, tokens: Tensor) -> Tensor:
        seen = self._seen.new_ones((tokens.shape[0], 1))
        self._seen = torch.cat((self._seen, seen), dim=1)
        logits = self._forward(tokens.unsqueeze(1), self._positions.unsqueeze(1))
        self._positions = self._positions + 1
        return logits

    def keep(self, index: Tensor) -> None:
        self._cache.reorder_cache(index)
        self._seen = self._seen.index_select(0, index)
        self._positions = self._positions.index_select(0, index)

    def extend(
        self, rows: Sequence[int], histories: Sequence[Sequence[int]], num_new: Sequence[int], *, capacity: int
    ) -> Tensor:
        return self._run(histories)

    def _run(self, sequences: Sequence[Sequence[int]]) -> Tensor:
        lengths = [len(sequence) for sequence in sequences]
        longest = max(lengths)
        tokens = torch.zeros(len(sequences), longest, dtype=torch.long)
        seen = torch.zeros(len(sequences), longest, dtype=torch.long)
        for i, sequence in enumerate(sequences):
            tokens[i, longest - lengths[i] :] = torch.tensor(sequence)
            seen[i, longest - lengths[i] :] = 1
        self._cache = self._new_cache()
        self._seen = seen.to(self._device)
        self._positions = torch.tensor(lengths, device=self._device)
        positions = (self._seen.cumsum(dim=1) - 1).clamp(min=0)
        return self._forward(tokens.to(self._device), positions)

    def _forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        arguments: dict[str, Any] = {
            "input_ids": tokens,
            "attention_mask": self._seen,
            self._cache_argument: self._cache,
            "use_cache": True,
        }
        if self._takes_positions:
            arguments["position_ids"] = positions
        if self._takes_logits_to_keep:
            arguments["logits_to_keep"] = 1
        return self._model(**arguments).logits[:, -1]
