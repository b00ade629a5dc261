"""The rule of void arms: what differs between an arm and its baseline, and did it act?

Every setting that differs is looked up in the engagement tables of the jobs of both arms (result.json, `engagement`).
Both, because a setting that an arm switches off has its row with the baseline:

- acted: some job of either arm shows that it engaged.
- never acted: it is measured, and no job of either arm shows that it engaged; or it is a setting that has a row
  wherever it is read (`ACTS_THROUGH`), and neither arm has one: it is switched off, or what reads it is not in use.
- not measured: there are rows, but the metric was never logged.
- by construction: nothing measures it, because it acts wherever it stands (a learning rate, the form of a loss).

An arm is void when everything that differs never acted (then nothing was varied, and unequal scores are seeds), and
when a knob that it or the baseline switched on never engaged, whatever else differs: it is then no test of the recipe
that it is named after. So DAPO with one update per rollout against Dr. GRPO is void, because clip-higher
(`po.epsilon_high`) could not act; the reason names what did act (the loss, the normalisation), which a sweep of its own
can compare. A differing setting that is merely not read by either arm (the KL estimator without a KL term) makes no
arm void that differs in something else; it is listed as a claim that the sweep cannot make.

Independently of all tables, an arm is void whose jobs logged the very same figures as the baseline's at every step and
seed: whatever differs never reached the training.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from composer_rl.report.collect import RunData
from composer_rl.report.sweep.arms import Arm
from composer_rl.report.sweep.recipe import ABSENT, differing

_VLLM = "po.vllm_importance_sampling_correction"
ACTS_THROUGH = {
    **{
        path: path
        for path in (
            "po.epsilon", "po.epsilon_high", "po.delta", "po.beta", "po.use_bias_correction_kl",
            "po.off_policy_mask_threshold", "po.scale_rewards", "po.overlong_penalty", "po.dynamic_sampling",
            "po.skip_zero_variance", "po.mask_truncated_completions", "po.top_entropy_quantile", "po.entropy_coef",
        )
    },
    "po.kl_estimator": "po.beta",
    "po.dynamic_sampling_max_rounds": "po.dynamic_sampling",
    **dict.fromkeys(("po.sapo_temperature_pos", "po.sapo_temperature_neg"), "po.sapo_temperature"),
    **dict.fromkeys(("po.vespo_k_pos", "po.vespo_lambda_pos", "po.vespo_k_neg", "po.vespo_lambda_neg"), "po.vespo_phi"),
    **dict.fromkeys((_VLLM, f"{_VLLM[:-10]}mode", f"{_VLLM[:-10]}clip_max", f"{_VLLM[:-10]}clip_min"), _VLLM),
}  # fmt: skip
"""Settings whose component writes a row wherever they are read, and the knob of that row. Without a row on either side
such a setting did nothing. po/engagement.py is where the rows come from."""
_SAME_FIGURES = ("reward", "loss", "grad_norm", "entropy", "heldout/solve_rate", "heldout/reward", "heldout/loss")
"""Figures that two different trainings do not share digit by digit."""


class Acted(StrEnum):
    """What the engagement tables say of a setting that differs."""

    YES = "acted"
    NEVER = "never acted"
    UNKNOWN = "not measured"
    BY_CONSTRUCTION = "by construction"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """One setting in which an arm differs from its baseline."""

    setting: str
    arm_value: Any
    baseline_value: Any
    acted: Acted
    knob: str
    """Name of the row that tells; empty where nothing measures the setting."""
    note: str
    """Where it acted, or why it could not."""
    is_switched_on: bool = True
    """Whether a job of either arm has a row for its knob."""


def weigh(arm: Arm, baseline: Arm) -> list[Evidence]:
    """Evidence of every setting that differs; [] where one of the arms left no configuration."""
    if arm.recipe is None or baseline.recipe is None:
        return []
    tables = [list(_rows(arm)), list(_rows(baseline))]
    found = []
    for setting in differing([baseline.recipe, arm.recipe]):
        acted, knob, note = _judge(setting, tables)
        measured = {name for table in tables for name, _ in table}
        found.append(
            Evidence(
                setting=setting,
                arm_value=arm.recipe.get(setting, ABSENT),
                baseline_value=baseline.recipe.get(setting, ABSENT),
                acted=acted,
                knob=knob,
                note=note,
                is_switched_on=knob in measured,
            )
        )
    return found


def void_reason(arm: Arm, baseline: Arm, evidence: Sequence[Evidence]) -> str:
    """Why a comparison of the arm says nothing about the recipe that it is named after; empty where it does."""
    never = [item for item in evidence if item.acted is Acted.NEVER]
    idle = never if len(never) == len(evidence) else [item for item in never if item.is_switched_on]
    if idle:
        reason = "; ".join(
            f"{', '.join(item.setting for item in items)} never acted ({items[0].note})" for items in void_claims(idle)
        )
        others = [item.setting for item in evidence if item.acted in (Acted.YES, Acted.BY_CONSTRUCTION)]
        return reason + (f"; what differs and acted: {', '.join(others)}" if others else "")
    if num := _num_identical(arm, baseline):
        seeds = "the common seed" if num == 1 else f"all {num} common seeds"
        return f"on {seeds} every step logged the same figures as the baseline: what differs never reached the training"
    return ""


def void_claims(evidence: Sequence[Evidence]) -> list[list[Evidence]]:
    """Settings that differ and never acted, those with one knob and one reason together.

    In an arm of which other settings did act, no claim can be made about these.
    """
    groups: dict[tuple[str, str], list[Evidence]] = {}
    for item in evidence:
        if item.acted is Acted.NEVER:
            groups.setdefault((item.knob, item.note), []).append(item)
    return list(groups.values())


def _rows(arm: Arm) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Knob and row, for every job that measured."""
    for job in arm.jobs:
        for row in job.run.engagement if job.run is not None else ():
            yield str(row.get("knob")), row


