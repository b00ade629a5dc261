"""The jobs of `hydra/sweeper=design`.

    hydra:
      sweeper:
        question: Does a higher upper clip range help?
        grid: {po.epsilon_high: [0.2, 0.28]}        # every combination
        zip: {optim.learning_rate: [1e-4, 5e-4], po.beta: [0.0, 0.1]}   # the i-th values together
        random: {optim.learning_rate: {low: 1e-5, high: 1e-3, log: true}}
        num_random: 10
        seeds: [0, 1, 2, 3, 4]
        baseline: {po.epsilon_high: 0.2}

A setting that is given on the command line takes the place of the block that names it: `seed=0,1` replaces `seeds`,
`po=dapo` holds po fixed.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from composer_rl.config.suggest import did_you_mean
from composer_rl.errors import ConfigError
from composer_rl.sweeps import space

ABOUT = ("question", "baseline", "objective", "direction")
"""Settings of every sweeper of ours that say what the sweep is for."""
BLOCKS = (
    "_target_",
    "params",
    "max_batch_size",
    "grid",
    "zip",
    "random",
    "num_random",
    "random_seed",
    "seeds",
    *ABOUT,
)
"""Settings of the sweeper, and those of Hydra's basic one."""


def design_rows(sweeper: Any, arguments: Sequence[str], loader: Any) -> list[list[str]]:
    """Overrides of every job: the command line's choices, crossed with the blocks of the sweeper's configuration.

    Raises ConfigError for a block that cannot be read, for a setting that two blocks name, and for a baseline that is
    no arm of the blocks.
    """
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from omegaconf import OmegaConf

    blocks: Any = OmegaConf.to_container(sweeper, resolve=True)
    check_names(blocks, BLOCKS, "hydra.sweeper")
    lines = [f"{key}={value}" for key, value in (blocks.get("params") or {}).items()] + list(arguments)
    overrides = OverridesParser.create(config_loader=loader).parse_overrides(lines)
    given = {override.get_key_element().lstrip("+~") for override in overrides}
    command_line = [tuple(row) for row in BasicSweeper.split_arguments(overrides, None)[0]]
    grid, pairs, drawn = (_without(blocks.get(name), given, name) for name in ("grid", "zip", "random"))
    _check_apart(grid=grid, zip=pairs, random=drawn)
    seeds = [] if "seed" in given else [] if blocks.get("seeds") is None else blocks["seeds"]
    rows = space.combine(
        command_line,
        space.grid_rows(grid),
        space.zip_rows(pairs),
        space.random_rows(drawn, num=int(blocks.get("num_random", 10)), seed=int(blocks.get("random_seed", 0))),
        space.seed_rows(seeds),
    )
    _check_baseline(blocks, given)
    return [list(row) for row in rows]


def check_names(given: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Refuse a name that is not read: a block with a typing error would leave a sweep without its arms."""
    public = [name for name in known if not name.startswith("_")]
    for name in given:
        if str(name) not in known:
            raise ConfigError(f"{where} has no setting {name!r}{did_you_mean(str(name), public, what='it has')}")


def _check_baseline(blocks: Mapping[str, Any], given: set[str]) -> None:
    """A baseline must be an arm of the blocks; the command line may leave its arm out, and the report then says so."""
    baseline = blocks.get("baseline") or {}
    if not isinstance(baseline, Mapping):
        raise ConfigError(f"hydra.sweeper.baseline must map settings to values, got {baseline!r}")
    for key, value in baseline.items():
        swept = {str(name): values for block in ("grid", "zip") for name, values in (blocks.get(block) or {}).items()}
        if str(key) not in {*swept, *(blocks.get("random") or {}), *given}:
            raise ConfigError(f"hydra.sweeper.baseline names {key}, which the sweep does not vary")
        if str(key) in swept and str(key) not in given and value not in swept[str(key)]:
            raise ConfigError(f"hydra.sweeper.baseline.{key}={value} is none of the values of {key}: {swept[str(key)]}")


def _without(block: Any, given: set[str], name: str) -> dict[str, Any]:
    if not isinstance(block, Mapping | None):
        raise ConfigError(f"hydra.sweeper.{name} must map settings to values, got {block!r}")
    return {str(key): value for key, value in (block or {}).items() if str(key) not in given}


def _check_apart(**blocks: Mapping[str, Any]) -> None:
    owner: dict[str, str] = {}
    for name, block in blocks.items():
        for key in block:
            if key in owner:
                raise ConfigError(f"{key} is in hydra.sweeper.{owner[key]} and in hydra.sweeper.{name}: choose one")
            owner[key] = name
