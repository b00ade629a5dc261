"""Every setting that is switched on has a row, and what other components keep from acting says so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from composer_rl.curricula.base import PREFERENCE
from composer_rl.curricula.uniform import UniformCurriculum
from composer_rl.engagement import EngagementTable
from composer_rl.envs.micro import MicroEnvironment
from composer_rl.hints.none import NoHintGenerator
from composer_rl.hints.templates import TemplateHintGenerator
from composer_rl.losses.channel_sum import ChannelSum
from composer_rl.models.hf import HFModel
from composer_rl.models.lora import LoraSettings
from composer_rl.optim.adamw import AdamWSettings
from composer_rl.po.base import PolicyObjective
from composer_rl.rewards.execution import ExecutionReward
from composer_rl.rollouts.settings import RolloutSettings
from composer_rl.stages.run_knobs import run_knobs
from composer_rl.trainer.prompt_source import PromptSource
from composer_rl.types import EngagementRow, Task
from tests.stages.idle_channel import Idle


@dataclass(kw_only=True)
class Favourite(UniformCurriculum):
    """Draws its first task only."""

    def knobs(self) -> list[Any]:
        return super(UniformCurriculum, self).knobs()

    def sample(self, num: int) -> list[str]:
        return [self._task_ids[0]] * num

    def weights(self) -> dict[str, float]:
        return dict.fromkeys(self._task_ids, 0.0) | {self._task_ids[0]: 1.0}


def components(**changes: Any) -> dict[str, Any]:
    return {
        "po": PolicyObjective(),
        "loss": ChannelSum(),
        "hint": TemplateHintGenerator(),
        "env": MicroEnvironment(),
        "curriculum": UniformCurriculum(),
        "optim": AdamWSettings(),
        "reward": ExecutionReward(),
        "rollout": RolloutSettings(),
    } | changes


def rows(figures: Sequence[dict[str, float]] = (), **changes: Any) -> dict[str, EngagementRow]:
    table = EngagementTable(run_knobs(components(**changes)))
    for metrics in figures:
        table.observe(metrics)
    return {row.knob: row for row in table.rows()}


def test_names_are_those_of_the_command_line(tmp_path: Any) -> None:
    assert set(rows()) == {
        "po.epsilon",
        "po.epsilon_high",
        "po.skip_zero_variance",
        "env.max_turns",
        "optim.max_grad_norm",
        "reward.turn_discount",
    }
    everything = rows(
        loss=ChannelSum(channels={"idle": Idle()}),
        hint=NoHintGenerator(in_rollout=True),
        curriculum=Favourite(),
        model=HFModel(name=str(tmp_path), lora=LoraSettings(r=2)),
        rollout=RolloutSettings(top_p=0.9),
    )
    assert {
        "loss.channels.idle.weight",
        "hint.in_rollout",
        "curriculum",
        "model.lora.r",
        "rollout.top_p",
    } <= set(everything)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"env": MicroEnvironment(max_turns=1)}, "never engaged: env.max_turns=1 leaves no turn"),
        ({"rollout": RolloutSettings(backend="trl")}, "never engaged: rollout.backend=trl shows no hints"),
        ({}, "never engaged: hints/num_shown stayed at 0 in 1 logged steps; no failed turn had both"),
    ],
)
def test_hints_in_rollouts_that_nobody_saw(changes: dict[str, Any], reason: str) -> None:
    row = rows([{"hints/num_shown": 0.0}], hint=TemplateHintGenerator(in_rollout=True), **changes)["hint.in_rollout"]
    assert row.engaged is False
    assert row.note.startswith(reason)


def test_hints_that_were_shown_are_counted() -> None:
    shown = [{"hints/num_shown": 3.0}, {"hints/num_shown": 0.0}]
    row = rows(shown, hint=TemplateHintGenerator(in_rollout=True))["hint.in_rollout"]
    assert (row.value, row.engaged) == (1.5, True)
    assert "acted in 1 of 2 logged steps" in row.note


def test_a_reward_that_the_backend_replaces_says_so() -> None:
    note = rows(rollout=RolloutSettings(backend="trl"))["reward.turn_discount"].note
    assert note.startswith("never engaged: rollout.backend=trl takes the environment's grade")


def test_channels_keep_rows_from_being_skipped() -> None:
    note = rows(loss=ChannelSum(channels={"idle": Idle()}))["po.skip_zero_variance"].note
    assert note.startswith("never engaged: loss channels may act on rows without reward variance")


def test_a_curriculum_that_prefers_a_task_acted() -> None:
    tasks = [Task(task_id=name, prompt=[]) for name in "abcd"]
    source = PromptSource(tasks, Favourite(), seed=0)
    source.draw(2)
    figures = source.metrics()
    assert figures[PREFERENCE] == 4.0
    assert rows([figures], curriculum=Favourite())["curriculum"].engaged is True
    assert PREFERENCE not in PromptSource(tasks, UniformCurriculum(), seed=0).metrics()
