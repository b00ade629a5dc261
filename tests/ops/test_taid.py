"""TAID's loss and its schedule."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_rl.ops.generalized_jsd import generalized_jsd_loss
from composer_rl.ops.taid import TAIDScheduler, taid_loss

seeds = st.integers(0, 2**31)


def random_logits(seed: int, *shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return 2 * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def entropy(logits: torch.Tensor) -> torch.Tensor:
    return torch.distributions.Categorical(logits=logits).entropy()


def test_by_hand() -> None:
    """Half way between odds of 1 and odds of 9 are odds of 3."""
    student = torch.tensor([[[0.0, 0.0]]])
    teacher = torch.tensor([[[math.log(9), 0.0]]])
    assert taid_loss(student, teacher, t=0.5).item() == pytest.approx(math.log(2))
    student = torch.tensor([[[math.log(9), 0.0]]])
    teacher = torch.tensor([[[0.0, 0.0]]])
    expected = -(0.75 * math.log(0.9) + 0.25 * math.log(0.1))
    assert taid_loss(student, teacher, t=0.5).item() == pytest.approx(expected)
    assert taid_loss(student, teacher, t=torch.tensor(0.5)).item() == pytest.approx(expected)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, t=st.floats(0, 1))
def test_the_ends(seed: int, t: float) -> None:
    """t=0: the student's entropy, no gradient. t=1: forward KL plus the teacher's entropy. Never below the target's."""
    student, teacher = random_logits(seed, 2, 3, 7).requires_grad_(), random_logits(seed + 1, 2, 3, 7)
    start = taid_loss(student, teacher, t=0.0)
    start.backward()
    assert start.item() == pytest.approx(entropy(student.detach()).mean().item())
    assert student.grad is not None
    assert student.grad.abs().max() < 1e-12
    end = generalized_jsd_loss(student, teacher, beta=0.0) + entropy(teacher).mean()
    assert taid_loss(student, teacher, t=1.0).item() == pytest.approx(end.item())
    target = (1 - t) * student.detach() + t * teacher
    assert taid_loss(student, teacher, t=t).item() >= entropy(target).mean().item() - 1e-9


@settings(max_examples=25, deadline=None)
@given(seed=seeds, t=st.floats(0, 1))
def test_equal_sides_give_no_gradient(seed: int, t: float) -> None:
    student = random_logits(seed, 2, 3, 7).requires_grad_()
    taid_loss(student, student.detach(), t=t).backward()
    assert student.grad is not None
    assert student.grad.abs().max() < 1e-12


@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
def test_gradient_is_the_distance_to_the_target(t: float) -> None:
    """(softmax(student) - target) / tokens, the target a constant; gradcheck cannot hold it still."""
    student, teacher = random_logits(0, 2, 3, 5).requires_grad_(), random_logits(1, 2, 3, 5)
    mask = torch.tensor([[1, 0, 1], [-100, 0, 1]])
    taid_loss(student, teacher, mask, t=t).backward()
    frozen = student.detach()
    expected = (frozen.softmax(-1) - ((1 - t) * frozen + t * teacher).softmax(-1)) * (mask == 1)[..., None] / 3
    assert torch.allclose(student.grad, expected, atol=1e-14)


def test_gradcheck_where_the_target_is_the_teacher() -> None:
    teacher = random_logits(1, 2, 3, 5)
    assert torch.autograd.gradcheck(
        lambda student: taid_loss(student, teacher, t=1.0), random_logits(0, 2, 3, 5).requires_grad_()
    )


def test_what_stands_under_the_mask_does_not_matter() -> None:
    student, teacher = random_logits(0, 2, 3, 5), random_logits(1, 2, 3, 5)
    mask = torch.tensor([[1, 0, 1], [-100, 0, 1]])
    clean = taid_loss(student, teacher, mask, t=0.3).item()
    for junk in (math.nan, math.inf, -math.inf):
        dirty, other = student.clone(), teacher.clone()
        dirty[mask != 1] = other[mask != 1] = junk
        dirty.requires_grad_()
        loss = taid_loss(dirty, other, mask, t=0.3)
        loss.backward()
        assert loss.item() == clean
        assert dirty.grad is not None
        assert dirty.grad.isfinite().all()
        assert (dirty.grad[mask != 1] == 0).all()


