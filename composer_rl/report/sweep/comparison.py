"""Every arm against the baseline: scores, intervals, verdicts, and what they do not rest on."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from composer_rl.errors import ConfigError
from composer_rl.report.drawing import LONGEST_LABEL
from composer_rl.report.statistics import (
    ArmScores,
    Estimate,
    Verdict,
    VerdictKind,
    interquartile_mean,
    judge,
    probability_of_improvement,
    stratified_bootstrap_interval,
)
from composer_rl.report.sweep.arms import Arm, Grouping
from composer_rl.report.sweep.evidence import Evidence, void_claims, void_reason, weigh
from composer_rl.report.sweep.jobs import Job

OBJECTIVES = ("heldout/solve_rate_after", "heldout/reward_after", "heldout/loss_after")
"""What arms are compared by where nothing says: the first of these that a job has."""
_MINIMIZED = ("loss", "perplexity")


@dataclass(frozen=True, kw_only=True)
class Objective:
    """The final figure that arms are compared by."""

    metric: str
    minimize: bool
    resolution: float
    """Step between neighbouring values: 1/num_tasks for a solve rate, 0 where it is not known."""

    @property
    def is_rate(self) -> bool:
        """Whether it is a share of tasks."""
        return "_rate" in self.metric

    @property
    def curve(self) -> str:
        """The metric over steps that ends in this figure."""
        return self.metric.removesuffix("_after")


@dataclass(frozen=True, kw_only=True)
class ArmResult:
    """One arm with everything a page says about it."""

    arm: Arm
    index: int
    """Position among the arms; the baseline has 0."""
    scores: Mapping[int, float]
    """Objective by seed, of the jobs that have one."""
    num_planned: int
    """Seeds that the arm would have if it had those of every other arm too."""
    missing: tuple[str, ...]
    """Seeds without a score and why, a phrase each."""
    mean: float | None
    middle: Estimate | None
    """Interquartile mean with its bootstrap interval."""
    improvement: Estimate | None
    """Probability that a run of the arm does better than one of the baseline; None for the baseline, a void arm, and
    below two runs a side."""
    verdict: Verdict | None
    """None for the baseline."""
    evidence: tuple[Evidence, ...] = ()
    """Settings in which the arm differs from the baseline, and whether they acted."""

    @property
    def short_label(self) -> str:
        """For figures: the label, or the swept values alone where that is long."""
        label = self.arm.label
        values = ", ".join(self.arm.choice.values())
        return values if len(label) > LONGEST_LABEL and values else label

    @property
    def is_baseline(self) -> bool:
        return self.verdict is None

    @property
    def is_void(self) -> bool:
        """Whether no claim may be made about the arm."""
        return self.verdict is not None and self.verdict.kind is VerdictKind.VOID

    @property
    def void_claims(self) -> list[list[Evidence]]:
        """Settings of an arm with a verdict that never acted, those with one reason together."""
        return [] if self.is_void else void_claims(self.evidence)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All arms of a page, the baseline first."""

    objective: Objective
    results: tuple[ArmResult, ...]
    knobs: tuple[str, ...]
    seeds: tuple[int, ...]
    """Seeds of any arm."""
    repeats: tuple[Job, ...]
    strays: tuple[Job, ...]
    notes: tuple[str, ...] = ()
    """What a reader has to know before reading the table, a sentence each."""

    @property
    def baseline(self) -> ArmResult:
        return self.results[0]

    @property
    def jobs(self) -> list[Job]:
        """Every job that counts, arm by arm, then those without an arm."""
        return [job for result in self.results for job in result.arm.jobs] + list(self.strays)

    @property
    def status_counts(self) -> dict[str, int]:
        """Jobs by status, the seeds that an arm lacks among the missing."""
        counts = Counter(str(job.status) for job in self.jobs)
        counts["missing"] += sum(result.num_planned - len(result.arm.by_seed) for result in self.results)
        return {status: num for status, num in counts.items() if num}


def compare(
    grouping: Grouping,
    *,
    objective: str = "",
    minimize: bool | None = None,
    baseline: Mapping[str, str] | str | None = None,
) -> Comparison:
    """Judge all arms of a grouping.

    Args:
        grouping: Jobs in arms. Where nothing tells an arm of any job, all of them are one, named "unknown".
        objective: Final figure to compare by; by default the first of OBJECTIVES that a job has.
        minimize: Whether lower is better; by default told from the objective's name.
        baseline: Choice or label of the arm to compare with; by default the first arm.

    Raises:
        ConfigError: for a baseline that is no arm.
    """
    if not grouping.arms:
        unknown = Arm(label="unknown", choice={}, recipe=None, jobs=grouping.strays)
        grouping = replace(grouping, arms=(unknown,), strays=())
    notes: list[str] = []
    base = _baseline(grouping.arms, baseline, notes)
    arms = [base, *(arm for arm in grouping.arms if arm is not base)]
    target = _objective(arms, objective, minimize)
    seeds = tuple(sorted({seed for arm in arms for seed in arm.by_seed}))
    scores = [_scores(arm, target.metric) for arm in arms]
    evidence = [weigh(arm, base) for arm in arms]
    verdicts = judge(
        _arm_scores(base, scores[0], seeds, ""),
        {
            arm.label: _arm_scores(arm, own, seeds, void_reason(arm, base, differences))
            for arm, own, differences in zip(arms[1:], scores[1:], evidence[1:], strict=True)
        },
        lower_is_better=target.minimize,
        resolution=target.resolution,
    )
    results = [
        _result(
            arm,
            index,
            own,
            verdicts.get(arm.label),
            seeds,
            evidence[index],
            scores[0] if index else {},
            target.minimize,
        )
        for index, (arm, own) in enumerate(zip(arms, scores, strict=True))
    ]
    return Comparison(
        objective=target,
        results=tuple(results),
        knobs=grouping.knobs,
        seeds=seeds,
        repeats=grouping.repeats,
        strays=grouping.strays,
        notes=tuple(notes + _notes(results, target)),
    )


