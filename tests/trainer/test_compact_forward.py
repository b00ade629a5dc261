"""The compact forward gives the numbers and the gradient of the plain one, and steps aside where it cannot."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)
from trl import GRPOTrainer
from trl.trainer.utils import add_fused_lm_head

from composer_rl.trainer import compact_forward
from composer_rl.trainer.compact_forward import CompactForward, length_batches, unsupported_reason
from composer_rl.trainer.composer_trainer import BatchRules, ComposerReplicationTrainer

VOCABULARY = 40
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 4,
}
TEMPERATURE = 0.7


def llama() -> Any:
    return LlamaForCausalLM(LlamaConfig(**SIZES))


def qwen3() -> Any:
    return Qwen3ForCausalLM(Qwen3Config(**SIZES))


def gpt2() -> Any:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCABULARY, n_embd=16, n_layer=2, n_head=2, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
        )
    )


def with_head(build: Callable[[], Any]) -> Any:
    torch.manual_seed(0)
    model = build().double().train()
    add_fused_lm_head(model, temperature=TEMPERATURE, outputs=("log_probs", "entropy"))
    return model


def batch(prompts: list[int], completions: list[list[int]], *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Rows in a shuffled order: prompt lengths by group, completion lengths by group and row."""
    generator = torch.Generator().manual_seed(seed)
    left, right = max(prompts), max(map(max, completions))
    rows = []
    for length, lengths in zip(prompts, completions, strict=True):
        prompt = torch.randint(1, VOCABULARY, (length,), generator=generator)
        for count in lengths:
            ids = torch.zeros(2, left + right, dtype=torch.long)
            ids[0, left - length : left], ids[1, left - length : left] = prompt, 1
            ids[0, left : left + count] = torch.randint(1, VOCABULARY, (count,), generator=generator)
            ids[1, left : left + count] = 1
            rows.append(ids)
    stacked = torch.stack(rows)[torch.randperm(len(rows), generator=generator)]
    return stacked[:, 0], stacked[:, 1], right


def plain(model: Any, ids: torch.Tensor, mask: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor, None]:
    """TRL 1.16's forward of whole rows."""
    labels = ids.masked_fill(mask == 0, -100)
    labels[:, :-width] = -100
    output = model(input_ids=ids, attention_mask=mask, labels=labels, fused_lm_head=True)
    return output.log_probs[:, -width:], output.entropy[:, -width:], None


@pytest.mark.parametrize("build", [llama, qwen3, gpt2])
@pytest.mark.parametrize(
    ("prompts", "completions"),
    [
        ([5, 3], [[2, 7, 4], [1, 1, 9]]),
        ([1, 1], [[3, 2], [5, 1]]),  # nothing but the last token of a prompt
        ([4], [[6]]),
        ([2, 6, 3], [[0, 3], [2, 2], [8, 5]]),  # a row without a token
        ([3, 3], [[400, 2, 3], [2, 390, 1]]),  # lengths so different that the rows run in several batches
    ],
)
def test_scores_and_gradient_are_those_of_the_plain_forward(
    build: Callable[[], Any], prompts: list[int], completions: list[list[int]]
) -> None:
    model = with_head(build)
    ids, mask, width = batch(prompts, completions)
    weights = torch.randn(len(ids), width, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores = CompactForward(model)(model, ids, mask, width)
    assert scores.entropies is not None
    ((scores.logprobs + 0.3 * scores.entropies) * weights).sum().backward()
    found_gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    logprobs, entropies, _ = plain(model, ids, mask, width)
    ((logprobs + 0.3 * entropies) * weights).sum().backward()
    expected_gradients = [parameter.grad.clone() for parameter in model.parameters()]
    torch.testing.assert_close(scores.logprobs, logprobs, atol=1e-10, rtol=0)
    torch.testing.assert_close(scores.entropies, entropies, atol=1e-10, rtol=0)
    for found, expected in zip(found_gradients, expected_gradients, strict=True):
        torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-4)  # TRL's fused head computes in fp32


def test_a_prompt_is_forwarded_once_and_padding_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    model = with_head(llama)
    ids, mask, width = batch([6, 6], [[2] * 8, [2] * 7 + [300]])
    shapes = []
    forward = model.forward
    monkeypatch.setattr(
        model, "forward", lambda **kwargs: shapes.append(kwargs["input_ids"].shape) or forward(**kwargs)
    )
    compact = CompactForward(with_head(llama))
    compact(model, ids, mask, width)
    assert [tuple(shape) for shape in shapes] == [(2, 5), (15, 2), (1, 300)]


