"""A small complete batch for `compose_loss` from any tokenizer with a chat template.

One conversation about one task: a failing attempt, the error, and the recovery. The teacher's context is the same with
a hint behind the error. The preference pair is the recovery against another wrong answer. Only user and assistant
turns are used, which every chat template takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch


@dataclass(frozen=True, kw_only=True)
class _Episode:
    """The texts of one variant; none begins or ends with white space, which chat templates may strip."""

    task: str
    attempt: str
    error: str
    hint: str
    recovery: str
    rejected: str


_EPISODES = {
    "factorial": _Episode(
        task="Write a Python function factorial(n) that returns n! for n >= 0.",
        attempt="def factorial(n):\n    return n * factorial(n - 1)",
        error="RecursionError: maximum recursion depth exceeded in factorial(3). Try again.",
        hint="Hint: the recursion needs a base case, and 0! is 1.",
        recovery="def factorial(n):\n    if n == 0:\n        return 1\n    return n * factorial(n - 1)",
        rejected="def factorial(n):\n    return sum(range(n + 1))",
    ),
    "binary_search": _Episode(
        task="Write a Python function find(items, x) that returns the index of x in a sorted list, or -1.",
        attempt="def find(items, x):\n    return items.position(x)",
        error="AttributeError: 'list' object has no attribute 'position'. Try again.",
        hint="Hint: halve the range between two indices until x is found or the range is empty.",
        recovery=(
            "def find(items, x):\n"
            "    low, high = 0, len(items) - 1\n"
            "    while low <= high:\n"
            "        middle = (low + high) // 2\n"
            "        if items[middle] == x:\n"
            "            return middle\n"
            "        if items[middle] < x:\n"
            "            low = middle + 1\n"
            "        else:\n"
            "            high = middle - 1\n"
            "    return -1"
        ),
        rejected="def find(items, x):\n    return 0 if x in items else -1",
    ),
}


def build_batch(
    tokenizer: Any,
    *,
    device: torch.device | str = "cpu",
    seed: int = 42,
    variant: str = "factorial",
    align_sdpo_shapes: bool = False,
) -> dict[str, torch.Tensor]:
    """Build a batch of one row with the inputs of all three channels.

    Args:
        tokenizer: has `apply_chat_template(messages, tokenize=False, add_generation_prompt=True)` -> str and
            `tokenizer(text, add_special_tokens=False)["input_ids"]` -> list of ids.
        device: of all tensors.
        seed: given to `torch.manual_seed`, so the caller's generator is reset.
        variant: factorial or binary_search.
        align_sdpo_shapes: bring ctx_teacher_input_ids to the length of input_ids, so that `compose_loss` distils. The
            front is cut (or padded): the recovery, which ends both rows, then has the same positions in both.

    Returns:
        int64: input_ids and response_mask (1, T_s; 1 = token of an assistant turn, its end-of-text token included),
        ctx_teacher_input_ids and sdpo_loss_mask (1, T_t; 1 = token of the recovery), and input_ids and response_mask
        of the pair under dpo_chosen_ and dpo_rejected_ (1, T; 1 = token of the response). float32:
        dpo_chosen_ref_logprobs and dpo_rejected_ref_logprobs (1,), which are made up: no reference model is run.

    Raises:
        ValueError: unknown variant, or the chat template changes the text of an earlier assistant turn.
        TypeError: apply_chat_template returns no text.
    """
    if variant not in _EPISODES:
        raise ValueError(f"variant must be one of {', '.join(_EPISODES)}, got {variant!r}")
    episode = _EPISODES[variant]
    torch.manual_seed(seed)
    rows = _Rows(tokenizer)
    ids, response_mask, _ = rows.conversation(episode, episode.error)
    teacher_ids, _, recovery_mask = rows.conversation(episode, f"{episode.error}\n{episode.hint}")
    if align_sdpo_shapes:
        missing = max(len(ids) - len(teacher_ids), 0)
        teacher_ids = ([rows.pad_id] * missing + teacher_ids)[-len(ids) :]
        recovery_mask = ([0] * missing + recovery_mask)[-len(ids) :]
    batch = {
        "input_ids": ids,
        "response_mask": response_mask,
        "ctx_teacher_input_ids": teacher_ids,
        "sdpo_loss_mask": recovery_mask,
    }
    for side, response in (("chosen", episode.recovery), ("rejected", episode.rejected)):
        batch[f"dpo_{side}_input_ids"], batch[f"dpo_{side}_response_mask"] = rows.answer(episode, response)
    tensors = {name: torch.tensor([row], dtype=torch.long, device=device) for name, row in batch.items()}
    for side in ("chosen", "rejected"):
        tensors[f"dpo_{side}_ref_logprobs"] = (torch.randn(1) - 20).to(device)
    return tensors


class _Rows:
    """Token ids of conversations, put together piece by piece so that masks are exact whatever the tokenizer merges."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        end = getattr(tokenizer, "eos_token_id", None)
        self._end = [] if end is None else [end]
        pad = getattr(tokenizer, "pad_token_id", None)
        self.pad_id: int = next(token for token in (pad, end, 0) if token is not None)

    def conversation(self, episode: _Episode, error: str) -> tuple[list[int], list[int], list[int]]:
        """Ids of task, attempt, error and recovery, the mask of both assistant turns, and that of the recovery."""
        text = self._render(
            {"role": "user", "content": episode.task},
            {"role": "assistant", "content": episode.attempt},
            {"role": "user", "content": error},
        )
        if episode.attempt not in text:
            raise ValueError("the chat template changes the text of an assistant turn, so its tokens cannot be marked")
        before, _, after = text.partition(episode.attempt)
        pieces = [
            self._encode(before),
            self._encode(episode.attempt),
            self._encode(after),
            self._response(episode.recovery),
        ]
        flags = [(0, 0), (1, 0), (0, 0), (1, 1)]
        ids = [token for piece in pieces for token in piece]
        marks = [flag for piece, flag in zip(pieces, flags, strict=True) for flag in [flag] * len(piece)]
        return ids, [response for response, _ in marks], [recovery for _, recovery in marks]

    def answer(self, episode: _Episode, response: str) -> tuple[list[int], list[int]]:
        """Ids of the task with one answer, and the mask of the answer."""
        prompt = self._encode(self._render({"role": "user", "content": episode.task}))
        answer = self._response(response)
        return prompt + answer, [0] * len(prompt) + [1] * len(answer)

    def _render(self, *messages: dict[str, str]) -> str:
        text = self._tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True)
        if not isinstance(text, str):
            raise TypeError(f"apply_chat_template(..., tokenize=False) must return text, got {type(text).__name__}")
        return text

    def _encode(self, text: str) -> list[int]:
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _response(self, text: str) -> list[int]:
        return self._encode(text) + self._end
