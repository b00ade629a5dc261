"""Settings of rollouts: ranges, and that every option file builds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from composer_rl.config.build import build
from composer_rl.rollouts.sampling import SamplingParams
from composer_rl.rollouts.settings import RolloutSettings

OPTIONS = sorted((Path(__file__).parents[2] / "conf" / "rollout").glob("*.yaml"))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path.stem)
def test_every_option_builds(path: Path) -> None:
    settings = build(OmegaConf.to_container(OmegaConf.load(path)), path="rollout", expected=RolloutSettings)
    assert isinstance(settings.sampling, SamplingParams)


def test_the_default_option_is_the_default_of_the_class() -> None:
    default = next(path for path in OPTIONS if path.stem == "default")
    assert build(OmegaConf.to_container(OmegaConf.load(default)), path="rollout") == RolloutSettings()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prompts_per_rollout": 0}, "prompts_per_rollout must be at least 1, got 0"),
        ({"temperature": 0.0}, "temperature must be more than 0, got 0.0"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"min_p": -0.1}, "min_p"),
        ({"max_new_tokens": 0}, "max_new_tokens must be at least 1, got 0"),
        ({"max_new_tokens": 300}, "max_tokens must be at least max_new_tokens=300"),
        ({"max_rows": 0}, "max_rows must be at least 1 or null, got 0"),
    ],
)
def test_values_outside_their_range_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RolloutSettings(**settings)


def test_sampling_holds_the_distribution() -> None:
    settings = RolloutSettings(temperature=0.7, top_p=0.9, top_k=20, min_p=0.05)
    assert settings.sampling == SamplingParams(temperature=0.7, top_p=0.9, top_k=20, min_p=0.05)
    assert settings.sampling.truncated
    assert not RolloutSettings().sampling.truncated


def test_each_cut_that_is_switched_on_is_a_knob() -> None:
    assert RolloutSettings().knobs() == []
    knobs = RolloutSettings(top_p=0.9, top_k=5, min_p=0.1).knobs()
    assert [knob.name for knob in knobs] == ["top_p", "top_k", "min_p"]
    assert {knob.metric for knob in knobs} == {"rollout/kept_mass"}
    assert knobs[0].acted(0.97)
    assert not knobs[0].acted(1.0 - 1e-6), "float32 sums of a whole distribution miss 1 by that much"
