"""The supervised loop: conversations to weighted token batches, and one optimizer step over several streams."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from composer_rl.types import Message

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class Example:
    """One tokenized conversation."""

    ids: list[int]
    weights: list[float]
    """Loss weight of each token, 0 on everything that is not trained."""


def encode(
    conversations: Sequence[Sequence[Message]],
    tokenizer: PreTrainedTokenizerBase,
    *,
    content_weight: float,
    max_length: int,
) -> list[Example]:
    """Tokenize conversations; assistant tokens (the end-of-turn token included) get weight 1.

    A message with `"train": false` gets 0. Tokens whose text is one of a message's `emphasis` strings get
    `content_weight`. Cut at `max_length` tokens, keeping the start.

    Raises ValueError when the chat template does not leave earlier messages as they were when later ones follow, or
    the tokenizer has no offsets (only fast tokenizers have).
    """
    if not tokenizer.is_fast:
        raise ValueError(f"sft needs a fast tokenizer (one with offsets), got {type(tokenizer).__name__}")
    rendered = [_render(messages, tokenizer) for messages in conversations]
    encoded = tokenizer([text for text, _ in rendered], add_special_tokens=False, return_offsets_mapping=True)
    examples = []
    for (text, spans), ids, offsets in zip(rendered, encoded["input_ids"], encoded["offset_mapping"], strict=True):
        weights = [0.0] * len(ids)
        for start, end, emphasis in spans:
            for position, (left, right) in enumerate(offsets):
                if left >= start and right <= end and right > left:
                    weights[position] = content_weight if text[left:right] in emphasis else 1.0
        examples.append(Example(ids=ids[:max_length], weights=weights[:max_length]))
    return examples


def _render(
    messages: Sequence[Message], tokenizer: PreTrainedTokenizerBase
) -> tuple[str, list[tuple[int, int, frozenset[str]]]]:
    """Text of a conversation, and the character spans of its trained turns with their emphasised pieces."""
    plain = [{k: v for k, v in message.items() if k not in ("train", "emphasis")} for message in messages]

    def text_of(count: int, *, header: bool) -> str:
        return str(tokenizer.apply_chat_template(plain[:count], tokenize=False, add_generation_prompt=header))

    text = text_of(len(plain), header=False)
    spans = []
    for index, message in enumerate(messages):
        if message["role"] != "assistant" or not message.get("train", True):
            continue
        before = text_of(index, header=True)
        upto = text if index + 1 == len(plain) else text_of(index + 1, header=False)
        if not upto.startswith(before) or not text.startswith(upto):
            raise ValueError("the chat template changes earlier messages, so assistant tokens cannot be located")
        spans.append((len(before), len(upto), frozenset(message.get("emphasis", ()))))
    return text, spans


def batches(examples: Sequence[Example], *, batch_size: int, seed: int) -> Iterator[list[Example]]:
    """Endless batches; each pass over the examples is shuffled anew."""
    rng = random.Random(seed)
    order: list[int] = []
    while True:
        while len(order) < batch_size:
            fresh = list(range(len(examples)))
            rng.shuffle(fresh)
            order += fresh
        yield [examples[index] for index in order[:batch_size]]
        del order[:batch_size]


def weighted_loss(model: PreTrainedModel, batch: Sequence[Example], *, pad_id: int) -> torch.Tensor:
    """Cross-entropy (nats) per unit of weight over a batch, right-padded; the graph's scalar."""
    import torch

    device = next(model.parameters()).device
    length = max(len(example.ids) for example in batch)
    ids = torch.full((len(batch), length), pad_id)
    weights = torch.zeros(len(batch), length)
    mask = torch.zeros(len(batch), length, dtype=torch.long)
    for row, example in enumerate(batch):
        size = len(example.ids)
        ids[row, :size] = torch.tensor(example.ids)
        weights[row, :size] = torch.tensor(example.weights)
        mask[row, :size] = 1
    ids, weights, mask = ids.to(device), weights.to(device), mask.to(device)
    hidden = model.get_decoder()(input_ids=ids, attention_mask=mask).last_hidden_state[:, :-1]
    targets, weights = ids[:, 1:], weights[:, 1:]
    active = weights > 0
    head = model.get_output_embeddings()
    logits = head(hidden[active]).float()
    losses = torch.nn.functional.cross_entropy(logits, targets[active], reduction="none")
    return (losses * weights[active]).sum() / weights.sum().clamp_min(1e-8)


def learning_rate_factor(step: int, *, num_steps: int, warmup_steps: int, decay_share: float) -> float:
    """Linear warm-up, then constant, then linear decay over the last `decay_share` of the steps; `step` from 0."""
    warm = min(1.0, (step + 1) / max(1, warmup_steps))
    start = num_steps * (1 - decay_share)
    if step < start:
        return warm
    return warm * max(0.0, (num_steps - step) / max(1.0, num_steps - start))
