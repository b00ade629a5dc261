from __future__ import annotations

import math

import numpy as np
import pytest

from composer_rl.report.statistics import ArmScores, VerdictKind, holm_adjust, judge, paired_difference

BASE = {0: 0.620, 1: 0.580, 2: 0.710, 3: 0.660, 4: 0.600}


def arm(*differences: float, base: dict[int, float] = BASE, **rest) -> ArmScores:
    return ArmScores({seed: score + d for (seed, score), d in zip(base.items(), differences, strict=False)}, **rest)


BETTER = arm(0.10, 0.11, 0.09, 0.12, 0.10)
WORSE = arm(-0.10, -0.11, -0.09, -0.12, -0.10)
UNCLEAR = arm(0.07, -0.02, -0.01, 0.05, -0.03)


def test_one_arm_has_the_plain_interval():
    verdict = judge(ArmScores(BASE), {"a": UNCLEAR})["a"]
    assert verdict.kind is VerdictKind.NOT_SEPARABLE
    assert verdict.difference == paired_difference(BASE, UNCLEAR.scores)
    assert verdict.adjusted_p == verdict.difference.p_value
    assert verdict.sentence == (
        "not separable with 5 seeds (difference +0.012, 95% interval -0.044 to +0.068; about 113 seeds would be needed)"
    )
    assert verdict.seeds_needed == 113


def test_all_kinds_in_one_sweep_and_in_its_order():
    arms = {
        "w": WORSE,
        "n": UNCLEAR,
        "v": arm(0.5, void_reason="loss.alpha_sdpo never engaged: no error turn"),
        "b": BETTER,
    }
    verdicts = judge(ArmScores(BASE), arms)
    assert list(verdicts) == ["w", "n", "v", "b"]
    assert [str(verdict.kind) for verdict in verdicts.values()] == ["worse", "not_separable", "void", "better"]
    assert verdicts["v"].sentence == "void: loss.alpha_sdpo never engaged: no error turn"
    assert verdicts["v"].difference is verdicts["v"].adjusted_p is None
    assert verdicts["b"].sentence == (
        "better with 5 seeds (difference +0.104, 97.5% interval +0.086 to +0.122, Holm over 3 comparisons)"
    )
    assert "98.33% interval" in verdicts["w"].sentence
    assert verdicts["b"].seeds_needed is None


def test_lower_is_better():
    verdicts = judge(ArmScores(BASE), {"w": WORSE, "b": BETTER}, lower_is_better=True)
    assert verdicts["w"].kind is VerdictKind.BETTER
    assert verdicts["w"].difference.mean < 0
    assert verdicts["b"].kind is VerdictKind.WORSE


def test_p_is_adjusted_over_the_arms_that_are_not_void():
    arms = {"a": UNCLEAR, "b": BETTER, "same": ArmScores(BASE, {"lr": 1}), "off": arm(0.9, void_reason="off")}
    verdicts = judge(ArmScores(BASE, {"lr": 1}), arms)
    adjusted = holm_adjust([verdicts[name].difference.p_value for name in ("a", "b")])
    assert [verdicts[name].adjusted_p for name in ("a", "b")] == adjusted
    assert verdicts["same"].sentence == "void: the same configuration as the baseline"


def test_an_arm_that_alone_would_be_better_is_not_after_holm():
    scores = arm(0.05, 0.01, 0.02, 0.06, 0.03)
    assert judge(ArmScores(BASE), {"a": scores})["a"].kind is VerdictKind.BETTER
    arms = {"a": scores, **{f"other {index}": UNCLEAR for index in range(5)}}
    verdict = judge(ArmScores(BASE), arms)["a"]
    assert verdict.kind is VerdictKind.NOT_SEPARABLE
    assert verdict.difference.low < 0 < verdict.difference.high
    assert "99.17% interval -" in verdict.sentence


def test_the_interval_excludes_zero_exactly_where_the_arm_is_better_or_worse():
    rng = np.random.default_rng(0)
    kinds = set()
    for _ in range(300):
        base = dict(enumerate(rng.normal(0.7, 0.05, 5)))
        shifts = rng.choice([0.0, 0.04, -0.08], 4)
        arms = {str(index): arm(*rng.normal(shift, 0.03, 5), base=base) for index, shift in enumerate(shifts)}
        for verdict in judge(ArmScores(base), arms).values():
            low, high = verdict.difference.low, verdict.difference.high
            assert (low <= 0 <= high) == (verdict.kind is VerdictKind.NOT_SEPARABLE)
            assert (verdict.adjusted_p > 0.05) == (verdict.kind is VerdictKind.NOT_SEPARABLE)
            kinds.add(verdict.kind)
    assert len(kinds) == 3


