"""TRL's own tool loop trained on our environments."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import torch

from composer_rl.errors import RolloutError
from composer_rl.rollouts.trl_environment import trl_environment_factory
from composer_rl.types import StepResult, Task, ToolError, ToolSpec
from tests.rollouts.conftest import build_model
from tests.rollouts.helpers import ToyEpisode, build_tokenizer, toy_tasks
from tests.rollouts.trl_runs import config, dataset, logged

TOOLS = [
    ToolSpec(name="write", description="Write code.", parameters={"code": "The code.", "text": "The text."}),
    ToolSpec(name="put", description="Put code.", parameters={"code": "The code."}),
]


class CallEnvironment:
    """Solved by the tool `put` with the code 42; knows its tools' errors itself."""

    max_turns = 3

    def __init__(self) -> None:
        self.actions: list[str] = []

    def start(self, task: Task) -> ToyEpisode:
        return ToyEpisode(task=task)

    def step(self, episodes: Sequence[ToyEpisode], actions: Sequence[str]) -> list[StepResult]:
        results = []
        for episode, action in zip(episodes, actions, strict=True):
            self.actions.append(action)
            episode.actions.append(action)
            call = json.loads(action)
            if call == {"name": "put", "arguments": {"code": "42"}}:
                results.append(StepResult(reward=1.0, done=True))
                continue
            text = f"TypeError: {call['name']} got {sorted(call['arguments'])}"
            done = len(episode.actions) >= self.max_turns
            results.append(
                StepResult(
                    reward=0.5 if call["name"] == "put" else 0.0,
                    done=done,
                    observation=None if done else {"role": "tool", "content": text},
                    error=ToolError(kind="type_error", message=text),
                )
            )
        return results


def test_methods_are_what_transformers_reads_a_schema_from() -> None:
    from transformers.utils import get_json_schema

    instance = trl_environment_factory(CallEnvironment(), toy_tasks(1), TOOLS)()
    assert get_json_schema(instance.write) == {
        "type": "function",
        "function": {
            "name": "write",
            "description": "Write code.",
            "parameters": {
                "type": "object",
                "properties": {
                    "code": {"type": "string", "description": "The code."},
                    "text": {"type": "string", "description": "The text."},
                },
            },
            "return": {"type": "string", "description": "What happened."},
        },
    }


def test_calls_reach_the_environment_as_it_reads_them() -> None:
    environment = CallEnvironment()
    instance = trl_environment_factory(environment, toy_tasks(2), TOOLS)()
    assert instance.reset(task_id="task-1", prompt=[]) is None
    assert instance.get_reward() == 0.0
    assert instance.write(code="1") == "TypeError: write got ['code']"
    assert instance.put(source="42") == "TypeError: put got ['source']"
    assert instance.get_reward() == 0.5
    assert instance.put(code="42") == "solved"
    assert instance.get_reward() == 1.0
    with pytest.raises(RolloutError, match="over"):
        instance.put(code="1")
    assert instance.get_reward() == 1.0
    instance.reset(task_id="task-0")
    assert [instance.put(code="1") for _ in range(3)] == ["TypeError: put got ['code']"] * 3
    assert environment.actions[0] == '{"name": "write", "arguments": {"code": "1"}}'
    with pytest.raises(RolloutError, match="task_id='gone'"):
        instance.reset(task_id="gone")


def test_an_environment_without_tools_takes_free_text() -> None:
    class Free(CallEnvironment):
        def step(self, episodes: Any, actions: Any) -> list[StepResult]:
            self.actions += actions
            return [StepResult(reward=0.5, done=True) for _ in actions]

    environment = Free()
    instance = trl_environment_factory(environment, toy_tasks(1), [])()
    instance.reset(task_id="task-0")
    assert instance.answer(text="hello") == ""
    assert environment.actions == ["hello"]


@pytest.mark.parametrize("name", ["reset", "get_reward", "_act", "not a name"])
def test_names_that_cannot_be_tools_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a method"):
        trl_environment_factory(CallEnvironment(), [], [ToolSpec(name=name, description="x")])


def trainer_of(tmp_path: Path, base: type, environment: Any) -> Any:
    template = (files("trl") / "chat_templates" / "qwen3.jinja").read_text(encoding="utf-8")
    tokenizer = build_tokenizer(template, pad="<|pad|>")
    tasks = toy_tasks(4)
    return base(
        model=build_model("qwen3", vocab_size=len(tokenizer), max_position_embeddings=2048),
        args=config(tmp_path, max_completion_length=400, max_tool_calling_iterations=3),
        train_dataset=dataset(tasks),
        processing_class=tokenizer,
        environment_factory=trl_environment_factory(environment, tasks, TOOLS),
    )


def test_plain_trl_trains_on_it(tmp_path: Path) -> None:
    """A random model calls no tool: every reward is 0, and the run is complete all the same."""
    from trl import GRPOTrainer

    trainer = trainer_of(tmp_path, GRPOTrainer, CallEnvironment())
    trainer.generation_config.max_new_tokens = 8
    trainer.train()
    assert logged(trainer, "reward") == [0.0, 0.0]


def test_tool_calls_are_executed_and_rewarded(tmp_path: Path) -> None:
    """With scripted answers in place of a random model: a wrong call, then the right one or another wrong one."""
    from trl import GRPOTrainer

    def call(name: str, **arguments: str) -> str:
        return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call><|im_end|>"

    class Scripted(GRPOTrainer):
        calls = 0

        def _generate_single_turn(self, prompt_ids: Any, *args: Any, **kwargs: Any) -> Any:
            first = self.calls % 3 == 0
            self.calls += 1
            texts = []
            for row, _ in enumerate(prompt_ids):
                if first:
                    texts.append(call("write", text="42"))
                elif self.calls % 3 == 2:
                    texts.append(call("put", code="42" if row % 2 else "41"))
                else:
                    texts.append("I give up.<|im_end|>")
            encoded = self.processing_class(texts, add_special_tokens=False)["input_ids"]
            return encoded, None

    environment = CallEnvironment()
    trainer = trainer_of(tmp_path, Scripted, environment)
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert len(environment.actions) == 16
    assert logged(trainer, "reward") == [0.75, 0.75]
    assert logged(trainer, "tools/call_frequency") == [2.0, 2.0]
    assert logged(trainer, "tools/failure_frequency") == [0.0, 0.0]
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))


def test_the_embedded_testbed_trains_under_plain_trl(tmp_path: Path) -> None:
    """TRL parses the tiny model's calls by the tokenizer's response template, and the environment grades them."""
    from trl import GRPOTrainer

    from composer_rl.envs.micro import MicroEnvironment
    from composer_rl.models.tiny import TinyModel
    from composer_rl.sandboxes.process import ProcessSandbox

    model, tokenizer = TinyModel().load("cpu")
    environment = MicroEnvironment(num_train=8, num_heldout=1)
    with ProcessSandbox(allow_weak=True) as sandbox:
        environment.open(sandbox)
        tasks = list(environment.tasks("train"))
        trainer = GRPOTrainer(
            model=model,
            args=config(tmp_path, max_completion_length=100, max_tool_calling_iterations=3, seed=1),
            train_dataset=dataset(tasks),
            processing_class=tokenizer,
            environment_factory=trl_environment_factory(environment, tasks, environment.tool_specs),
        )
        trainer.train()
    assert min(logged(trainer, "tools/call_frequency")) > 0.5
    assert max(logged(trainer, "reward")) > 0.0
    assert all(0.0 <= value <= 1.0 for value in logged(trainer, "reward"))
