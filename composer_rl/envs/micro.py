"""The embedded testbed as an environment: feature deletion on generated modules, answered with JSON tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

from composer_rl.envs.base import Environment, Episode
from composer_rl.envs.grading import Grade, grade
from composer_rl.envs.substrates.micro.contents import (
    Content,
    gold_call,
    hint_context,
    other_content,
    shown_assertion,
    true_content,
)
from composer_rl.envs.substrates.micro.drafts import SYNTAX_MESSAGE
from composer_rl.envs.substrates.micro.hidden_rules import FUNCTION_KEY, KEYS, TOOLS
from composer_rl.envs.substrates.micro.protocol import (
    CallError,
    assertion_of,
    read_call,
    resolve,
    show_call,
    show_name,
    to_task,
)
from composer_rl.envs.substrates.micro.tasks import Mix, TaskSpec, TestCase, generate
from composer_rl.sandboxes.base import Call, Evaluation, EvaluationJob
from composer_rl.types import Split, StepResult, Task, ToolError, ToolSpec

if TYPE_CHECKING:
    from composer_rl.sandboxes.base import Sandbox


@dataclass(kw_only=True)
class MicroEpisode(Episode):
    """One attempt at a generated task."""

    spec: TaskSpec
    failures: dict[str, str] = field(default_factory=dict)
    """Failed answers so far and the kind of their first failure, for repeated_failure."""


@dataclass(kw_only=True)
class MicroEnvironment(Environment):
    """Feature deletion on tiny Python modules.

    Each task shows a module with one deleted body and a failing assert. The answer is a tool call that restores the
    body; which tool exists in the repository and under which key it takes the code is nowhere stated. Reward is the
    fraction of FAIL_TO_PASS asserts that pass, 0 if a PASS_TO_PASS assert breaks.
    """

    num_train: int = 2000
    """Training tasks, at least 1."""
    num_heldout: int = 400
    """Held-out tasks (unseen bodies, unseen mixtures), at least 1."""
    seed: int = 0
    """Seed of the task generator; the split of bodies does not depend on it."""
    two_function_share: float = 0.2
    """Modules with a second, kept function; in [0, 1]."""
    vague_share: float = 0.5
    """One-operation tasks whose docstring leaves the constant to the failing assert; in [0, 1]."""
    mixture_share: float = 0.12
    """Two-operation tasks; half of the held-out ones are mixtures no training task uses; in [0, 1]."""

    def __post_init__(self) -> None:
        if self.max_turns < 1:
            raise ValueError(f"max_turns must be at least 1, got {self.max_turns}")
        for name in ("num_train", "num_heldout"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("two_function_share", "vague_share", "mixture_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        self._sandbox: Sandbox | None = None
        self._tasks: dict[str, list[Task]] = {}

    @property
    def columns(self) -> frozenset[str]:
        """The fields of a task's specification."""
        return frozenset(entry.name for entry in fields(TaskSpec))

    @property
    def mix(self) -> Mix:
        """Shares of the kinds of tasks."""
        return Mix(two_function=self.two_function_share, vague=self.vague_share, mixture=self.mixture_share)

    @property
    def tool_specs(self) -> Sequence[ToolSpec]:
        """Every tool with every argument key: which of them work in a repository is for the policy to find out."""
        parameters = {FUNCTION_KEY: "name of the function to restore"}
        parameters |= dict.fromkeys(KEYS, "the new function body, if this tool takes it here")
        return [
            ToolSpec(name=tool, description="Replace the body of a function.", parameters=dict(parameters))
            for tool in TOOLS
        ]

    def open(self, sandbox: Sandbox) -> None:
        """Keep the sandbox that `step` grades in."""
        self._sandbox = sandbox

    def tasks(self, split: Split) -> Sequence[Task]:
        """All tasks of a split, in a fixed order."""
        if split not in self._tasks:
            count = self.num_train if split == "train" else self.num_heldout
            stream = generate(split, seed=self.seed, mix=self.mix)
            self._tasks[split] = [to_task(spec) for spec in islice(stream, count)]
        return self._tasks[split]

    def start(self, task: Task) -> MicroEpisode:
        """Begin an episode."""
        return MicroEpisode(task=task, spec=TaskSpec.from_payload(task.payload))

    def gold_action(self, task: Task) -> str:
        """The answer that solves a task."""
        return gold_call(TaskSpec.from_payload(task.payload)).render()

    def step(self, episodes: Sequence[Episode], actions: Sequence[str]) -> list[StepResult]:
        """Advance each episode by one answer; the different programs of the batch run in one call of the sandbox."""
        if self._sandbox is None:
            raise RuntimeError("MicroEnvironment.step needs a sandbox; call open(sandbox) first")
        if len(episodes) != len(actions):
            raise ValueError(f"step needs one action per episode, got {len(episodes)} and {len(actions)}")
        rejected: dict[int, tuple[str, str]] = {}
        jobs: dict[tuple[str, str], EvaluationJob] = {}
        program_of: dict[int, tuple[str, str]] = {}
        for index, (episode, action) in enumerate(zip(episodes, actions, strict=True)):
            assert isinstance(episode, MicroEpisode)
            try:
                body = resolve(episode.spec, read_call(action))
            except CallError as error:
                # Not the error itself: its traceback holds this frame and all callers, so it would be a cycle that
                # keeps the sampler's caches alive until the garbage collector next looks at its oldest generation.
                rejected[index] = error.kind, str(error)
            else:
                # Samples of one task often agree; what they wrote then runs once for all of them.
                program_of[index] = (episode.task.task_id, body)
                if program_of[index] not in jobs:
                    jobs[program_of[index]] = _job(episode.spec, body)
        answers = dict(zip(jobs, self._sandbox.evaluate(list(jobs.values())), strict=True)) if jobs else {}
        evaluations = {index: answers[program] for index, program in program_of.items()}
        return [
            self._conclude(episode, action, rejected.get(index), evaluations.get(index))  # type: ignore[arg-type]
            for index, (episode, action) in enumerate(zip(episodes, actions, strict=True))
        ]

    def _conclude(
        self, episode: MicroEpisode, action: str, rejection: tuple[str, str] | None, evaluation: Evaluation | None
    ) -> StepResult:
        """The answer to one turn, from why the call was rejected (kind, message) or from what its code did."""
        episode.num_turns += 1
        reward, assertion = 0.0, None
        if rejection is not None:
            kind, message = rejection
        else:
            assert evaluation is not None
            verdict = _grade(episode.spec, evaluation)
            if verdict.failure is None:
                return StepResult(reward=verdict.reward, done=True)
            reward, kind, message = verdict.reward, str(verdict.failure.kind), verdict.failure.message
            if verdict.failure.outcome.error_type in ("SyntaxError", "IndentationError", "TabError"):
                message = SYNTAX_MESSAGE
            assertion = assertion_of(_cases(episode.spec)[verdict.failure.index])
        done = episode.num_turns >= self.max_turns
        root_kind = None
        if action in episode.failures:
            root_kind = episode.failures[action]
            kind, message = "repeated_failure", f"RepeatedFailure: {message}"
        else:
            episode.failures[action] = kind
        error = ToolError(
            kind=kind,
            message=message,
            meta=_meta(episode, action, kind=kind, message=message, assertion=assertion, root_kind=root_kind),
        )
        observation = None if done else {"role": "tool", "content": message}
        return StepResult(reward=reward, done=done, observation=observation, error=error)


