"""How a token is drawn: the distribution, the support of each truncation, the probability that is reported."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from composer_rl.rollouts import sampling
from composer_rl.rollouts.sampling import MAX_UNIFORM, Draws, SamplingParams, draw

LOGITS = torch.tensor([1.0, -2.0, 0.5, 3.0, -30.0, 2.0, 2.0, -1.0])


def draw_many(count: int, logits: torch.Tensor = LOGITS, **params: Any) -> Draws:
    uniforms = torch.rand(count, generator=torch.Generator().manual_seed(0)).clamp(max=MAX_UNIFORM)
    return draw(logits.expand(count, -1), uniforms, SamplingParams(**params))


def reference(params: SamplingParams, logits: torch.Tensor = LOGITS) -> torch.Tensor:
    """Distribution that the Hugging Face processors give for the same settings."""
    from transformers import MinPLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    scores = logits.unsqueeze(0) / params.temperature
    if params.top_k:
        scores = TopKLogitsWarper(params.top_k)(None, scores)
    if params.top_p < 1.0:
        scores = TopPLogitsWarper(params.top_p)(None, scores)
    if params.min_p:
        scores = MinPLogitsWarper(params.min_p)(None, scores)
    return scores.softmax(-1)[0]


CASES = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_k": 100},
    {"top_p": 0.7},
    {"top_p": 0.01},
    {"min_p": 0.2},
    {"top_k": 5, "top_p": 0.8, "min_p": 0.1, "temperature": 1.5},
]


@pytest.mark.parametrize("case", CASES)
def test_frequencies_follow_the_distribution(case: dict[str, Any]) -> None:
    """Chi-square of 20000 draws below the 99.9% point, and no token outside the support."""
    count = 20_000
    params = SamplingParams(**case)
    drawn = draw_many(count, **case)
    expected = reference(params)
    observed = torch.bincount(drawn.tokens, minlength=len(LOGITS)).double()
    assert observed[expected == 0].sum() == 0
    inside = expected > 1e-4
    statistic = ((observed - count * expected) ** 2 / (count * expected))[inside].sum()
    assert statistic < 24.3, f"chi-square {statistic:.1f} with at most 7 degrees of freedom"


@pytest.mark.parametrize("case", CASES)
def test_the_probability_is_that_of_the_full_softmax(case: dict[str, Any]) -> None:
    params = SamplingParams(**case)
    full = (LOGITS / params.temperature).softmax(-1)
    drawn = draw_many(500, **case)
    torch.testing.assert_close(drawn.probs, full[drawn.tokens])
    if not params.truncated:
        assert drawn.kept_mass is None
    else:
        assert drawn.kept_mass is not None
        kept = full[reference(params) > 0].sum()
        torch.testing.assert_close(drawn.kept_mass, kept.expand(500))
        torch.testing.assert_close(drawn.probs / drawn.kept_mass, reference(params)[drawn.tokens])


def test_greedy_takes_the_largest_logit_and_ignores_truncation() -> None:
    drawn = draw_many(3, temperature=0.0, top_k=2, top_p=0.1)
    assert drawn.tokens.tolist() == [3, 3, 3]
    torch.testing.assert_close(drawn.probs, LOGITS.softmax(-1)[[3, 3, 3]])


def test_extreme_uniforms_stay_inside_the_support() -> None:
    logits = torch.tensor([[-torch.inf, 1.0, 2.0, -torch.inf]]).expand(2, -1)
    drawn = draw(logits, torch.tensor([0.0, MAX_UNIFORM]), SamplingParams())
    assert drawn.tokens.tolist() == [1, 2]
    many = torch.randn(64, 50_000, generator=torch.Generator().manual_seed(1)) * 4
    many[:, 40_000:] = -torch.inf
    drawn = draw(many, torch.full((64,), MAX_UNIFORM), SamplingParams())
    assert bool((drawn.probs > 0).all())


@pytest.mark.parametrize("size", [4096, 5000, 4097])
def test_a_large_vocabulary_is_searched_in_blocks_with_the_same_result(size: int) -> None:
    generator = torch.Generator().manual_seed(size)
    weights = (torch.randn(300, size, generator=generator) * 3).softmax(-1)
    weights[:, ::3] = 0.0
    weights[:100, : size - 60] = 0.0
    uniforms = torch.rand(300, generator=generator).clamp(max=MAX_UNIFORM)
    uniforms[::10], uniforms[1::10] = 0.0, MAX_UNIFORM
    found = sampling._search_in_blocks(weights, uniforms)
    exact = torch.searchsorted(
        weights.double().cumsum(-1), uniforms.double()[:, None] * weights.double().sum(-1, True), right=True
    )[:, 0]
    assert bool((weights.gather(1, found[:, None]) > 0).all())
    assert int((found != exact).sum()) <= 2, "only a target on the border of two tokens may be rounded over"


def test_half_precision_logits_are_read_in_float32() -> None:
    drawn = draw_many(200, LOGITS.bfloat16())
    torch.testing.assert_close(drawn.probs, LOGITS.bfloat16().float().softmax(-1)[drawn.tokens])


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({"temperature": -0.1}, "temperature must be a finite number >= 0, got -0.1"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, r"top_p must be in \(0, 1\], got 0.0"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k must be >= 0"),
        ({"min_p": 1.2}, r"min_p must be in \[0, 1\], got 1.2"),
    ],
)
def test_settings_outside_their_range_are_named(case: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SamplingParams(**case)
