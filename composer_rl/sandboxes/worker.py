"""The parent's end of one template process: start it, talk to it without ever blocking on it, end it."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import IO, Any

from composer_rl.errors import SandboxError
from composer_rl.sandboxes.template import cleanup, frames

_BOOTSTRAP = Path(__file__).parent / "template" / "bootstrap.py"
_START_TIMEOUT_S = 30.0
_END_TIMEOUT_S = 1.0
_STDERR_CHARS = 500
_PASSED_VARIABLES = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")  # an interpreter may need them to load libpython

Reply = tuple[dict[str, Any], bytes, bytes]
"""Header, output and answer of one job."""


class NotAvailableError(Exception):
    """This machine does not offer the isolation that was asked for; the text says what is missing."""


class WorkerLostError(Exception):
    """The template process ended or broke the protocol."""


class TemplateWorker:
    """One template process with the jobs that it was sent, oldest first."""

    def __init__(self, settings: dict[str, Any]) -> None:
        """Start the process; `await_ready` must follow. Raises SandboxError when there is no interpreter to start."""
        self.in_force = ""
        self.in_flight: deque[tuple[int, int]] = deque()
        self._settings = settings
        self._deadline_s = settings["limits"]["wall_s"] + settings["grace_s"]
        self._outgoing: deque[memoryview] = deque()
        self._incoming = bytearray()
        self._head_since = 0.0
        self._scratch = "" if settings["isolation"] == "namespaces" else tempfile.mkdtemp(prefix="composer-rl-")
        self._stderr: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self._socket, theirs = socket.socketpair()
        try:
            with theirs:
                self._process = self._start(theirs)
        except BaseException:
            self.kill()
            raise

    def _start(self, theirs: socket.socket) -> subprocess.Popen[bytes]:
        if not sys.executable:
            raise SandboxError("sys.executable is empty: the sandbox cannot start its template interpreter")
        environment = {name: os.environ[name] for name in _PASSED_VARIABLES if name in os.environ}
        environment["PYTHONHASHSEED"] = "0"
        # Not -I: that would ignore PYTHONHASHSEED too. -P, -s and -S with this environment amount to the same.
        command = [sys.executable, "-P", "-s", "-S", "-X", "utf8", str(_BOOTSTRAP)]
        try:
            return subprocess.Popen(
                [*command, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._stderr,
                start_new_session=True,  # the terminal's Ctrl-C must not reach it in the middle of a job
            )
        except OSError as error:
            raise SandboxError(f"cannot start the sandbox's template interpreter: {error}") from error

    def await_ready(self) -> None:
        """Hand over the settings and wait until the template is ready; ends it when it is not going to be.

        Raises NotAvailableError when the isolation is missing, SandboxError when the process does not come up.
        """
        try:
            greeting = self._greet()
            if not greeting.get("ready"):
                raise NotAvailableError(str(greeting.get("error", "no reason given")))
        except BaseException:
            self.kill()
            raise
        self.in_force = str(greeting["in_force"])
        self._socket.setblocking(False)

    def _greet(self) -> dict[str, Any]:
        settings = {**self._settings, "scratch_root": self._scratch}
        self._socket.settimeout(_START_TIMEOUT_S)
        try:
            self._socket.sendall(frames.json_frame(settings))
            return self._receive_greeting()
        except (OSError, ValueError) as error:
            raise SandboxError(f"the sandbox's template process did not start: {self._last_words(error)}") from error

    def _receive_greeting(self) -> dict[str, Any]:
        import json

        data = b""
        while len(data) < frames.LENGTH.size or len(data) < 4 + frames.LENGTH.unpack(data[:4])[0]:
            piece = self._socket.recv(4096)
            if not piece:
                raise ConnectionError("it closed the connection")
            data += piece
        greeting = json.loads(data[4:])
        if not isinstance(greeting, dict):
            raise ValueError("it sent no greeting")
        return greeting

    def fileno(self) -> int:
        """Descriptor to wait on."""
        return self._socket.fileno()

    @property
    def pid(self) -> int:
        """Process id of the template (of its launcher where it lives in namespaces)."""
        return self._process.pid

    @property
    def wants_write(self) -> bool:
        """Whether bytes wait to be sent."""
        return bool(self._outgoing)

    def submit(self, index: int, num_calls: int, request: bytes) -> None:
        """Queue one framed job; its reply comes after those of the jobs before it."""
        if not self.in_flight:
            self._head_since = time.monotonic()
        self.in_flight.append((index, num_calls))
        self._outgoing.append(memoryview(request))
        self.send()

    def send(self) -> None:
        """Send what the socket takes now. Raises WorkerLostError when the template is gone."""
        try:
            while self._outgoing:
                sent = self._socket.send(self._outgoing[0])
                if sent < len(self._outgoing[0]):
                    self._outgoing[0] = self._outgoing[0][sent:]
                else:
                    self._outgoing.popleft()
        except BlockingIOError:
            return
        except OSError as error:
            raise WorkerLostError(self._last_words(error)) from error

    def receive(self) -> list[tuple[int, int, Reply]]:
        """Complete replies that are here, as (index, num_calls, reply). Raises WorkerLostError."""
        try:
            data = self._socket.recv(1 << 18)
        except BlockingIOError:
            return []
        except OSError as error:
            raise WorkerLostError(self._last_words(error)) from error
        if not data:
            raise WorkerLostError(self._last_words("it closed the connection"))
        self._incoming += data
        replies = []
        while (payload := self._take_frame()) is not None:
            if not self.in_flight:
                raise WorkerLostError("it replied to a job that it was not sent")
            index, num_calls = self.in_flight.popleft()
            try:
                replies.append((index, num_calls, frames.split_reply(payload)))
            except (ValueError, KeyError, TypeError) as error:
                raise WorkerLostError(f"it broke the protocol: {error}") from error
            self._head_since = time.monotonic()
        return replies

    def overdue(self) -> bool:
        """Whether the oldest job has had no reply for longer than the template itself allows it to take."""
        return bool(self.in_flight) and time.monotonic() - self._head_since > self._deadline_s

    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End the process with all that it started, and reap it. Idempotent.

        The template is asked first, because only it can wait for what lives in its pid namespace.
        """
        process: subprocess.Popen[bytes] | None = getattr(self, "_process", None)
        if process is not None and process.returncode is None:
            self.hang_up()
            try:
                process.wait(_END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.kill()
                process.wait()
        self.disown()
        if self._scratch and os.path.isdir(self._scratch):
            cleanup.remove_tree(self._scratch)

    def hang_up(self) -> None:
        """Ask the template to end, without waiting for it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def disown(self) -> None:
        """Drop this process's handles and leave the template to whoever else holds them (used after a fork)."""
        self._socket.close()
        self._stderr.close()

    def _take_frame(self) -> bytes | None:
        if len(self._incoming) < frames.LENGTH.size:
            return None
        (length,) = frames.LENGTH.unpack_from(self._incoming)
        end = frames.LENGTH.size + length
        if len(self._incoming) < end:
            return None
        payload = bytes(self._incoming[frames.LENGTH.size : end])
        del self._incoming[:end]
        return payload

    def _last_words(self, error: object) -> str:
        """What the template wrote to its standard error before it went, else the error itself."""
        self._stderr.seek(0)
        text = self._stderr.read().decode("utf-8", "replace").strip()
        return f"{error}; {text[-_STDERR_CHARS:]}" if text else str(error)
