"""The generalised JSD: numbers by hand, its mathematics, and what must not poison it."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_rl.ops.generalized_jsd import GeneralizedJSD, generalized_jsd_loss, jsd_scale

VARIANTS: dict[str, dict[str, Any]] = {
    "forward": {"beta": 0.0},
    "low": {"beta": 0.1},
    "symmetric": {"beta": 0.5},
    "high": {"beta": 0.9},
    "reverse": {"beta": 1.0},
    "hot": {"beta": 0.5, "temperature": 2.5},
    "teacher_top": {"beta": 0.5, "top_k": 3},
    "student_top": {"beta": 0.3, "top_k": 3, "topk_support": "student"},
    "teacher_top_tail": {"beta": 1.0, "top_k": 2, "tail": True},
    "student_top_tail": {"beta": 0.5, "top_k": 1, "topk_support": "student", "tail": True},
    "token_clip": {"beta": 0.5, "token_clip": 0.1},
    "element_clip": {"beta": 0.5, "token_clip": 0.05, "clip": "element"},
}
every_variant = pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS)
seeds = st.integers(0, 2**31)


def random_logits(seed: int, *shape: int, scale: float = 2.0, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def of_probs(*probs: float) -> torch.Tensor:
    return torch.tensor([[probs]], dtype=torch.float64).log()


def kl(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True))


@pytest.mark.parametrize("beta", [0.0, 0.1, 0.5, 1.0])
def test_by_hand(beta: float) -> None:
    """The teacher has weight beta in the mixture and in front of its own KL (B01)."""
    student, teacher = [0.5, 0.5], [0.75, 0.25]
    mixture = [(1 - beta) * s + beta * t for s, t in zip(student, teacher, strict=True)]
    expected = {0.0: kl(teacher, student), 1.0: kl(student, teacher)}.get(
        beta, beta * kl(teacher, mixture) + (1 - beta) * kl(student, mixture)
    )
    assert generalized_jsd_loss(of_probs(*student), of_probs(*teacher), beta=beta).item() == pytest.approx(expected)


@every_variant
@settings(max_examples=25, deadline=None)
@given(seed=seeds, batch=st.integers(1, 3), length=st.integers(1, 5), vocab=st.integers(3, 40))
def test_never_negative_and_zero_for_equal_sides(
    variant: dict[str, Any], seed: int, batch: int, length: int, vocab: int
) -> None:
    student = random_logits(seed, batch, length, vocab, dtype=torch.float32).requires_grad_()
    teacher = random_logits(seed + 1, batch, length, vocab, dtype=torch.float32)
    assert (generalized_jsd_loss(student, teacher, reduction="none", **variant) >= -1e-6).all()
    same = generalized_jsd_loss(student, student.detach(), reduction="sum", **variant)
    same.backward()
    assert same.item() == pytest.approx(0.0, abs=1e-5)
    assert student.grad is not None
    # The clip of single elements lets the negative ones through, so its minimum is not at equal sides.
    if variant.get("clip") != "element":
        assert student.grad.abs().max() < 1e-5


@settings(max_examples=25, deadline=None)
@given(seed=seeds, beta=st.floats(0.05, 0.95))
def test_swapping_the_sides_swaps_beta(seed: int, beta: float) -> None:
    one, other = random_logits(seed, 2, 3, 7), random_logits(seed + 1, 2, 3, 7)
    forward = generalized_jsd_loss(one, other, beta=beta)
    assert generalized_jsd_loss(other, one, beta=1 - beta).item() == pytest.approx(forward.item(), rel=1e-9)
    assert generalized_jsd_loss(one, other, beta=0.0).item() == pytest.approx(
        generalized_jsd_loss(other, one, beta=1.0).item(), rel=1e-9
    )


@settings(max_examples=25, deadline=None)
@given(seed=seeds, shift=st.floats(-50, 50), temperature=st.floats(0.3, 4))
def test_temperature_divides_the_logits_and_shifts_do_not_matter(seed: int, shift: float, temperature: float) -> None:
    student, teacher = random_logits(seed, 2, 3, 7), random_logits(seed + 1, 2, 3, 7)
    warm = generalized_jsd_loss(student + shift, teacher - shift, temperature=temperature)
    assert warm.item() == pytest.approx(
        generalized_jsd_loss(student / temperature, teacher / temperature).item(), rel=1e-8, abs=1e-12
    )


@every_variant
@settings(max_examples=10, deadline=None)
@given(seed=seeds, cut=st.integers(0, 4))
def test_splitting_the_batch_changes_nothing(variant: dict[str, Any], seed: int, cut: int) -> None:
    whole = random_logits(seed, 4, 5, 8).requires_grad_()
    parts = whole.detach().clone().requires_grad_()
    teacher = random_logits(seed + 1, 4, 5, 8)
    labels = torch.where(random_logits(seed + 2, 4, 5) > 0, 1, -100)
    one = generalized_jsd_loss(whole, teacher, labels, reduction="sum", **variant)
    two = sum(
        generalized_jsd_loss(parts[rows], teacher[rows], labels[rows], reduction="sum", **variant)
        for rows in (slice(None, cut), slice(cut, None))
    )
    assert isinstance(two, torch.Tensor)
    one.backward()
    two.backward()
    assert two.item() == pytest.approx(one.item(), rel=1e-12, abs=1e-14)
    assert torch.allclose(whole.grad, parts.grad, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", [name for name in VARIANTS if "clip" not in name])
def test_gradient(name: str) -> None:
    student, teacher = random_logits(3, 2, 3, 6).requires_grad_(), random_logits(4, 2, 3, 6).requires_grad_()
    labels = torch.tensor([[1, -100, 0], [2, 3, -100]])

    def loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        return generalized_jsd_loss(student, teacher, labels, **VARIANTS[name])

    assert torch.autograd.gradcheck(loss, (student, teacher))


@pytest.mark.parametrize("clip", ["token", "element"])
def test_gradient_through_a_clip(clip: str) -> None:
    student = random_logits(3, 2, 3, 6).requires_grad_()
    for limit in (1e-6, 0.05, 10.0):
        assert torch.autograd.gradcheck(
            lambda values, limit=limit: generalized_jsd_loss(
                values, random_logits(4, 2, 3, 6), token_clip=limit, clip=clip
            ),
            (student,),
        )


def test_what_a_clip_limits() -> None:
    """Token: the two elements are summed, then limited. Element: each is limited, then summed."""
    student, teacher = of_probs(0.5, 0.5), of_probs(0.9, 0.1)
    elements = [0.9 * math.log(1.8), 0.1 * math.log(0.2)]
    loss = {
        clip: generalized_jsd_loss(student, teacher, beta=0.0, token_clip=0.2, clip=clip).item()
        for clip in ("token", "element")
    }
    assert sum(elements) > 0.2
    assert loss == pytest.approx({"token": 0.2, "element": 0.2 + elements[1]})


def test_the_ends_are_kl_and_the_way_there_vanishes() -> None:
    """D_beta goes to 0 at both ends while the ends are KL divergences: warned of, with the scale (B02)."""
    student, teacher = random_logits(0, 2, 6, 17), random_logits(1, 2, 6, 17)
    ends = {beta: generalized_jsd_loss(student, teacher, beta=beta).item() for beta in (0.0, 1.0)}
    for beta in (1e-6, 1e-3, 0.999, 1 - 1e-6):
        with pytest.warns(UserWarning, match=f"set beta={round(beta)}"):
            near = generalized_jsd_loss(student, teacher, beta=beta).item()
        assert near == pytest.approx(jsd_scale(beta) * ends[round(beta)], rel=0.05)
    assert [jsd_scale(beta) for beta in (0.0, 0.5, 1.0)] == [1.0, 0.5, 1.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for beta in (0.0, 0.05, 0.5, 0.95, 1.0):
            generalized_jsd_loss(student, teacher, beta=beta)


def test_divisors() -> None:
    """By tokens with labels and without (B04); mean also by the vocabulary, or by what top-k leaves of it."""
    student, teacher = random_logits(0, 2, 3, 7), random_logits(1, 2, 3, 7)
    labels = torch.tensor([[0, -100, 5], [-100, -100, 2]])
    for kept, count in ((labels, 3), (None, 6)):
        total = generalized_jsd_loss(student, teacher, kept, reduction="sum").item()
        assert generalized_jsd_loss(student, teacher, kept).item() == pytest.approx(total / count)
        assert generalized_jsd_loss(student, teacher, kept, reduction="mean").item() == pytest.approx(total / count / 7)
        per_token = generalized_jsd_loss(student, teacher, kept, reduction="none")
        assert per_token.shape == (2, 3)
        assert per_token.sum().item() == pytest.approx(total)
    assert generalized_jsd_loss(student, teacher, labels, reduction="none")[labels == -100].tolist() == [0.0] * 3
    for tail in (False, True):
        total = generalized_jsd_loss(student, teacher, reduction="sum", top_k=4, tail=tail).item()
        mean = generalized_jsd_loss(student, teacher, reduction="mean", top_k=4, tail=tail).item()
        assert mean == pytest.approx(total / 6 / (4 + tail))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, top_k=st.integers(2, 12), beta=st.sampled_from([0.0, 0.3, 0.5, 1.0]))
def test_top_k_against_the_whole(seed: int, top_k: int, beta: float) -> None:
    """With the tail it is a lower bound (merging outcomes loses information); k = V is the whole thing (B11)."""
    student, teacher = random_logits(seed, 2, 3, 12), random_logits(seed + 1, 2, 3, 12)
    full = generalized_jsd_loss(student, teacher, beta=beta, reduction="none")
    for support in ("teacher", "student"):
        tail = generalized_jsd_loss(
            student, teacher, beta=beta, reduction="none", top_k=top_k, tail=True, topk_support=support
        )
        assert (tail <= full + 1e-9).all()
        for with_tail in (False, True):
            whole = generalized_jsd_loss(
                student, teacher, beta=beta, reduction="none", top_k=12, tail=with_tail, topk_support=support
            )
            assert torch.allclose(whole, full, rtol=1e-9, atol=1e-12)


def test_top_k_by_hand() -> None:
    student, teacher = of_probs(0.1, 0.2, 0.7), of_probs(0.6, 0.3, 0.1)

    def forward(**settings: Any) -> float:
        return generalized_jsd_loss(student, teacher, beta=0.0, top_k=2, **settings).item()

    assert forward() == pytest.approx(kl([2 / 3, 1 / 3], [1 / 3, 2 / 3]))
    assert forward(tail=True) == pytest.approx(kl([0.6, 0.3, 0.1], [0.1, 0.2, 0.7]))
    assert forward(topk_support="student") == pytest.approx(kl([3 / 4, 1 / 4], [2 / 9, 7 / 9]))
    one = generalized_jsd_loss(student, teacher, beta=0.0, top_k=1, tail=True)
    assert one.item() == pytest.approx(kl([0.6, 0.4], [0.1, 0.9]))


def test_the_tail_survives_a_support_with_nearly_all_mass() -> None:
    """1 - sum(p) would be rounding noise in float32 here; the tail's own sum is not."""
    student = torch.tensor([[[30.0, 29.0, 0.0, 1.0]]])
    teacher = torch.tensor([[[30.0, 29.0, 1.0, 0.0]]])
    for beta in (0.0, 0.5, 1.0):
        loss = generalized_jsd_loss(student, teacher, beta=beta, top_k=2, tail=True).item()
        exact = generalized_jsd_loss(student.double(), teacher.double(), beta=beta, top_k=2, tail=True).item()
        assert loss == pytest.approx(exact, abs=1e-6)


