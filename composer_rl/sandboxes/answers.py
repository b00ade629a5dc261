"""From what came back over the wire to an Evaluation: the candidate's bytes are parsed here and nowhere else."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

from composer_rl.sandboxes.base import CallOutcome, Evaluation, EvaluationStatus, Limits
from composer_rl.sandboxes.template import frames


class GarbledAnswerError(ValueError):
    """The answer pipe carried something that the harness does not write."""


class SetupFailedError(Exception):
    """The child could not be confined, so no candidate code ran; the text says which step failed."""


def decode_evaluation(
    header: dict[str, Any], output: bytes, answer: bytes, num_calls: int, limits: Limits
) -> Evaluation:
    """Evaluation of a job with `num_calls` calls from the three parts of a reply.

    Raises SetupFailedError when the child never became ready: that is the sandbox's failure, not the job's.
    """
    if not answer.startswith(frames.READY):
        text = answer.decode("utf-8", "replace") or "the child ended without a word"
        raise SetupFailedError(text)
    try:
        outcomes = _decode_answers(answer[len(frames.READY) :], num_calls)
    except GarbledAnswerError as error:
        status: EvaluationStatus = "output_limit" if header["ended"] == "output_limit" else "crashed"
        outcomes = []
        reason = f"the answer could not be read: {error}"
    else:
        complete = len(outcomes) == num_calls
        status = "ok" if complete else _status(header, limits)
        reason = f"the process ended before answering ({_how(header, status, limits)})"
    missing = CallOutcome(ok=False, error_type="NoAnswer", error_message=reason[: frames.MESSAGE_CHARS])
    outcomes += [missing] * (num_calls - len(outcomes))
    return Evaluation(status=status, outcomes=tuple(outcomes), output=output.decode("utf-8", "replace"))


def check_json(value: Any, name: str, depth: int = 0) -> None:
    """ValueError naming `name` unless the value is None, bool, int, float, str, list or dict of exact types."""
    kind = type(value)
    if value is None or kind in (bool, float, str):
        return
    if kind is int:
        if value.bit_length() > frames.MAX_INT_BITS:
            raise ValueError(f"{name} holds an int of more than {frames.MAX_INT_BITS} bits")
        return
    if kind not in (list, dict):
        raise ValueError(f"{name} must be made of JSON types, got a {kind.__name__}")
    if depth >= frames.MAX_DEPTH:
        raise ValueError(f"{name} is nested deeper than {frames.MAX_DEPTH} levels")
    if kind is dict and not all(type(key) is str for key in value):
        raise ValueError(f"{name} has a dict with a key that is no str")
    for item in value.values() if kind is dict else value:
        check_json(item, name, depth + 1)


def _decode_answers(text: bytes, num_calls: int) -> list[CallOutcome]:
    """One outcome for each complete line, in order; a line cut short by the end of the process is left out."""
    lines = text.split(b"\n")[:-1]
    if lines and num_calls and lines[0].startswith(b"[%d," % frames.LOAD_FAILED):
        if len(lines) > 1:
            raise GarbledAnswerError("more lines than the harness writes")
        return [_decode_line(lines[0], frames.LOAD_FAILED)] * num_calls
    if len(lines) > max(num_calls, 1):
        raise GarbledAnswerError("more lines than calls")
    return [_decode_line(line, None) for line in lines[:num_calls]]


def _decode_line(line: bytes, expected_code: int | None) -> CallOutcome:
    try:
        record = json.loads(line.decode("ascii"), parse_int=_parse_int)
        check_json(record, "the answer", -1)
    except (ValueError, RecursionError) as error:
        raise GarbledAnswerError(f"not a JSON record ({type(error).__name__})") from None
    if type(record) is not list or not record or type(record[0]) is not int:
        raise GarbledAnswerError("not a record")
    code = record[0]
    if code == frames.RETURNED and len(record) == 2 and expected_code is None:
        return CallOutcome(ok=True, value=record[1])
    wanted = frames.RAISED if expected_code is None else expected_code
    if code == wanted and len(record) == 3 and type(record[1]) is str and type(record[2]) is str:
        kind, message = (_printable(part[: frames.MESSAGE_CHARS]) for part in record[1:])
        return CallOutcome(ok=False, error_type=kind, error_message=message)
    raise GarbledAnswerError("not a record of the harness")


def _parse_int(digits: str) -> int:
    if len(digits) > frames.MAX_INT_CHARS:
        raise ValueError("an int with too many digits")
    return int(digits)


def _printable(text: str) -> str:
    """Lone surrogates as escapes, so that the text can be logged and tokenised."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _status(header: dict[str, Any], limits: Limits) -> EvaluationStatus:
    ended, status = header["ended"], header["status"]
    if ended == "timeout":
        return "timeout"
    if ended == "output_limit":
        return "output_limit"
    if os.WIFEXITED(status):
        return "memory" if os.WEXITSTATUS(status) == frames.EXIT_MEMORY else "crashed"
    number = os.WTERMSIG(status)
    if number == signal.SIGXCPU or header["cpu_s"] >= limits.cpu_s:
        return "timeout"
    return "crashed"


def _how(header: dict[str, Any], status: EvaluationStatus, limits: Limits) -> str:
    if status == "timeout":
        return f"timeout: {limits.wall_s:g} s of wall-clock or {limits.cpu_s:g} s of CPU time used up"
    if status == "output_limit":
        return "more output than allowed"
    code = os.waitstatus_to_exitcode(header["status"])
    if status == "memory":
        return f"out of memory: {limits.memory_mb} MiB allowed"
    if code < 0:
        return f"killed by signal {-code}"
    return f"exit code {code}"
