"""The hint protocol: an error kind and its context in, a hint text or None out."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class HintGenerator(Protocol):
    """Anything that can turn an error into a hint."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        """Hint text for one error site, or None when this generator does not cover it."""
        ...
