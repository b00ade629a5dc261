"""Generates tasks: a module with one deleted body, its tests, the mutation check and the split.

A task's tests are three FAIL_TO_PASS asserts on the deleted function and two PASS_TO_PASS asserts: on the kept
function of a two-function module, on the signature and docstring otherwise (both hold in the broken module).
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from composer_rl.envs.substrates.micro.hidden_rules import KEY_OF, REPOSITORIES, TOOL_OF
from composer_rl.envs.substrates.micro.modules import (
    FunctionSpec,
    body_split,
    compiled,
    constants_of,
    other_constants,
)
from composer_rl.envs.substrates.micro.names import FUNCTION_NAMES, PARAMETER_NAMES, WORDS
from composer_rl.envs.substrates.micro.recipes import CLAUSES, FAMILIES, MIXTURES, UNSEEN_MIXTURES, Recipe
from composer_rl.types import Split

NUM_FAIL_TO_PASS = 3
NUM_PASS_TO_PASS = 2

PROBES = (
    "\ndef signature_of_{f}():\n    return [{f}.__name__, {f}.__code__.co_argcount]\n",
    "\ndef doc_of_{f}():\n    return {f}.__doc__\n",
)
"""Functions that the graded module of a one-function task carries for its PASS_TO_PASS asserts."""


def check_shares(record: object) -> None:
    """Raise ValueError for a float field of a dataclass outside [0, 1]."""
    for name, value in vars(record).items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name} must be in [0, 1], got {value}")


@dataclass(frozen=True, kw_only=True)
class Mix:
    """Shares of the kinds of tasks, each in [0, 1]."""

    two_function: float = 0.2
    """Modules with a second, kept function."""
    vague: float = 0.5
    """One-operation tasks whose docstring leaves the constant out."""
    mixture: float = 0.12
    """Two-operation tasks; of the held-out ones half are unseen mixtures."""

    def __post_init__(self) -> None:
        check_shares(self)


@dataclass(frozen=True, kw_only=True)
class TestCase:
    """One assert: `function(*args) == expected`."""

    __test__ = False

    function: str
    args: tuple[Any, ...]
    expected: Any


@dataclass(frozen=True, kw_only=True)
class TaskSpec:
    """A task with everything that rendering, grading and the corpus need."""

    repository: str
    target: FunctionSpec
    """The function whose body is deleted."""
    context: FunctionSpec | None
    """The kept function of a two-function module, shown above the target."""
    fail_to_pass: tuple[TestCase, ...]
    """The first one is shown in the prompt."""
    pass_to_pass: tuple[TestCase, ...]

    @property
    def tool(self) -> str:
        """The tool that exists in the repository."""
        return TOOL_OF[self.repository]

    @property
    def key(self) -> str:
        """The argument key under which that tool takes the code."""
        return KEY_OF[self.tool]

    def module_source(self, body: str) -> str:
        """The module as it is graded, with `body` in the place of the deleted one."""
        if self.context is not None:
            return f"{self.context.source()}\n{self.target.source(body)}"
        return self.target.source(body) + "".join(probe.format(f=self.target.name) for probe in PROBES)

    @property
    def task_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the content."""
        text = json.dumps(self.payload(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def payload(self) -> dict[str, Any]:
        """The task as a JSON record; `from_payload` reads it back."""
        return {
            "repository": self.repository,
            "target": asdict(self.target),
            "context": None if self.context is None else asdict(self.context),
            "fail_to_pass": [[case.function, list(case.args), case.expected] for case in self.fail_to_pass],
            "pass_to_pass": [[case.function, list(case.args), case.expected] for case in self.pass_to_pass],
        }

    @classmethod
    def from_payload(cls, payload: dict[str, Any]) -> TaskSpec:
        """Inverse of `payload`."""

        def cases(rows: list[list[Any]]) -> tuple[TestCase, ...]:
            return tuple(TestCase(function=f, args=tuple(args), expected=expected) for f, args, expected in rows)

        return cls(
            repository=payload["repository"],
            target=FunctionSpec(**payload["target"]),
            context=None if payload["context"] is None else FunctionSpec(**payload["context"]),
            fail_to_pass=cases(payload["fail_to_pass"]),
            pass_to_pass=cases(payload["pass_to_pass"]),
        )


def generate(split: Split, *, seed: int, mix: Mix, repositories: tuple[str, ...] = REPOSITORIES) -> Iterator[TaskSpec]:
    """An endless stream of different tasks of one split; the same arguments give the same stream."""
    rng = random.Random(f"{split}-{seed}")
    seen: set[str] = set()
    while True:
        task = _draw_task(rng, split, mix, repositories)
        if task is None or task.task_id in seen:
            continue
        seen.add(task.task_id)
        yield task


def _draw_task(rng: random.Random, split: Split, mix: Mix, repositories: tuple[str, ...]) -> TaskSpec | None:
    repository = rng.choice(repositories)
    target = _draw_function(rng, split, mix)
    if target is None:
        return None
    context = None
    if rng.random() < mix.two_function:
        # A kept body is always a training body, so that no held-out body shows up in any module as context.
        context = _draw_function(rng, "train", Mix(vague=0.0, mixture=0.0), taken=target.name)
        if context is None:
            return None
    fail_to_pass = _draw_tests(rng, target)
    if len(fail_to_pass) < NUM_FAIL_TO_PASS or survives_a_mutation(target, fail_to_pass):
        return None
    if not other_constants(target, fail_to_pass[0].args[0]):
        return None
    return TaskSpec(
        repository=repository,
        target=target,
        context=context,
        fail_to_pass=fail_to_pass,
        pass_to_pass=_pass_to_pass(rng, target, context),
    )


def _draw_function(rng: random.Random, split: Split, mix: Mix, taken: str = "") -> FunctionSpec | None:
    m = None
    if rng.random() < mix.mixture:
        unseen = split == "heldout" and rng.random() < 0.5
        recipe = rng.choice([r for r in MIXTURES if (r.name in UNSEEN_MIXTURES) == unseen])
        n, m = rng.choice(recipe.constants), rng.choice(recipe.second_constants)
        while body_split(recipe.name, n, m) != split:
            n, m = rng.choice(recipe.constants), rng.choice(recipe.second_constants)
        vague = False
    else:
        recipe = rng.choice(FAMILIES)
        options = constants_of(recipe.name, split)
        if not options:
            return None
        n = rng.choice(options)
        vague = rng.random() < mix.vague
    name = rng.choice([f for f in FUNCTION_NAMES if f != taken])
    parameter = rng.choice(PARAMETER_NAMES[recipe.kind])
    return FunctionSpec(recipe=recipe.name, name=name, parameter=parameter, n=n, m=m, vague=vague)


def _draw_argument(rng: random.Random, function: FunctionSpec) -> Any:
    """An argument on either side of the constants, so that caps, floors and gaps show."""

    def number() -> int:
        bounds = [c for c in (function.n, function.m) if isinstance(c, int)]
        if bounds and rng.random() < 0.5:
            return min(99, rng.choice(bounds) + rng.randrange(1, 16))
        return rng.randrange(0, 13)

    kind = function.definition.kind
    if kind == "int":
        return number()
    if kind == "list":
        return [number() for _ in range(rng.randrange(1, 4))]
    return rng.choice(WORDS)


def _draw_tests(rng: random.Random, function: FunctionSpec) -> tuple[TestCase, ...]:
    """The telling assert first (for a mixture any), then asserts on other arguments."""
    arguments = [] if function.definition.telling is None else [function.definition.telling]
    for _ in range(20):
        if len(arguments) == NUM_FAIL_TO_PASS:
            break
        argument = _draw_argument(rng, function)
        if argument not in arguments:
            arguments.append(argument)
    return tuple(
        TestCase(function=function.name, args=(argument,), expected=function(argument)) for argument in arguments
    )


def _pass_to_pass(rng: random.Random, target: FunctionSpec, context: FunctionSpec | None) -> tuple[TestCase, ...]:
    if context is None:
        return (
            TestCase(function=f"signature_of_{target.name}", args=(), expected=[target.name, 1]),
            TestCase(function=f"doc_of_{target.name}", args=(), expected=target.doc),
        )
    return _draw_tests(rng, context)[:NUM_PASS_TO_PASS]


def survives_a_mutation(function: FunctionSpec, tests: tuple[TestCase, ...]) -> bool:
    """Whether some corrupted body passes all `tests`: then they are too weak to grade with."""
    for recipe, n, m in _mutants(function):
        run = compiled(recipe)
        if all(run(case.args[0], n, m) == case.expected for case in tests):
            return True
    outputs = [case.expected for case in tests]
    return all(out == case.args[0] for out, case in zip(outputs, tests, strict=True)) or all(
        out == function.n for out in outputs
    )


def _mutants(function: FunctionSpec) -> Iterator[tuple[str, Any, Any]]:
    """Corrupted bodies: other constants, the constants swapped, other operations on the same constants."""
    recipe, n, m = function.definition, function.n, function.m
    if recipe.kind == "str":
        yield recipe.name, next(word for word in WORDS if word != n), m
    else:
        for shift in (-1, 1, 10):
            yield recipe.name, n + shift, m
    if recipe.is_mixture:
        for shift in (-1, 1, 10):
            yield recipe.name, n, m + shift
        if n != m:
            yield recipe.name, m, n
    for other in neighbours(recipe):
        yield other, n, m


def neighbours(recipe: Recipe) -> list[str]:
    """Names of the recipes a policy would confuse with this one."""
    if not recipe.is_mixture:
        return [f.name for f in FAMILIES if f.kind == recipe.kind and f is not recipe]
    first, second = recipe.name.split("_")
    names = [clause.name for clause in CLAUSES]
    pairs = {f"{first}_{name}" for name in names if name not in (first, second)}
    pairs |= {f"{name}_{second}" for name in names if name not in (first, second)}
    pairs.add(f"{second}_{first}")
    return sorted(pairs)
