"""From what a sandbox observed to a grade: the verdict that the graded code never gets to touch.

The reward is the fraction of FAIL_TO_PASS tests that pass, and 0 as soon as one PASS_TO_PASS test breaks (the scoring
of SWE-bench, arXiv 2310.06770, with partial credit for the first set). A test is one call with an expected value; it
passes when the returned value equals it in type and value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from composer_rl.errors import SandboxError

if TYPE_CHECKING:
    from composer_rl.sandboxes.base import CallOutcome, Evaluation

FailureKind = Literal["test_failure", "runtime_error"]
"""`test_failure`: the code ran and gave another value, or raised AssertionError. `runtime_error`: any other exception,
and code that ended, hung or ran out of memory before it answered."""

_MISMATCHES = ("AssertionError", "NotJson")
_NO_ANSWER = "NoAnswer"
_ENDED = ("timeout", "memory", "output_limit", "crashed")
_SHOWN_CHARS = 120


@dataclass(frozen=True, kw_only=True)
class TestFailure:
    """The first test that failed, in the order of the calls."""

    __test__ = False  # not a test class, whatever pytest makes of the name

    index: int
    """Position of the test among the calls."""
    kind: FailureKind
    """One of the error kinds of the tool protocol."""
    message: str
    """One line that starts with an exception's name, as a test runner would report it."""
    outcome: CallOutcome
    """What the call gave instead."""


@dataclass(frozen=True, kw_only=True)
class Grade:
    """The verdict on one evaluation."""

    reward: float
    """Fraction of FAIL_TO_PASS that pass, 0.0 if any PASS_TO_PASS breaks; 1.0 means solved."""
    passed: tuple[bool, ...]
    """One entry a call, in order; also for calls that belong to neither set."""
    failure: TestFailure | None
    """First failing test of the two sets, None when all of them pass."""


def grade(
    evaluation: Evaluation | None,
    expected: Sequence[Any],
    *,
    fail_to_pass: Sequence[int],
    pass_to_pass: Sequence[int] = (),
    names: Sequence[str] | None = None,
) -> Grade:
    """Grade an evaluation against the expected values, one for each call.

    `fail_to_pass` and `pass_to_pass` hold positions of calls. `names` gives each test's text for messages (for
    instance `f(0)`); without it tests are called by number. Raises ValueError for an empty FAIL_TO_PASS, positions
    that are out of range or named twice, and expected values that are not JSON; SandboxError when there is nothing
    to score (no evaluation, or one of another job): such a rollout is not a failed one.
    """
    _check_positions(fail_to_pass, pass_to_pass, len(expected))
    if names is not None and len(names) != len(expected):
        raise ValueError(f"names must have one entry a call, got {len(names)} for {len(expected)} calls")
    if evaluation is None:
        raise SandboxError("there is no evaluation to grade: the sandbox failed, so the rollout has no reward")
    if len(evaluation.outcomes) != len(expected):
        raise SandboxError(
            f"the evaluation has {len(evaluation.outcomes)} outcomes for {len(expected)} expected values: "
            "it belongs to another job or the sandbox lost calls"
        )
    for position, value in enumerate(expected):
        _check_json(value, f"expected[{position}]")
    pairs = zip(evaluation.outcomes, expected, strict=True)
    passed = tuple(outcome.ok and same_value(outcome.value, value) for outcome, value in pairs)
    broken = not all(passed[position] for position in pass_to_pass)
    reward = 0.0 if broken else sum(passed[position] for position in fail_to_pass) / len(fail_to_pass)
    failing = [position for position in sorted((*fail_to_pass, *pass_to_pass)) if not passed[position]]
    failure = None
    if failing:
        index = failing[0]
        name = names[index] if names is not None else f"test {index}"
        failure = _describe(evaluation, index, name, expected[index])
    return Grade(reward=reward, passed=passed, failure=failure)


def same_value(value: Any, other: Any) -> bool:
    """Whether two JSON values are equal in type and value, all the way down.

    True is not 1, 1 is not 1.0, an instance of a subclass equals nothing, and NaN equals nothing. Floats are
    compared exactly (0.0 equals -0.0). The order of a dict's keys does not count.
    """
    kind = type(value)
    if kind is not type(other):
        return False
    if kind is list:
        return len(value) == len(other) and all(map(same_value, value, other))
    if kind is dict:
        return value.keys() == other.keys() and all(same_value(item, other[key]) for key, item in value.items())
    return value is None or (kind in (bool, int, float, str) and bool(value == other))


def _describe(evaluation: Evaluation, index: int, name: str, expected: Any) -> TestFailure:
    outcome = evaluation.outcomes[index]
    kind: FailureKind = "test_failure"
    if outcome.ok:
        message = f"AssertionError: {name} == {_show(expected)}, got {_show(outcome.value)}"
    elif outcome.error_type == "NotJson":
        message = f"AssertionError: {name} == {_show(expected)}, got {outcome.error_message}"
    elif outcome.error_type == _NO_ANSWER and evaluation.status in _ENDED:
        kind = "runtime_error"
        message = f"RuntimeError: {name}: {evaluation.status}: {outcome.error_message}".removesuffix(": ")
    else:
        kind = "test_failure" if outcome.error_type in _MISMATCHES else "runtime_error"
        message = f"{outcome.error_type}: {outcome.error_message}".removesuffix(": ")
    return TestFailure(index=index, kind=kind, message=message, outcome=outcome)


def _show(value: Any) -> str:
    """The value as Python writes it, ASCII only, cut in the middle when long."""
    text = ascii(value)
    if len(text) <= _SHOWN_CHARS:
        return text
    half = (_SHOWN_CHARS - 3) // 2
    return f"{text[:half]}...{text[-half:]}"


def _check_positions(fail_to_pass: Sequence[int], pass_to_pass: Sequence[int], num_calls: int) -> None:
    if not fail_to_pass:
        raise ValueError("fail_to_pass must name at least one test: without one every answer would score alike")
    positions = [*fail_to_pass, *pass_to_pass]
    for position in positions:
        if not 0 <= position < num_calls:
            raise ValueError(f"test positions must be in [0, {num_calls - 1}], got {position}")
    if len(set(positions)) != len(positions):
        raise ValueError(f"a test must be in one of fail_to_pass and pass_to_pass, once; got {sorted(positions)}")


def _check_json(value: Any, name: str) -> None:
    kind = type(value)
    if kind is list:
        for item in value:
            _check_json(item, name)
    elif kind is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise ValueError(f"{name} must be JSON, got a dict with a key of type {type(key).__name__}")
            _check_json(item, name)
    elif value is not None and kind not in (bool, int, float, str):
        raise ValueError(f"{name} must be made of JSON types, got a {kind.__name__}")
