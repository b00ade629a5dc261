"""What a search varies and how long it goes on: the settings of `hydra/sweeper=optuna` and of its command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from composer_rl.errors import ConfigError
from composer_rl.sweeps.design import ABOUT, check_names
from composer_rl.sweeps.space import Draw, Overrides, draw_of, override, seed_rows, text_of

_SIGNIFICANT_DIGITS = 4


@dataclass(kw_only=True)
class SearchSettings:
    """Settings of the sweeper."""

    params: dict[str, Draw]
    """Knob by setting, at least one."""
    seeds: Sequence[int] = field(default_factory=list)
    """A trial runs over all of them and scores their mean; without any it is one job of the configured seed."""
    n_trials: int = 20
    """Trials in all, those of earlier calls included, at least 1."""
    random_seed: int = 0
    """Of the search; trial i draws the same for the same scores before it, in one call or several."""
    objective: str = "heldout/solve_rate_after"
    """Final figure of a job."""
    direction: Literal["maximize", "minimize"] = "maximize"

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> SearchSettings:
        """From the sweeper's configuration. Raises ConfigError for what cannot be searched."""
        names = [item.name for item in fields(cls)]
        check_names(settings, ("_target_", *names, *ABOUT), "hydra.sweeper")
        given = {name: settings[name] for name in names if settings.get(name) is not None}
        params = given.pop("params", {})
        if not isinstance(params, Mapping):
            raise ConfigError(f"hydra.sweeper.params must map settings to their ranges, got {params!r}")
        draws = {str(key): draw_of(f"hydra.sweeper.params.{key}", value) for key, value in params.items()}
        made = cls(params=draws, **given)
        seed_rows(made.seeds)
        if type(made.n_trials) is not int or made.n_trials < 1:
            raise ConfigError(f"hydra.sweeper.n_trials must be at least 1, got {made.n_trials!r}")
        if type(made.random_seed) is not int:
            raise ConfigError(f"hydra.sweeper.random_seed must be a whole number, got {made.random_seed!r}")
        if made.direction not in ("maximize", "minimize"):
            raise ConfigError(f"hydra.sweeper.direction must be maximize or minimize, got {made.direction!r}")
        return made

    def check(self) -> SearchSettings:
        """Raise ConfigError when nothing is left to search; returns itself."""
        if not self.params:
            raise ConfigError("hydra.sweeper.params names nothing to search; give setting: {low: ..., high: ...}")
        return self


def with_command_line(
    settings: SearchSettings, arguments: Sequence[str], loader: Any = None
) -> tuple[SearchSettings, list[str]]:
    """The search that a command line asks for, and the overrides that all its jobs share.

    `po=dapo,grpo` and `optim.learning_rate=tag(log, interval(1e-5, 1e-3))` are searched, `seed=0,1` are the seeds, and
    a plain value holds a setting fixed that the sweep file searches. Raises ConfigError.
    """
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params, seeds, shared = dict(settings.params), settings.seeds, []
    for given in OverridesParser.create(config_loader=loader).parse_overrides(list(arguments)):
        key = given.get_key_element()
        name = key.lstrip("+~")
        if not given.is_sweep_override():
            params.pop(name, None)
            shared.append(str(given.input_line))
            if name == "seed":
                seeds = []
        elif name == "seed":
            seeds = [_plain(value) for value in _values(given)]
        else:
            params.pop(name, None)
            params[key] = _draw(given)
    seed_rows(seeds)
    return replace(settings, params=params, seeds=seeds).check(), shared


def _draw(given: Any) -> Draw:
    if not given.is_interval_sweep():
        return Draw(choices=[_plain(value) for value in _values(given)])
    interval = given.value()
    return draw_of(given.input_line, {"low": interval.start, "high": interval.end, "log": "log" in interval.tags})


def _values(given: Any) -> list[Any]:
    if not given.is_discrete_sweep():
        raise ConfigError(f"{given.input_line} is no list of values")
    return list(given.sweep_iterator())


def _plain(value: Any) -> Any:
    """Hydra's quoted strings as text."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {_plain(key): _plain(item) for key, item in value.items()}
    return getattr(value, "text", value)


def setting(key: str, draw: Draw, value: Any) -> str:
    """The override of one knob of a trial. `value` is the text of a choice, or a number, which is rounded."""
    if draw.choices:
        return override(key, next(choice for choice in draw.choices if text_of(choice) == value))
    if draw.integer:
        return override(key, int(value))
    assert draw.low is not None
    assert draw.high is not None
    return override(key, min(max(float(f"{value:.{_SIGNIFICANT_DIGITS}g}"), draw.low), draw.high))


def corner_rows(settings: SearchSettings, shared: Sequence[str]) -> list[list[str]]:
    """Jobs that show whether what is searched can be composed: every end and every choice of each knob once."""
    values: dict[str, list[Any]] = {
        key: [text_of(choice) for choice in draw.choices] or [draw.low, draw.high]
        for key, draw in settings.params.items()
    }
    first = {key: ends[0] for key, ends in values.items()}
    corners = [first, *({**first, key: end} for key, ends in values.items() for end in ends[1:])]
    seed: Overrides = seed_rows(settings.seeds)[0]
    return [
        [*shared, *(setting(key, settings.params[key], value) for key, value in corner.items()), *seed]
        for corner in corners
    ]
