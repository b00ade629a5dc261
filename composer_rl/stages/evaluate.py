"""`stage=evaluate`: measure a policy or an environment without training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from composer_rl.errors import ConfigError
from composer_rl.stages.base import RunContext, Stage, StageResult
from composer_rl.stages.evaluations.base import Evaluation

if TYPE_CHECKING:
    from composer_rl.envs.base import Environment


@dataclass(kw_only=True)
class EvaluateStage(Stage):
    """Runs the measurement chosen by the `evaluate` group."""

    @property
    def required_groups(self) -> tuple[str, ...]:
        return ("evaluate", "env", "sandbox", "model", "rollout")

    def check(self, components: dict[str, Any], *, max_steps: int | None = None) -> None:
        """Refuse environments that cannot grade an answer."""
        if not isinstance(components["evaluate"], Evaluation):
            raise ConfigError("evaluate must be a component of the evaluate group, for example evaluate=checkpoint")
        env: Environment = components["env"]
        if not env.grades:
            raise ConfigError("stage=evaluate needs an environment that grades answers; env=dataset does not")

    def run(self, context: RunContext) -> StageResult:
        evaluation: Evaluation = context.components["evaluate"]
        return evaluation.evaluate(context)
