"""Compose, ablate and reproduce reinforcement-learning recipes for coding agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from composer_rl.hints.templates import (
        HINT_TEMPLATES,
        HintContext,
        dispatch,
        hint_json_decode,
        hint_repeated_failure,
        hint_runtime_error,
        hint_tool_not_found,
        hint_type_error,
        register,
    )
    from composer_rl.ops.build_batch import build_batch
    from composer_rl.ops.compose_loss import LossComponents, compose_loss
    from composer_rl.ops.entropy_aware_opd import entropy_aware_opd_loss, teacher_entropy
    from composer_rl.ops.generalized_jsd import generalized_jsd_loss
    from composer_rl.ops.logprobs import avg_sequence_logprob
    from composer_rl.ops.preferences import dpo_loss, ipo_loss, simpo_loss
    from composer_rl.ops.reference_kl import reference_kl_loss
    from composer_rl.ops.sampled_token_kl import sampled_token_reverse_kl
    from composer_rl.ops.taid import TAIDScheduler, taid_loss
    from composer_rl.po.grpo_config import make_dr_grpo_config, make_po_config
    from composer_rl.po.presets import PO_OBJECTIVES
    from composer_rl.trainer.composer_trainer import ComposerReplicationTrainer

_HOMES = {
    "HINT_TEMPLATES": "composer_rl.hints.templates",
    "HintContext": "composer_rl.hints.templates",
    "dispatch": "composer_rl.hints.templates",
    "hint_json_decode": "composer_rl.hints.templates",
    "hint_repeated_failure": "composer_rl.hints.templates",
    "hint_runtime_error": "composer_rl.hints.templates",
    "hint_tool_not_found": "composer_rl.hints.templates",
    "hint_type_error": "composer_rl.hints.templates",
    "register": "composer_rl.hints.templates",
    "build_batch": "composer_rl.ops.build_batch",
    "LossComponents": "composer_rl.ops.compose_loss",
    "compose_loss": "composer_rl.ops.compose_loss",
    "entropy_aware_opd_loss": "composer_rl.ops.entropy_aware_opd",
    "teacher_entropy": "composer_rl.ops.entropy_aware_opd",
    "generalized_jsd_loss": "composer_rl.ops.generalized_jsd",
    "avg_sequence_logprob": "composer_rl.ops.logprobs",
    "dpo_loss": "composer_rl.ops.preferences",
    "ipo_loss": "composer_rl.ops.preferences",
    "simpo_loss": "composer_rl.ops.preferences",
    "reference_kl_loss": "composer_rl.ops.reference_kl",
    "sampled_token_reverse_kl": "composer_rl.ops.sampled_token_kl",
    "TAIDScheduler": "composer_rl.ops.taid",
    "taid_loss": "composer_rl.ops.taid",
    "make_dr_grpo_config": "composer_rl.po.grpo_config",
    "make_po_config": "composer_rl.po.grpo_config",
    "PO_OBJECTIVES": "composer_rl.po.presets",
    "ComposerReplicationTrainer": "composer_rl.trainer.composer_trainer",
}
"""Module of each public name; it is imported when the name is first touched (PEP 562)."""

__all__ = [  # noqa: RUF022  One group a module.
    "__version__",
    "HINT_TEMPLATES",
    "HintContext",
    "dispatch",
    "hint_json_decode",
    "hint_repeated_failure",
    "hint_runtime_error",
    "hint_tool_not_found",
    "hint_type_error",
    "register",
    "build_batch",
    "LossComponents",
    "compose_loss",
    "entropy_aware_opd_loss",
    "teacher_entropy",
    "generalized_jsd_loss",
    "avg_sequence_logprob",
    "dpo_loss",
    "ipo_loss",
    "simpo_loss",
    "reference_kl_loss",
    "sampled_token_reverse_kl",
    "TAIDScheduler",
    "taid_loss",
    "make_dr_grpo_config",
    "make_po_config",
    "PO_OBJECTIVES",
    "ComposerReplicationTrainer",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'composer_rl' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
