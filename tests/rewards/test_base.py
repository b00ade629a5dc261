"""Checked scores, the adapter to TRL's signature, and unscorable rows in TRL's advantages."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from composer_rl.rewards.base import RewardBatch, RewardFunction, as_trl, as_trl_functions, batch_of_rollouts
from composer_rl.rewards.execution import ExecutionReward
from composer_rl.types import Rollout


@dataclass(kw_only=True)
class Fixed(RewardFunction):
    """Returns what it is told to."""

    scores: tuple[float | None, ...] = ()

    def score(self, batch: RewardBatch) -> list[float | None]:
        return list(self.scores)


def test_rollouts_become_chat_messages(make_rollout: Callable[..., Rollout]) -> None:
    batch = batch_of_rollouts([make_rollout(0.0, 1.0)])
    assert batch.completions == [
        [
            {"role": "assistant", "content": "try 0"},
            {"role": "tool", "content": "ToolError: no tool put"},
            {"role": "assistant", "content": "try 1"},
        ]
    ]
    assert (len(batch), batch.prompts, dict(batch.columns)) == (1, None, {})


def test_the_count_of_scores_is_checked(make_rollout: Callable[..., Rollout]) -> None:
    with pytest.raises(ValueError, match="reward Fixed returned 1 scores for 2 completions"):
        Fixed(scores=(1.0,))([make_rollout(1.0), make_rollout(0.0)])


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_score_that_is_not_finite_is_refused(bad: float, make_rollout: Callable[..., Rollout]) -> None:
    with pytest.raises(ValueError, match=f"returned {bad} for completion 1; return None"):
        Fixed(scores=(0.0, bad))([make_rollout(1.0), make_rollout(0.0)])


def test_scores_become_plain_floats(make_rollout: Callable[..., Rollout]) -> None:
    import numpy as np

    scores = Fixed(scores=(np.float32(0.5), True, None))([make_rollout(1.0)] * 3)
    assert scores == [0.5, 1.0, None]
    assert [type(score) for score in scores] == [float, float, type(None)]


def test_the_adapter_separates_rollouts_from_columns(make_rollout: Callable[..., Rollout]) -> None:
    seen: list[RewardBatch] = []

    @dataclass(kw_only=True)
    class Spy(RewardFunction):
        def score(self, batch: RewardBatch) -> list[float | None]:
            seen.append(batch)
            return [0.0] * len(batch)

        def metrics(self, batch: RewardBatch, scores: Any) -> dict[str, float]:
            return {"spy/calls": 1.0}

    logged: dict[str, float] = {}
    adapter = as_trl(Spy())
    assert adapter.__name__ == "Spy"
    rollout = make_rollout(1.0)
    result = adapter(
        prompts=["p"],
        completions=["c"],
        completion_ids=[[1, 2]],
        rollout=[rollout],
        answer=["4"],
        trainer_state=object(),
        log_extra=print,
        log_metric=logged.__setitem__,
        environments=[object()],
    )
    assert result == [0.0]
    assert logged == {"spy/calls": 1.0}
    (batch,) = seen
    assert (batch.rollouts, dict(batch.columns)) == ([rollout], {"answer": ["4"]})


def test_the_adapter_can_be_sent_to_another_process(make_rollout: Callable[..., Rollout]) -> None:
    adapter = pickle.loads(pickle.dumps(as_trl(ExecutionReward())))
    assert adapter.__name__ == "execution"
    assert adapter(prompts=[0], completions=[0], completion_ids=[[1]], rollout=[make_rollout(0.0, 1.0)]) == [0.5]


def test_a_single_reward_is_its_own_only_part() -> None:
    functions, weights = as_trl_functions(ExecutionReward())
    assert ([function.__name__ for function in functions], weights) == (["execution"], [1.0])


@pytest.mark.parametrize("scale_rewards", ["none", "group"])
def test_unscorable_rows_get_advantage_zero_and_leave_the_group_alone(scale_rewards: str, tmp_path: Any) -> None:
    """Case B35, through our adapter and TRL's own advantage code: groups (1, None, None, None) and (1, 0, None, 0).

    The lone survivor of the first group has no one to compare with: advantage 0.
    """
    import torch

    advantages, metrics = advantages_of_trl(
        Fixed(scores=(1.0, None, None, None, 1.0, 0.0, None, 0.0)), scale_rewards, tmp_path
    )
    std = (((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 2) ** 0.5
    divisor = std + 1e-4 if scale_rewards == "group" else 1.0
    expected = [0.0, 0.0, 0.0, 0.0, 2 / 3 / divisor, -1 / 3 / divisor, 0.0, -1 / 3 / divisor]
    torch.testing.assert_close(torch.tensor(advantages), torch.tensor(expected), atol=1e-5, rtol=1e-5)
    assert metrics["reward"] == pytest.approx(0.5)


def advantages_of_trl(
    reward: RewardFunction, scale_rewards: str, tmp_path: Any
) -> tuple[list[float], dict[str, float]]:
    """Advantages and metrics of one step of TRL's trainer, 2 groups of 4."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
    from trl import GRPOConfig, GRPOTrainer

    core = Tokenizer(models.WordLevel({"<pad>": 0, "<eos>": 1, "a": 2}, unk_token="a"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>")
    shape = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
    trainer = GRPOTrainer(
        model=LlamaForCausalLM(LlamaConfig(vocab_size=3, **shape)),
        reward_funcs=[as_trl(reward)],
        train_dataset=Dataset.from_dict({"prompt": ["a", "a a"]}),
        processing_class=tokenizer,
        rollout_func=lambda prompts, _: {
            "prompt_ids": [[2]] * len(prompts),
            "completion_ids": [[2, 1]] * len(prompts),
            "logprobs": [[0.0, 0.0]] * len(prompts),
        },
        args=GRPOConfig(
            output_dir=str(tmp_path),
            per_device_train_batch_size=8,
            num_generations=4,
            max_steps=1,
            scale_rewards=scale_rewards,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            bf16=False,
            gradient_checkpointing=False,
            disable_tqdm=True,
        ),
    )
    trainer.train()
    return list(trainer._logs["advantages"]), trainer.state.log_history[0]
