"""Entry point of a template process: executed by path with the number of its socket as the only argument.

It makes composer_rl.sandboxes.template importable without importing composer_rl itself, reads its settings from the
socket, sets up the isolation asked for and serves jobs. For namespaces it stays as the launcher, outside of them.
"""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import sys
import time
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from composer_rl.sandboxes.template.isolation import Isolation, NamespaceIsolation

_PRELOADED = (
    "bisect", "collections", "copy", "dataclasses", "datetime", "enum", "functools", "heapq", "itertools", "json",
    "math", "operator", "re", "string", "textwrap", "typing",
)  # fmt: skip
_LOOK_MS = 1000


def _install_package() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    for name in ("composer_rl.sandboxes.template", "composer_rl.sandboxes", "composer_rl"):
        package = ModuleType(name)
        package.__path__ = [folder]
        sys.modules[name] = package
        folder = os.path.dirname(folder)


def _connect(number: int) -> socket.socket:
    """The socket on a high descriptor, with descriptor 3 kept occupied (the children's answer pipe)."""
    high = fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, 16)
    os.close(number)
    null = os.open(os.devnull, os.O_RDWR)
    if null != 3:
        os.dup2(null, 3, inheritable=False)
        os.close(null)
    return socket.socket(fileno=high)


def _read_settings(connection: socket.socket) -> dict[str, Any]:
    import json
    import struct

    data = b""
    while len(data) < 4 or len(data) < 4 + struct.unpack(">I", data[:4])[0]:
        piece = connection.recv(65_536)
        if not piece:
            raise SystemExit(0)
        data += piece
    return dict(json.loads(data[4:]))


def main() -> None:
    """Serve until the parent is gone."""
    os.umask(0o022)
    _install_package()
    connection = _connect(int(sys.argv[1]))
    settings = _read_settings(connection)
    os.environ.clear()
    os.environ["TZ"] = "UTC"
    time.tzset()
    os.environ.clear()
    for module in _PRELOADED:
        __import__(module)

    from composer_rl.sandboxes.template.isolation import MODES, NamespaceIsolation

    isolation = MODES[settings["isolation"]](
        uid=settings["uid"], scratch_root=settings["scratch_root"], limits=settings["limits"]
    )
    if isinstance(isolation, NamespaceIsolation):
        _launch(connection, isolation, settings)
    else:
        _serve(connection, isolation, settings)


def _serve(connection: socket.socket, isolation: Isolation, settings: dict[str, Any]) -> None:
    from composer_rl.sandboxes.template import child, frames, server

    try:
        in_force = isolation.prepare()
    except OSError as error:
        connection.sendall(frames.json_frame({"ready": False, "error": str(error)}))
        return
    child.forget_modules()
    sys.dont_write_bytecode = True
    descriptors = child.clip(resource.RLIMIT_NOFILE, child.TEMPLATE_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    template = server.Template(connection, isolation, settings)
    connection.sendall(frames.json_frame({"ready": True, "in_force": in_force}))
    try:
        template.serve()
    except (server.ParentGoneError, ConnectionError):
        isolation.discard()


def _launch(connection: socket.socket, isolation: NamespaceIsolation, settings: dict[str, Any]) -> None:
    """Fork the template into new namespaces and see that it does not outlive the parent."""
    from composer_rl.sandboxes.template import frames, kernel

    parent = os.getppid()
    life_read, life_write = os.pipe()
    try:
        isolation.unshare()
    except OSError as error:
        connection.sendall(frames.json_frame({"ready": False, "error": str(error)}))
        return
    pid = os.fork()
    if pid == 0:
        os.close(life_read)
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL, "prctl(PR_SET_PDEATHSIG)")
        _serve(connection, isolation, settings)
        return
    os.close(life_write)
    poll = select.poll()
    poll.register(connection, 0)
    poll.register(life_read, select.POLLIN)
    while not poll.poll(_LOOK_MS) and os.getppid() == parent:
        pass
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
