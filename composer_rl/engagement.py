"""Did every setting that was switched on act? Knobs declared by the components, checked against the logged metrics.

A knob that never engaged makes an ablation over it void: equal curves then mean that nothing was varied, not that
the variants are equal. Components declare their knobs (`knobs()`, names relative to the component); the trainer feeds
the metrics of every logged step; the run ends with the table. Settings that act by construction (a learning rate, a
seed, the form of a loss) declare none.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from composer_rl.types import EngagementRow

_LOG = logging.getLogger(__name__)

STEPS_BEFORE_WARNING = 10
"""Logged steps after which a required knob that has not acted yet is warned about."""


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One setting that is switched on, and the metric that shows that it acted."""

    name: str
    """Name of the setting; relative to its component where a component declares it (`epsilon_high`, "" for the
    component itself), as on the command line in a table (`po.epsilon_high`)."""
    metric: str
    """Name of the logged metric."""
    acts: Literal["above", "below", "away"] = "above"
    """The knob acted in a step whose metric is above, below or away from `threshold`."""
    threshold: float = 0.0
    """Value of the metric while the knob does nothing."""
    tolerance: float = 1e-9
    """Distance from the threshold that still counts as nothing (rounding)."""
    inert_reason: str | None = None
    """Why it cannot act under the settings of the run, with what to change; None when it can."""
    advice: str = ""
    """What to try when the metric never left the threshold although it could."""
    optional: bool = False
    """No row when the metric was never logged: the knob belongs to a backend that this run does not use."""
    required: bool = False
    """A run in which it never acted is void and fails: it did not train what it says."""

    def under(self, setting: str) -> Knob:
        """The knob as the one that holds its component names it: `epsilon_high` under `po` is `po.epsilon_high`."""
        return replace(self, name=f"{setting}.{self.name}" if self.name else setting)

    def acted(self, value: float) -> bool:
        """Whether this value of the metric shows that the knob acted."""
        distance = value - self.threshold
        if self.acts == "above":
            return distance > self.tolerance
        if self.acts == "below":
            return distance < -self.tolerance
        return abs(distance) > self.tolerance


@dataclass(kw_only=True)
class _Tally:
    """Running figures of one knob's metric."""

    num_steps: int = 0
    num_acted: int = 0
    total: float = 0.0
    extreme: float = 0.0
    """Value furthest from the threshold on the acting side."""

    def add(self, knob: Knob, value: float) -> None:
        def reach(candidate: float) -> float:
            distance = candidate - knob.threshold
            return {"above": distance, "below": -distance, "away": abs(distance)}[knob.acts]

        self.extreme = value if self.num_steps == 0 else max(self.extreme, value, key=reach)
        self.num_steps += 1
        self.num_acted += knob.acted(value)
        self.total += value


class EngagementTable:
    """Streaming tally over the steps of a run; constant memory.

    Args:
        knobs: Those of every component of the run.

    Raises:
        ValueError: when two knobs have the same name.
    """

    def __init__(self, knobs: Sequence[Knob]) -> None:
        names = [knob.name for knob in knobs]
        repeated = sorted({name for name in names if names.count(name) > 1})
        if repeated:
            raise ValueError(f"knobs must have unique names, repeated: {', '.join(repeated)}")
        self._knobs = {knob.name: knob for knob in knobs}
        self._tallies = {knob.name: _Tally() for knob in knobs}

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Count one logged step. Metrics that are missing, None or not finite say nothing and are left out."""
        for name, knob in self._knobs.items():
            value = metrics.get(knob.metric)
            if value is not None and math.isfinite(value):
                tally = self._tallies[name]
                tally.add(knob, float(value))
                if knob.required and tally.num_acted == 0 and tally.num_steps == STEPS_BEFORE_WARNING:
                    _LOG.warning("%s: %s", name, _verdict(knob, tally)[1])

    def rows(self) -> list[EngagementRow]:
        """The table so far, in the order of the knobs."""
        rows = []
        for name, knob in self._knobs.items():
            tally = self._tallies[name]
            if knob.optional and tally.num_steps == 0:
                continue
            engaged, note = _verdict(knob, tally)
            value = tally.total / tally.num_steps if tally.num_steps else None
            rows.append(EngagementRow(knob=name, metric=knob.metric, value=value, engaged=engaged, note=note))
        return rows

    def void(self) -> str | None:
        """The required knobs that never acted, with the reason, in one line; None when all of them did."""
        verdicts = {name: _verdict(knob, self._tallies[name]) for name, knob in self._knobs.items() if knob.required}
        return "; ".join(f"{name} {note}" for name, (engaged, note) in verdicts.items() if not engaged) or None

    def state_dict(self) -> dict[str, Any]:
        """JSON-serialisable state for a checkpoint."""
        return {name: vars(tally).copy() for name, tally in self._tallies.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue the tally of a checkpoint.

        Raises:
            ValueError: when the checkpoint counted other knobs.
        """
        if set(state) != set(self._tallies):
            missing, extra = sorted(set(self._tallies) - set(state)), sorted(set(state) - set(self._tallies))
            raise ValueError(f"the checkpoint counts other knobs: missing {missing}, unknown {extra}")
        self._tallies = {name: _Tally(**state[name]) for name in self._tallies}


def knobs_of(component: object) -> list[Knob]:
    """Knobs that a component declares, names relative to it; [] for one without `knobs`, such as a user's own."""
    declare = getattr(component, "knobs", None)
    return list(declare()) if callable(declare) else []


def engagement_metrics(rows: Sequence[EngagementRow]) -> dict[str, float]:
    """The measured rows as flat metrics for result.json: `engagement/<knob>` is the mean of the knob's metric."""
    return {f"engagement/{row.knob}": row.value for row in rows if row.value is not None}


_NEVER = {"above": "never rose above", "below": "never fell below", "away": "stayed at"}


def _verdict(knob: Knob, tally: _Tally) -> tuple[bool | None, str]:
    if tally.num_acted:
        steps = f"acted in {tally.num_acted} of {tally.num_steps} logged steps"
        return True, f"{steps}, strongest {knob.metric} = {tally.extreme:.4g}"
    if knob.inert_reason is not None:
        return False, f"never engaged: {knob.inert_reason}"
    if tally.num_steps == 0:
        return None, f"not measured: {knob.metric} was never logged"
    advice = f"; {knob.advice}" if knob.advice else ""
    verb = "stayed at" if knob.threshold == 0.0 else _NEVER[knob.acts]
    seen = f"{knob.metric} {verb} {knob.threshold:g} in {tally.num_steps} logged steps"
    return False, f"never engaged: {seen}{advice}"
