"""Ranges and combinations of PolicyObjective, and that every preset builds a GRPOConfig that holds its values."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.config.build import build
from composer_rl.errors import ConfigError
from composer_rl.po.base import OverlongPenalty, PolicyObjective

PRESET_FILES = sorted((Path(__file__).parents[2] / "conf" / "po").glob("*.yaml"))
PAPERS: dict[str, dict[str, Any]] = {
    "grpo": {"loss_type": "grpo", "scale_rewards": "group", "importance_sampling_level": "token", "beta": 0.04},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none", "num_generations": 8, "num_iterations": 1},
    "bnpo": {"loss_type": "bnpo", "scale_rewards": "batch"},
    "dapo": {
        "loss_type": "dapo",
        "epsilon": 0.2,
        "epsilon_high": 0.28,
        "num_generations": 16,
        "beta": 0.0,
        "mask_truncated_completions": True,
        "dynamic_sampling": "resample",
        "updates_per_rollout": 16,
    },
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon": 3e-4,
        "epsilon_high": 4e-4,
        "updates_per_rollout": 4,
    },
    "cispo": {
        "loss_type": "cispo",
        "epsilon_high": 5.0,
        "num_generations": 16,
        "scale_rewards": "batch",
        "cast_lm_head_to_fp32": True,
    },
    "sapo": {"loss_type": "sapo", "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05},
    "luspo": {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 2e-3, "epsilon_high": 2.5e-3},
    "vespo": {"loss_type": "vespo", "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0},
}


def load_preset(name: str) -> PolicyObjective:
    path = next(path for path in PRESET_FILES if path.stem == name)
    objective: PolicyObjective = build(yaml.safe_load(path.read_text()), path="po")
    return objective


def test_every_preset_has_its_paper_values() -> None:
    assert {path.stem for path in PRESET_FILES} == set(PAPERS)
    for name, expected in PAPERS.items():
        objective = load_preset(name)
        assert {field: getattr(objective, field) for field in expected} == expected, name
    assert load_preset("dapo").overlong_penalty == OverlongPenalty(cache_fraction=4096 / 20480)


@pytest.mark.parametrize("name", PAPERS)
def test_every_preset_builds_a_grpo_config_that_holds_it(name: str, tmp_path: Path) -> None:
    from trl import GRPOConfig

    objective = load_preset(name)
    plan = objective.batch_plan(num_rows=64, micro_batch_size=2)
    kwargs = objective.to_grpo_kwargs() | plan.to_grpo_kwargs()
    config = GRPOConfig(
        output_dir=str(tmp_path), use_cpu=True, bf16=False, gradient_checkpointing=False, report_to=[], **kwargs
    )
    assert {field: getattr(config, field) for field in kwargs} == kwargs
    assert config.generation_batch_size == 64
    # TRL computes old log-probs, without which no clip can act, exactly when this is not 0.
    has_old_log_probs = config.gradient_accumulation_steps % (config.steps_per_generation * config.num_iterations) != 0
    assert has_old_log_probs != objective.is_on_policy


def test_grpo_kwargs_are_fields_of_grpo_config_with_its_defaults_where_the_paper_is_silent() -> None:
    from trl import GRPOConfig

    trl_defaults = {field.name: field.default for field in dataclasses.fields(GRPOConfig)}
    kwargs = PolicyObjective().to_grpo_kwargs()
    assert set(kwargs) <= set(trl_defaults)
    differing = {name for name, value in kwargs.items() if value != trl_defaults[name]}
    assert differing == {"loss_type", "scale_rewards"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_generations": 1}, "num_generations must be at least 2, got 1"),
        ({"epsilon": 0.0}, "epsilon must be a finite number above 0, got 0.0"),
        ({"epsilon": math.nan}, "epsilon must be a finite number above 0, got nan"),
        ({"epsilon_high": -0.1}, "epsilon_high must be a finite number above 0, got -0.1"),
        ({"beta": -0.01}, "beta must be a finite number of at least 0, got -0.01"),
        ({"beta": math.inf}, "beta must be a finite number of at least 0, got inf"),
        ({"num_iterations": 0}, "num_iterations must be at least 1, got 0"),
        ({"updates_per_rollout": 0}, "updates_per_rollout must be at least 1, got 0"),
        ({"dynamic_sampling_max_rounds": 0}, "dynamic_sampling_max_rounds must be at least 1, got 0"),
        ({"top_entropy_quantile": 1.01}, r"top_entropy_quantile must be in \[0, 1\], got 1.01"),
        ({"entropy_coef": math.nan}, "entropy_coef must be finite, got nan"),
        ({"off_policy_mask_threshold": 0.0}, "off_policy_mask_threshold must be a finite number above 0"),
        ({"delta": 1.1}, r"delta must be above 1 \+ epsilon_high = 1.2, got 1.1"),
        ({"delta": 1.25, "epsilon_high": 0.28}, r"delta must be above 1 \+ epsilon_high = 1.28"),
        ({"loss_type": "sapo", "delta": 4.0}, "delta must be unset with loss_type=sapo"),
        ({"loss_type": "sapo", "epsilon_high": 0.28}, "epsilon_high must be unset with loss_type=sapo"),
        ({"loss_type": "vespo", "epsilon_high": 0.28}, "epsilon_high must be unset with loss_type=vespo"),
        ({"loss_type": "cispo"}, "epsilon_high must be at least 1 with loss_type=cispo, got None: it is the absolute"),
        ({"loss_type": "cispo", "epsilon_high": 0.28}, "epsilon_high must be at least 1 with loss_type=cispo"),
        ({"kl_estimator": "k1"}, "kl_estimator must be k3, got k1: .* reference_kl"),
        ({"kl_estimator": "k2", "beta": 0.1}, "kl_estimator must be k3, got k2"),
        ({"loss_type": "luspo"}, "importance_sampling_level must be sequence with loss_type=luspo, got token"),
        ({"loss_type": "vespo", "importance_sampling_level": "sequence"}, "must be token with loss_type=vespo"),
        ({"sapo_temperature_neg": 2.0}, "sapo_temperature_neg is read by loss_type=sapo only, got 2.0"),
        ({"vespo_k_pos": 1.0}, "vespo_k_pos is read by loss_type=vespo only"),
        ({"loss_type": "sapo", "sapo_temperature_pos": 0.0}, "sapo_temperature_pos must be a finite number above 0"),
        ({"loss_type": "vespo", "vespo_lambda_neg": 0.0}, "vespo_lambda_neg must be a finite number above 0"),
        (
            {"vllm_importance_sampling_clip_min": 3.0},
            "vllm_importance_sampling_clip_min must be below vllm_importance_sampling_clip_max, got 3.0 and 3.0",
        ),
        (
            {"vllm_importance_sampling_mode": "token_truncate", "vllm_importance_sampling_clip_max": None},
            "vllm_importance_sampling_mode=token_truncate needs",
        ),
    ],
)
def test_bad_settings_are_refused_by_name_rule_and_value(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PolicyObjective(**settings)


def test_what_trl_itself_refuses_is_refused_here_too(tmp_path: Path) -> None:
    """The checks that GRPOConfig has on objective fields, as of TRL 1.16."""
    from trl import GRPOConfig

    cases: list[dict[str, Any]] = [
        {"num_generations": 1},
        {"vllm_importance_sampling_clip_min": 4.0},
        {"vllm_importance_sampling_mode": "sequence_truncate", "vllm_importance_sampling_clip_max": None},
    ]
    for case in cases:
        with pytest.raises(ValueError, match=r"\w"):
            GRPOConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **case)
        with pytest.raises(ValueError, match=r"\w"):
            PolicyObjective(**case)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epsilon_hgih", 0.3, "po.epsilon_hgih is no field of PolicyObjective; did you mean epsilon_high"),
        ("loss_type", "dpo", "po.loss_type must be one of"),
        ("num_generations", "8", "po.num_generations must be int"),
        ("dynamic_sampling", False, "po.dynamic_sampling must be one of 'off', 'drop', 'resample', got False"),
        ("overlong_penalty", {"cache_fraction": 0.2, "cache_tokens": 4}, "po.overlong_penalty.*set exactly one"),
        ("overlong_penalty", {"cache_fraction": 1.5}, r"cache_fraction must be in \(0, 1\], got 1.5"),
        ("overlong_penalty", {"cache_tokens": 0}, "cache_tokens must be at least 1, got 0"),
        ("overlong_penalty", {"cache_tokens": 4, "weight": 0.0}, "weight must be above 0, got 0.0"),
    ],
)
def test_bad_configuration_is_one_line_with_the_path(field: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        build({"_target_": "composer_rl.po.base.PolicyObjective", field: value}, path="po")
    assert "\n" not in str(caught.value)


def test_overlong_cache_is_a_share_of_the_budget_or_a_count() -> None:
    assert OverlongPenalty(cache_fraction=0.2).resolve_cache_tokens(20480) == 4096
    assert OverlongPenalty(cache_fraction=0.001).resolve_cache_tokens(64) == 1
    assert OverlongPenalty(cache_tokens=7).resolve_cache_tokens(64) == 7
    with pytest.raises(ValueError, match="at most the completion budget of 64 tokens, got 65"):
        OverlongPenalty(cache_tokens=65).resolve_cache_tokens(64)


@pytest.mark.parametrize("sampling", [{"top_p": 0.8}, {"top_k": 20}, {"min_p": 0.05}])
def test_sampler_correction_is_refused_with_truncated_sampling(sampling: dict[str, float]) -> None:
    """Case B32: the mean ratio would be the kept probability mass."""
    objective = PolicyObjective()
    with pytest.raises(ValueError, match="vllm_importance_sampling_correction must be false with truncated sampling"):
        objective.check_sampling(use_vllm=True, **sampling)
    objective.check_sampling(use_vllm=False, **sampling)
    objective.check_sampling(use_vllm=True)
    PolicyObjective(vllm_importance_sampling_correction=False).check_sampling(use_vllm=True, **sampling)


def test_vespo_needs_a_token_level_sampler_correction() -> None:
    with pytest.raises(
        ValueError, match="must be token_truncate or token_mask with loss_type=vespo, got sequence_mask"
    ):
        PolicyObjective(loss_type="vespo").check_sampling(use_vllm=True)
    load_preset("vespo").check_sampling(use_vllm=True)


@given(
    groups=st.integers(1, 12),
    num_generations=st.integers(2, 8),
    updates=st.integers(1, 6),
    processes=st.integers(1, 3),
    micro=st.one_of(st.none(), st.integers(1, 40)),
)
def test_a_batch_plan_covers_the_rollout_exactly(
    groups: int, num_generations: int, updates: int, processes: int, micro: int | None
) -> None:
    num_rows = groups * num_generations
    objective = PolicyObjective(num_generations=num_generations, updates_per_rollout=updates)
    if num_rows % (updates * processes):
        with pytest.raises(ValueError, match="the rollout must split evenly"):
            objective.batch_plan(num_rows=num_rows, micro_batch_size=micro, num_processes=processes)
        return
    plan = objective.batch_plan(num_rows=num_rows, micro_batch_size=micro, num_processes=processes)
    rows_per_step = plan.per_device_train_batch_size * plan.gradient_accumulation_steps * processes
    assert rows_per_step * updates == num_rows
    assert plan.steps_per_generation == updates * plan.gradient_accumulation_steps
    assert micro is None or plan.per_device_train_batch_size <= micro
    assert micro is not None or plan.gradient_accumulation_steps == 1


def test_a_batch_that_does_not_divide_names_sizes_that_do() -> None:
    objective = PolicyObjective(num_generations=8, updates_per_rollout=3)
    with pytest.raises(ValueError, match="100 completions are not a multiple of num_generations=8; use 96 or 104"):
        objective.batch_plan(num_rows=100)
    with pytest.raises(ValueError, match="4 completions are not a multiple of num_generations=8; use 8"):
        objective.batch_plan(num_rows=4)
    with pytest.raises(ValueError, match=r"64 completions are not a multiple of updates_per_rollout=3.*use 63 or 66"):
        objective.batch_plan(num_rows=64)
    with pytest.raises(ValueError, match="micro_batch_size must be at least 1, got 0"):
        objective.batch_plan(num_rows=24, micro_batch_size=0)
    with pytest.raises(ValueError, match="num_processes must be at least 1, got 0"):
        objective.batch_plan(num_rows=24, num_processes=0)
