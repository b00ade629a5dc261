"""Parsing of what a candidate may have forged, and the statuses that follow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.sandboxes.answers import SetupFailedError, check_json, decode_evaluation
from composer_rl.sandboxes.base import Evaluation, Limits
from composer_rl.sandboxes.template import frames, harness

EXIT = {"ended": "exit", "status": 0, "cpu_s": 0.0}


def decode(answer: bytes, num_calls: int = 2, **header: Any) -> Evaluation:
    """Evaluation of a job with answer bytes that follow the ready byte."""
    return decode_evaluation({**EXIT, **header}, b"", frames.READY + answer, num_calls, Limits())


def test_records() -> None:
    """One line a call, in order."""
    evaluation = decode(b'[0,17]\n[1,"NameError","name \'x\' is not defined"]\n')
    assert evaluation.status == "ok"
    assert evaluation.outcomes[0].value == 17
    assert evaluation.outcomes[1].error_type == "NameError"


@pytest.mark.parametrize(
    "answer",
    [
        b"[0,1]\n[0,2]\n[0,3]\n",
        b"garbage\n[0,1]\n",
        b"[0,1]\n[0,1,2]\n",
        b"[0]\n",
        b"[true,1]\n",
        b"[3,1]\n",
        b'[1,"E"]\n',
        b'[1,"E",3]\n',
        b'[0,1]\n[2,"E","not at the start"]\n',
        b'[2,"E","x"]\n[0,1]\n',
        b"[0,\xff]\n",
        b"[0," + b"9" * 5000 + b"]\n",
        b"[0," + b"[" * 200 + b"]" * 200 + b"]\n",
        b"[0," + b"[" * 100_000 + b"\n",
        b"\n",
        b"{}\n",
    ],
    ids=lambda answer: answer[:20].decode("latin-1"),
)
def test_garbage_fails_the_whole_evaluation(answer: bytes) -> None:
    """Bytes that the harness does not write spoil every answer of the job, also the good ones."""
    evaluation = decode(answer)
    assert evaluation.status == "crashed"
    assert [outcome.ok for outcome in evaluation.outcomes] == [False, False]
    assert {outcome.error_type for outcome in evaluation.outcomes} == {"NoAnswer"}


def test_a_line_cut_short_is_no_answer() -> None:
    """The process was ended in the middle of a line."""
    evaluation = decode(b'[0,17]\n[0,"abc', ended="timeout")
    assert evaluation.status == "timeout"
    assert [outcome.ok for outcome in evaluation.outcomes] == [True, False]


@pytest.mark.parametrize(
    ("header", "status", "text"),
    [
        ({"ended": "timeout"}, "timeout", "2 s of wall-clock or 1 s of CPU"),
        ({"ended": "output_limit"}, "output_limit", "more output"),
        ({"status": frames.EXIT_MEMORY << 8}, "memory", "256 MiB"),
        ({"status": 3 << 8}, "crashed", "exit code 3"),
        ({"status": 0}, "crashed", "exit code 0"),
        ({"status": 11}, "crashed", "killed by signal 11"),
        ({"status": 9, "cpu_s": 1.2}, "timeout", "CPU"),
        ({"status": 24}, "timeout", "CPU"),
    ],
)
def test_statuses(header: dict[str, Any], status: str, text: str) -> None:
    """Why a process ended without all of its answers (B127)."""
    evaluation = decode(b"", **header)
    assert evaluation.status == status
    assert text in evaluation.outcomes[0].error_message


def test_an_end_after_the_last_answer_does_not_matter() -> None:
    """All calls are answered: however the process ended then."""
    assert decode(b"[0,1]\n[0,2]\n", status=11).status == "ok"


def test_a_child_that_was_never_confined_is_no_evaluation() -> None:
    """Without the ready byte no candidate code ran; its text names the step."""
    with pytest.raises(SetupFailedError, match="PermissionError: setuid"):
        decode_evaluation(EXIT, b"", b"PermissionError: setuid", 1, Limits())
    with pytest.raises(SetupFailedError, match="without a word"):
        decode_evaluation(EXIT, b"", b"", 1, Limits())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**300), 2**300) | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_harness_and_parser_agree(value: Any) -> None:
    """What the harness writes is what the parser reads, to the bit, and plain JSON."""
    record = harness._value_record(value, 1 << 20)
    (outcome,) = decode(record, num_calls=1).outcomes
    assert outcome.ok
    assert repr(outcome.value) == repr(value)
    assert repr(json.loads(record)[1]) == repr(value)
    check_json(value, "value")


@given(st.binary(max_size=60))
def test_no_bytes_break_the_parser(answer: bytes) -> None:
    """Whatever comes, there is an evaluation with one outcome a call."""
    assert len(decode(answer).outcomes) == 2


@pytest.mark.parametrize(
    "value",
    [(1,), {1: 2}, {1}, b"x", 1j, object(), type("A", (int,), {})(1), 1 << 20_000],
    ids=lambda v: type(v).__name__,
)
def test_not_json(value: object) -> None:
    """The harness refuses, and the caller's arguments are refused by the same rule."""
    with pytest.raises(harness.NotJsonError):
        harness._value_record([value], 1 << 20)
    with pytest.raises(ValueError, match="here"):
        check_json([value], "here")


def test_budget() -> None:
    """A value larger than what is left of the answer limit is refused while it is written."""
    with pytest.raises(harness.NotJsonError, match="answer limit"):
        harness._value_record(["x" * 10] * 100, 500)


@pytest.mark.parametrize("text", ["a\ud800b", "x" * 1000])
def test_messages_are_printable_and_short(text: str) -> None:
    """Lone surrogates arrive as escapes, long texts are cut."""
    record = harness._error_record(frames.RAISED, ValueError(text))
    (outcome,) = decode(record, num_calls=1).outcomes
    outcome.error_message.encode("utf-8")
    assert len(outcome.error_message) <= frames.MESSAGE_CHARS + 10


@pytest.mark.parametrize("payload", [b"", b"\0\0\0", b"\0\0\0\x02{}", frames.json_frame({"output": 1, "answer": 0})])
def test_broken_replies(payload: bytes) -> None:
    """A reply that is not built like one is refused."""
    with pytest.raises((ValueError, KeyError)):
        frames.split_reply(payload)
