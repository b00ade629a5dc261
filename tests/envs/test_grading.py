"""Grades: exact equality, the reward's rule, and what is said of the first failure."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from composer_rl.envs.grading import grade, same_value
from composer_rl.errors import SandboxError
from composer_rl.sandboxes.base import CallOutcome, Evaluation, EvaluationStatus

NAN = float("nan")


def ok(value: Any) -> CallOutcome:
    """A call that returned."""
    return CallOutcome(ok=True, value=value)


def failed(kind: str, message: str = "") -> CallOutcome:
    """A call that did not."""
    return CallOutcome(ok=False, error_type=kind, error_message=message)


def evaluation(*outcomes: CallOutcome, status: EvaluationStatus = "ok") -> Evaluation:
    """An evaluation of these calls."""
    return Evaluation(status=status, outcomes=outcomes)


def test_gold_scores_one() -> None:
    """All tests pass: 1.0, and no failure."""
    result = grade(evaluation(ok(17), ok([1])), [17, [1]], fail_to_pass=[0], pass_to_pass=[1])
    assert (result.reward, result.passed, result.failure) == (1.0, (True, True), None)


@pytest.mark.parametrize(("right", "reward"), [([], 0.0), ([0], 1 / 3), ([0, 2], 2 / 3), ([0, 1, 2], 1.0)])
def test_fraction_of_fail_to_pass(right: list[int], reward: float) -> None:
    """Partial credit for FAIL_TO_PASS while PASS_TO_PASS holds."""
    outcomes = [ok(k if k in right else "wrong") for k in range(3)]
    assert grade(evaluation(*outcomes, ok(9)), [0, 1, 2, 9], fail_to_pass=[0, 1, 2], pass_to_pass=[3]).reward == reward


def test_a_broken_pass_to_pass_scores_zero() -> None:
    """Every FAIL_TO_PASS passes, one PASS_TO_PASS breaks: 0."""
    result = grade(evaluation(ok(1), ok(2), ok(0)), [1, 2, 3], fail_to_pass=[0, 1], pass_to_pass=[2])
    assert result.reward == 0.0
    assert result.failure is not None
    assert result.failure.index == 2


def test_tests_of_neither_set_do_not_count() -> None:
    """A call that no set names is reported, not scored."""
    result = grade(evaluation(ok(0), ok(1)), [9, 1], fail_to_pass=[1])
    assert (result.reward, result.passed, result.failure) == (1.0, (False, True), None)


SAME = [None, True, 0, -5, 10**40, 1.5, 0.1 + 0.2, float("inf"), "", "\ud800", [], [1, [2]], {}, {"a": [None]}]


@pytest.mark.parametrize("value", SAME, ids=repr)
def test_equal_to_itself(value: Any) -> None:
    """A JSON value equals its copy."""
    assert same_value(value, value)


class Liar(int):
    """Equals everything."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = int.__hash__


DIFFERENT = [
    (True, 1), (False, 0), (1, 1.0), (0, None), (0.3, 0.1 + 0.2), (NAN, NAN), ([NAN], [NAN]), ("1", 1), ([], {}),
    ([1], [True]), ({"a": 1}, {"a": 1.0}), ({"a": 1}, {"b": 1}), ({"a": 1}, {"a": 1, "b": 2}), ([1], [1, 2]),
    ((1,), [1]), ((1,), (1,)), (Liar(1), 1), (Liar(1), Liar(1)), ("a", "a "), (b"a", b"a"), ({1: 2}, {1: "2"}),
]  # fmt: skip


@pytest.mark.parametrize(("value", "other"), DIFFERENT, ids=repr)
def test_not_equal(value: Any, other: Any) -> None:
    """Type counts, subclasses and NaN equal nothing, floats are exact."""
    assert not same_value(value, other)
    assert not same_value(other, value)


def test_details_of_equality() -> None:
    """0.0 equals -0.0; the order of keys does not count."""
    assert same_value(0.0, -0.0)
    assert same_value({"a": 1, "b": 2}, {"b": 2, "a": 1})


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON, JSON)
def test_equality_is_symmetric_and_stricter_than_pythons(value: Any, other: Any) -> None:
    """Same as itself, symmetric, and never equal where Python says different."""
    assert same_value(value, value)
    assert same_value(value, other) == same_value(other, value)
    assert not same_value(value, other) or value == other


