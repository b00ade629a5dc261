"""What a checked configuration is turned into before anything is built: a tree of plain nodes.

Checking and building are two passes over the same tree, so that a wrong value in the last component is reported
before the first component is built.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from composer_rl.errors import ComposerError, ConfigError


@dataclass(frozen=True, kw_only=True)
class Leaf:
    """A finished value."""

    value: Any

    def build(self) -> Any:
        """The value itself."""
        return self.value


@dataclass(frozen=True, kw_only=True)
class Items:
    """A sequence; `kind` is list, tuple, set or frozenset."""

    kind: Callable[[Iterable[Any]], Any]
    items: list[Node]

    def build(self) -> Any:
        """A new container of the built items."""
        return self.kind(item.build() for item in self.items)


@dataclass(frozen=True, kw_only=True)
class Mapped:
    """A plain dict."""

    items: dict[Any, Node]

    def build(self) -> dict[Any, Any]:
        """A new dict of the built values."""
        return {key: item.build() for key, item in self.items.items()}


@dataclass(frozen=True, kw_only=True)
class Call:
    """A component: `target(**arguments)`, or a partial of it."""

    target: Callable[..., Any]
    arguments: dict[str, Node]
    path: str
    """Where in the configuration it stands; prefixes its errors."""
    partial: bool = False
    protocol: type | None = None
    """Protocol that the built object must have."""
    fields: tuple[str, ...] = field(default=())

    def build(self) -> Any:
        """The built component. Raises ConfigError with the config path for a value the component refuses."""
        arguments = {name: node.build() for name, node in self.arguments.items()}
        if self.partial:
            return functools.partial(self.target, **arguments)
        try:
            built = self.target(**arguments)
        except ComposerError:
            raise
        except (ValueError, TypeError) as error:
            raise ConfigError(self._prefixed(str(error))) from error
        if self.protocol is not None and not isinstance(built, self.protocol):
            raise ConfigError(
                f"{self.path} must be a {self.protocol.__name__}, got {type(built).__name__}, "
                f"which lacks some of its methods"
            )
        return built

    def _prefixed(self, message: str) -> str:
        text = " ".join(message.split()) or "refused without a message"
        first = re.match(r"\w+", text)
        if first is not None and first.group() in self.fields:
            return f"{self.path}.{text}"
        parent, _, own = self.path.rpartition(".")
        if text.startswith(f"{own}."):
            return f"{parent}.{text}" if parent else text
        return f"{self.path}: {text}"


Node = Leaf | Items | Mapped | Call
