"""Sandboxes and a loopback server for the sandbox tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from composer_rl.sandboxes.process import ProcessSandbox
from tests.sandboxes import attacks
from tests.sandboxes.helpers import open_or_skip


@pytest.fixture(scope="module")
def sandbox() -> Iterator[ProcessSandbox]:
    """Two workers in the strongest mode of this machine, shared by a module's tests."""
    opened = open_or_skip(num_workers=2, limits=attacks.LIMITS)
    yield opened
    opened.close()


@pytest.fixture
def fresh() -> Iterator[ProcessSandbox]:
    """One worker of the test's own, closed afterwards."""
    opened = open_or_skip(num_workers=1, limits=attacks.LIMITS)
    yield opened
    opened.close()


@pytest.fixture(scope="session")
def loopback_port() -> Iterator[int]:
    """Port of a TCP server on the loopback address that accepts whoever reaches it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        done = threading.Event()

        def accept() -> None:
            while not done.is_set():
                try:
                    server.accept()[0].close()
                except TimeoutError:
                    continue

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        done.set()
        thread.join()
