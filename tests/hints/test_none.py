"""The control `hint=none`."""

from __future__ import annotations

from composer_rl.hints.base import HintGenerator
from composer_rl.hints.none import NoHintGenerator

META = {
    "available_tools": ["write"],
    "oracle": {"available_tools": ["put"]},
    "wrong": {"available_tools": ["save"]},
}


def test_there_is_never_a_hint() -> None:
    generator = NoHintGenerator()
    assert isinstance(generator, HintGenerator)
    assert generator.generate("tool_not_found", META) is None