@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 3, 5)])
def test_nothing_active_gives_zero_attached_to_the_graph(shape: tuple[int, ...]) -> None:
    """Upstream divides 0 by 0 (B17)."""
    student = torch.full(shape, math.nan, requires_grad=True)
    loss = taid_loss(student, torch.zeros(shape), torch.zeros(shape[:2]), t=0.4)
    loss.backward()
    assert loss.item() == 0.0
    assert torch.equal(student.grad, torch.zeros(shape))


@settings(max_examples=10, deadline=None)
@given(seed=seeds, cut=st.integers(1, 3))
def test_splitting_the_batch_changes_nothing(seed: int, cut: int) -> None:
    student, teacher = random_logits(seed, 4, 3, 5), random_logits(seed + 1, 4, 3, 5)
    mask = random_logits(seed + 2, 4, 3) > 0
    parts = [
        taid_loss(student[rows], teacher[rows], mask[rows], t=0.4).item() * mask[rows].sum().item()
        for rows in (slice(None, cut), slice(cut, None))
    ]
    whole = taid_loss(student, teacher, mask, t=0.4).item() * mask.sum().item()
    assert sum(parts) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("t", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forbidden_tokens(t: float, dtype: torch.dtype) -> None:
    student, teacher = random_logits(0, 1, 2, 5, dtype=dtype), random_logits(1, 1, 2, 5, dtype=dtype)
    padding = torch.full((1, 2, 3), -math.inf, dtype=dtype)
    padded = torch.cat([student, padding], dim=-1).requires_grad_()
    loss = taid_loss(padded, torch.cat([teacher, padding], dim=-1), t=t)
    loss.backward()
    assert loss.item() == pytest.approx(taid_loss(student, teacher, t=t).item(), rel=1e-6)
    assert padded.grad is not None
    assert padded.grad.isfinite().all()


def test_bfloat16_is_computed_in_float32() -> None:
    student, teacher = (random_logits(seed, 1, 2, 50_000, dtype=torch.bfloat16) for seed in (0, 1))
    loss = taid_loss(student, teacher, t=0.4)
    assert loss.dtype == torch.float32
    assert loss.item() == pytest.approx(taid_loss(student.double(), teacher.double(), t=0.4).item(), rel=1e-5)


def test_bad_input_is_named() -> None:
    logits = torch.zeros(1, 2, 3)
    with pytest.raises(ValueError, match="shapes must be equal"):
        taid_loss(logits, torch.zeros(1, 2, 4), t=0.5)
    with pytest.raises(ValueError, match=r"mask must have shape \(1, 2\)"):
        taid_loss(logits, logits, torch.ones(1, 3), t=0.5)
    for t in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match=r"t must be in \[0, 1\]"):
            taid_loss(logits, logits, t=t)
    with pytest.raises(ValueError, match="t must be one number"):
        taid_loss(logits, logits, t=torch.tensor([0.1, 0.2]))


def test_the_schedule_by_hand() -> None:
    scheduler = TAIDScheduler(10, alpha=0.5, beta=0.5)
    assert scheduler.t == pytest.approx(0.4)
    assert scheduler.update_t(torch.tensor(2.0), global_step=0) is None
    assert scheduler.t == pytest.approx(0.4)
    delta = scheduler.update_t(torch.tensor(1.0), global_step=1)
    expected = 0.5 / (1 + math.exp(-0.25)) * 0.6  # The loss halved, so the momentum is 0.5 * 0 + 0.5 * 0.5.
    assert delta is not None
    assert delta.item() == pytest.approx(expected)
    assert scheduler.t == pytest.approx(0.4 + expected)
    assert scheduler.momentum.item() == 0.25
    assert scheduler.prev_loss.item() == 1.0