@every_variant
@pytest.mark.parametrize("junk", [math.nan, math.inf, -math.inf])
def test_what_stands_under_the_mask_does_not_matter(variant: dict[str, Any], junk: float) -> None:
    student, teacher = random_logits(0, 2, 4, 6), random_logits(1, 2, 4, 6)
    labels = torch.tensor([[0, -100, 3, 1], [-100, -100, -100, -100]])
    expected = student.clone().requires_grad_()
    clean = generalized_jsd_loss(expected, teacher, labels, **variant)
    clean.backward()
    for side in (student, teacher):
        side[labels == -100] = junk
    student.requires_grad_()
    loss = generalized_jsd_loss(student, teacher, labels, **variant)
    loss.backward()
    assert loss.item() == clean.item()
    assert student.grad is not None
    assert torch.equal(student.grad, expected.grad)


@every_variant
@pytest.mark.parametrize("reduction", ["batchmean", "sum", "mean", "none"])
@pytest.mark.parametrize("shape", [(2, 3, 5), (0, 3, 5), (2, 0, 5)])
def test_nothing_active_gives_zero_attached_to_the_graph(
    variant: dict[str, Any], reduction: str, shape: tuple[int, ...]
) -> None:
    """A completion that truncation left without tokens is 0, not 0/0 (B05, B17)."""
    student = torch.full(shape, math.nan, requires_grad=True)
    labels = torch.full(shape[:2], -100)
    loss = generalized_jsd_loss(student, torch.full(shape, math.nan), labels, reduction=reduction, **variant).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert student.grad is not None
    assert torch.equal(student.grad, torch.zeros(shape))


