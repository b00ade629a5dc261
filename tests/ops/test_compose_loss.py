"""The three-channel harness: its contract, its alignment, and that each channel is the op that it names."""

from __future__ import annotations

import logging
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from composer_rl.ops.compose_loss import LossComponents, compose_loss
from composer_rl.ops.entropy_aware_opd import entropy_aware_opd_loss
from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.preferences import dpo_loss, simpo_loss
from composer_rl.ops.taid import taid_loss

VOCAB = 7
CHANNELS = ("lm_ce", "sdpo_jsd", "trace_replay_dpo")


class Running(torch.nn.Module):
    """A causal model in float64: the logits at j are a function of the tokens up to j. Counts its forwards."""

    def __init__(self) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(0)
        self.embedding = torch.nn.Parameter(torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64))
        self.forwards = 0

    def forward(self, input_ids: torch.Tensor) -> SimpleNamespace:
        self.forwards += 1
        return SimpleNamespace(logits=self.embedding[input_ids].cumsum(1))


@pytest.fixture
def model() -> Running:
    return Running()


def ids(seed: int, *shape: int) -> torch.Tensor:
    return torch.randint(VOCAB, shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    return {
        "input_ids": ids(0, 2, 6),
        "response_mask": torch.tensor([[0, 0, 1, 1, 1, 0], [0, 1, 1, 0, 0, 0]]),
        "ctx_teacher_input_ids": ids(1, 2, 6),
        "sdpo_loss_mask": torch.tensor([[0, 0, 0, 1, 1, 0], [-100, -100, 1, 0, 0, -100]]),
        "dpo_chosen_input_ids": ids(2, 2, 5),
        "dpo_chosen_response_mask": torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 0, 0]]),
        "dpo_rejected_input_ids": ids(3, 2, 4),
        "dpo_rejected_response_mask": torch.tensor([[0, 0, 1, 1], [0, 1, 1, 1]]),
        "dpo_chosen_ref_logprobs": torch.tensor([-6.0, -4.0]),
        "dpo_rejected_ref_logprobs": torch.tensor([-5.0, -7.0]),
    }


def gradient(loss: torch.Tensor, model: Running) -> torch.Tensor:
    (found,) = torch.autograd.grad(loss, model.embedding, retain_graph=True)
    return found


def test_the_total_is_the_weighted_sum(model: Running, batch: dict[str, torch.Tensor]) -> None:
    for weights in ({}, {"alpha_sdpo": 0.7, "beta_replay": 0.3}):
        out = compose_loss(model, batch, **weights)
        alpha, beta = weights.get("alpha_sdpo", 0.1), weights.get("beta_replay", 0.05)
        assert all(getattr(out, name).shape == () for name in (*CHANNELS, "total"))
        assert all(getattr(out, name).item() > 0 for name in CHANNELS)
        expected = out.lm_ce + alpha * out.sdpo_jsd + beta * out.trace_replay_dpo
        assert out.total.item() == pytest.approx(expected.item(), rel=1e-12)
        assert torch.allclose(gradient(out.total, model), gradient(expected, model), rtol=1e-12)


def test_detached_is_plain_numbers(model: Running, batch: dict[str, torch.Tensor]) -> None:
    out = compose_loss(model, batch)
    assert out.detached() == {name: getattr(out, name).item() for name in (*CHANNELS, "total")}
    assert all(type(value) is float for value in out.detached().values())
    assert isinstance(out, LossComponents)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_cross_entropy_is_shifted_and_over_response_tokens(
    model: Running, batch: dict[str, torch.Tensor], smoothing: float
) -> None:
    out = compose_loss(model, batch, lm_ce_label_smoothing=smoothing)
    labels = batch["input_ids"].masked_fill(batch["response_mask"] != 1, -100)[:, 1:]
    logits = model(batch["input_ids"]).logits[:, :-1]
    expected = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), label_smoothing=smoothing)
    assert out.lm_ce.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize(
    ("arguments", "loss"),
    [
        ({}, lambda s, t, mask, labels: generalized_jsd_loss(s, t, labels)),
        (
            {"sdpo_jsd_beta": 0.2, "sdpo_temperature": 2.0, "sdpo_token_clip": 0.1},
            lambda s, t, mask, labels: generalized_jsd_loss(s, t, labels, beta=0.2, temperature=2.0, token_clip=0.1),
        ),
        ({"sdpo_wrapper": "taid", "taid_t": 0.3}, lambda s, t, mask, labels: taid_loss(s, t, mask, t=0.3)),
        (
            {"sdpo_wrapper": "entropy_opd", "sdpo_temperature": 2.0, "entropy_opd_h_max": 1.5},
            lambda s, t, mask, labels: entropy_aware_opd_loss(s, t, labels=mask, h_max=1.5, temperature=2.0),
        ),
    ],
)
def test_distillation_is_the_named_op_on_unshifted_positions(
    model: Running, batch: dict[str, torch.Tensor], arguments: dict[str, Any], loss: Any
) -> None:
    """A 1 at j compares the distributions behind position j, as the reference reads the mask; -100 counts as 0."""
    out = compose_loss(model, batch, **arguments)
    mask = batch["sdpo_loss_mask"]
    student, teacher = model(batch["input_ids"]).logits, model(batch["ctx_teacher_input_ids"]).logits.detach()
    expected = loss(student, teacher, mask, torch.where(mask == 1, 1, -100))
    assert out.sdpo_jsd.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(gradient(out.sdpo_jsd, model), gradient(expected, model), rtol=1e-12)


