"""The harness batch: its keys, what its masks mark, and that all three channels find something in it."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch

from composer_rl.models.tiny import TinyModel
from composer_rl.ops.build_batch import build_batch
from composer_rl.ops.compose_loss import compose_loss

KEYS = {
    "input_ids",
    "response_mask",
    "ctx_teacher_input_ids",
    "sdpo_loss_mask",
    "dpo_chosen_input_ids",
    "dpo_chosen_response_mask",
    "dpo_rejected_input_ids",
    "dpo_rejected_response_mask",
    "dpo_chosen_ref_logprobs",
    "dpo_rejected_ref_logprobs",
}
VARIANTS = ("factorial", "binary_search")
every_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture(scope="module")
def loaded() -> tuple[Any, Any]:
    return TinyModel().load("cpu")


class Letters:
    """A tokenizer that merges nothing, with the least that the contract asks for."""

    def __init__(self, header: str = "{role}: {content}\n") -> None:
        self.header = header

    def apply_chat_template(self, messages: list[dict[str, str]], **kwargs: Any) -> str:
        return "".join(self.header.format(**message) for message in messages) + "assistant: "

    def __call__(self, text: str, **kwargs: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(letter) for letter in text]}


def marked(ids: torch.Tensor, mask: torch.Tensor) -> str:
    return "".join(chr(token) for token in ids[mask == 1].tolist())


def test_signature() -> None:
    parameters = inspect.signature(build_batch).parameters
    defaults = {name: parameter.default for name, parameter in parameters.items() if name != "tokenizer"}
    assert defaults == {"device": "cpu", "seed": 42, "variant": "factorial", "align_sdpo_shapes": False}


@every_variant
@pytest.mark.parametrize("align", [False, True])
def test_keys_shapes_and_types(loaded: tuple[Any, Any], variant: str, align: bool) -> None:
    batch = build_batch(loaded[1], variant=variant, align_sdpo_shapes=align)
    assert set(batch) == KEYS
    for name in ("input_ids", "dpo_chosen_input_ids", "dpo_rejected_input_ids"):
        mask = batch[name.replace("input_ids", "response_mask")]
        assert batch[name].shape == mask.shape == (1, mask.size(1))
        assert batch[name].dtype == mask.dtype == torch.int64
        assert set(mask.unique().tolist()) == {0, 1}
    assert batch["sdpo_loss_mask"].shape == batch["ctx_teacher_input_ids"].shape
    assert (batch["ctx_teacher_input_ids"].shape == batch["input_ids"].shape) == align
    for side in ("chosen", "rejected"):
        assert batch[f"dpo_{side}_ref_logprobs"].shape == (1,)
        assert batch[f"dpo_{side}_ref_logprobs"].dtype == torch.float32


@every_variant
def test_masks_mark_assistant_turns(variant: str) -> None:
    batch = build_batch(Letters(), variant=variant)
    text, context = (
        marked(batch["input_ids"], batch["input_ids"] * 0 + 1),
        marked(batch["ctx_teacher_input_ids"], batch["ctx_teacher_input_ids"] * 0 + 1),
    )
    recovery = marked(batch["ctx_teacher_input_ids"], batch["sdpo_loss_mask"])
    responses = marked(batch["input_ids"], batch["response_mask"])
    assert responses.endswith(recovery)
    assert text.endswith("assistant: " + recovery)
    attempt = responses.removesuffix(recovery)
    assert f"assistant: {attempt}\nuser:" in text
    assert "Hint:" in context
    assert "Hint:" not in text
    assert marked(batch["dpo_chosen_input_ids"], batch["dpo_chosen_response_mask"]) == recovery
    assert marked(batch["dpo_rejected_input_ids"], batch["dpo_rejected_response_mask"]) not in (recovery, attempt, "")


@every_variant
def test_aligned_rows_have_the_recovery_at_the_same_positions(variant: str) -> None:
    batch = build_batch(Letters(), variant=variant, align_sdpo_shapes=True)
    same = batch["sdpo_loss_mask"] == 1
    assert same.any()
    assert torch.equal(batch["input_ids"][same], batch["ctx_teacher_input_ids"][same])
    assert not torch.equal(batch["input_ids"], batch["ctx_teacher_input_ids"])


@every_variant
def test_the_recovery_compiles_and_is_right(variant: str) -> None:
    batch = build_batch(Letters(), variant=variant)
    found: dict[str, Any] = {}
    exec(marked(batch["dpo_chosen_input_ids"], batch["dpo_chosen_response_mask"]), found)
    if variant == "factorial":
        assert [found["factorial"](n) for n in range(5)] == [1, 1, 2, 6, 24]
    else:
        assert [found["find"]([1, 3, 5, 8], x) for x in (1, 8, 4)] == [0, 3, -1]


@every_variant
def test_every_channel_acts_on_it(loaded: tuple[Any, Any], variant: str) -> None:
    model, tokenizer = loaded
    out = compose_loss(model, build_batch(tokenizer, variant=variant, align_sdpo_shapes=True))
    assert all(value > 0 for value in out.detached().values())
    out.total.backward()
    assert all(weight.grad.isfinite().all() for weight in model.parameters() if weight.grad is not None)
    unaligned = compose_loss(model, build_batch(tokenizer, variant=variant))
    assert unaligned.detached() == {**unaligned.detached(), "sdpo_jsd": 0.0, "lm_ce": out.lm_ce.item()}


def test_the_seed_fixes_everything() -> None:
    one, two, other = (build_batch(Letters(), seed=seed) for seed in (1, 1, 2))
    assert all(torch.equal(one[name], two[name]) for name in KEYS)
    assert not torch.equal(one["dpo_chosen_ref_logprobs"], other["dpo_chosen_ref_logprobs"])
    assert torch.initial_seed() == 2


def test_the_end_of_text_is_part_of_a_response(loaded: tuple[Any, Any]) -> None:
    _, tokenizer = loaded
    batch = build_batch(tokenizer)
    for name in ("input_ids", "ctx_teacher_input_ids", "dpo_chosen_input_ids", "dpo_rejected_input_ids"):
        assert batch[name][0, -1].item() == tokenizer.eos_token_id
    assert batch["response_mask"][0, -1].item() == batch["sdpo_loss_mask"][0, -1].item() == 1


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="variant must be one of factorial, binary_search, got 'quicksort'"):
        build_batch(Letters(), variant="quicksort")
    with pytest.raises(ValueError, match="the chat template changes the text of an assistant turn"):
        build_batch(Letters("{role}: {content:.5}\n"))

    class Mapping(Letters):
        def apply_chat_template(self, messages: list[dict[str, str]], **kwargs: Any) -> Any:
            return {"input_ids": [1, 2], "attention_mask": [1, 1]}

    # The length of a mapping, 2, was taken for the length of a prompt (B46).
    with pytest.raises(TypeError, match="must return text, got dict"):
        build_batch(Mapping())