@every_variant
def test_sides_of_different_precision_are_computed_in_float32(variant: dict[str, Any]) -> None:
    """A float32 student and a bfloat16 teacher, the mixture taken before the cast, made a negative JSD (B08)."""
    student = random_logits(0, 4, 8, 50, dtype=torch.float32)
    teacher = student.bfloat16()
    losses = generalized_jsd_loss(student, teacher, reduction="none", **variant)
    assert losses.dtype == torch.float32
    assert (losses >= -1e-6).all()
    assert torch.equal(losses, generalized_jsd_loss(student, teacher.float(), reduction="none", **variant))
    both = student.bfloat16().requires_grad_()
    loss = generalized_jsd_loss(both, random_logits(1, 4, 8, 50).bfloat16(), **variant)
    loss.backward()
    assert loss.dtype == torch.float32
    assert both.grad is not None
    assert both.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_a_vocabulary_of_50000(dtype: torch.dtype, beta: float) -> None:
    student = random_logits(0, 1, 3, 50_000, dtype=dtype).requires_grad_()
    teacher = random_logits(1, 1, 3, 50_000, dtype=dtype)
    loss = generalized_jsd_loss(student, teacher, beta=beta)
    loss.backward()
    exact = student.detach().double().requires_grad_()
    expected = generalized_jsd_loss(exact, teacher.double(), beta=beta)
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
    assert student.grad is not None
    assert exact.grad is not None
    error = (student.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert error < {torch.float32: 1e-5, torch.bfloat16: 5e-3}[dtype]


@every_variant
def test_tokens_that_both_sides_forbid(variant: dict[str, Any]) -> None:
    """Logits of -inf (a padded vocabulary) are probabilities of 0, and 0 log 0 is 0, in the gradient too."""
    student, teacher = random_logits(0, 1, 2, 5), random_logits(1, 1, 2, 5)
    padding = torch.full((1, 2, 3), -math.inf)
    padded = torch.cat([student, padding.double()], dim=-1).requires_grad_()
    student.requires_grad_()
    loss = generalized_jsd_loss(padded, torch.cat([teacher, padding.double()], dim=-1), **variant)
    expected = generalized_jsd_loss(student, teacher, **variant)
    loss.backward()
    expected.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=1e-12)
    assert padded.grad is not None
    assert torch.allclose(padded.grad[..., :5], student.grad)
    assert (padded.grad[..., 5:] == 0).all()


