"""make_po_config and make_dr_grpo_config: the reference's table, overrides, names, and the drift guard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl

from composer_rl.errors import ConfigError
from composer_rl.po.grpo_config import make_dr_grpo_config, make_po_config
from composer_rl.po.presets import PO_OBJECTIVES

REFERENCE_TABLE = {
    "grpo": {"loss_type": "grpo", "scale_rewards": "group", "importance_sampling_level": "token"},
    "dr_grpo": {"loss_type": "dr_grpo", "scale_rewards": "none"},
    "bnpo": {"loss_type": "bnpo", "scale_rewards": "batch"},
    "dapo": {
        "loss_type": "dapo",
        "scale_rewards": "none",
        "epsilon_high": 0.28,
        "mask_truncated_completions": True,
        "beta": 0.0,
    },
    "gspo": {"loss_type": "grpo", "scale_rewards": "group", "importance_sampling_level": "sequence"},
    "cispo": {"loss_type": "cispo", "scale_rewards": "none", "epsilon_high": 5.0},
}


@pytest.mark.parametrize("objective", REFERENCE_TABLE)
def test_each_objective_builds_what_the_reference_lists(objective: str, tmp_path: Path) -> None:
    assert list(PO_OBJECTIVES) == list(REFERENCE_TABLE)
    config = make_po_config(objective, output_dir=str(tmp_path))
    assert isinstance(config, trl.GRPOConfig)
    expected = REFERENCE_TABLE[objective]
    assert {name: getattr(config, name) for name in expected} == expected


def test_the_default_objective_is_dr_grpo_and_single_pass(tmp_path: Path) -> None:
    for config in (make_po_config(output_dir=str(tmp_path)), make_dr_grpo_config(output_dir=str(tmp_path))):
        assert (config.loss_type, config.scale_rewards, config.num_iterations) == ("dr_grpo", "none", 1)


def test_overrides_win_and_leave_the_menu_alone(tmp_path: Path) -> None:
    config = make_po_config("dapo", output_dir=str(tmp_path), epsilon_high=0.3, learning_rate=2e-6)
    assert (config.epsilon_high, config.learning_rate) == (0.3, 2e-6)
    assert PO_OBJECTIVES["dapo"]["epsilon_high"] == 0.28
    config = make_dr_grpo_config(output_dir=str(tmp_path), num_iterations=3, scale_rewards=True)
    assert (config.num_iterations, config.scale_rewards) == (3, "group")
    assert make_dr_grpo_config(output_dir=str(tmp_path), scale_rewards=False).scale_rewards == "none"


def test_without_an_accelerator_the_config_is_a_working_cpu_one(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("torch.accelerator.is_available", lambda: False)
    config = make_po_config(output_dir=str(tmp_path))
    assert config.use_cpu
    assert not config.bf16
    assert not config.gradient_checkpointing
    assert make_po_config(output_dir=str(tmp_path), gradient_checkpointing=True).gradient_checkpointing


def test_an_unknown_objective_lists_the_menu() -> None:
    with pytest.raises(
        ValueError, match="unknown objective 'ppo'; choose one of: grpo, dr_grpo, bnpo, dapo, gspo, cispo"
    ):
        make_po_config("ppo")


def test_an_unknown_field_names_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"epsilon_hgih is no field of trl.GRPOConfig; did you mean epsilon_high"):
        make_po_config("dapo", epsilon_hgih=0.3)


@pytest.mark.parametrize("cap", [None, 0.28, 0.99])
def test_a_cispo_cap_below_one_is_refused(cap: float | None) -> None:
    """Case B37."""
    with pytest.raises(ConfigError, match="epsilon_high must be at least 1 with loss_type='cispo'"):
        make_po_config("cispo", epsilon_high=cap)


def test_sampler_correction_with_truncated_sampling_is_refused(tmp_path: Path) -> None:
    """Case B32."""
    with pytest.raises(ConfigError, match=r"must be False with truncated sampling \(top_p=0.8\)"):
        make_po_config("dapo", output_dir=str(tmp_path), use_vllm=True, top_p=0.8)
    make_po_config("dapo", output_dir=str(tmp_path), top_p=0.8)


@pytest.mark.parametrize(
    ("objective", "field", "drifted"),
    [
        ("gspo", "importance_sampling_level", "token"),
        ("dr_grpo", "scale_rewards", "group"),
        ("dapo", "epsilon_high", None),
        ("dapo", "mask_truncated_completions", False),
        ("grpo", "learning_rate", 5e-5),
    ],
)
def test_a_knob_that_does_not_apply_is_an_assertion_error(
    objective: str, field: str, drifted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class DriftedConfig(trl.GRPOConfig):
        def __post_init__(self) -> None:
            super().__post_init__()
            setattr(self, field, drifted)

    monkeypatch.setattr(trl, "GRPOConfig", DriftedConfig)
    with pytest.raises(AssertionError, match=f"GRPOConfig.{field} is {drifted!r} although"):
        make_po_config(objective, output_dir=str(tmp_path), learning_rate=1e-6)