def _judge(setting: str, tables: Sequence[Sequence[tuple[str, Mapping[str, Any]]]]) -> tuple[Acted, str, str]:
    """What the tables of both arms say of a setting, the knob that tells, and a note."""
    rows = [row for table in tables for row in table]
    knob = _knob_of(setting, {name for name, _ in rows})
    if knob is None:
        return Acted.BY_CONSTRUCTION, "", "nothing measures it: it acts wherever it is set"
    own = [row for name, row in rows if name == knob]
    if not own and not all(tables):
        return Acted.UNKNOWN, knob, f"no job of {'either arm' if not any(tables) else 'one arm'} left a table"
    if not own:
        return Acted.NEVER, knob, "switched off or not read in either arm"
    engaged = [row for row in own if row.get("engaged") is True]
    if engaged:
        return Acted.YES, knob, f"acted in {len(engaged)} of {len(own)} jobs"
    idle = [row for row in own if row.get("engaged") is False]
    note = str((idle or own)[0].get("note") or "").removeprefix("never engaged: ").removeprefix("not measured: ")
    return (Acted.NEVER if idle else Acted.UNKNOWN), knob, note


def _knob_of(setting: str, measured: set[str]) -> str | None:
    """The knob whose row decides about a setting: its own, that of a part above it, or the one that it acts through.

    A channel or an adapter acts through its weight or its rank: without it, none of its settings does.
    """
    if setting in measured:
        return setting
    parts = setting.split(".")
    for length in range(len(parts) - 1, 0, -1):
        above = ".".join(parts[:length])
        for name in (above, f"{above}.weight", f"{above}.r"):
            if name in measured:
                return name
    # A path may lie below the setting of the table: po.overlong_penalty.weight below po.overlong_penalty.
    listed = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((ACTS_THROUGH[path] for path in listed if path in ACTS_THROUGH), None)


def _num_identical(arm: Arm, baseline: Arm) -> int:
    """Seeds that both ran to their end, if all of them logged the same figures; 0 otherwise."""
    ended = [
        {seed: job.run for seed, job in side.by_seed.items() if job.run is not None and job.metrics}
        for side in (arm, baseline)
    ]
    common = ended[0].keys() & ended[1].keys()
    return len(common) if common and all(_identical(ended[0][seed], ended[1][seed]) for seed in common) else 0


def _identical(one: RunData, other: RunData) -> bool:
    """Whether two runs trained (a gradient that is not 0) and logged equal figures at every step."""
    gradient = one.series.get("grad_norm")
    if gradient is None or not any(value > 0 and math.isfinite(value) for value in gradient.values):
        return False
    return all(one.series.get(name) == other.series.get(name) for name in _SAME_FIGURES)
