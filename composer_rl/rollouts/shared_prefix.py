"""Decoding for standard Llama-style decoders in which the samples of a prompt share its keys and values.

A prompt's keys and values are stored once and every sample of the group attends to them through one matrix product;
each row owns only its completion (the shared-prefix attention of Hydragen, arXiv 2402.05099; instead of merging two
softmaxes, the two score blocks are joined before one). Against a cache expanded to the batch this reads G times less
memory a step, and dropping finished rows copies completions only.

The model's own modules (embedding, norms, projections, MLP, head) are called, so adapters and quantised layers act
as they do in training; written here are rotary embedding, cache and attention. `supports` names the architectures
this is right for, and `choose_decoder` compares it with the model's own forward before its first use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from composer_rl.rollouts.completion_cache import CompletionCache, RowLayout
from composer_rl.rollouts.decoder_base import Decoder
from composer_rl.rollouts.shared_attention import additive_mask, shared_attention

ARCHITECTURES = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
STATIC_ROPE_TYPES = ("default", "linear", "llama3", "yarn")
PREFILL_TOKENS = 8192
"""Padded prompt tokens in one prefill pass; more prompts take several passes."""
GROUP_SHARE = 0.75
"""Prompts whose rows have all stopped leave the attention once at most this share of prompts is left."""


def supports(model: Any) -> bool:
    """Whether a causal LM (not wrapped by peft) is a decoder on one device that this module reproduces."""
    config = model.config
    if len(set((getattr(model, "hf_device_map", None) or {}).values())) > 1:
        return False
    if type(model).__name__ not in ARCHITECTURES or not type(model).__module__.startswith("transformers.models."):
        return False
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        if any(kind != "full_attention" for kind in layer_types):
            return False
    elif getattr(config, "sliding_window", None) is not None:
        return False
    return model.model.rotary_emb.rope_type in STATIC_ROPE_TYPES


class _Angles(NamedTuple):
    """Rotary factors, each `(A, N, 1, D)`; the sign of the rotation is already in `sin`."""

    cos: Tensor
    sin: Tensor

    def rotate(self, states: Tensor) -> Tensor:
        half = states.shape[-1] // 2
        swapped = torch.cat((states[..., half:], states[..., :half]), dim=-1)
        return torch.addcmul(states * self.cos, swapped, self.sin)


class SharedPrefixDecoder(Decoder):
    """See the module text. `model` is the causal LM without its peft wrapper, already in eval mode.

    Layouts: U prompts, A active rows, R slots (the rows padded to equally many a prompt), P prompt columns, W
    completion columns in use, Hkv key/value heads, D head size. Prompt blocks are `(2, Hkv, U, P, D)`, one a layer.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._layers = list(model.model.layers[: model.config.num_hidden_layers])
        attention = self._layers[0].self_attn
        self._head_dim: int = attention.head_dim
        self._scaling: float = attention.scaling
        self._num_kv: int = model.config.num_key_value_heads
        self._qk_norm = hasattr(attention, "q_norm")
        self._device: torch.device = model.get_input_embeddings().weight.device
        self._cos = self._sin = model.get_input_embeddings().weight.new_empty(0)

    # The seam

    def prefill(
        self, prompts: Sequence[Sequence[int]], samples: Sequence[int], *, capacity: int, retain: bool
    ) -> Tensor:
        lengths = [len(prompt) for prompt in prompts]
        self._groups = [group for group, count in enumerate(samples) for _ in range(count)]
        self._retain = retain
        self._grow_rotary(max(lengths) + capacity)
        last = self._run_prompts(prompts, lengths)
        self._prompt_mask: Tensor | None = None
        if min(lengths) < max(lengths):
            columns = torch.arange(max(lengths), device=self._device)
            valid = columns < torch.tensor(lengths, device=self._device).unsqueeze(1)
            self._prompt_mask = additive_mask(valid, self._prompt_blocks[0].dtype)
        self._order = list(range(len(prompts)))
        self._prefix, self._prefix_mask = list(self._prompt_blocks), self._per_head(self._prompt_mask)
        row_lengths = [lengths[group] for group in self._groups]
        self._own = CompletionCache(self._prompt_blocks, row_lengths)
        self._activate(range(len(self._groups)))
        self._positions = torch.tensor(row_lengths, device=self._device)
        return self._head(last).index_select(0, torch.tensor(self._groups, device=self._device))

    def step(self, tokens: Tensor) -> Tensor:
        self._own.open_next(self._layout.num_slots)
        hidden = self._model.model.embed_tokens(tokens.unsqueeze(1))
        angles = self._angles(self._positions.unsqueeze(1))
        for number in range(len(self._layers)):
            hidden = self._layer(number, hidden, angles, self._own.mask)
        self._own.width += 1
        self._positions = self._positions + 1
        return self._head(hidden[:, 0])

    def keep(self, index: Tensor) -> None:
        staying = index.tolist()
        if self._retain:
            chosen = set(staying)
            self._park([i for i in range(len(self._active)) if i not in chosen])
        old_slots = self._layout.slots.index_select(0, index)
        self._activate([self._active[i] for i in staying])
        self._own.select(self._layout.sources(old_slots))
        self._positions = self._positions.index_select(0, index)

    def extend(
        self, rows: Sequence[int], histories: Sequence[Sequence[int]], num_new: Sequence[int], *, capacity: int
    ) -> Tensor:
        longest = max(num_new)
        num_run = [len(history) - new for history, new in zip(histories, num_new, strict=True)]
        tokens = torch.zeros(len(rows), longest, dtype=torch.long)
        for i, (history, new) in enumerate(zip(histories, num_new, strict=True)):
            tokens[i, :new] = torch.tensor(history[-new:])
        self._grow_rotary(max(num_run) + longest + capacity)
        self._park(range(len(self._active)))
        self._activate(rows)
        self._own.resume(rows, num_run, self._layout, longest + 1)
        mask = self._own.open_turn(rows, num_new, self._layout)
        hidden = self._model.model.embed_tokens(tokens.to(self._device))
        counts = torch.tensor(num_new, device=self._device)
        begin = torch.tensor(num_run, device=self._device)
        offsets = torch.arange(longest, device=self._device)
        angles = self._angles(begin.unsqueeze(1) + offsets)
        for number in range(len(self._layers) - 1):
            hidden = self._layer(number, hidden, angles, mask)
        # Of the last layer only the last new token of each row is needed.
        hidden = self._layer(len(self._layers) - 1, hidden, angles, self._own.mask, queries_at=counts - 1)
        self._own.width += longest
        self._positions = begin + counts
        return self._head(hidden[:, 0])

    # One layer

    def _layer(
        self,
        number: int,
        hidden: Tensor,
        angles: _Angles,
        mask: Tensor,
        queries_at: Tensor | None = None,
    ) -> Tensor:
        """Run N new tokens of every active row; with `queries_at` (`(A,)`) only that token of each comes out."""
        layer = self._layers[number]
        normed = layer.input_layernorm(hidden)
        keys, values = self._keys_values(layer, normed, angles)
        if queries_at is not None:
            hidden, normed = _take(hidden, queries_at), _take(normed, queries_at)
            angles = _Angles(_take(angles.cos, queries_at), _take(angles.sin, queries_at))
        queries = self._queries(layer, normed, angles)
        start, stop = self._own.width, self._own.width + keys.shape[1]
        block = self._own.blocks[number]
        block[0, :, :, start:stop] = self._layout.scatter(keys).permute(2, 0, 1, 3)
        block[1, :, :, start:stop] = self._layout.scatter(values).permute(2, 0, 1, 3)
        mixed = shared_attention(
            self._layout.scatter(queries),
            self._prefix[number],
            block,
            prefix_mask=self._prefix_mask,
            suffix_mask=mask,
            scaling=self._scaling,
        )
        return self._close(layer, hidden, self._layout.gather(mixed))

    def _queries(self, layer: Any, normed: Tensor, angles: _Angles) -> Tensor:
        queries = layer.self_attn.q_proj(normed).unflatten(-1, (-1, self._head_dim))
        if self._qk_norm:
            queries = layer.self_attn.q_norm(queries)
        return angles.rotate(queries).to(queries.dtype)

    def _keys_values(self, layer: Any, normed: Tensor, angles: _Angles) -> tuple[Tensor, Tensor]:
        keys = layer.self_attn.k_proj(normed).unflatten(-1, (-1, self._head_dim))
        values = layer.self_attn.v_proj(normed).unflatten(-1, (-1, self._head_dim))
        if self._qk_norm:
            keys = layer.self_attn.k_norm(keys)
        return angles.rotate(keys).to(values.dtype), values

    def _close(self, layer: Any, hidden: Tensor, mixed: Tensor) -> Tensor:
        hidden = hidden + layer.self_attn.o_proj(mixed)
        return hidden + layer.mlp(layer.post_attention_layernorm(hidden))

    def _head(self, hidden: Tensor) -> Tensor:
        """Logits `(A, V)` of final-layer states `(A, d)`."""
        return self._model.lm_head(self._model.model.norm(hidden))

    def _angles(self, positions: Tensor) -> _Angles:
        """Rotary factors of `(A, N)` positions."""
        shape = (*positions.shape, 1, self._cos.shape[-1])
        flat = positions.flatten()
        return _Angles(self._cos.index_select(0, flat).view(shape), self._sin.index_select(0, flat).view(shape))

    def _grow_rotary(self, length: int) -> None:
        """Have rotary factors of positions 0 .. length-1 at hand, from the model's own module."""
        if length <= self._cos.shape[0]:
            return
        positions = torch.arange(length, device=self._device)
        reference = self._model.get_input_embeddings().weight[:1]
        cos, sin = self._model.model.rotary_emb(reference, positions.unsqueeze(0))
        half = sin.shape[-1] // 2
        self._cos, self._sin = cos[0], torch.cat((-sin[0, :, :half], sin[0, :, half:]), dim=-1)

    # Prompts

    def _run_prompts(self, prompts: Sequence[Sequence[int]], lengths: Sequence[int]) -> Tensor:
        """Fill the prompt blocks; returns the final-layer state of each prompt's last token, `(U, d)`."""
        longest = max(lengths)
        per_pass = max(1, PREFILL_TOKENS // longest)
        self._prompt_blocks: list[Tensor] = []
        parts = []
        for start in range(0, len(prompts), per_pass):
            chunk = slice(start, start + per_pass)
            parts.append(self._run_prompt_pass(prompts[chunk], lengths[chunk], start, len(prompts), longest))
        return torch.cat(parts)

    def _run_prompt_pass(
        self, prompts: Sequence[Sequence[int]], lengths: Sequence[int], start: int, total: int, longest: int
    ) -> Tensor:
        columns, stop = max(lengths), start + len(prompts)
        tokens = torch.zeros(len(prompts), columns, dtype=torch.long)
        for i, prompt in enumerate(prompts):
            tokens[i, : lengths[i]] = torch.tensor(prompt)
        positions = torch.arange(columns, device=self._device)
        last = torch.tensor(lengths, device=self._device) - 1
        hidden = self._model.model.embed_tokens(tokens.to(self._device))
        angles = self._angles(positions.unsqueeze(0))
        for number, layer in enumerate(self._layers):
            normed = layer.input_layernorm(hidden)
            keys, values = self._keys_values(layer, normed, angles)
            if len(self._prompt_blocks) == number:
                shape = (2, self._num_kv, total, longest, self._head_dim)
                self._prompt_blocks.append(values.new_zeros(shape))
            block = self._prompt_blocks[number]
            block[0, :, start:stop, :columns] = keys.permute(2, 0, 1, 3)
            block[1, :, start:stop, :columns] = values.permute(2, 0, 1, 3)
            if number < len(self._layers) - 1:
                # Padding is on the right, so causality alone keeps real tokens from seeing it.
                mixed = self._prompt_attention(self._queries(layer, normed, angles), keys, values, None)
            else:
                hidden, normed = _take(hidden, last), _take(normed, last)
                queries = self._queries(layer, normed, self._angles(last.unsqueeze(1)))
                mixed = self._prompt_attention(queries, keys, values, positions <= last.view(-1, 1, 1, 1))
            hidden = self._close(layer, hidden, mixed)
        return hidden[:, 0]

    def _prompt_attention(self, queries: Tensor, keys: Tensor, values: Tensor, valid: Tensor | None) -> Tensor:
        mixed = F.scaled_dot_product_attention(
            queries.transpose(1, 2),
            keys.transpose(1, 2),
            values.transpose(1, 2),
            attn_mask=valid,
            is_causal=valid is None,
            scale=self._scaling,
            enable_gqa=queries.shape[2] != self._num_kv,
        )
        return mixed.transpose(1, 2).flatten(2)

    # Rows

    def _activate(self, rows: Sequence[int]) -> None:
        """Make `rows` the active ones and lay them out; prompts that nobody uses leave once they are many."""
        self._active = list(rows)
        groups = [self._groups[row] for row in self._active]
        used = sorted(set(groups))
        if not set(used) <= set(self._order) or len(used) <= GROUP_SHARE * len(self._order):
            self._order = used
            index = torch.tensor(used, device=self._device)
            self._prefix = [block.index_select(2, index) for block in self._prompt_blocks]
            if self._prompt_mask is not None:
                self._prefix_mask = self._per_head(self._prompt_mask.index_select(0, index))
        self._layout = RowLayout(groups, self._order, self._device)

    def _park(self, index: Sequence[int]) -> None:
        """Set aside the active rows at `index`."""
        chosen = torch.tensor(list(index), dtype=torch.long, device=self._device)
        self._own.park([self._active[i] for i in index], self._layout.slots[chosen])

    def _per_head(self, mask: Tensor | None) -> Tensor | None:
        """`(U, P)` to `(Hkv * U, 1, P)`."""
        return None if mask is None else mask.repeat(self._num_kv, 1).unsqueeze(1)


def _take(states: Tensor, index: Tensor) -> Tensor:
    """`(A, 1, ...)`: entry `index[i]` of row i of `(A, N, ...)`."""
    rows = torch.arange(states.shape[0], device=states.device)
    return states[rows, index].unsqueeze(1)
