"""The control `hint=neutral`."""

from __future__ import annotations

import pytest

from composer_rl.hints.base import HintGenerator
from composer_rl.hints.neutral import NEUTRAL_TEXT, NeutralHintGenerator


def test_every_error_gets_the_same_sentence() -> None:
    generator = NeutralHintGenerator()
    assert isinstance(generator, HintGenerator)
    texts = {generator.generate(kind, {"available_tools": ["put"]}) for kind in ("tool_not_found", "json_decode", "x")}
    assert texts == {NEUTRAL_TEXT}


def test_an_empty_sentence_is_refused() -> None:
    with pytest.raises(ValueError, match="text must not be empty"):
        NeutralHintGenerator(text=" ")
