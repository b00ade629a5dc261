"""The TRL internals that our trainer overrides, and a check that they are where we think they are.

TRL's private methods move between releases. Each entry names a method, the parameters we rely on, and why, so that
an upgrade fails with one clear sentence instead of training something else.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One overridden or called method of trl.GRPOTrainer."""

    method: str
    parameters: tuple[str, ...]
    """Names that must be among the method's parameters, in this order."""
    reason: str
    """What we do there."""


HOOKS = (
    Hook(
        method="_prepare_inputs",
        parameters=("self", "generation_batch"),
        reason="draws the tasks of a rollout",
    ),
    Hook(
        method="_generate_and_score_completions",
        parameters=("self", "inputs"),
        reason="marks rows without variance and resamples groups",
    ),
    Hook(
        method="_calculate_rewards",
        parameters=("self", "inputs", "prompts", "completions", "completion_ids_list"),
        reason="keeps the row rewards that decide which groups have variance",
    ),
    Hook(
        method="_get_per_token_logps_and_entropies",
        parameters=("self", "model", "input_ids", "attention_mask", "logits_to_keep"),
        reason="keeps the log-probs that show whether a ratio knob acted",
    ),
    Hook(method="create_model_card", parameters=("self",), reason="keeps its README out of run folders"),
    Hook(method="_compute_loss", parameters=("self", "model", "inputs"), reason="adds the loss channels"),
    Hook(
        method="training_step",
        parameters=("self", "model", "inputs", "num_items_in_batch"),
        reason="times the step",
    ),
)

CONFIG_FIELDS = (
    "loss_type",
    "steps_per_generation",
    "num_iterations",
    "generation_batch_size",
    "max_completion_length",
    "scale_rewards",
    "importance_sampling_level",
)
"""GRPOConfig fields that the trainer reads."""


def check_trl_hooks() -> None:
    """Compare HOOKS and CONFIG_FIELDS with the installed TRL.

    Raises:
        RuntimeError: naming the hook that moved, the installed version and what composer_rl was tested with.
    """
    import trl

    for hook in HOOKS:
        method = getattr(trl.GRPOTrainer, hook.method, None)
        if method is None:
            raise RuntimeError(_moved(f"GRPOTrainer.{hook.method} is gone", hook.reason, trl.__version__))
        names = tuple(inspect.signature(inspect.unwrap(method)).parameters)
        if names[: len(hook.parameters)] != hook.parameters:
            raise RuntimeError(
                _moved(
                    f"GRPOTrainer.{hook.method} takes {names}, expected {hook.parameters}",
                    hook.reason,
                    trl.__version__,
                )
            )
    missing = [name for name in CONFIG_FIELDS if name not in trl.GRPOConfig.__dataclass_fields__]
    if missing:
        raise RuntimeError(_moved(f"GRPOConfig has no {', '.join(missing)}", "the trainer reads them", trl.__version__))


def _moved(what: str, reason: str, version: str) -> str:
    return (
        f"trl {version}: {what} (composer_rl {reason}). composer_rl is tested with trl 1.16; "
        "install it with: pip install 'trl>=1.16,<1.17'"
    )
