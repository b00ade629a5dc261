"""TRL's GRPOTrainer trained on our rollouts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from composer_rl.errors import RolloutError
from composer_rl.rollouts.multi_turn import MultiTurnRollout
from composer_rl.rollouts.settings import RolloutSettings
from composer_rl.rollouts.trl_rollout import TRLRollout
from composer_rl.types import Task
from tests.rollouts.conftest import build_model
from tests.rollouts.helpers import CHATML, ToyEnvironment, build_tokenizer, toy_tasks
from tests.rollouts.trl_runs import config, dataset, logged

SETTINGS = RolloutSettings(max_new_tokens=12, max_tokens=100)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(CHATML)


def make(tokenizer: Any, tasks: list[Task]) -> TRLRollout:
    return TRLRollout(MultiTurnRollout.from_settings(ToyEnvironment(), tokenizer, SETTINGS, seed=0), tasks)


def reward(completions: Any, rollout: Any, **kwargs: Any) -> list[float]:
    assert len(rollout) == len(completions)
    return [one.reward for one in rollout]


@pytest.mark.parametrize("lora", [False, True])
def test_two_steps_on_our_rollouts(tokenizer: Any, tmp_path: Path, lora: bool) -> None:
    from trl import GRPOTrainer

    peft_config = None
    if lora:
        peft = pytest.importorskip("peft", reason="LoRA needs the lora extra")
        peft_config = peft.LoraConfig(r=2, target_modules=["q_proj"], lora_dropout=0.1)
    tasks = toy_tasks(4)
    rollout = make(tokenizer, tasks)
    gaps: list[float] = []

    class Checked(GRPOTrainer):
        def _generate_and_score_completions(self, inputs: Any) -> Any:
            batch = super()._generate_and_score_completions(inputs)
            ids = torch.cat((batch["prompt_ids"], batch["completion_ids"]), dim=1)
            mask = torch.cat((batch["prompt_mask"], batch["completion_mask"]), dim=1)
            with torch.no_grad():
                self.model.eval()
                found, _, _ = self._get_per_token_logps_and_entropies(
                    self.model, ids, mask, batch["completion_ids"].shape[1]
                )
                self.model.train()
            trained = batch["completion_mask"] * batch["tool_mask"]
            for row, one in enumerate(rollout.last_batch.rollouts):
                assert batch["completion_ids"][row, : len(one.completion_ids)].tolist() == one.completion_ids
                assert trained[row].nonzero().flatten().tolist() == [i for i, m in enumerate(one.env_mask) if m]
                logprobs = torch.tensor(one.logprobs)[torch.tensor(one.env_mask) == 1]
                gaps.append(float((found[row][trained[row] == 1] - logprobs).abs().max()))
            return batch

    trainer = Checked(
        model=build_model("qwen3", vocab_size=len(tokenizer), max_position_embeddings=256),
        reward_funcs=reward,
        args=config(tmp_path, temperature=SETTINGS.temperature),
        train_dataset=dataset(tasks),
        processing_class=tokenizer,
        rollout_func=rollout,
        peft_config=peft_config,
    )
    before = [parameter.detach().clone() for parameter in trainer.model.parameters()]
    trainer.train()
    assert len(gaps) == 8
    assert max(gaps) < 2e-5
    assert any(not torch.equal(a, b) for a, b in zip(before, trainer.model.parameters(), strict=True))
    assert len(logged(trainer, "reward")) == 2
    assert rollout.take_stats().num_rollouts == 8
    assert rollout.take_stats().num_rollouts == 0


class FakeTrainer:
    """As much of a trainer as `policy_of` reads."""

    def __init__(self, model: Any) -> None:
        from accelerate import Accelerator

        self.model_wrapped = model
        self.args = config(Path("unused"))
        self.args.device  # noqa: B018  (sets accelerate's state up, which building an Accelerator needs)
        self.accelerator = Accelerator()


def test_rows_name_their_task_and_neighbours_share_a_prompt(tokenizer: Any) -> None:
    tasks = toy_tasks(3)
    model = build_model("llama", vocab_size=len(tokenizer), max_position_embeddings=256)
    rollout = make(tokenizer, tasks)
    prefills: list[list[int]] = []
    start = rollout.rollout._run_wave

    def spy(session: Any, groups: Any, *args: Any) -> None:
        prefills.append([len(group) for group in groups])
        start(session, groups, *args)

    rollout.rollout._run_wave = spy  # type: ignore[method-assign]
    order = ["task-2", "task-2", "task-0", "task-2"]
    out = rollout.for_rows(FakeTrainer(model), [{"task_id": name, "prompt": "ignored"} for name in order])
    assert [one.task_id for one in out["rollout"]] == order
    assert prefills == [[2, 1, 1]]
    assert set(out) == {"prompt_ids", "completion_ids", "logprobs", "env_mask", "rollout"}
    assert all(len(values) == 4 for values in out.values())
    with pytest.raises(RolloutError, match="task_id='nobody'"):
        rollout.for_rows(FakeTrainer(model), [{"task_id": "nobody"}])


def test_prompts_find_their_task_unless_they_are_shared(tokenizer: Any) -> None:
    tasks = toy_tasks(2)
    twin = Task(task_id="twin", prompt=tasks[1].prompt)
    model = build_model("llama", vocab_size=len(tokenizer), max_position_embeddings=256)
    rollout = make(tokenizer, [*tasks, twin])
    with_nulls = [{**message, "tool_calls": None} for message in tasks[0].prompt]
    assert rollout([with_nulls], FakeTrainer(model))["rollout"][0].task_id == "task-0"
    with pytest.raises(RolloutError, match="shared by 2 tasks"):
        rollout([twin.prompt], FakeTrainer(model))
    with pytest.raises(RolloutError, match="not the prompt of any task"):
        rollout([[{"role": "user", "content": "else"}]], FakeTrainer(model))
