"""Seconds spent per part of a training step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager


class Timings:
    """Accumulates wall-clock seconds by name between two calls of `take`."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = defaultdict(float)

    def add(self, name: str, seconds: float) -> None:
        """Add seconds to a part."""
        self._seconds[name] += seconds

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Time the body of a with statement, also when it raises."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.add(name, time.perf_counter() - start)

    def take(self) -> dict[str, float]:
        """Seconds by `time/<name>_s` since the last call; resets."""
        taken = {f"time/{name}_s": seconds for name, seconds in self._seconds.items()}
        self._seconds.clear()
        return taken
