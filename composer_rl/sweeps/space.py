"""The jobs of a sweep as lists of overrides: grid, paired lists, random draws, over seeds.

Values are written the way Hydra's override grammar reads them back, so that text with commas, spaces or brackets, lists
and null stay what they are (case B73).
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from composer_rl.errors import ConfigError

Overrides = tuple[str, ...]

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:")


@dataclass(frozen=True, kw_only=True)
class Draw:
    """One knob of a random sweep: `{low: 1e-4, high: 1e-2, log: true}` or `{choices: [...]}`."""

    low: float | None = None
    high: float | None = None
    log: bool = False
    """Uniform in the logarithm."""
    integer: bool = False
    """Whole numbers, both ends included."""
    choices: Sequence[Any] = ()

    def __post_init__(self) -> None:
        if self.choices:
            if self.low is not None or self.high is not None:
                raise ValueError("give either choices or low and high")
            return
        for name in ("low", "high"):
            bound = getattr(self, name)
            if isinstance(bound, bool) or not isinstance(bound, int | float | None):
                raise ValueError(f"{name} must be a number, got {bound!r}")
        if self.low is None or self.high is None or not self.low < self.high:
            raise ValueError(f"needs choices, or low below high, got low={self.low} and high={self.high}")
        if self.log and self.low <= 0:
            raise ValueError(f"low must be above 0 with log, got {self.low}")

    def sample(self, rng: random.Random) -> Any:
        """One value."""
        if self.choices:
            return rng.choice(list(self.choices))
        assert self.low is not None
        assert self.high is not None
        if self.integer:
            return rng.randint(math.ceil(self.low), math.floor(self.high))
        if self.log:
            return float(f"{math.exp(rng.uniform(math.log(self.low), math.log(self.high))):.4g}")
        return float(f"{rng.uniform(self.low, self.high):.4g}")


def grid_rows(grid: Mapping[str, Sequence[Any]]) -> list[Overrides]:
    """Every combination of the listed values, the last knob changing fastest; one empty row for an empty grid."""
    _check_lists("grid", grid)
    return [
        tuple(override(key, value) for key, value in zip(grid, row, strict=True))
        for row in itertools.product(*grid.values())
    ]


def zip_rows(pairs: Mapping[str, Sequence[Any]]) -> list[Overrides]:
    """The i-th values of all lists together; one empty row without lists."""
    _check_lists("zip", pairs)
    lengths = {key: len(values) for key, values in pairs.items()}
    if len(set(lengths.values())) > 1:
        raise ConfigError(f"zip needs lists of one length, got {', '.join(f'{k}: {n}' for k, n in lengths.items())}")
    if not pairs:
        return [()]
    return [
        tuple(override(key, value) for key, value in zip(pairs, row, strict=True))
        for row in zip(*pairs.values(), strict=True)
    ]


def random_rows(space: Mapping[str, Mapping[str, Any]], *, num: int, seed: int) -> list[Overrides]:
    """`num` independent draws, the same ones for the same seed; one empty row for an empty space."""
    if not space:
        return [()]
    if num < 1:
        raise ConfigError(f"num_random must be at least 1, got {num}")
    draws = {key: draw_of(f"random.{key}", settings) for key, settings in space.items()}
    rng = random.Random(seed)
    return [tuple(override(key, draw.sample(rng)) for key, draw in draws.items()) for _ in range(num)]


def draw_of(name: str, settings: Any) -> Draw:
    """A knob from its settings. Raises ConfigError that begins with `name`."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"{name} must give low and high, or choices, got {settings!r}")
    try:
        return Draw(**settings)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name}: {error}") from error


def _check_lists(name: str, block: Mapping[str, Any]) -> None:
    for key, values in block.items():
        if not isinstance(values, Sequence) or isinstance(values, str) or not values:
            raise ConfigError(f"{name}.{key} must list at least one value, got {values!r}")


def seed_rows(seeds: Sequence[int]) -> list[Overrides]:
    """One row a seed; one empty row without any. Raises ConfigError for what is no list of whole numbers."""
    if not isinstance(seeds, Sequence) or not all(type(seed) is int for seed in seeds):
        raise ConfigError(f"seeds must list whole numbers, got {seeds!r}")
    return [(f"seed={seed}",) for seed in seeds] or [()]


def combine(*parts: Sequence[Overrides]) -> list[Overrides]:
    """Every combination of rows of the parts, duplicates left out; the last part changes fastest."""
    rows = [tuple(itertools.chain(*row)) for row in itertools.product(*parts)]
    return list(dict.fromkeys(rows))


def override(key: str, value: Any) -> str:
    """`key=value` in Hydra's grammar; fields with `++`, since a component's YAML need not spell its defaults out."""
    is_field = "." in key and not any(sign in key for sign in "/@+~")
    return f"{'++' if is_field else ''}{key}={text_of(value)}"


def text_of(value: Any) -> str:
    """A value as Hydra's override grammar reads it back."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{text_of(key)}:{text_of(item)}" for key, item in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return "[" + ",".join(map(text_of, value)) + "]"
    text = str(value)
    looks_like_another_type = text.lower() in ("null", "true", "false", "nan", "inf", "") or _is_number(text)
    if set(text) <= _PLAIN and not looks_like_another_type:
        return text
    escaped = text.replace("\\", "\\\\") if text.endswith("\\") else text
    return "'" + escaped.replace("'", "\\'") + "'"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