@settings(max_examples=50, deadline=None)
@given(
    losses=st.lists(st.one_of(st.floats(0, 20), st.sampled_from([math.nan, math.inf, -1.0])), max_size=30),
    num_train_steps=st.integers(1, 20),
    ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
    alpha=st.floats(0, 1),
    disable_adaptive=st.booleans(),
)
def test_t_never_falls_and_stays_in_range(
    losses: list[float], num_train_steps: int, ends: list[float], alpha: float, disable_adaptive: bool
) -> None:
    """Also with broken losses and beyond the last planned step, where upstream reaches 1.3 (B13)."""
    scheduler = TAIDScheduler(
        num_train_steps, t_start=ends[0], t_end=ends[1], alpha=alpha, disable_adaptive=disable_adaptive
    )
    before = scheduler.t
    for step, loss in enumerate(losses):
        delta = scheduler.update_t(loss, step)
        assert delta is None or delta >= 0
        assert before <= scheduler.t <= ends[1]
        before = scheduler.t
    assert scheduler.momentum.isfinite()


@pytest.mark.parametrize("loss", [math.nan, math.inf, 0.0])
def test_a_loss_that_is_no_observation_does_not_spoil_the_momentum(loss: float) -> None:
    """Upstream's momentum is NaN from then on, or at -2e13 after the 0 of a batch without active tokens."""
    scheduler = TAIDScheduler(100)
    assert scheduler.update_t(loss, 0) is None
    assert math.isinf(scheduler.prev_loss)
    scheduler.update_t(2.0, 0)
    scheduler.update_t(1.8, 1)
    momentum, before = scheduler.momentum.item(), scheduler.t
    assert scheduler.update_t(loss, 2) is None
    assert (scheduler.momentum.item(), scheduler.prev_loss.item()) == (momentum, pytest.approx(1.8))
    assert scheduler.t > before  # The linear floor.
    assert scheduler.update_t(1.6, 3) is not None


@pytest.mark.parametrize("disable_adaptive", [True, False])
def test_t_stops_at_its_end(disable_adaptive: bool) -> None:
    scheduler = TAIDScheduler(10, t_end=0.7, disable_adaptive=disable_adaptive)
    for step in range(16):
        scheduler.update_t(torch.tensor(1.0), step)
    assert scheduler.t == pytest.approx(0.7)


def test_without_adaptation_t_is_linear() -> None:
    scheduler = TAIDScheduler(10, disable_adaptive=True, alpha=1.0)
    seen = []
    for step in range(11):
        scheduler.update_t(1.0, step)
        seen.append(scheduler.t)
    assert seen == pytest.approx([0.4 + 0.06 * step for step in range(11)])


def test_a_saved_schedule_goes_on_as_if_nothing_had_happened() -> None:
    one, other = TAIDScheduler(20, alpha=0.1), TAIDScheduler(20, alpha=0.1)
    other.load_state_dict(one.state_dict())
    losses = [2.0 * 0.9**step for step in range(20)]
    for step, loss in enumerate(losses):
        one.update_t(loss, step)
        if step == 9:
            other.load_state_dict(one.state_dict())
        if step > 9:
            other.update_t(loss, step)
    assert other.state_dict() == one.state_dict()
    with pytest.raises(ValueError, match=r"has \['momentum', 'prev_loss', 't'\], got \['t'\]"):
        other.load_state_dict({"t": 0.5})


def test_the_state_is_where_it_is_asked_to_be() -> None:
    """On a machine without CUDA (B16), and without keeping the graph of the loss."""
    scheduler = TAIDScheduler(10, device="cpu").to(torch.device("cpu"))
    loss = torch.tensor(2.0, requires_grad=True) * 1
    scheduler.update_t(loss, 0)
    assert scheduler.prev_loss.device.type == "cpu"
    assert not scheduler.prev_loss.requires_grad


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_train_steps": 0}, "num_train_steps must be at least 1, got 0"),
        ({"t_start": 0.9, "t_end": 0.5}, "0 <= t_start <= t_end <= 1, got 0.9 and 0.5"),
        ({"t_end": 1.5}, "0 <= t_start <= t_end <= 1"),
        ({"alpha": -1.0}, "alpha must be at least 0"),
        ({"beta": 1.0}, r"beta must be in \[0, 1\), got 1.0"),
    ],
)
def test_bad_schedules_are_refused(arguments: dict[str, Any], message: str) -> None:
    """A falling schedule among them, which upstream accepts (B14)."""
    with pytest.raises(ValueError, match=message):
        TAIDScheduler(**{"num_train_steps": 10, **arguments})
