from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from composer_rl.engagement import EngagementTable
from composer_rl.po.base import PolicyObjective
from composer_rl.po.engagement import objective_knobs
from composer_rl.report.statistics import VerdictKind
from composer_rl.report.sweep.arms import Arm, group_sweeps
from composer_rl.report.sweep.comparison import ArmResult, compare
from composer_rl.report.sweep.evidence import ACTS_THROUGH, Acted, void_reason, weigh
from composer_rl.report.sweep.jobs import load_sweep
from tests.report.make_sweep import HIGH, HIGH_ACTED, LOW, ON_POLICY, ROUNDS, ArmPlan, row, write_sweep

SCALED = row("po.scale_rewards", "frac_reward_zero_std", 0.3, True)


def judged(folder: Path, *plans: ArmPlan, num_seeds: int = 3) -> list[ArmResult]:
    sweep = load_sweep(write_sweep(folder, plans, num_seeds=num_seeds, num_steps=4))
    return list(compare(group_sweeps([sweep]), baseline=sweep.baseline).results)


def acted(result: ArmResult) -> dict[str, str]:
    return {item.setting: item.acted.value for item in result.evidence}


def test_the_clip_range_alone_is_void_on_policy(tmp_path):
    arm = judged(
        tmp_path,
        ArmPlan(choice={"po.epsilon_high": "null"}),
        ArmPlan(choice={"po.epsilon_high": 0.28}, settings={"po.epsilon_high": 0.28}, skill=0.3),
    )[1]
    assert arm.is_void
    assert arm.verdict.sentence == f"void: po.epsilon_high never acted ({ON_POLICY})"
    assert arm.verdict.difference is None
    assert arm.improvement is None


def test_the_clip_range_is_judged_where_it_acted(tmp_path):
    updates = {"po.updates_per_rollout": 4}
    arm = judged(
        tmp_path,
        ArmPlan(choice={"clip": "low"}, settings=updates, engagement=(ROUNDS, HIGH_ACTED)),
        ArmPlan(choice={"clip": "high"}, settings={**updates, "po.epsilon_high": 0.28}, engagement=(ROUNDS, HIGH)),
    )[1]
    # It acted in the baseline: clipping less than that is a difference.
    assert acted(arm) == {"po.epsilon_high": "acted"}
    assert arm.verdict.kind is not VerdictKind.VOID


DAPO = {"po.loss_type": "dapo", "po.scale_rewards": "group", "po.epsilon_high": 0.28}


def test_dapo_on_policy_is_void_and_says_what_acted(tmp_path):
    """Without clip-higher the arm is no test of DAPO, although its loss and its normalisation act."""
    arm = judged(
        tmp_path,
        ArmPlan(choice={"po": "dr_grpo"}),
        ArmPlan(choice={"po": "dapo"}, settings=DAPO, engagement=(ROUNDS, LOW, HIGH, SCALED)),
    )[1]
    assert arm.is_void
    assert acted(arm) == {
        "po.loss_type": "by construction",
        "po.scale_rewards": "acted",
        "po.epsilon_high": "never acted",
    }
    sentence = arm.verdict.sentence
    assert sentence.startswith(f"void: po.epsilon_high never acted ({ON_POLICY}); what differs and acted: ")
    assert set(sentence.partition("acted: ")[2].split(", ")) == {"po.loss_type", "po.scale_rewards"}


def test_dapo_with_several_updates_claims_all(tmp_path):
    updates = {"po.updates_per_rollout": 4}
    arm = judged(
        tmp_path,
        ArmPlan(choice={"po": "dr_grpo"}, settings=updates, engagement=(ROUNDS, HIGH_ACTED)),
        ArmPlan(choice={"po": "dapo"}, settings={**DAPO, **updates}, engagement=(ROUNDS, HIGH_ACTED, SCALED)),
    )[1]
    assert not arm.is_void
    assert arm.void_claims == []


def test_switching_off_what_never_acted_is_void(tmp_path):
    """Leave-one-out: the row is with the baseline."""
    arm = judged(
        tmp_path,
        ArmPlan(
            choice={"without": "nothing"},
            settings={"po.dynamic_sampling": "resample", "po.dynamic_sampling_max_rounds": 10},
            engagement=(ROUNDS, row("po.dynamic_sampling", "dynamic_sampling/rounds", 1.0, False, "one round")),
        ),
        ArmPlan(choice={"without": "dynamic_sampling"}),
    )[1]
    assert acted(arm) == {"po.dynamic_sampling": "never acted", "po.dynamic_sampling_max_rounds": "never acted"}
    assert arm.is_void


def test_a_part_that_is_absent_on_one_side_is_its_settings(tmp_path):
    reached = row("po.overlong_penalty", "overlong_penalty/penalized_share", 0.0, False, "no completion reached it")
    arm = judged(
        tmp_path,
        ArmPlan(choice={"penalty": "off"}),
        ArmPlan(
            choice={"penalty": "on"},
            settings={"po.overlong_penalty.cache_fraction": 0.2, "po.overlong_penalty.weight": 1.0},
            engagement=(ROUNDS, reached),
        ),
    )[1]
    settings = "po.overlong_penalty.cache_fraction, po.overlong_penalty.weight"
    assert arm.verdict.sentence == f"void: {settings} never acted (no completion reached it)"


