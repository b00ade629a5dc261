"""Every knob of a training run: what its components declare, and what other components keep from acting.

A component knows its own settings only. Whether a hint can be shown depends on the number of turns, whether a reward
is read at all on who generates: such reasons are added here, where all components are at hand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from composer_rl.engagement import Knob, knobs_of

HINTS_SHOWN = "hints/num_shown"
"""Metric: hints that the policy was shown in the rollouts of a step."""


def run_knobs(components: Mapping[str, Any]) -> list[Knob]:
    """Knobs by the names of their settings on the command line, in the order of the config groups."""
    knobs = [knob.under(group) for group, component in components.items() for knob in knobs_of(component)]
    knobs += _hint_knobs(components)
    return [_with_reason(knob, components) for knob in knobs]


def _hint_knobs(components: Mapping[str, Any]) -> Iterator[Knob]:
    """Declared here because `in_rollout` is a setting of the rollouts that every hint generator carries."""
    if not getattr(components.get("hint"), "in_rollout", False):
        return
    yield Knob(
        name="hint.in_rollout",
        metric=HINTS_SHOWN,
        advice="no failed turn had both a hint from the generator and a turn after it",
    )


def _with_reason(knob: Knob, components: Mapping[str, Any]) -> Knob:
    backend = components["rollout"].backend
    reason = None
    if knob.name == "hint.in_rollout":
        if backend != "composer":
            reason = f"rollout.backend={backend} shows no hints; use rollout.backend=composer"
        elif components["env"].max_turns == 1:
            reason = "env.max_turns=1 leaves no turn that a hint could be shown before; set env.max_turns above 1"
    elif knob.name.startswith("reward.") and backend != "composer" and components["reward"].uses_grades:
        reason = f"rollout.backend={backend} takes the environment's grade of the last call in place of the reward"
    elif knob.name == "po.skip_zero_variance" and components["loss"].channels:
        reason = "loss channels may act on rows without reward variance"
    return knob if reason is None else replace(knob, inert_reason=reason)
