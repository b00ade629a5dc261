"""Rows of overrides: combinations, pairs, draws; and values that survive Hydra's grammar."""

from __future__ import annotations

from typing import Any

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser
from hypothesis import given, settings
from hypothesis import strategies as st

from composer_rl.errors import ConfigError
from composer_rl.sweeps import space


def test_a_grid_is_every_combination_the_last_knob_fastest() -> None:
    assert space.grid_rows({"po": ["dapo", "grpo"], "seed": [1, 2]}) == [
        ("po=dapo", "seed=1"),
        ("po=dapo", "seed=2"),
        ("po=grpo", "seed=1"),
        ("po=grpo", "seed=2"),
    ]


def test_pairs_go_together() -> None:
    assert space.zip_rows({"a": [1, 2], "b": [0.1, 0.2]}) == [("a=1", "b=0.1"), ("a=2", "b=0.2")]
    with pytest.raises(ConfigError, match="zip needs lists of one length, got a: 2, b: 1"):
        space.zip_rows({"a": [1, 2], "b": [0.1]})


def test_draws_repeat_by_seed_and_stay_in_range() -> None:
    settings = {"lr": {"low": 1e-5, "high": 1e-3, "log": True}, "n": {"low": 2, "high": 4, "integer": True}}
    rows = space.random_rows(settings, num=50, seed=3)
    assert rows == space.random_rows(settings, num=50, seed=3)
    assert rows != space.random_rows(settings, num=50, seed=4)
    rates = [float(row[0].partition("=")[2]) for row in rows]
    assert all(1e-5 <= rate <= 1e-3 for rate in rates)
    assert 10 < sum(rate < 1e-4 for rate in rates) < 40, "uniform in the logarithm"
    assert {row[1] for row in rows} == {"n=2", "n=3", "n=4"}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"low": 1}, r"random.k: needs choices, or low below high"),
        ({"low": 0, "high": 1, "log": True}, r"random.k: low must be above 0 with log"),
        ({"choices": [1], "low": 0, "high": 1}, r"random.k: give either choices or low and high"),
        ({"lowest": 1}, r"random.k: .*lowest"),
    ],
)
def test_a_draw_that_cannot_be_made_is_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        space.random_rows({"k": settings}, num=1, seed=0)


def test_an_empty_grid_entry_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"grid.po must list at least one value, got 'dapo'"):
        space.grid_rows({"po": "dapo"})


def test_parts_are_crossed_and_equal_rows_are_one() -> None:
    rows = space.combine([("po=dapo",)], space.grid_rows({"a": [1, 1, 2]}), space.seed_rows([0, 1]))
    assert rows == [("po=dapo", f"a={a}", f"seed={seed}") for a in (1, 2) for seed in (0, 1)]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=12)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.from_regex(r"[a-z]{1,4}", fullmatch=True), inner, max_size=2)
    ),
)


@settings(deadline=None)  # The first example imports the parser.
@given(VALUES)
def test_b73_every_value_comes_back_from_hydras_grammar(value: Any) -> None:
    override = OverridesParser.create().parse_override(space.override("a.b", value))
    assert not override.is_sweep_override()
    assert plain(override.value()) == value


def plain(value: Any) -> Any:
    """Hydra's quoted strings as text."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(plain(key)): plain(item) for key, item in value.items()}
    return getattr(value, "text", value)
