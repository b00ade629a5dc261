"""Ranges of the limits."""

from __future__ import annotations

from typing import Any

import pytest

from composer_rl.sandboxes.base import Limits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("wall_s", 0),
        ("wall_s", -1.0),  # B113: a model that asks for no limit
        ("wall_s", 3601),
        ("wall_s", float("nan")),
        ("cpu_s", 0),
        ("memory_mb", 31),
        ("output_bytes", 255),
        ("answer_bytes", 1023),
        ("max_processes", -1),
        ("max_threads", -1),
        ("file_mb", -1),
        ("scratch_mb", 0),
    ],
)
def test_limits_are_checked(name: str, value: Any) -> None:
    """Each limit out of range is named with its value."""
    with pytest.raises(ValueError, match=rf"limits\.{name} must be .* got {value}"):
        Limits(**{name: value})