def test_settings_of_a_channel_act_through_its_weight(tmp_path):
    settings = {"loss.channels.sdpo.weight": 0.1, "loss.channels.sdpo.temperature": 2.0}
    weight = row("loss.channels.sdpo.weight", "channels/sdpo/num_active", 12.0, True)
    base, arm = ArmPlan(choice={"sdpo": "off"}), ArmPlan(choice={"sdpo": "on"}, settings=settings)
    idle = judged(tmp_path / "idle", base, dataclasses.replace(arm, engagement=(ROUNDS, {**weight, "engaged": False})))
    assert idle[1].is_void
    active = judged(tmp_path / "active", base, dataclasses.replace(arm, engagement=(ROUNDS, weight)))
    assert set(acted(active[1]).values()) == {"acted"}


def test_what_nothing_reads_did_not_act(tmp_path):
    """Without a KL term on either side the estimator's settings are not read, and no row says so."""
    arm = judged(
        tmp_path,
        ArmPlan(choice={"po": "one"}, settings={"po.use_bias_correction_kl": True}),
        ArmPlan(choice={"po": "other"}, settings={"po.use_bias_correction_kl": False}),
    )[1]
    assert arm.verdict.sentence == (
        "void: po.use_bias_correction_kl never acted (switched off or not read in either arm)"
    )


def test_a_learning_rate_needs_no_row(tmp_path):
    arm = judged(
        tmp_path,
        ArmPlan(choice={"optim.learning_rate": 5e-4}),
        ArmPlan(choice={"optim.learning_rate": 1e-3}, settings={"optim.learning_rate": 1e-3}),
    )[1]
    assert acted(arm) == {"optim.learning_rate": "by construction"}
    assert not arm.is_void


def test_what_was_never_logged_is_not_void(tmp_path):
    unlogged = row("po.epsilon_high", "clip_ratio/high_mean", None, None, "clip_ratio/high_mean was never logged")
    plans = (
        ArmPlan(choice={"clip": 1}, engagement=(ROUNDS, unlogged)),
        ArmPlan(choice={"clip": 2}, settings={"po.epsilon_high": 0.3}, engagement=(ROUNDS, unlogged)),
    )
    assert acted(judged(tmp_path, *plans)[1]) == {"po.epsilon_high": "not measured"}


def test_jobs_without_a_table_prove_nothing(tmp_path):
    arm = judged(
        tmp_path,
        ArmPlan(choice={"clip": 1}),
        ArmPlan(choice={"clip": 2}, settings={"po.top_entropy_quantile": 0.2}, engagement=()),
    )[1]
    assert acted(arm) == {"po.top_entropy_quantile": "not measured"}


def test_acted_in_one_job_of_many(tmp_path):
    folder = write_sweep(
        tmp_path,
        (ArmPlan(choice={"clip": 1}), ArmPlan(choice={"clip": 2}, settings={"po.epsilon_high": 0.28})),
        num_seeds=3,
        num_steps=4,
    )
    file = sorted(folder.glob("5-*/result.json"))[0]
    result = json.loads(file.read_text())
    result["engagement"] = [ROUNDS, LOW, HIGH_ACTED]
    file.write_text(json.dumps(result))
    arm = compare(group_sweeps([load_sweep(folder)]), baseline={"clip": "1"}).results[1]
    assert [(item.acted, item.note) for item in arm.evidence] == [(Acted.YES, "acted in 1 of 6 jobs")]


def test_the_same_figures_at_every_step_are_void(tmp_path):
    """Whatever the tables say: such arms trained the same thing."""
    twins = judged(
        tmp_path,
        ArmPlan(choice={"hint": "none"}, same_as_seed="twin"),
        ArmPlan(choice={"hint": "wrong"}, settings={"optim.learning_rate": 0.9}, same_as_seed="twin"),
    )
    assert twins[1].verdict.sentence.startswith("void: on all 3 common seeds every step logged the same figures")


def test_equal_configurations_of_one_sweep_stay_two_arms(tmp_path):
    results = judged(tmp_path, ArmPlan(choice={"po": "a"}), ArmPlan(choice={"po": "b"}))
    assert [result.arm.label for result in results] == ["po=a", "po=b"]
    assert results[1].verdict.sentence == "void: the same configuration as the baseline"


def test_arms_without_configuration_have_no_evidence():
    arm = Arm(label="a", choice={}, recipe=None, jobs=())
    assert weigh(arm, arm) == []
    assert void_reason(arm, arm, []) == ""


def rows_of(**settings: Any) -> set[str]:
    objective = PolicyObjective(**settings)
    return {f"po.{row.knob}" for row in EngagementTable(objective_knobs(objective)).rows()}


@pytest.mark.parametrize("setting", sorted(ACTS_THROUGH))
def test_the_table_names_settings_of_the_objective(setting):
    assert setting.removeprefix("po.") in {field.name for field in dataclasses.fields(PolicyObjective)}


def test_every_knob_of_the_objective_is_known_to_the_rule():
    """A knob that is added to po/engagement.py is either listed, or its setting acts without a row as well."""
    seen = (
        rows_of(beta=0.1, delta=4.0, off_policy_mask_threshold=1.0, mask_truncated_completions=True)
        | rows_of(entropy_coef=0.1, top_entropy_quantile=0.2, scale_rewards="group", dynamic_sampling="drop")
        | rows_of(loss_type="sapo")
        | rows_of(loss_type="vespo", vllm_importance_sampling_mode="token_truncate")
        | rows_of(loss_type="cispo", epsilon_high=5.0)
    )
    assert seen <= set(ACTS_THROUGH.values())
    # Sequence level acts without a row under cispo and sapo, so the absence of a row proves nothing.
    assert "po.importance_sampling_level" not in ACTS_THROUGH
