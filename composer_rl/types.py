"""Plain records that families hand to each other. No torch here: environments, hints and reports stay light."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

Message = dict[str, Any]
"""One chat message, `{"role": "system"|"user"|"assistant"|"tool", "content": str}`."""

Split = Literal["train", "heldout"]
"""Which side of the train / held-out partition a task belongs to."""

StopReason = Literal["solved", "max_turns", "length"]
"""Why a rollout ended: reward 1.0 reached, no turn left, or no token budget left."""

ERROR_KINDS = (
    "tool_not_found",
    "json_decode",
    "type_error",
    "runtime_error",
    "repeated_failure",
    "test_failure",
)
"""Error kinds of the tool protocol: the reference's five, and test_failure for a failed assertion."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One problem: what the policy is shown and what the environment needs to grade an answer."""

    task_id: str
    """Content hash, stable across processes and Python versions."""
    prompt: list[Message]
    """Chat messages before the first assistant turn."""
    payload: dict[str, Any] = field(default_factory=dict)
    """JSON-serialisable record private to the environment (tests, hidden rules, difficulty features)."""


@dataclass(frozen=True, kw_only=True)
class ToolError:
    """What went wrong in a tool call; the input of the hint generators."""

    kind: str
    """One of ERROR_KINDS, or a kind that the user's environment adds."""
    message: str
    """The text of the tool turn, as the policy sees it."""
    meta: dict[str, Any] = field(default_factory=dict)
    """The HintContext of this error. The optional keys `oracle` and `wrong` hold the contexts (same keys) that
    the hint controls render: the true content, and another content of the same kind."""


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool as backends see it that call tools by name and arguments instead of reading an answer as text."""

    name: str
    """A Python identifier without a leading underscore."""
    description: str
    """What the tool does, one sentence."""
    parameters: dict[str, str] = field(default_factory=dict)
    """Description of each argument by its name; all are optional strings."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """The environment's answer to one assistant turn."""

    reward: float
    """Grade of this turn in [0, 1]; 1.0 means solved."""
    done: bool
    """Whether the episode is over (solved, or no turn left)."""
    observation: Message | None = None
    """The tool turn that the policy sees next; None when the episode is over."""
    error: ToolError | None = None
    """Set when the turn failed; also on the last turn."""


@dataclass(kw_only=True)
class RolloutTurn:
    """One assistant turn of a rollout with what followed it."""

    start: int
    """First index of the sampled tokens of this turn in `Rollout.completion_ids`."""
    end: int
    """One past the last sampled token (the end-of-turn token included)."""
    text: str
    """The sampled tokens decoded without special tokens: what the environment was given."""
    reward: float
    """Grade of this turn."""
    error: ToolError | None = None
    observation: str | None = None
    """Text of the tool turn that followed, None after the last turn."""
    hint: str | None = None
    """Hint text inserted before the next turn (only with hint.in_rollout=true)."""


@dataclass(kw_only=True)
class Rollout:
    """One sampled episode, token-exact: what is trained on is what was sampled."""

    task_id: str
    prompt_ids: list[int]
    completion_ids: list[int]
    """Sampled tokens and tool turns in order, without padding."""
    logprobs: list[float]
    """Log-probability (nats) of each completion token at the sampling temperature; 0.0 on tool tokens."""
    env_mask: list[int]
    """1 where the policy sampled the token (it is trained on), 0 on tool and hint tokens."""
    turns: list[RolloutTurn]
    reward: float
    """Grade of the last turn."""
    stop_reason: StopReason

    @property
    def solved(self) -> bool:
        """Whether the last turn reached reward 1.0."""
        return self.reward >= 1.0

    @property
    def solved_first(self) -> bool:
        """Whether the first assistant turn alone reached reward 1.0."""
        return bool(self.turns) and self.turns[0].reward >= 1.0


@dataclass(frozen=True, kw_only=True)
class EngagementRow:
    """One line of the engagement table: did a setting that was switched on act during the run?"""

    knob: str
    """Name of the setting as on the command line: `po.epsilon_high`."""
    metric: str
    """Logged metric that shows it."""
    value: float | None
    """Mean of the metric over the logged steps, None when it was never logged."""
    engaged: bool | None
    """True: acted in at least one step. False: never. None: not measured."""
    note: str
    """In how many steps it acted, or why it did not and what to change."""
