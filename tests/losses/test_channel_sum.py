"""Channels by name, with the ones switched off left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from composer_rl.engagement import Knob
from composer_rl.losses.base import LossChannel, LossOutput
from composer_rl.losses.channel_sum import ChannelSum


@dataclass(kw_only=True)
class Nothing(LossChannel):
    def num_active(self, inputs: dict[str, Any]) -> Any:
        return inputs["completion_mask"].sum()

    def compute(self, model: Any, inputs: dict[str, Any]) -> LossOutput:
        return LossOutput(loss_sum=inputs["completion_mask"].sum() * 0.0)


def test_a_channel_with_weight_zero_is_not_active() -> None:
    channels = ChannelSum(channels={"on": Nothing(weight=0.5), "off": Nothing(weight=0.0)})
    active = channels.active(step=3)
    assert list(active) == ["on"]
    assert active["on"][1] == 0.5


def test_bad_names_and_weights_are_refused() -> None:
    with pytest.raises(ValueError, match="without '/'"):
        ChannelSum(channels={"a/b": Nothing()})
    with pytest.raises(ValueError, match="weight must be at least 0"):
        Nothing(weight=-1.0)


@dataclass(kw_only=True)
class Moving(Nothing):
    def knobs(self) -> list[Knob]:
        return [Knob(name="end", metric="t", threshold=0.4)]


def test_a_channel_must_find_its_inputs_and_brings_its_own_knobs() -> None:
    first, second = ChannelSum(channels={"on": Moving(), "off": Nothing(weight=0.0)}).knobs()
    assert (first.name, first.metric, first.required) == ("channels.on.weight", "channels/on/num_active", True)
    assert (second.name, second.metric, second.threshold) == ("channels.on.end", "channels/on/t", 0.4)
