"""Group jobs into arms: the jobs that differ in nothing but their seed.

An arm is made by its configuration, not by its name: jobs of several sweeps with the same configuration are one arm,
and a job that was repeated counts once. Two arms that one sweep tells apart although their configurations are equal
stay two (the comparison then says that nothing was varied).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from composer_rl.report.sweep.jobs import Job, Sweep, as_choice
from composer_rl.report.sweep.recipe import ABSENT, Recipe, differing, without_seed_followers

AS_CONFIGURED = "as configured"
"""Label of an arm that sets nothing of what the others set."""
_NAMED_SETTINGS = 3
"""Settings in a label that is made of the difference of configurations."""
_RANK = ("succeeded", "stopped", "running", "interrupted", "failed", "unreadable", "missing")
"""Which of two jobs with one configuration and seed counts: the earlier in this list."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """Jobs that differ in their seed only."""

    label: str
    """Unique among the arms of a page."""
    choice: Mapping[str, str]
    """What was swept: setting and value."""
    recipe: Recipe | None
    """Flat settings; None where no job left a configuration."""
    jobs: tuple[Job, ...]
    """One a seed, in order of seed; jobs without a seed last."""

    @property
    def by_seed(self) -> dict[int, Job]:
        """The jobs that have a seed."""
        return {job.seed: job for job in self.jobs if job.seed is not None}


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """All jobs of a page, in arms."""

    arms: tuple[Arm, ...]
    knobs: tuple[str, ...]
    """Settings that were swept."""
    repeats: tuple[Job, ...] = ()
    """Jobs left out because another one with the same configuration and seed counts."""
    strays: tuple[Job, ...] = ()
    """Jobs of which nothing says to which arm they belong."""


def group_sweeps(sweeps: Sequence[Sweep]) -> Grouping:
    """Arms over all sweeps, in the order of their first job."""
    jobs = _chosen(_without_followers([job for sweep in sweeps for job in sweep.jobs]))
    members: dict[tuple[object, ...], list[Job]] = defaultdict(list)
    strays: list[Job] = []
    keys = _recipe_keys(jobs)
    for job in jobs:
        key = keys.get(id(job)) or _key_by_choice(job, jobs, keys)
        (strays if key is None else members[key]).append(job)
    arms, repeats = [], []
    for found in members.values():
        kept = _one_a_seed(found)
        repeats += [job for job in found if not any(job is other for other in kept)]
        arms.append(_arm(kept))
    return Grouping(
        arms=tuple(_labelled(arms)), knobs=tuple(_knobs(arms)), repeats=tuple(repeats), strays=tuple(strays)
    )


def group_runs(jobs: Sequence[Job]) -> Grouping:
    """Every run an arm of its own, equal configurations or not; named by what differs, else by their folders."""
    arms = [_arm([job]) for job in _chosen(_without_followers(jobs))]
    labelled = _labelled(arms)
    if len({(frozenset(arm.choice.items()), frozenset((arm.recipe or {}).items())) for arm in arms}) < len(arms):
        names = [arm.jobs[0].name for arm in arms]
        labelled = [
            replace(arm, label=name if names.count(name) == 1 else str(arm.jobs[0].folder))
            for arm, name in zip(arms, names, strict=True)
        ]
    return Grouping(arms=tuple(labelled), knobs=tuple(_knobs(arms)))


def _without_followers(jobs: Sequence[Job]) -> list[Job]:
    known = [job for job in jobs if job.recipe is not None]
    recipes = iter(without_seed_followers([(job.seed, job.recipe) for job in known if job.recipe is not None]))
    return [job if job.recipe is None else replace(job, recipe=next(recipes)) for job in jobs]


def _chosen(jobs: Sequence[Job]) -> list[Job]:
    """Jobs with their choice: the launcher's, else the overrides that are not the same in all jobs."""
    names = dict.fromkeys(name for job in jobs for name in job.overrides)
    # A job of which nothing is known says nothing about which overrides vary.
    known = [job for job in jobs if job.overrides or job.recipe is not None]
    varying = [name for name in names if len({job.overrides.get(name) for job in known}) > 1]
    return [
        replace(job, choice={name: job.overrides[name] for name in varying if name in job.overrides})
        if job.choice is None and (job.overrides or job.recipe is not None)
        else job
        for job in jobs
    ]


