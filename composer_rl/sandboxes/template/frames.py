"""Framing between the parent and a template process: a length, then bytes; JSON or raw, never pickle.

A frame is a 4-byte big-endian length and that many bytes. Requests are JSON. A reply is a 4-byte header length, a
JSON header written by the template, and the two byte strings that the candidate had a hand in (what it printed and
what it answered), which the template forwards without reading them.
"""

from __future__ import annotations

import json
import struct
from typing import Any

LENGTH = struct.Struct(">I")
"""Encoding of every length on the wire."""
READY = b"R"
"""First byte of an answer: written after the child has given up its privileges, before any candidate code runs."""
EXIT_MEMORY = 70
"""Exit code of a child that could not even report an error for want of memory."""
RETURNED, RAISED, LOAD_FAILED = 0, 1, 2
"""First element of an answer record: `[0, value]`, `[1, type, message]`, `[2, type, message]`."""
MAX_DEPTH = 100
"""Deepest nesting of lists and dicts in a value."""
MAX_INT_BITS = 13_000
"""Largest integer in a value; below CPython's limit of 4300 decimal digits."""
MAX_INT_CHARS = 4_000
"""Decimal digits of such an integer, sign included, rounded up."""
MESSAGE_CHARS = 200
"""Length of an exception's text in an answer."""


def frame(payload: bytes) -> bytes:
    """The payload with its length in front."""
    return LENGTH.pack(len(payload)) + payload


def json_frame(value: dict[str, Any]) -> bytes:
    """A frame that holds one JSON object, ASCII only (lone surrogates travel as escapes)."""
    return frame(json.dumps(value, separators=(",", ":")).encode("ascii"))


def split_reply(payload: bytes) -> tuple[dict[str, Any], bytes, bytes]:
    """Header, output and answer of a reply frame; ValueError when the template sent something else."""
    if len(payload) < LENGTH.size:
        raise ValueError("the reply is shorter than its header length")
    (header_length,) = LENGTH.unpack_from(payload)
    start = LENGTH.size + header_length
    header = json.loads(payload[LENGTH.size : start])
    num_output, num_answer = header["output"], header["answer"]
    if start + num_output + num_answer != len(payload):
        raise ValueError("the reply's lengths do not add up")
    return header, payload[start : start + num_output], payload[start + num_output :]
