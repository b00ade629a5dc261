"""Factories for `trl.GRPOConfig` by objective name, with a guard against knobs that silently fail to apply.

The reference's text names TRL 1.5; the behaviour here is checked against 1.16. TRL's KL term is the k3 estimator
exp(d) - d - 1 with d = log pi_ref - log pi, not the k1 estimator -log r of the Dr. GRPO and Composer reports; near
r = 1 the two differ in second order only, and TRL is not patched.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from composer_rl.errors import ConfigError
from composer_rl.po.presets import PO_OBJECTIVES

if TYPE_CHECKING:
    from trl import GRPOConfig

_CPU_DEFAULTS = {"use_cpu": True, "bf16": False, "gradient_checkpointing": False}
"""On a machine without accelerator all three are needed: use_cpu alone leaves TRL's bf16 on, 28 times slower."""

_SCALE_REWARDS_ALIASES = {True: "group", False: "none"}


def make_po_config(objective: str = "dr_grpo", **overrides: Any) -> GRPOConfig:
    """Build a `trl.GRPOConfig` for one of `PO_OBJECTIVES`.

    Args:
        objective: Name in `PO_OBJECTIVES`.
        **overrides: Any field of GRPOConfig; they win over the preset. Without an accelerator use_cpu=True,
            bf16=False and gradient_checkpointing=False are the defaults.

    Raises:
        ConfigError: (a ValueError) for an unknown objective, an unknown field, a cispo cap below 1, or importance
            sampling correction together with truncated sampling under vLLM.
        AssertionError: when the built config does not hold what was asked for.
    """
    if objective not in PO_OBJECTIVES:
        raise ConfigError(f"unknown objective {objective!r}; choose one of: {', '.join(PO_OBJECTIVES)}")
    return _build({**PO_OBJECTIVES[objective], **overrides})


def make_dr_grpo_config(**overrides: Any) -> GRPOConfig:
    """Build a `trl.GRPOConfig` with the Dr. GRPO recipe (arXiv 2503.20783), the base objective of Composer.

    Pins loss_type="dr_grpo", scale_rewards="none" and num_iterations=1 unless overridden.

    Raises:
        ConfigError: as `make_po_config`.
        AssertionError: when the built config does not hold what was asked for.
    """
    return make_po_config("dr_grpo", **{"num_iterations": 1, **overrides})


def _build(requested: dict[str, Any]) -> GRPOConfig:
    import torch
    from trl import GRPOConfig

    _check_names(requested, known=set(GRPOConfig.__dataclass_fields__))
    _check_values(requested)
    defaults = {} if torch.accelerator.is_available() else _CPU_DEFAULTS
    config = GRPOConfig(**{**defaults, **requested})
    _guard_against_drift(config, requested)
    return config


def _check_names(requested: dict[str, Any], *, known: set[str]) -> None:
    for name in requested:
        if name not in known:
            nearest = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {nearest[0]}?" if nearest else ""
            raise ConfigError(f"{name} is no field of trl.GRPOConfig{hint}")


def _check_values(requested: dict[str, Any]) -> None:
    """What TRL accepts in silence and should not (cases B32 and B37)."""
    cap = requested.get("epsilon_high")
    if requested.get("loss_type") == "cispo" and (cap is None or cap < 1.0):
        raise ConfigError(
            f"epsilon_high must be at least 1 with loss_type='cispo', got {cap}: it is the absolute cap of the ratio"
        )
    corrected = requested.get("use_vllm", False) and requested.get("vllm_importance_sampling_correction", True)
    truncations = {
        "top_p": (requested.get("top_p") or 1.0) < 1.0,
        "top_k": (requested.get("top_k") or 0) > 0,
        "min_p": bool(requested.get("min_p")),
    }
    active = [f"{name}={requested[name]}" for name, truncates in truncations.items() if truncates]
    if corrected and active:
        raise ConfigError(
            f"vllm_importance_sampling_correction must be False with truncated sampling ({', '.join(active)}): "
            "the correction is biased by the kept probability mass"
        )


def _guard_against_drift(config: GRPOConfig, requested: dict[str, Any]) -> None:
    """Compare plain values with what the config holds.

    transformers rewrites some of its own strings (paths, enums, report_to), so strings are compared only for the
    fields that TRL adds.
    """
    from transformers import TrainingArguments

    for name, value in requested.items():
        if name == "scale_rewards":
            value = _SCALE_REWARDS_ALIASES.get(value, value)
        is_plain = isinstance(value, bool | int | float)
        is_trl_string = isinstance(value, str) and name not in TrainingArguments.__dataclass_fields__
        if not (is_plain or is_trl_string) or name == "pad_to_multiple_of":
            continue
        held = getattr(config, name)
        if held != value:
            raise AssertionError(
                f"GRPOConfig.{name} is {held!r} although {value!r} was requested: this TRL does not apply the setting"
            )