def _recipe_keys(jobs: Sequence[Job]) -> dict[int, tuple[object, ...]]:
    """Key of the arm of every job with a recipe: the recipe, and which of the choices it is that a sweep has for it."""
    choices: dict[tuple[Path, frozenset[tuple[str, object]]], list[Mapping[str, str] | None]] = defaultdict(list)
    keys: dict[int, tuple[object, ...]] = {}
    for job in jobs:
        if job.recipe is not None:
            recipe = frozenset(job.recipe.items())
            known = choices[job.folder.parent, recipe]
            if job.choice not in known:
                known.append(job.choice)
            keys[id(job)] = (recipe, known.index(job.choice))
    return keys


def _key_by_choice(job: Job, jobs: Sequence[Job], keys: Mapping[int, tuple[object, ...]]) -> tuple[object, ...] | None:
    """Key of a job without a recipe: that of a job of its sweep with the same choice, else the choice itself."""
    if job.choice is None:
        return None
    for other in jobs:
        if other.folder.parent == job.folder.parent and other.choice == job.choice and id(other) in keys:
            return keys[id(other)]
    return (job.folder.parent, frozenset(job.choice.items()))


def _one_a_seed(jobs: Sequence[Job]) -> list[Job]:
    """One job a seed: the furthest along, of equals the one that began last; those without a seed all stay."""

    def order(job: Job) -> tuple[int, str]:
        return -_RANK.index(job.status), str(job.run.result.get("started_at") or "") if job.run else ""

    best: dict[int, Job] = {}
    for job in jobs:
        if job.seed is not None and (job.seed not in best or order(job) > order(best[job.seed])):
            best[job.seed] = job
    return [best[seed] for seed in sorted(best)] + [job for job in jobs if job.seed is None]


def _arm(jobs: Sequence[Job]) -> Arm:
    recipe = next((job.recipe for job in jobs if job.recipe is not None), None)
    choice = next((job.choice for job in jobs if job.choice is not None), {})
    return Arm(label="", choice=choice, recipe=recipe, jobs=tuple(jobs))


def _labelled(arms: Sequence[Arm]) -> list[Arm]:
    """Arms named by their choice; where that does not tell them apart, by their settings or at last by a number."""
    names = [", ".join(f"{key}={value}" for key, value in arm.choice.items()) for arm in arms]
    recipes = [arm.recipe for arm in arms if arm.recipe is not None]
    paths = [path for path in differing(recipes) if not path.endswith("_target_")][:_NAMED_SETTINGS]
    if not any(names) and paths and len(arms) > 1:
        names = [_settings(arm, paths) for arm in arms]
    names = [name or AS_CONFIGURED for name in names]
    labelled: list[Arm] = []
    for index, (arm, name) in enumerate(zip(arms, names, strict=True)):
        twins = [other for other, same in zip(arms, names, strict=True) if same == name]
        if len(twins) > 1:
            own = differing(twin.recipe for twin in twins if twin.recipe is not None)[:_NAMED_SETTINGS]
            settings = _settings(arm, own) if own and arm.recipe is not None else ""
            name = f"{name} ({settings or 1 + twins.index(arm)})"
            if any(name == other.label for other in labelled):
                name = f"{name} #{index + 1}"
        labelled.append(replace(arm, label=name))
    return labelled


def _settings(arm: Arm, paths: Iterable[str]) -> str:
    recipe = arm.recipe or {}
    return ", ".join(f"{path}={as_choice(recipe.get(path, ABSENT))}" for path in paths)


def _knobs(arms: Sequence[Arm]) -> list[str]:
    names = dict.fromkeys(name for arm in arms for name in arm.choice)
    return [name for name in names if len({arm.choice.get(name) for arm in arms}) > 1]
