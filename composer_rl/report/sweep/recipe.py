"""What makes a job's arm: its configuration as flat settings, without what differs between any two runs.

A YAML names only the values that it sets; the rest are the defaults of the class behind it. They are filled in here, so
that a value that one option writes out and another leaves to the class is no difference.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from composer_rl.config.locate import locate
from composer_rl.errors import ComposerError
from composer_rl.report.settings import flatten

Recipe = Mapping[str, Any]

ABSENT = "–"
"""Value of a setting that an arm does not have."""
_NO_PART = frozenset(
    {"seed", "run_name", "tags", "resume", "rerun", "trusted_packages", "tracker", "hydra", "multirun_sweeps",
     "experiments", "debug"}
)  # fmt: skip
"""Top-level keys that name, place or watch a run. The groups that compose others (experiments, debug) show in what they
set."""
_PLAIN = (bool, int, float, str, type(None))


def recipe_of(config: Mapping[str, Any], *, stage: str) -> dict[str, Any]:
    """Flat settings of a resolved configuration, defaults filled in.

    Args:
        config: As result.json has it.
        stage: Option of the stage group; the group `evaluate` is read by that stage only.
    """
    parts = {
        key: _completed(value, key)
        for key, value in config.items()
        if key not in _NO_PART and (key != "evaluate" or stage in ("evaluate", ""))
    }
    return {path: _hashable(value) for path, value in flatten(parts)}


def without_seed_followers(recipes: Iterable[tuple[int | None, Recipe]]) -> list[dict[str, Any]]:
    """Recipes without settings named `seed` that follow the run's own (`env.seed: ${seed}`).

    Args:
        recipes: Seed and recipe of each job. Whether a setting follows is asked over all jobs: with one seed only,
            nothing does.
    """
    known = list(recipes)
    seeds = {seed for seed, _ in known}
    names = {path for _, recipe in known for path in recipe if path.rpartition(".")[2] == "seed"}
    following = {
        path for path in names if len(seeds) > 1 and all(recipe.get(path, seed) == seed for seed, recipe in known)
    }
    return [{path: value for path, value in recipe.items() if path not in following} for _, recipe in known]


def differing(recipes: Iterable[Recipe]) -> list[str]:
    """Settings that are not the same in all recipes, in the order in which the recipes have them."""
    known = list(recipes)
    paths = dict.fromkeys(path for recipe in known for path in recipe)
    # A part that is null on one side and filled in on the other differs in what fills it.
    parts = {path[:end] for path in paths for end, letter in enumerate(path) if letter == "."}
    paths = dict.fromkeys(path for path in paths if path not in parts)
    return [path for path in paths if len({recipe.get(path, ABSENT) for recipe in known}) > 1]


def _completed(value: Any, path: str) -> Any:
    """A configuration with the defaults of composer_rl's own classes; those of other packages are not imported."""
    if not isinstance(value, dict):
        return value
    completed = {key: _completed(item, f"{path}.{key}") for key, item in value.items()}
    if "_target_" in value:
        try:
            component = locate(value["_target_"], path=path, trusted=())
        except ComposerError:  # Of another package or version: as written is all that is known.
            return completed
        for name, default in _defaults(component):
            completed.setdefault(name, default)
    return completed


def _defaults(component: Any) -> Iterable[tuple[str, Any]]:
    if not is_dataclass(component):
        return
    for field in fields(component):
        if field.init and field.default is not MISSING and isinstance(field.default, _PLAIN):
            yield field.name, field.default


def _hashable(value: Any) -> Any:
    """Lists and empty mappings as text, and whole floats as they compare: 1 and 1.0 are the same setting."""
    return value if isinstance(value, _PLAIN) else str(value)
