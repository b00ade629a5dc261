"""Which knobs an objective declares, and what the table says after real steps of TRL's trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from composer_rl.engagement import EngagementTable
from composer_rl.po.base import OverlongPenalty, PolicyObjective
from composer_rl.types import EngagementRow

COMPLETIONS = [
    [2, 3, 1],
    [4, 5, 6, 1],
    [7, 8, 9, 10, 11, 1],
    [12, 1],
    [13, 14, 1],
    [15, 16, 17, 1],
    [18, 1],
    [19, 20, 1],
]


def table_after_training(objective: PolicyObjective, make_trainer: Callable, **config: Any) -> dict[str, EngagementRow]:
    plan = objective.batch_plan(num_rows=8)
    trainer = make_trainer(
        completions=COMPLETIONS, max_steps=4, **(objective.to_grpo_kwargs() | plan.to_grpo_kwargs() | config)
    )
    trainer.train()
    table = EngagementTable(objective.knobs())
    for record in trainer.state.log_history:
        table.observe(record)
    return {row.knob: row for row in table.rows()}


def knob_names(**settings: Any) -> set[str]:
    return {knob.name for knob in PolicyObjective(**settings).knobs()}


def test_every_switched_on_setting_declares_a_knob() -> None:
    correction = {"vllm_importance_sampling_correction", "vllm_importance_sampling_mode"}
    assert knob_names() == {"epsilon", "epsilon_high", "skip_zero_variance", *correction}
    assert not correction & knob_names(vllm_importance_sampling_correction=False)
    assert "importance_sampling_level" in knob_names(loss_type="grpo", importance_sampling_level="sequence")
    assert "epsilon" not in knob_names(loss_type="cispo", epsilon_high=5.0)
    assert "sapo_temperature" in knob_names(loss_type="sapo")
    assert "vespo_phi" in knob_names(loss_type="vespo")
    assert knob_names(
        beta=0.1,
        delta=4.0,
        scale_rewards="group",
        off_policy_mask_threshold=0.5,
        mask_truncated_completions=True,
        overlong_penalty=OverlongPenalty(cache_tokens=4),
        dynamic_sampling="resample",
        top_entropy_quantile=0.2,
        entropy_coef=0.01,
    ) == {
        "epsilon",
        "epsilon_high",
        "delta",
        "beta",
        "use_bias_correction_kl",
        "scale_rewards",
        "off_policy_mask_threshold",
        "mask_truncated_completions",
        "overlong_penalty",
        "dynamic_sampling",
        "top_entropy_quantile",
        "entropy_coef",
        *correction,
    }


def test_fully_on_policy_no_clip_engages_and_the_reason_is_given(make_trainer: Callable) -> None:
    rows = table_after_training(PolicyObjective(loss_type="dapo", num_generations=4, epsilon_high=0.28), make_trainer)
    for knob in ("epsilon", "epsilon_high"):
        assert rows[knob].engaged is False
        assert rows[knob].value == 0.0
        assert "updates_per_rollout=1 and num_iterations=1, every ratio is 1" in rows[knob].note
    assert rows["skip_zero_variance"].engaged is None
    assert rows["skip_zero_variance"].note == "not measured: policy/rows_skipped was never logged"


@pytest.mark.parametrize(
    ("settings", "knob"),
    [
        ({"loss_type": "dapo", "epsilon_high": 0.28}, "epsilon_high"),
        ({"loss_type": "dapo"}, "epsilon"),
        (
            {
                "loss_type": "grpo",
                "importance_sampling_level": "sequence",
                "scale_rewards": "group",
                "epsilon": 3e-4,
                "epsilon_high": 4e-4,
            },
            "importance_sampling_level",
        ),
        ({"loss_type": "cispo", "epsilon_high": 1.05}, "epsilon_high"),
        ({"loss_type": "vespo"}, "vespo_phi"),
        ({"loss_type": "grpo", "scale_rewards": "group"}, "scale_rewards"),
        ({"mask_truncated_completions": True}, "mask_truncated_completions"),
        ({"entropy_coef": 0.01}, "entropy_coef"),
    ],
)
def test_with_several_updates_per_rollout_the_knob_engages(
    settings: dict[str, Any], knob: str, make_trainer: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    if knob == "mask_truncated_completions":
        monkeypatch.setattr(f"{__name__}.COMPLETIONS", [ids[:-1] if len(ids) > 3 else ids for ids in COMPLETIONS])
    objective = PolicyObjective(num_generations=4, updates_per_rollout=2, **settings)
    rows = table_after_training(objective, make_trainer, learning_rate=5.0)
    assert rows[knob].engaged is True, rows[knob]
    assert rows[knob].note.startswith("acted in ")


def test_measured_engagement_beats_the_expectation() -> None:
    """A sampler that disagrees with the trainer moves ratios even on-policy."""
    table = EngagementTable(PolicyObjective().knobs())
    table.observe({"clip_ratio/high_mean": 0.25})
    (row,) = [row for row in table.rows() if row.knob == "epsilon_high"]
    assert row.engaged is True


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"beta": 0.1}, "po.beta is above 0"),
        ({"entropy_coef": 0.1}, "po.entropy_coef is not 0"),
        ({"top_entropy_quantile": 0.2}, "po.top_entropy_quantile takes its threshold over every row"),
        ({"multi_objective_aggregation": "normalize_then_sum"}, "po.multi_objective_aggregation centres"),
    ],
)
def test_skipping_rows_says_which_term_needs_every_row(settings: dict[str, Any], reason: str) -> None:
    table = EngagementTable(PolicyObjective(**settings).knobs())
    (row,) = [row for row in table.rows() if row.knob == "skip_zero_variance"]
    assert row.engaged is False
    assert reason in row.note


def test_the_exceptions_are_not_called_inert_on_policy() -> None:
    knobs = {knob.name: knob for knob in PolicyObjective(beta=0.1, off_policy_mask_threshold=0.5).knobs()}
    assert knobs["use_bias_correction_kl"].inert_reason is None
    assert knobs["off_policy_mask_threshold"].inert_reason is None
    assert knobs["epsilon"].inert_reason is not None
