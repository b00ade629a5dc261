"""The part of a child that runs candidate code: load the module, make the calls, answer each in one line of JSON.

It shares its interpreter with the candidate, who can break it. That only spoils the candidate's own answers: no
expected value is ever in this process, and the verdict is computed from the answers elsewhere.
"""

from __future__ import annotations

import json
import math
import posix
import sys
from collections.abc import Iterator
from json.encoder import encode_basestring_ascii
from types import ModuleType
from typing import Any

from composer_rl.sandboxes.template.frames import (
    EXIT_MEMORY,
    LOAD_FAILED,
    MAX_DEPTH,
    MAX_INT_BITS,
    MESSAGE_CHARS,
    RAISED,
    RETURNED,
)

_BALLAST_BYTES = 1 << 18


class NotJsonError(Exception):
    """A returned value is not made of None, bool, int, float, str, list and dict with str keys, exactly."""


def main(job_text: bytes, answer: int, budget: int) -> None:
    """Run one job (JSON with `source` and `calls`) and leave the process; never returns.

    `budget` is the number of bytes that all answers together may take.
    """
    exit_code = 0
    try:
        _run(json.loads(job_text), answer, budget)
    except MemoryError:
        exit_code = EXIT_MEMORY
    except BaseException:  # noqa: BLE001 - candidate code broke the harness: its answers are missing, which says it
        exit_code = 1
    posix._exit(exit_code)


def _run(job: dict[str, Any], answer: int, budget: int) -> None:
    streams = sys.stdout, sys.stderr
    ballast: list[bytes] = [bytes(_BALLAST_BYTES)]
    module = ModuleType("candidate")
    sys.modules["candidate"] = module
    sys.argv[:] = ["candidate"]
    try:
        code = compile(job["source"], "<candidate>", "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is its answer
        ballast.clear()
        _send(answer, _error_record(LOAD_FAILED, error))
    else:
        for call in job["calls"]:
            record = _attempt(module, call["function"], call["args"], budget, ballast)
            budget -= len(record)
            _send(answer, record)
    for stream in streams:
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue


def _attempt(module: ModuleType, name: str, args: list[Any], budget: int, ballast: list[bytes]) -> bytes:
    try:
        if name not in module.__dict__:
            raise NameError(f"name {name!r} is not defined")
        return _value_record(module.__dict__[name](*args), budget)
    except NotJsonError as error:
        return _record(RAISED, "NotJson", str(error))
    except BaseException as error:  # noqa: BLE001 - whatever the candidate raises is its answer
        ballast.clear()
        return _error_record(RAISED, error)


def _value_record(value: Any, budget: int) -> bytes:
    parts = [f"[{RETURNED},"]
    size = 64
    for part in _encode(value, 0):
        size += len(part)
        if size > budget:
            raise NotJsonError("the value is larger than the answer limit")
        parts.append(part)
    parts.append("]\n")
    return "".join(parts).encode("ascii")


def _error_record(code: int, error: BaseException) -> bytes:
    kind = type(error).__name__
    try:
        message = str(error)
    except BaseException as problem:  # noqa: BLE001 - a candidate's __str__ may raise anything
        message = f"<no text: {type(problem).__name__}>"
    return _record(code, kind, message)


def _record(code: int, kind: str, message: str) -> bytes:
    texts = (encode_basestring_ascii(str(text)[:MESSAGE_CHARS]) for text in (kind, message))
    return f"[{code},{','.join(texts)}]\n".encode("ascii")


def _encode(value: Any, depth: int) -> Iterator[str]:
    """Pieces of the JSON text of a value of exact built-in types; NotJsonError for anything else."""
    kind = type(value)
    if value is None or kind is bool:
        yield "null" if value is None else "true" if value else "false"
    elif kind is int:
        if value.bit_length() > MAX_INT_BITS:
            raise NotJsonError(f"an int of {value.bit_length()} bits; at most {MAX_INT_BITS} are compared")
        yield repr(value)
    elif kind is float:
        yield repr(value) if math.isfinite(value) else "NaN" if value != value else _infinity(value)
    elif kind is str:
        yield encode_basestring_ascii(value)
    elif depth >= MAX_DEPTH:
        raise NotJsonError(f"nested deeper than {MAX_DEPTH} levels")
    elif kind is list:
        yield from _encode_list(value, depth)
    elif kind is dict:
        yield from _encode_dict(value, depth)
    else:
        raise NotJsonError(f"a value of type {kind.__name__}")


def _infinity(value: float) -> str:
    return "Infinity" if value > 0 else "-Infinity"


def _encode_list(value: list[Any], depth: int) -> Iterator[str]:
    separator = "["
    for item in value:
        yield separator
        yield from _encode(item, depth + 1)
        separator = ","
    yield "]" if value else "[]"


def _encode_dict(value: dict[Any, Any], depth: int) -> Iterator[str]:
    separator = "{"
    for key, item in value.items():
        if type(key) is not str:
            raise NotJsonError(f"a dict with a key of type {type(key).__name__}")
        yield f"{separator}{encode_basestring_ascii(key)}:"
        yield from _encode(item, depth + 1)
        separator = ","
    yield "}" if value else "{}"


def _send(answer: int, record: bytes) -> None:
    while record:
        record = record[posix.write(answer, record) :]
