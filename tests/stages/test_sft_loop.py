"""The supervised loop: which tokens weigh what, by hand; batches; the schedule."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from composer_rl.stages.sft_loop import Example, batches, encode, learning_rate_factor, weighted_loss


@pytest.fixture(scope="module")
def loaded(model_folder: Callable[[str], Path]) -> tuple[Any, Any]:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = model_folder("llama")
    return AutoModelForCausalLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)


def test_weights_by_hand(loaded: tuple[Any, Any]) -> None:
    _, tokenizer = loaded
    messages = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b c", "train": False},
        {"role": "user", "content": "d"},
        {"role": "assistant", "content": "ab", "emphasis": ["b"]},
    ]
    (example,) = encode([messages], tokenizer, content_weight=4.0, max_length=64)
    words = tokenizer.convert_ids_to_tokens(example.ids)
    assert words[-4:] == ["<assistant>", "a", "b", "</s>"]
    assert example.weights == [0.0] * (len(words) - 3) + [1.0, 4.0, 1.0]
    (cut,) = encode([messages], tokenizer, content_weight=4.0, max_length=5)
    assert len(cut.ids) == len(cut.weights) == 5


def test_a_template_that_edits_its_history_is_refused(loaded: tuple[Any, Any]) -> None:
    import copy

    tokenizer = copy.deepcopy(loaded[1])
    tokenizer.chat_template = "{{ messages | length }}{% for m in messages %}{{ m['content'] }} </s>{% endfor %}"
    with pytest.raises(ValueError, match="earlier messages"):
        encode(
            [[{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]],
            tokenizer,
            content_weight=1.0,
            max_length=64,
        )


def test_the_loss_is_the_weighted_cross_entropy(loaded: tuple[Any, Any]) -> None:
    model, _ = loaded
    rows = [
        Example(ids=[3, 5, 4, 6, 1], weights=[0, 0, 0, 4.0, 1.0]),
        Example(ids=[3, 4, 7], weights=[0, 0, 1.0]),
    ]
    total = weight = 0.0
    for row in rows:
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row.ids])).logits[0].log_softmax(-1)
        for position in range(1, len(row.ids)):
            total -= row.weights[position] * float(logits[position - 1, row.ids[position]])
            weight += row.weights[position]
    loss = weighted_loss(model, rows, pad_id=0)
    assert loss.item() == pytest.approx(total / weight, rel=1e-5)
    loss.backward()


def test_a_batch_without_weights_is_zero_and_attached(loaded: tuple[Any, Any]) -> None:
    model, _ = loaded
    loss = weighted_loss(model, [Example(ids=[3, 5], weights=[0.0, 0.0])], pad_id=0)
    assert loss.item() == 0.0
    loss.backward()


def test_batches_use_every_example_once_a_pass() -> None:
    examples = [Example(ids=[index], weights=[1.0]) for index in range(7)]
    drawn = [example.ids[0] for batch in islice(batches(examples, batch_size=3, seed=0), 7) for example in batch]
    assert sorted(drawn) == sorted(list(range(7)) * 3)
    again = list(islice(batches(examples, batch_size=3, seed=0), 7))
    assert drawn == [example.ids[0] for batch in again for example in batch]


def test_the_schedule_warms_up_holds_and_falls() -> None:
    factors = [learning_rate_factor(step, num_steps=100, warmup_steps=10, decay_share=0.4) for step in range(100)]
    assert factors[0] == pytest.approx(0.1)
    assert factors[9:60] == [1.0] * 51
    assert factors[80] == pytest.approx(0.5)
    assert 0 < factors[99] < 0.05
    assert learning_rate_factor(99, num_steps=100, warmup_steps=0, decay_share=0.0) == 1.0
