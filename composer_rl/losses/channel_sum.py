"""The named channels of a run; an empty dict is the plain policy loss."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from composer_rl.losses.base import LossChannel

if TYPE_CHECKING:
    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class ChannelSum:
    """`loss.channels`: a named dict, so that one channel can be changed, added or removed on the command line."""

    channels: dict[str, LossChannel] = field(default_factory=dict)
    """Channels by the name under which they are logged; a name has no slash."""

    def __post_init__(self) -> None:
        for name in self.channels:
            if "/" in name or not name:
                raise ValueError(f"channels: a channel's name must be non-empty and without '/', got {name!r}")

    def active(self, step: int) -> dict[str, tuple[LossChannel, float]]:
        """Channels with a non-zero weight at an optimizer step, with that weight."""
        weighted = {name: (channel, channel.weight_at(step)) for name, channel in self.channels.items()}
        return {name: pair for name, pair in weighted.items() if pair[1] != 0.0}

    def knobs(self) -> list[Knob]:
        """Of each channel that is switched on: whether it found its inputs (required), and what it declares itself."""
        return [knob for name, channel in self.channels.items() for knob in _channel_knobs(name, channel)]


def _channel_knobs(name: str, channel: LossChannel) -> Iterator[Knob]:
    from composer_rl.engagement import Knob

    if channel.weight == 0.0:
        return
    yield Knob(
        name=f"channels.{name}.weight",
        metric=f"channels/{name}/num_active",
        advice="the channel found nothing to act on",
        required=True,
    )
    for knob in channel.knobs():
        yield replace(knob.under(f"channels.{name}"), metric=f"channels/{name}/{knob.metric}")