@pytest.mark.parametrize("beta", [0.5, 1.0])
def test_a_token_that_only_the_student_forbids(beta: float) -> None:
    student, teacher = of_probs(0.5, 0.5, 0.0).requires_grad_(), of_probs(0.25, 0.25, 0.5)
    loss = generalized_jsd_loss(student, teacher, beta=beta)
    loss.backward()
    mixture = [0.375, 0.375, 0.25]
    jsd = 0.5 * kl([0.25, 0.25, 0.5], mixture) + 0.5 * kl([0.5, 0.5], mixture[:2])
    assert loss.item() == pytest.approx({0.5: jsd, 1.0: math.log(2)}[beta])
    assert student.grad is not None
    assert student.grad.isfinite().all()


@pytest.mark.parametrize("variant", [VARIANTS[name] for name in VARIANTS if name != "hot"])
def test_probabilities_instead_of_logits(variant: dict[str, Any]) -> None:
    student, teacher = random_logits(0, 2, 3, 6), random_logits(1, 2, 3, 6)
    loss = generalized_jsd_loss(student.softmax(-1), teacher.softmax(-1), logits_are_probs=True, **variant)
    assert loss.item() == pytest.approx(generalized_jsd_loss(student, teacher, **variant).item(), rel=1e-9)


def test_probabilities_of_zero() -> None:
    student = torch.tensor([[[0.5, 0.5, 0.0]]], requires_grad=True)
    loss = generalized_jsd_loss(student, torch.tensor([[[0.25, 0.75, 0.0]]]), beta=0.5, logits_are_probs=True)
    loss.backward()
    assert student.grad is not None
    assert student.grad.isfinite().all()