def test_taid_takes_every_position_without_a_mask(model: Running, batch: dict[str, torch.Tensor]) -> None:
    del batch["sdpo_loss_mask"]
    out = compose_loss(model, batch, sdpo_wrapper="taid", taid_t=0.5)
    teacher = model(batch["ctx_teacher_input_ids"]).logits.detach()
    assert out.sdpo_jsd.item() == pytest.approx(taid_loss(model(batch["input_ids"]).logits, teacher, t=0.5).item())


def test_equal_contexts_give_no_divergence(model: Running, batch: dict[str, torch.Tensor]) -> None:
    batch["ctx_teacher_input_ids"] = batch["input_ids"]
    out = compose_loss(model, batch)
    assert out.sdpo_jsd.item() == pytest.approx(0.0, abs=1e-12)
    assert gradient(out.sdpo_jsd, model).abs().max() < 1e-12


def test_different_lengths_switch_the_distillation_off_with_a_warning(
    model: Running, batch: dict[str, torch.Tensor], caplog: pytest.LogCaptureFixture
) -> None:
    batch["ctx_teacher_input_ids"], batch["sdpo_loss_mask"] = ids(1, 2, 9), torch.ones(2, 9)
    with caplog.at_level(logging.WARNING):
        out = compose_loss(model, batch)
    assert out.sdpo_jsd.item() == 0.0
    assert "input_ids (2, 6) and ctx_teacher_input_ids (2, 9) differ in shape" in caplog.text


def test_a_student_mask_aligns_different_lengths(model: Running, batch: dict[str, torch.Tensor]) -> None:
    """Marked tokens are compared in order, each by the logits before it."""
    batch["ctx_teacher_input_ids"] = ids(1, 2, 9)
    batch["sdpo_student_mask"] = torch.tensor([[0, 0, 0, 1, 1, 0], [0, 1, 0, 0, 0, 0]])
    batch["sdpo_loss_mask"] = torch.tensor([[0, 0, 0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, -100, 0, 0, 0, 1]])
    out = compose_loss(model, batch, beta_replay=0.0)
    student, teacher = model(batch["input_ids"]).logits, model(batch["ctx_teacher_input_ids"]).logits.detach()
    rows = student[[0, 0, 1], [2, 3, 0]], teacher[[0, 0, 1], [5, 6, 7]]
    assert out.sdpo_jsd.item() == pytest.approx(generalized_jsd_loss(*rows).item(), rel=1e-12)
    batch["sdpo_student_mask"][1, 2] = 1
    with pytest.raises(ValueError, match=r"equally many tokens in every row, got \[2, 2\] and \[2, 1\]"):
        compose_loss(model, batch)
    del batch["sdpo_loss_mask"]
    with pytest.raises(ValueError, match="sdpo_student_mask needs sdpo_loss_mask"):
        compose_loss(model, batch, sdpo_wrapper="taid", taid_t=0.4)


def test_the_teacher_gets_no_gradient(model: Running, batch: dict[str, torch.Tensor]) -> None:
    """Only the student's forward carries a graph although the weights are the same."""
    frozen = model(batch["ctx_teacher_input_ids"]).logits.detach()
    student = model(batch["input_ids"]).logits
    labels = torch.where(batch["sdpo_loss_mask"] == 1, 1, -100)
    expected = gradient(generalized_jsd_loss(student, frozen, labels), model)
    assert torch.allclose(gradient(compose_loss(model, batch).sdpo_jsd, model), expected, rtol=1e-12)


