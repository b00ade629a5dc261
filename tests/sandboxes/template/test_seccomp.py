"""The filter program, run by a small BPF interpreter: what each system call would be answered."""

from __future__ import annotations

import errno
import struct

import pytest

from composer_rl.sandboxes.template import kernel, seccomp

ALLOW, KILL, ERRNO = 0x7FFF_0000, 0x8000_0000, 0x0005_0000
X86, ARM = 0xC000_003E, 0xC000_00B7


def run(program: bytes, call: int, *arguments: int, arch: int = X86) -> int:
    """Result of a classic BPF program on a seccomp_data record."""
    data = struct.pack("<IIQ6Q", call, arch, 0, *[*arguments, 0, 0, 0, 0, 0, 0][:6])
    steps = [struct.unpack_from("=HBBI", program, offset) for offset in range(0, len(program), 8)]
    accumulator, position = 0, 0
    while True:
        code, if_true, if_false, value = steps[position]
        position += 1
        if code == 0x06:
            return value
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x05:
            position += value
        else:
            tests = {0x15: accumulator == value, 0x25: accumulator > value, 0x35: accumulator >= value}
            tests[0x45] = bool(accumulator & value)
            position += if_true if tests[code] else if_false


@pytest.fixture(params=["x86_64", "aarch64", "riscv64"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Builds programs for each instruction set, whatever this one is."""
    monkeypatch.setattr(kernel, "MACHINE", request.param)
    return request.param


def verdict(name: str, *arguments: int, processes: bool = False, attributes: bool = True) -> int:
    program = seccomp.program(own_pid=42, processes=processes, attributes=attributes)
    call = seccomp.number(name)
    if call is None:
        pytest.skip(f"{name} does not exist on {kernel.MACHINE}")
    return run(program, call, *arguments, arch=seccomp.AUDIT_ARCH[kernel.MACHINE])


REFUSED = ERRNO | errno.EPERM


@pytest.mark.parametrize(
    "name", ["socket", "ptrace", "process_vm_writev", "mount", "unshare", "setns", "bpf", "keyctl"]
)
def test_always_refused(machine: str, name: str) -> None:
    """Calls that no module needs, whatever is allowed."""
    assert verdict(name) == REFUSED
    assert verdict(name, processes=True) == REFUSED


@pytest.mark.parametrize("name", ["fork", "vfork", "execve", "execveat"])
def test_processes(machine: str, name: str) -> None:
    """New processes only where they are allowed."""
    assert verdict(name) == REFUSED
    assert verdict(name, processes=True) == ALLOW


def test_clone(machine: str) -> None:
    """Threads always, processes where allowed, namespaces never; clone3 is hidden because its flags are."""
    thread, child, namespace = 0x0001_0000 | 0x100, 17, 0x1000_0000 | 17
    assert verdict("clone", thread) == ALLOW
    assert verdict("clone", child) == REFUSED
    assert verdict("clone", child, processes=True) == ALLOW
    assert verdict("clone", namespace) == REFUSED
    assert verdict("clone", namespace, processes=True) == REFUSED
    assert verdict("clone3") == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("name", ["kill", "tgkill"])
def test_signals(machine: str, name: str) -> None:
    """Itself, nobody else, no group."""
    assert verdict(name, 42) == ALLOW
    for target in (1, 0, 43, 0xFFFF_FFFF):
        assert verdict(name, target) == REFUSED


@pytest.mark.parametrize(
    ("name", "allowed", "refused"),
    [
        ("prlimit64", (0,), (1,)),
        ("socketpair", (1,), (2,)),
        ("fcntl", (3, 2), (3, 8)),
        ("ioctl", (3, 0x5401), (3, 0x8901)),
        ("prctl", (15,), (1,)),
    ],
)
def test_by_argument(machine: str, name: str, allowed: tuple[int, ...], refused: tuple[int, ...]) -> None:
    """Calls that are judged by what they are asked."""
    assert verdict(name, *allowed) == ALLOW
    assert verdict(name, *refused) == REFUSED


@pytest.mark.parametrize("name", ["fchmod", "fchmodat", "utimensat", "truncate", "fallocate"])
def test_attributes(machine: str, name: str) -> None:
    """Modes and times of files only where other people's files are out of reach."""
    assert verdict(name) == ALLOW
    assert verdict(name, attributes=False) == REFUSED


def test_other_instruction_sets_and_newer_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A 32-bit or foreign call ends the process; calls above the table do not exist; the rest works."""
    monkeypatch.setattr(kernel, "MACHINE", "x86_64")
    program = seccomp.program(own_pid=42, processes=False, attributes=True)
    assert run(program, 1, arch=ARM) == KILL
    assert run(program, 41 | 0x4000_0000) == ERRNO | errno.ENOSYS
    assert run(program, 451) == ERRNO | errno.ENOSYS
    for call in (0, 1, 3, 9, 11, 12, 60, 202, 231, 257):  # read write close mmap munmap brk exit futex ... openat
        assert run(program, call) == ALLOW
    assert len(program) // 8 < 4096  # the kernel's longest program