def test_the_teacher_gets_no_gradient_unless_it_wants_one() -> None:
    student, teacher = random_logits(0, 1, 2, 4).requires_grad_(), random_logits(1, 1, 2, 4)
    generalized_jsd_loss(student, teacher).backward()
    assert teacher.grad is None


def test_rows_need_no_batch() -> None:
    student, teacher = random_logits(0, 2, 3, 6), random_logits(1, 2, 3, 6)
    rows = GeneralizedJSD(beta=0.3).per_token(student.reshape(6, 6), teacher.reshape(6, 6))
    assert torch.equal(rows.reshape(2, 3), generalized_jsd_loss(student, teacher, beta=0.3, reduction="none"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 1.1}, r"beta must be in \[0, 1\], got 1.1"),
        ({"beta": math.nan}, "beta must be"),
        ({"temperature": 0.0}, "temperature must be above 0, got 0.0"),
        ({"temperature": 2.0, "logits_are_probs": True}, "temperature must be 1 with logits_are_probs"),
        ({"top_k": 0}, "top_k must be at least 1, got 0"),
        ({"top_k": 1}, "top_k=1 renormalises to one token"),
        ({"top_k": 5}, "top_k must be at most the vocabulary's 4, got 5"),
        ({"tail": True}, "tail=True needs top_k"),
        ({"topk_support": "both"}, "topk_support must be one of teacher, student, got 'both'"),
        ({"clip": "row"}, "clip must be one of token, element, got 'row'"),
        ({"token_clip": 0.0}, "token_clip must be above 0 or None, got 0.0"),
        ({"reduction": "avg"}, "reduction must be one of batchmean, sum, mean, none, got 'avg'"),
        ({"labels": torch.zeros(1, 3)}, r"labels must have shape \(1, 2\)"),
        ({"teacher_logits": torch.zeros(1, 2, 3)}, r"student_logits \(1, 2, 4\), teacher_logits \(1, 2, 3\)"),
    ],
)
def test_bad_input_is_named(settings: dict[str, Any], message: str) -> None:
    arguments = {"student_logits": torch.zeros(1, 2, 4), "teacher_logits": torch.zeros(1, 2, 4)} | settings
    with pytest.raises(ValueError, match=message):
        generalized_jsd_loss(**arguments)