def _baseline(arms: Sequence[Arm], wanted: Mapping[str, str] | str | None, notes: list[str]) -> Arm:
    if not wanted:
        if len(arms) > 1:
            notes.append(f"No baseline was named: arms are compared with the first one, {arms[0].label}.")
        return arms[0]
    if isinstance(wanted, str):
        found = [arm for arm in arms if arm.label == wanted]
        choice = dict(part.strip().partition("=")[::2] for part in wanted.split(","))
    else:
        found, choice = [], dict(wanted)
    found = found or [arm for arm in arms if all(_is(_value(arm, name), value) for name, value in choice.items())]
    if not found:
        words = ", ".join(f"{name}={value}" for name, value in choice.items())
        raise ConfigError(f"no arm is the baseline {words}; there are: {'; '.join(arm.label for arm in arms)}")
    if len(found) > 1:
        notes.append(f"{len(found)} arms fit the baseline; the first of them, {found[0].label}, is taken.")
    return found[0]


def _value(arm: Arm, name: str) -> str | None:
    """Value of a setting or group in an arm: as swept, else as configured."""
    if name in arm.choice:
        return arm.choice[name]
    for job in arm.jobs:
        if job.run is not None and name in (choices := job.run.result.get("choices") or {}):
            return str(choices[name])
    recipe = arm.recipe or {}
    return str(recipe[name]) if name in recipe else None


def _is(value: str | None, wanted: str) -> bool:
    """Whether two values are the same text or the same number (5e-4 and 0.0005)."""
    try:
        return value == wanted or (value is not None and float(value) == float(wanted))
    except ValueError:
        return False


def _objective(arms: Sequence[Arm], name: str, minimize: bool | None) -> Objective:
    jobs = [job for arm in arms for job in arm.jobs]
    metric = name or next((known for known in OBJECTIVES if any(known in job.metrics for job in jobs)), OBJECTIVES[0])
    resolution = 0.0
    if "solve_rate" in metric:
        tasks = [job.metrics["heldout/num_tasks"] for job in jobs if job.metrics.get("heldout/num_tasks", 0.0) >= 1.0]
        resolution = 1 / min(tasks) if tasks else 0.0
    lower = any(word in metric for word in _MINIMIZED) if minimize is None else minimize
    return Objective(metric=metric, minimize=lower, resolution=resolution)


def _scores(arm: Arm, metric: str) -> dict[int, float]:
    found = {seed: job.metrics.get(metric, math.nan) for seed, job in arm.by_seed.items()}
    return {seed: score for seed, score in found.items() if math.isfinite(score)}


def _arm_scores(arm: Arm, scores: Mapping[int, float], seeds: Sequence[int], reason: str) -> ArmScores:
    # Every seed of the sweep is handed over, so that a verdict names those that an arm lacks.
    return ArmScores(
        scores={seed: scores.get(seed, math.nan) for seed in seeds}, configuration=arm.recipe, void_reason=reason
    )


def _result(
    arm: Arm,
    index: int,
    scores: Mapping[int, float],
    verdict: Verdict | None,
    seeds: Sequence[int],
    evidence: Sequence[Evidence],
    baseline: Mapping[int, float],
    minimize: bool,
) -> ArmResult:
    values = list(scores.values())
    is_void = verdict is not None and verdict.kind is VerdictKind.VOID
    improvement = None
    if not is_void and len(values) > 1 and len(baseline) > 1:
        sides = (values, list(baseline.values()))
        improvement = probability_of_improvement(*(sides[::-1] if minimize else sides))
    return ArmResult(
        arm=arm,
        index=index,
        scores=scores,
        num_planned=len(seeds),
        missing=tuple(_missing(arm, scores, seeds)),
        mean=sum(values) / len(values) if values else None,
        middle=stratified_bootstrap_interval(values, interquartile_mean) if values else None,
        improvement=improvement,
        verdict=verdict,
        evidence=tuple(evidence),
    )


def _missing(arm: Arm, scores: Mapping[int, float], seeds: Sequence[int]) -> list[str]:
    """`seed 3 failed`, `seeds 1 and 4 missing`: what keeps an arm from its planned number of scores."""
    reasons: dict[str, list[int]] = {}
    for seed in seeds:
        if seed not in scores:
            job = arm.by_seed.get(seed)
            reason = "missing" if job is None else str(job.status)
            reasons.setdefault("without a score" if reason in ("succeeded", "stopped") else reason, []).append(seed)
    return [
        f"seed{'s' if len(found) > 1 else ''} {', '.join(map(str, found))} {reason}"
        for reason, found in reasons.items()
    ]


def _notes(results: Sequence[ArmResult], objective: Objective) -> list[str]:
    notes = []
    if not any(result.scores for result in results):
        notes.append(f"No job has the figure {objective.metric} yet: there is nothing to compare.")
    elif max(len(result.scores) for result in results) < 2:
        notes.append("One seed an arm: no statistical claim is made. Another seed may turn every difference around.")
    if incomplete := [result for result in results if result.missing]:
        names = "; ".join(f"{result.arm.label}: {', '.join(result.missing)}" for result in incomplete)
        open_ends = {"running", "interrupted", "missing"} & {
            reason.rpartition(" ")[2] for result in incomplete for reason in result.missing
        }
        later = " Verdicts may change when these jobs end." if open_ends else ""
        notes.append(f"Incomplete arms are judged by the seeds that they share with the baseline. {names}.{later}")
    return notes