@pytest.mark.parametrize("seed", range(20))
def test_batches_by_length_are_the_cheapest(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compact_forward, "BATCH_COST_TOKENS", 7)
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, 30, (7,), generator=generator).tolist()

    def cost(batches: list[list[int]]) -> int:
        return sum(len(rows) * max(1, max(lengths[row] for row in rows)) + 7 for rows in batches)

    batches = length_batches(lengths)
    assert sorted(itertools.chain(*batches)) == list(range(7))
    order = sorted(range(7), key=lambda row: lengths[row])
    cheapest = min(
        cost([order[start:end] for start, end in itertools.pairwise([0, *cuts, 7])])
        for count in range(compact_forward.MAX_BATCHES)
        for cuts in itertools.combinations(range(1, 7), count)
    )
    assert cost(batches) == cheapest


def test_a_model_that_disagrees_is_forwarded_plainly(caplog: pytest.LogCaptureFixture) -> None:
    """Positions that depend on the row's place in the batch are lost when rows move."""

    class Odd(LlamaForCausalLM):
        def forward(self, input_ids: Any = None, **kwargs: Any) -> Any:
            return super().forward(input_ids=(input_ids + input_ids.size(1)) % VOCABULARY, **kwargs)

    torch.manual_seed(0)
    model = Odd(LlamaConfig(**SIZES, initializer_range=0.5))
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    # TRL's fused head calls the backbone itself: what is odd must be there.
    backbone = model.model.forward
    model.model.forward = lambda input_ids=None, **kwargs: backbone(  # type: ignore[method-assign]
        input_ids=(input_ids + input_ids.size(1)) % VOCABULARY, **kwargs
    )
    ids, mask, width = batch([5, 3], [[2, 7, 4], [1, 1, 9]])
    compact = CompactForward(model)
    with caplog.at_level(logging.WARNING):
        assert compact.checked(model, ids, mask, width, max_rows=None, plain=plain) is None
        assert compact.checked(model, ids, mask, width, max_rows=None, plain=plain) is None
    assert caplog.text.count("sharing prompts changes a log-prob") == 1


def test_rows_can_be_scored_a_few_at_a_time() -> None:
    model = with_head(qwen3)
    ids, mask, width = batch([5, 3], [[2, 7, 4], [1, 1, 9]])
    compact = CompactForward(model)
    whole = compact.checked(model, ids, mask, width, max_rows=None, plain=plain)
    parts = compact.checked(model, ids, mask, width, max_rows=4, plain=plain)
    assert whole is not None
    assert parts is not None
    torch.testing.assert_close(parts.logprobs, whole.logprobs, atol=1e-10, rtol=0)
    torch.testing.assert_close(parts.entropies, whole.entropies, atol=1e-10, rtol=0)


def test_what_is_not_supported_says_why() -> None:
    assert unsupported_reason(llama(), gradient_checkpointing=False) is None
    assert "gradient_checkpointing" in (unsupported_reason(llama(), gradient_checkpointing=True) or "")
    sliding = MistralForCausalLM(MistralConfig(**SIZES, sliding_window=8))
    assert "full attention" in (unsupported_reason(sliding, gradient_checkpointing=False) or "")


@pytest.mark.parametrize("config", [{"loss_type": "dr_grpo"}, {"loss_type": "dapo", "num_iterations": 2}])
def test_training_with_it_follows_trl(
    make_model: Callable, make_config: Callable, tokenizer: Any, prompts: Any, reward: Callable, config: dict[str, Any]
) -> None:
    config = config | {"max_steps": 2, "optim": "sgd", "learning_rate": 0.1, "max_grad_norm": 0.0}

    def trained(cls: type, **kwargs: Any) -> Any:
        trainer = cls(
            model=make_model(),
            args=make_config(**config),
            reward_funcs=[reward],
            train_dataset=prompts,
            processing_class=tokenizer,
            **kwargs,
        )
        trainer.train()
        return trainer

    expected = trained(GRPOTrainer)
    found = trained(ComposerReplicationTrainer, batch_rules=BatchRules(skip_zero_variance=False, compact_forward=True))
    assert found._compact._agrees is True
    for name in ("loss", "entropy", "grad_norm"):
        values = [[entry[name] for entry in run.state.log_history if name in entry] for run in (found, expected)]
        assert values[0] == pytest.approx(values[1], rel=1e-4, abs=1e-6), name
    for name, value in expected.model.state_dict().items():
        torch.testing.assert_close(found.model.state_dict()[name], value, atol=1e-6, rtol=1e-5)
