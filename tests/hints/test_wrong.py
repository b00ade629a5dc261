"""The control `hint=wrong`."""

from __future__ import annotations

from composer_rl.hints.base import HintGenerator
from composer_rl.hints.wrong import WrongHintGenerator

META = {
    "available_tools": ["write"],
    "oracle": {"available_tools": ["put"]},
    "wrong": {"available_tools": ["save"]},
}


def test_another_content_is_stated_in_the_templates_words() -> None:
    generator = WrongHintGenerator()
    assert isinstance(generator, HintGenerator)
    assert generator.generate("tool_not_found", META) == "Reminder: the tools here are save."
    assert generator.generate("tool_not_found", {}) is None
