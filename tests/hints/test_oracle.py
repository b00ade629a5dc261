"""The control `hint=oracle`."""

from __future__ import annotations

from composer_rl.hints.base import HintGenerator
from composer_rl.hints.oracle import OracleHintGenerator

META = {
    "available_tools": ["write"],
    "oracle": {"available_tools": ["put"]},
    "wrong": {"available_tools": ["save"]},
}


def test_the_true_content_is_stated_in_the_templates_words() -> None:
    generator = OracleHintGenerator()
    assert isinstance(generator, HintGenerator)
    assert generator.generate("tool_not_found", META) == "Reminder: the tools here are put."
    assert generator.generate("tool_not_found", {}) is None