def _cases(spec: TaskSpec) -> tuple[TestCase, ...]:
    return spec.fail_to_pass + spec.pass_to_pass


def _job(spec: TaskSpec, body: str) -> EvaluationJob:
    calls = tuple(Call(function=case.function, args=case.args) for case in _cases(spec))
    return EvaluationJob(source=spec.module_source(body), calls=calls)


def _grade(spec: TaskSpec, evaluation: Evaluation) -> Grade:
    cases, num_target = _cases(spec), len(spec.fail_to_pass)
    return grade(
        evaluation,
        [case.expected for case in cases],
        fail_to_pass=range(num_target),
        pass_to_pass=range(num_target, len(cases)),
        names=[show_call(case.function, case.args) for case in cases],
    )


def _meta(
    episode: MicroEpisode,
    action: str,
    *,
    kind: str,
    message: str,
    assertion: dict[str, str] | None,
    root_kind: str | None,
) -> dict[str, Any]:
    """The HintContext, with the oracle's and the wrong one for the hint controls."""
    spec = episode.spec
    tool = ""
    if (root_kind or kind) != "json_decode":
        tool = show_name(read_call(action).tool)
    context = partial(hint_context, spec, kind=kind, message=message, tool=tool, root_kind=root_kind)
    rng = Random(f"{episode.task.task_id}-{episode.num_turns}-{kind}")
    truth: Content = true_content(spec)
    other = other_content(spec, root_kind or kind, rng)
    meta = context(truth, assertion=assertion or shown_assertion(spec, truth.n))
    meta["oracle"] = context(truth)
    meta["wrong"] = context(other)
    return meta