def test_fewer_than_two_seeds_claim_nothing():
    verdicts = judge(ArmScores(BASE), {"one": ArmScores({0: 0.99}), "none": ArmScores({7: 0.99}), "nan": arm(math.nan)})
    assert {verdict.kind for verdict in verdicts.values()} == {VerdictKind.NOT_SEPARABLE}
    assert verdicts["one"].sentence == (
        "not separable with 1 seed (difference +0.37; one pair has no interval; seeds 1, 2, 3, 4 left out, "
        "without a score on both sides)"
    )
    assert verdicts["none"].sentence.startswith("not separable: no seed has a score on both sides; seeds 0, 1")
    for verdict in verdicts.values():
        assert verdict.adjusted_p is None
        assert verdict.seeds_needed is None


def test_an_arm_without_enough_seeds_still_counts_as_a_comparison():
    verdict = judge(ArmScores(BASE), {"a": UNCLEAR, "crashed": ArmScores({})})["a"]
    assert "97.5% interval" in verdict.sentence
    assert "Holm over 2 comparisons" in verdict.sentence


def test_a_diverged_seed_is_named():
    verdict = judge(ArmScores(BASE), {"a": arm(0.10, 0.11, math.nan, 0.12, 0.10)})["a"]
    assert verdict.kind is VerdictKind.BETTER
    assert verdict.sentence.endswith("; seed 2 left out, without a score on both sides)")


def test_scores_that_are_the_same_on_every_seed():
    base = ArmScores({0: 0.8, 1: 0.85})
    moved = ArmScores({0: 0.85, 1: 0.9})
    assert judge(base, {"a": moved})["a"].sentence == (
        "not separable with 2 seeds (difference +0.05; it is the same on every seed, which says nothing about its "
        "spread)"
    )
    assert judge(base, {"a": moved}, resolution=0.005)["a"].kind is VerdictKind.BETTER
    assert judge(base, {"a": moved, "b": moved}, resolution=0.005)["a"].kind is VerdictKind.NOT_SEPARABLE
    deterministic = judge(
        ArmScores({0: 0.9, 1: 0.9, 2: 0.9}), {"a": ArmScores({0: 1.0, 1: 1.0, 2: 1.0})}, resolution=0.005
    )
    assert deterministic["a"].kind is VerdictKind.NOT_SEPARABLE
    assert "the seed did not act" in deterministic["a"].sentence


def test_an_arm_with_no_mean_effect_has_no_number_of_seeds():
    verdict = judge(ArmScores({0: 1.0, 1: 2.0}), {"a": ArmScores({0: 2.0, 1: 1.0})})["a"]
    assert verdict.sentence.endswith("; no number of seeds can be named)")


def test_a_tiny_effect():
    verdict = judge(ArmScores(BASE), {"a": arm(0.07, -0.07, 0.06, -0.06, 0.001)})["a"]
    assert verdict.sentence.endswith("; more than 1000 seeds would be needed)")


def test_scores_of_another_scale():
    seconds = {seed: 1200.0 + 100 * seed for seed in range(5)}
    sentence = judge(ArmScores(seconds), {"a": arm(70, -20, -10, 50, -30, base=seconds)})["a"].sentence
    assert "difference +12, 95% interval -44 to +68" in sentence


def test_an_end_close_to_zero_is_not_printed_as_zero():
    scores = arm(0.10, 0.10, 0.04, 0.14, 0.03)
    p_value = paired_difference(BASE, scores.scores).p_value
    sentence = judge(ArmScores(BASE), {"a": scores}, alpha=p_value * 1.01)["a"].sentence
    assert sentence.startswith("better with 5 seeds (difference +0.0820")
    assert " interval +0.0002 to +0.1638)" in sentence


def test_no_arms():
    assert judge(ArmScores(BASE), {}) == {}


@pytest.mark.parametrize(("arguments", "message"), [({"alpha": 0.0}, "alpha"), ({"resolution": -1.0}, "resolution")])
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=f"{message} must be"):
        judge(ArmScores(BASE), {"a": BETTER}, **arguments)
