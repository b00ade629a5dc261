"""`evaluate=hint_lift`: does a hint's content count? Recoveries at error sites with right, wrong, neutral and no hints.

The right hints are those of the composed `hint` group; the wrong ones state another content of the same kind in the
templates' words, the neutral one states none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from composer_rl.envs.error_sites import MICRO_SITES, ErrorSite, collect, read_sites
from composer_rl.errors import ConfigError
from composer_rl.hints.neutral import NeutralHintGenerator
from composer_rl.hints.none import NoHintGenerator
from composer_rl.hints.wrong import WrongHintGenerator
from composer_rl.stages.base import RunContext, StageResult
from composer_rl.stages.evaluations.base import Evaluation

if TYPE_CHECKING:
    from composer_rl.stages.hint_lift import SiteOutcome
    from composer_rl.stages.policy import Policy

CONDITIONS = ("none", "right", "wrong", "neutral")
"""Columns of the table."""


@dataclass(kw_only=True)
class HintLiftEvaluation(Evaluation):
    """Recovery solve rate and log-probability of the right recovery, overall and per error kind."""

    sites: Literal["frozen", "own"] = "frozen"
    """The shipped (or given) set of error sites, or the policy's own errors, sampled first."""
    path: str | None = None
    """A sites file in place of the shipped one (sites=frozen)."""
    num_sites: int | None = None
    """First sites that are measured, at least 1; null takes all."""
    num_tasks: int | None = None
    """Held-out tasks sampled for sites=own, at least 1; null takes all."""

    def __post_init__(self) -> None:
        for name in ("num_sites", "num_tasks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or null for all, got {value}")
        if self.path is not None and self.sites == "own":
            raise ValueError(f"path is only read with sites=frozen, got path={self.path!r} with sites=own")

    @property
    def required_groups(self) -> tuple[str, ...]:
        return (*super().required_groups, "hint")

    def evaluate(self, context: RunContext) -> StageResult:
        """Measure, print a table, and return `hint_lift/...` figures."""
        from composer_rl.rollouts.sampler import BatchedSampler
        from composer_rl.rollouts.splice import TurnRenderer
        from composer_rl.stages.hint_lift import lift_metrics, measure_hint_lift
        from composer_rl.stages.policy import EVALUATION_SAMPLING, open_policy

        with open_policy(context) as policy:
            sites = self._sites(policy, context)[: self.num_sites]
            context.trackers.phase(f"measuring {len(sites)} error sites under {len(CONDITIONS)} kinds of hints")
            stops = TurnRenderer(policy.tokenizer).stop_ids
            outcomes = measure_hint_lift(
                policy.model,
                policy.tokenizer,
                policy.env,
                sites,
                {
                    "none": NoHintGenerator(),
                    "right": context.components["hint"],
                    "wrong": WrongHintGenerator(),
                    "neutral": NeutralHintGenerator(),
                },
                BatchedSampler(EVALUATION_SAMPLING, stop_ids=stops, seed=context.seed),
                max_new_tokens=context.components["rollout"].max_new_tokens,
            )
        metrics = lift_metrics(outcomes)
        print_table(outcomes)
        context.trackers.log(metrics, step=0)
        return StageResult(metrics=metrics)

    def _sites(self, policy: Policy, context: RunContext) -> list[ErrorSite]:
        if self.sites == "frozen":
            return read_sites(Path(self.path) if self.path is not None else MICRO_SITES)
        tasks = list(policy.env.tasks("heldout"))[: self.num_tasks]
        context.trackers.phase(f"sampling the policy's own errors on {len(tasks)} held-out tasks")
        rollouts = policy.sample(policy.model, tasks, num_samples=1, seed=context.seed)
        sites = collect(rollouts, tasks)
        if not sites:
            raise ConfigError("evaluate.sites=own: the policy made no error on the sampled tasks")
        return sites


def print_table(outcomes: Mapping[str, Sequence[SiteOutcome]]) -> None:
    """Solve rates and log-probabilities by error kind, with the differences that the hints are judged by."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="solve rate of recoveries by hint, and nats gained by the right one", title_justify="left")
    table.add_column("error kind", no_wrap=True)
    differences = ("right - none", "right - wrong", "right - neutral", "log-prob")
    for column in ("sites", *CONDITIONS, *differences):
        table.add_column(column, justify="right", no_wrap=True)
    kinds = sorted({row.kind for row in outcomes["none"]})
    for kind in (None, *kinds):
        rows: dict[str, list[Any]] = {
            name: [row for row in outcomes[name] if kind is None or row.kind == kind] for name in CONDITIONS
        }
        count = len(rows["none"])
        rate = {name: sum(row.solved for row in rows[name]) / count for name in CONDITIONS}
        logprob = {name: sum(row.logprob for row in rows[name]) / count for name in CONDITIONS}
        table.add_row(
            kind or "all",
            str(count),
            *(f"{rate[name]:.3f}" for name in CONDITIONS),
            *(f"{rate['right'] - rate[name]:+.3f}" for name in ("none", "wrong", "neutral")),
            f"{logprob['right'] - logprob['none']:+.2f}",
        )
    Console(width=140).print(table)  # Wider than a narrow terminal or a pipe would allow; nothing is cut.
