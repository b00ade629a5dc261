"""Configurations as flat settings: the dotted path that one would type on the command line, and a value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def flatten(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted path and value of every leaf of a configuration; lists and empty mappings are leaves."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from flatten(item, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def as_text(value: Any) -> str:
    """A value as one would type it on the command line."""
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