@pytest.mark.parametrize(
    ("outcome", "status", "kind", "message"),
    [
        (ok(5), "ok", "test_failure", "AssertionError: f(0) == 17, got 5"),
        (ok(True), "ok", "test_failure", "AssertionError: f(0) == 17, got True"),
        (ok("\ud800"), "ok", "test_failure", "AssertionError: f(0) == 17, got '\\ud800'"),
        (ok(None), "timeout", "test_failure", "AssertionError: f(0) == 17, got None"),
        (failed("NotJson", "a value of type tuple"), "ok", "test_failure",
         "AssertionError: f(0) == 17, got a value of type tuple"),
        (failed("AssertionError", "no"), "ok", "test_failure", "AssertionError: no"),
        (failed("NameError", "name 'x' is not defined"), "ok", "runtime_error", "NameError: name 'x' is not defined"),
        (failed("SystemExit", "0"), "ok", "runtime_error", "SystemExit: 0"),
        (failed("SyntaxError"), "ok", "runtime_error", "SyntaxError"),
        (failed("MemoryError"), "ok", "runtime_error", "MemoryError"),
        (failed("NoAnswer", "2 s used up"), "timeout", "runtime_error", "RuntimeError: f(0): timeout: 2 s used up"),
        (failed("NoAnswer"), "memory", "runtime_error", "RuntimeError: f(0): memory"),
        (failed("NoAnswer", "exit code 0"), "crashed", "runtime_error", "RuntimeError: f(0): crashed: exit code 0"),
        (failed("NoAnswer"), "output_limit", "runtime_error", "RuntimeError: f(0): output_limit"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_failures_are_classified(outcome: CallOutcome, status: EvaluationStatus, kind: str, message: str) -> None:
    """Another value or an AssertionError is a test_failure; every other end is a runtime_error with its status."""
    result = grade(evaluation(outcome, status=status), [17], fail_to_pass=[0], names=["f(0)"])
    assert result.reward == 0.0
    assert result.failure is not None
    assert (result.failure.kind, result.failure.message) == (kind, message)
    assert result.failure.outcome is outcome


def test_first_failure_is_the_first_call() -> None:
    """The order of the calls decides, not the set; without names tests are numbered; long values are cut."""
    result = grade(evaluation(ok(1), ok("x" * 500), ok(0)), [1, 2, 3], fail_to_pass=[2, 0], pass_to_pass=[1])
    assert result.failure is not None
    assert result.failure.index == 1
    assert result.failure.message.startswith("AssertionError: test 1 == 2, got 'xxx")
    assert len(result.failure.message) < 200


@pytest.mark.parametrize(
    ("fail_to_pass", "pass_to_pass", "message"),
    [
        ([], [0], "fail_to_pass must name at least one test"),
        ([2], [], r"test positions must be in \[0, 1\], got 2"),
        ([-1], [], r"test positions must be in \[0, 1\], got -1"),
        ([0], [0], "a test must be in one of"),
        ([0, 0], [], "a test must be in one of"),
    ],
)
def test_sets_are_checked(fail_to_pass: list[int], pass_to_pass: list[int], message: str) -> None:
    """A task without FAIL_TO_PASS, and sets that do not fit, are refused."""
    with pytest.raises(ValueError, match=message):
        grade(evaluation(ok(1), ok(2)), [1, 2], fail_to_pass=fail_to_pass, pass_to_pass=pass_to_pass)


@pytest.mark.parametrize("value", [(1,), {1: 2}, {1}, [b"x"], Liar(1)], ids=lambda value: type(value).__name__)
def test_expected_values_must_be_json(value: Any) -> None:
    """An expected value that no answer could equal is refused."""
    with pytest.raises(ValueError, match=r"expected\[0\] must be"):
        grade(evaluation(ok(1)), [value], fail_to_pass=[0])


def test_unscorable_is_not_zero() -> None:
    """No evaluation, or one that does not fit the tests, raises."""
    with pytest.raises(SandboxError, match="no evaluation"):
        grade(None, [1], fail_to_pass=[0])
    with pytest.raises(SandboxError, match="2 outcomes for 1"):
        grade(evaluation(ok(1), ok(2)), [1], fail_to_pass=[0])
    with pytest.raises(ValueError, match="names must have one entry"):
        grade(evaluation(ok(1)), [1], fail_to_pass=[0], names=[])