def scores(model: Running, batch: dict[str, torch.Tensor], side: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Summed and averaged log-probability of each response, token by token."""
    tokens, mask = batch[f"dpo_{side}_input_ids"], batch[f"dpo_{side}_response_mask"]
    logprobs = model(tokens).logits.log_softmax(-1)
    sums = [
        sum(logprobs[row, j - 1, tokens[row, j]] for j in range(1, tokens.size(1)) if mask[row, j] == 1)
        for row in range(tokens.size(0))
    ]
    total = torch.stack([torch.as_tensor(value) for value in sums])
    return total, total / mask.sum(-1)


def test_pairs_are_the_named_op(model: Running, batch: dict[str, torch.Tensor]) -> None:
    chosen, rejected = scores(model, batch, "chosen"), scores(model, batch, "rejected")
    references = batch["dpo_chosen_ref_logprobs"], batch["dpo_rejected_ref_logprobs"]
    dpo = compose_loss(model, batch, replay_dpo_beta=0.3).trace_replay_dpo
    expected = dpo_loss(chosen[0], rejected[0], *references, beta=0.3)
    assert dpo.item() == pytest.approx(expected.item(), rel=1e-12)
    assert torch.allclose(gradient(dpo, model), gradient(expected, model), rtol=1e-12)
    del batch["dpo_chosen_ref_logprobs"], batch["dpo_rejected_ref_logprobs"]
    simpo = compose_loss(model, batch, dpo_variant="simpo", simpo_beta=2.5, simpo_gamma=0.5).trace_replay_dpo
    expected = simpo_loss(chosen[1], rejected[1], beta=2.5, gamma=0.5)
    assert simpo.item() == pytest.approx(expected.item(), rel=1e-12)


@pytest.mark.parametrize("variant", ["dpo", "simpo"])
def test_a_pair_without_response_tokens_says_nothing(
    model: Running, batch: dict[str, torch.Tensor], variant: str
) -> None:
    """Truncation left nothing of one side, or only the first token, which nothing scores (B43, B44, B47)."""
    first = {name: value[:1] if name.startswith("dpo_") else value for name, value in batch.items()}
    batch["dpo_rejected_response_mask"][1] = torch.tensor([1, 0, 0, 0])
    out, alone = (compose_loss(model, inputs, dpo_variant=variant) for inputs in (batch, first))
    assert out.trace_replay_dpo.item() == pytest.approx(alone.trace_replay_dpo.item(), rel=1e-12)


@pytest.mark.parametrize("weight", ["alpha_sdpo", "beta_replay"])
def test_a_weight_of_zero_costs_no_forward_and_changes_no_gradient(
    model: Running, batch: dict[str, torch.Tensor], weight: str
) -> None:
    out = compose_loss(model, batch, alpha_sdpo=0.0, beta_replay=0.0)
    assert model.forwards == 1
    assert torch.equal(gradient(out.total, model), gradient(out.lm_ce, model))
    assert out.total.item() == out.lm_ce.item()
    assert torch.equal(gradient(out.sdpo_jsd, model), torch.zeros(VOCAB, VOCAB).double())
    one = compose_loss(model, batch, **{weight: 0.0})
    assert [one.sdpo_jsd.item() == 0, one.trace_replay_dpo.item() == 0] == [
        weight == "alpha_sdpo",
        weight == "beta_replay",
    ]


@pytest.mark.parametrize(
    ("missing", "channel"),
    [
        ("ctx_teacher_input_ids", "sdpo_jsd"),
        ("sdpo_loss_mask", "sdpo_jsd"),
        ("dpo_chosen_input_ids", "trace_replay_dpo"),
        ("dpo_rejected_response_mask", "trace_replay_dpo"),
        ("dpo_chosen_ref_logprobs", "trace_replay_dpo"),
    ],
)
def test_a_channel_without_its_inputs_is_off(
    model: Running, batch: dict[str, torch.Tensor], missing: str, channel: str
) -> None:
    del batch[missing]
    out = compose_loss(model, batch)
    assert {name for name in CHANNELS if getattr(out, name).item() == 0} == {channel}


def test_all_masked_gives_zero_attached_to_the_graph(model: Running, batch: dict[str, torch.Tensor]) -> None:
    """B05, B17, B28: backward works, and so on every rank."""
    for name in batch:
        if name.endswith("_mask"):
            batch[name] = torch.zeros_like(batch[name])
    for arguments in ({}, {"sdpo_wrapper": "taid", "taid_t": 0.4, "dpo_variant": "simpo"}):
        out = compose_loss(model, batch, **arguments)
        assert out.detached() == {"lm_ce": 0.0, "sdpo_jsd": 0.0, "trace_replay_dpo": 0.0, "total": 0.0}
        assert torch.equal(gradient(out.total, model), torch.zeros(VOCAB, VOCAB).double())


def test_an_empty_batch(model: Running, batch: dict[str, torch.Tensor]) -> None:
    out = compose_loss(model, {name: value[:0] for name, value in batch.items()})
    out.total.backward()
    assert out.total.item() == 0.0


def test_padding_is_what_the_masks_say_not_what_the_ids_are(model: Running, batch: dict[str, torch.Tensor]) -> None:
    """With a pad id equal to the end-of-text id, the real end counts and the padding behind it does not (B55)."""
    end = 3
    row = {"input_ids": torch.tensor([[1, 2, end]]), "response_mask": torch.tensor([[0, 1, 1]])}
    padded = {"input_ids": torch.tensor([[1, 2, end, end, end]]), "response_mask": torch.tensor([[0, 1, 1, 0, 0]])}
    assert compose_loss(model, padded).lm_ce.item() == compose_loss(model, row).lm_ce.item()
    cut = {**row, "response_mask": torch.tensor([[0, 1, 0]])}
    assert compose_loss(model, cut).lm_ce.item() != compose_loss(model, row).lm_ce.item()


def test_loss_masks_never_become_attention_masks(batch: dict[str, torch.Tensor]) -> None:
    """The teacher sees tool output that the loss leaves out (B61): no forward is given anything but ids."""
    calls = []

    class Listening(Running):
        def __call__(self, **arguments: Any) -> Any:
            calls.append(arguments)
            return super().__call__(**arguments)

    compose_loss(Listening(), batch)
    assert [list(arguments) for arguments in calls] == [["input_ids"]] * 4


def test_splitting_the_batch_changes_nothing(model: Running, batch: dict[str, torch.Tensor]) -> None:
    """Each channel's sum, its mean times what it counts, is that of the rows."""
    counts = {
        "lm_ce": (batch["response_mask"] == 1).sum(-1),
        "sdpo_jsd": (batch["sdpo_loss_mask"] == 1).sum(-1),
        "trace_replay_dpo": torch.ones(2),
    }
    whole = compose_loss(model, batch)
    rows = [compose_loss(model, {name: value[i : i + 1] for name, value in batch.items()}) for i in range(2)]
    for name, count in counts.items():
        parts = sum(getattr(rows[i], name).item() * count[i].item() for i in range(2))
        assert getattr(whole, name).item() * count.sum().item() == pytest.approx(parts, rel=1e-12)


def test_bfloat16_logits_are_computed_in_float32(model: Running, batch: dict[str, torch.Tensor]) -> None:
    out = compose_loss(model.to(torch.bfloat16), batch)
    assert all(getattr(out, name).dtype == torch.float32 for name in (*CHANNELS, "total"))
    out.total.backward()
    assert model.embedding.grad is not None
    assert model.embedding.grad.isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dpo_variant": "kto"}, "dpo_variant must be one of dpo, simpo, got 'kto'"),
        ({"sdpo_wrapper": "jsd"}, "sdpo_wrapper must be one of none, taid, entropy_opd, got 'jsd'"),
        ({"sdpo_wrapper": "taid"}, "sdpo_wrapper='taid' needs taid_t"),
        ({"sdpo_wrapper": "taid", "taid_t": 1.5}, r"taid_t must be in \[0, 1\], got 1.5"),
        ({"sdpo_wrapper": "taid", "taid_t": -0.1, "alpha_sdpo": 0.0}, r"taid_t must be in \[0, 1\]"),
        ({"sdpo_wrapper": "taid", "taid_t": math.nan}, r"taid_t must be in \[0, 1\]"),
    ],
)
def test_bad_settings_are_named(
    model: Running, batch: dict[str, torch.Tensor], arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        compose_loss(model, batch, **arguments)
    assert model.forwards == 0


@pytest.mark.parametrize("key", ["input_ids", "response_mask"])
def test_a_missing_required_key_is_named(model: Running, batch: dict[str, torch.Tensor], key: str) -> None:
    del batch[key]
    with pytest.raises(KeyError, match=f"inputs has no {key}"):
        compose_loss(model, batch)


@pytest.mark.parametrize("key", ["response_mask", "sdpo_loss_mask"])
def test_a_mask_of_another_shape_is_named(model: Running, batch: dict[str, torch.Tensor], key: str) -> None:
    batch[key] = batch[key][:, :-1]
    with pytest.raises(ValueError, match=key):
        compose_loss(model, batch)
