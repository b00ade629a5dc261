"""The template's loop: take a job, fork a child for it, watch the child, end it, reply.

The template never parses what a candidate wrote and keeps it only in buffers that are wiped before the next fork, so
every child starts from the same image, and no child can find what another one was given or answered.
"""

from __future__ import annotations

import contextlib
import gc
import os
import posix
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from composer_rl.sandboxes.template import child, frames
from composer_rl.sandboxes.template.isolation import Isolation

_IDLE_S = 1.0
_CPU_LOOK_S = 0.02
_FLOOD_FACTOR = 1024
_FLOOD_MIN_BYTES = 4 << 20
_MAX_READ = 1 << 16


class ParentGoneError(Exception):
    """The other end of the socket is closed: nobody is left to work for."""


@dataclass
class _Output:
    """Head and tail of a stream in fixed memory."""

    limit: int
    total: int = 0
    _buffer: bytearray = field(init=False)

    def __post_init__(self) -> None:
        self._buffer = bytearray(self.limit)
        self._head = self.limit // 2

    def read(self, fd: int) -> int:
        """Take what is there; 0 at the end of the stream."""
        start, stop = self._free()
        with memoryview(self._buffer) as view:
            count = os.readv(fd, [view[start:stop]])
        self.total += count
        return count

    def _free(self) -> tuple[int, int]:
        if self.total < self._head:
            return self.total, self._head
        size = self.limit - self._head
        start = (self.total - self._head) % size
        return self._head + start, self.limit

    def parts(self) -> list[memoryview]:
        """What is kept, in order; a note stands where bytes were left out."""
        view = memoryview(self._buffer)
        if self.total <= self.limit:
            return [view[: self.total]]
        size = self.limit - self._head
        cut = self._head + (self.total - self._head) % size
        note = memoryview(f"\n... {self.total - self.limit} bytes left out ...\n".encode())
        return [view[: self._head], note, view[cut:], view[self._head : cut]]

    def wipe(self) -> None:
        used = min(self.total, self.limit)
        self._buffer[:used] = bytes(used)
        self.total = 0


class Template:
    """One worker: serves jobs one after the other over a socket, each in a fresh fork of itself."""

    def __init__(self, connection: socket.socket, isolation: Isolation, settings: dict[str, Any]) -> None:
        self._socket = connection
        self._isolation = isolation
        self._limits = isolation.limits
        self._ceilings = child.plan_limits(self._limits)
        self._job = bytearray(settings["job_bytes"])
        self._answer = bytearray(settings["answer_bytes"] + 1)
        self._answered = 0
        self._output = _Output(self._limits["output_bytes"])
        flood = self._limits["output_bytes"] * _FLOOD_FACTOR
        self._flood_bytes = max(_FLOOD_MIN_BYTES, flood)
        self._parent = os.getppid()

    def serve(self) -> None:
        """Work until the parent closes the socket. Raises ParentGoneError then."""
        gc.collect()
        gc.freeze()
        length = bytearray(frames.LENGTH.size)
        while True:
            self._await_request()
            self._receive(length, len(length))
            (count,) = frames.LENGTH.unpack(length)
            if count > len(self._job):
                raise ValueError(f"a job of {count} bytes; at most {len(self._job)} were announced")
            self._receive(self._job, count)
            header = self._run_job(count)
            self._reply(header)
            self._job[:count] = bytes(count)
            self._answer[: self._answered] = bytes(self._answered)
            self._output.wipe()

    def _await_request(self) -> None:
        """Wait for a byte, looking now and then whether the parent still lives (a fork of it may hold the socket)."""
        while not select.select([self._socket], [], [], _IDLE_S)[0]:
            if os.getppid() != self._parent:
                raise ParentGoneError

    def _receive(self, buffer: bytearray, count: int) -> None:
        position = 0
        with memoryview(buffer) as view:
            while position < count:
                received = self._socket.recv_into(view[position:count])
                if received == 0:
                    raise ParentGoneError
                position += received

    def _reply(self, header: dict[str, Any]) -> None:
        output = self._output.parts()
        header["output"] = sum(len(part) for part in output)
        header["answer"] = self._answered
        text = frames.json_frame(header)
        total = len(text) + header["output"] + header["answer"]
        pieces: list[bytes | memoryview] = [frames.LENGTH.pack(total), text, *output]
        pieces.append(memoryview(self._answer)[: self._answered])
        for piece in pieces:
            self._socket.sendall(piece)

    def _run_job(self, count: int) -> dict[str, Any]:
        """Fork, watch and reap one child; returns the reply's header."""
        self._answered = 0
        answer_read, answer_write = os.pipe()
        output_read, output_write = os.pipe()
        started = time.monotonic()
        self._isolation.before_fork()
        pid = os.fork()
        if pid == 0:
            try:
                child.main(
                    memoryview(self._job)[:count],
                    answer_write,
                    output_write,
                    isolation=self._isolation,
                    limits=self._ceilings,
                    budget=len(self._answer) - 1,
                )
            finally:
                posix._exit(1)
        os.close(answer_write)
        os.close(output_write)
        ended = "gone"
        try:
            self._isolation.after_fork()
            ended = self._watch(pid, started, answer_read, output_read)
        finally:
            status, usage = self._end(pid)
            os.close(answer_read)
            self._drain(output_read)
            os.close(output_read)
        if ended == "gone":
            raise ParentGoneError
        self._isolation.after_job()
        cpu_s = usage.ru_utime + usage.ru_stime
        return {"ended": ended, "status": status, "cpu_s": cpu_s, "wall_s": time.monotonic() - started}

    def _watch(self, pid: int, started: float, answer: int, output: int) -> str:
        """Read both pipes until the child is done or has to be stopped; says why it ended."""
        poll = select.poll()
        poll.register(answer, select.POLLIN)
        poll.register(output, select.POLLIN)
        poll.register(self._socket, 0)  # a hang-up is reported whatever is asked for
        while True:
            left_s = started + self._limits["wall_s"] - time.monotonic()
            cpu_left_s = self._limits["cpu_s"] - _cpu_seconds(pid)
            if left_s <= 0 or cpu_left_s <= 0:
                return "timeout"
            wait_s = min(left_s, max(cpu_left_s, _CPU_LOOK_S))
            for fd, _ in poll.poll(wait_s * 1000 + 1):
                if fd == answer:
                    if not self._read_answer(answer):
                        return "exit"
                    if self._answered == len(self._answer):
                        return "output_limit"
                elif fd == output:
                    if not self._output.read(output):
                        poll.unregister(output)
                    elif self._output.total > self._flood_bytes:
                        return "output_limit"
                else:
                    return "gone"

    def _read_answer(self, fd: int) -> int:
        with memoryview(self._answer) as view:
            count = os.readv(fd, [view[self._answered : self._answered + _MAX_READ]])
        self._answered += count
        return count

    def _end(self, pid: int) -> tuple[int, Any]:
        """Kill the child, its process group and, where it has a pid namespace, all that it started; reap it."""
        if not self._isolation.separate_pids:
            # It had not yet made its group, or none of the group is left.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)  # not reaped yet, so the id is still its own
        _, status, usage = os.wait4(pid, 0)
        return status, usage

    def _drain(self, fd: int) -> None:
        os.set_blocking(fd, False)
        try:
            while self._output.total <= self._flood_bytes and self._output.read(fd):
                pass
        except BlockingIOError:
            return


def _cpu_seconds(pid: int) -> float:
    """Processor seconds of another process so far; 0.0 where the system does not tell (RLIMIT_CPU stays)."""
    if sys.platform != "linux":
        return 0.0
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:
        return 0.0
