"""Episodes of several turns: token-exact, masked, within their budget."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from composer_rl.errors import ConfigError, RolloutError
from composer_rl.rollouts.multi_turn import MultiTurnRollout, generation_stop_ids
from composer_rl.rollouts.sampling import SamplingParams
from composer_rl.rollouts.settings import RolloutSettings
from composer_rl.types import Rollout, StepResult, Task
from tests.rollouts.conftest import build_model
from tests.rollouts.helpers import CHATML, CHATML_FORGETTING, HEADERS, ToyEnvironment, build_tokenizer, toy_tasks


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    return build_tokenizer(CHATML)


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Any:
    return build_model("llama", vocab_size=len(tokenizer), max_position_embeddings=512)


def make(tokenizer: Any, *, environment: Any = None, seed: int = 0, hints: Any = None, **settings: Any) -> Any:
    settings = {"max_new_tokens": 12, "max_tokens": 120} | settings
    return MultiTurnRollout.from_settings(
        environment or ToyEnvironment(), tokenizer, RolloutSettings(**settings), seed=seed, hints=hints
    )


def check_record(rollout: Rollout, tokenizer: Any, *, max_tokens: int) -> None:
    """What holds for every rollout, whatever happened in it."""
    assert len(rollout.completion_ids) == len(rollout.logprobs) == len(rollout.env_mask) <= max_tokens
    sampled = [0] * len(rollout.completion_ids)
    for turn in rollout.turns:
        assert turn.start < turn.end
        sampled[turn.start : turn.end] = [1] * (turn.end - turn.start)
        assert turn.text == tokenizer.decode(rollout.completion_ids[turn.start : turn.end], skip_special_tokens=True)
    assert rollout.env_mask == sampled
    assert all(
        (value == 0.0) if mask == 0 else (value < 0.0) for value, mask in zip(rollout.logprobs, sampled, strict=True)
    )
    assert rollout.turns[0].start == 0
    assert rollout.turns[-1].end == len(rollout.completion_ids)
    assert rollout.reward == rollout.turns[-1].reward
    assert (rollout.stop_reason == "solved") == (rollout.reward >= 1.0)
    assert all(turn.observation is not None for turn in rollout.turns[:-1])
    assert rollout.turns[-1].observation is None


def test_ids_are_the_conversation_as_the_template_writes_it(tokenizer: Any, model: Any) -> None:
    tasks = toy_tasks(4)
    batch = make(tokenizer).run(model, tasks, num_samples=6)
    by_id = {task.task_id: task for task in tasks}
    assert [rollout.task_id for rollout in batch.rollouts] == [task.task_id for task in tasks for _ in range(6)]
    lengths = {len(rollout.turns) for rollout in batch.rollouts}
    assert lengths == {1, 2, 3}, "the case should hold episodes of every length"
    for rollout in batch.rollouts:
        check_record(rollout, tokenizer, max_tokens=120)
        conversation = list(by_id[rollout.task_id].prompt)
        for turn in rollout.turns:
            ids = rollout.completion_ids[turn.start : turn.end]
            if ids[-1] == tokenizer.eos_token_id:
                ids = ids[:-1]
            conversation.append({"role": "assistant", "content": tokenizer.decode(ids)})
            if turn.observation is not None:
                conversation.append({"role": "tool", "content": turn.observation})
        whole = tokenizer.decode(rollout.prompt_ids + rollout.completion_ids)
        rendered = tokenizer.apply_chat_template(conversation, tokenize=False)
        # The last turn may have been cut off, and nothing follows its end token.
        assert rendered.startswith(whole)
        assert rendered.removeprefix(whole) in ("\n", "<|im_end|>\n")


def test_sampled_ids_are_kept_where_tokenising_their_text_gives_others(tokenizer: Any, model: Any) -> None:
    batch = make(tokenizer).run(model, toy_tasks(4), num_samples=6)
    differing = 0
    for rollout in batch.rollouts:
        for turn in rollout.turns:
            ids = rollout.completion_ids[turn.start : turn.end]
            differing += tokenizer(tokenizer.decode(ids), add_special_tokens=False)["input_ids"] != ids
    assert differing > 10


def test_logprobs_are_those_of_one_training_forward(tokenizer: Any, model: Any) -> None:
    batch = make(tokenizer, temperature=0.8).run(model, toy_tasks(3), num_samples=4)
    for rollout in batch.rollouts:
        ids = torch.tensor([rollout.prompt_ids + rollout.completion_ids])
        with torch.no_grad():
            logits = model(ids).logits[0, len(rollout.prompt_ids) - 1 : -1] / 0.8
        expected = logits.log_softmax(-1).gather(1, ids[0, len(rollout.prompt_ids) :, None])[:, 0]
        expected = expected * torch.tensor(rollout.env_mask)
        assert rollout.logprobs == pytest.approx(expected.tolist(), abs=2e-5)


@pytest.mark.parametrize("decoder", ["shared_prefix", "cached_forward"])
@pytest.mark.parametrize("max_rows", [None, 5, 1])
def test_results_do_not_depend_on_decoder(tokenizer: Any, model: Any, decoder: Any, max_rows: int | None) -> None:
    def run(kind: Any) -> list[list[int]]:
        rollout = make(tokenizer, max_rows=max_rows)
        rollout.sampler._kind = kind
        return [one.completion_ids for one in rollout.run(model, toy_tasks(3), num_samples=[3, 1, 4]).rollouts]

    assert run(decoder) == run(None)


def test_the_same_seed_gives_the_same_rollouts(tokenizer: Any, model: Any) -> None:
    def run(seed: int) -> list[list[int]]:
        torch.manual_seed(seed + 50)
        return [
            one.completion_ids for one in make(tokenizer, seed=seed).run(model, toy_tasks(2), num_samples=4).rollouts
        ]

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_only_rows_that_go_on_are_stepped_again(tokenizer: Any, model: Any) -> None:
    environment = ToyEnvironment()
    batch = make(tokenizer, environment=environment).run(model, toy_tasks(4), num_samples=6)
    turns = [len(rollout.turns) for rollout in batch.rollouts]
    assert environment.batches == [sum(count >= n for count in turns) for n in (1, 2, 3)]
    assert batch.stats.num_turns == sum(turns)
    assert batch.stats.num_rollouts == 24


def test_fewer_turns_can_be_asked_for(tokenizer: Any, model: Any) -> None:
    batch = make(tokenizer).run(model, toy_tasks(4), num_samples=6, max_turns=1)
    assert {len(rollout.turns) for rollout in batch.rollouts} == {1}
    assert {rollout.stop_reason for rollout in batch.rollouts} <= {"solved", "max_turns", "length"}
    with pytest.raises(ValueError, match="max_turns must be at least 1"):
        make(tokenizer).run(model, toy_tasks(1), num_samples=1, max_turns=0)


class NeverSolved(ToyEnvironment):
    """Every answer is wrong, and the tool turn is long."""

    def __init__(self, text: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.text = text

    def step(self, episodes: Any, actions: Any) -> list[StepResult]:
        return [
            StepResult(reward=0.0, done=False, observation={"role": "tool", "content": self.text}) for _ in episodes
        ]


def test_a_tool_turn_that_does_not_fit_ends_the_rollout(tokenizer: Any, model: Any) -> None:
    rollout = make(tokenizer, environment=NeverSolved("long " * 50), max_tokens=60)
    for one in rollout.run(model, toy_tasks(2), num_samples=2).rollouts:
        check_record(one, tokenizer, max_tokens=12)
        assert one.stop_reason == "length"
        assert len(one.turns) == 1


def test_the_budget_cuts_the_last_turn(tokenizer: Any, model: Any) -> None:
    environment = NeverSolved("no", max_turns=2)
    free = make(tokenizer, environment=environment).run(model, toy_tasks(2), num_samples=8).rollouts
    second_start = max(one.turns[1].start for one in free)
    budget = second_start + 3
    found = make(tokenizer, environment=environment, max_tokens=budget).run(model, toy_tasks(2), num_samples=8).rollouts
    cut = [one for one in found if len(one.completion_ids) == budget]
    assert len(cut) > 3
    for one in found:
        check_record(one, tokenizer, max_tokens=budget)
    assert {one.stop_reason for one in cut} == {"length"}


def test_the_context_of_the_model_bounds_the_budget(tokenizer: Any) -> None:
    small = build_model("llama", vocab_size=len(tokenizer), max_position_embeddings=100)
    rollout = make(tokenizer, environment=NeverSolved("no", max_turns=9), max_tokens=5000)
    found = rollout.run(small, toy_tasks(2), num_samples=4).rollouts
    assert {one.stop_reason for one in found} == {"length"}
    assert max(len(one.prompt_ids) + len(one.completion_ids) for one in found) <= 100


def test_a_prompt_beyond_the_context_is_named_before_anything_is_sampled(tokenizer: Any, model: Any) -> None:
    environment = ToyEnvironment()
    long = Task(task_id="abc123", prompt=[{"role": "user", "content": "x " * 600}])
    with pytest.raises(RolloutError, match=r"task abc123 has \d+ tokens.*context of 512"):
        make(tokenizer, environment=environment).run(model, [*toy_tasks(2), long], num_samples=1)
    assert environment.batches == []


class Hints:
    """Knows something about every other error."""

    def generate(self, error_kind: str, error_meta: dict[str, Any]) -> str | None:
        return f"{error_kind}: length {error_meta['length']}" if error_meta["length"] % 2 else None


def test_hints_stand_before_the_next_turn_and_are_masked(tokenizer: Any, model: Any) -> None:
    batch = make(tokenizer, hints=Hints()).run(model, toy_tasks(4), num_samples=6)
    hinted = 0
    for rollout in batch.rollouts:
        check_record(rollout, tokenizer, max_tokens=120)
        for turn, following in zip(rollout.turns, rollout.turns[1:], strict=False):
            between = tokenizer.decode(rollout.completion_ids[turn.end : following.start])
            assert turn.observation in between
            assert turn.error is not None
            assert turn.hint == Hints().generate(turn.error.kind, turn.error.meta)
            if turn.hint is not None:
                hinted += 1
                assert f"<|im_start|>user\n{turn.hint}<|im_end|>\n<|im_start|>assistant\n" in between
    assert hinted > 3
    assert batch.stats.metrics()["hints/num_shown"] == hinted
    assert make(tokenizer).run(model, toy_tasks(4), num_samples=2).stats.metrics()["hints/num_shown"] == 0


def test_other_templates_carry_episodes_too() -> None:
    tokenizer = build_tokenizer(HEADERS, eos="<|eot|>")
    model = build_model("qwen3", vocab_size=len(tokenizer), max_position_embeddings=512)
    for rollout in make(tokenizer).run(model, toy_tasks(3), num_samples=4).rollouts:
        check_record(rollout, tokenizer, max_tokens=120)


def test_a_template_that_forgets_is_fit_for_one_turn_only() -> None:
    tokenizer = build_tokenizer(CHATML_FORGETTING)
    model = build_model("llama", vocab_size=len(tokenizer), max_position_embeddings=512)
    with pytest.raises(ConfigError, match="several turns"):
        make(tokenizer)
    batch = make(tokenizer, environment=ToyEnvironment(max_turns=1)).run(model, toy_tasks(2), num_samples=2)
    assert len(batch.rollouts) == 4


class Broken(ToyEnvironment):
    """Loses an episode."""

    def step(self, episodes: Any, actions: Any) -> list[StepResult]:
        return super().step(episodes, actions)[:-1]


class Silent(ToyEnvironment):
    """Goes on without saying anything."""

    def step(self, episodes: Any, actions: Any) -> list[StepResult]:
        return [StepResult(reward=0.0, done=False) for _ in episodes]


def test_an_environment_that_breaks_its_contract_is_named(tokenizer: Any, model: Any) -> None:
    with pytest.raises(RolloutError, match="3 results for 4 episodes"):
        make(tokenizer, environment=Broken()).run(model, toy_tasks(2), num_samples=2)
    with pytest.raises(RolloutError, match="neither ended the episode of task task-0 nor answered"):
        make(tokenizer, environment=Silent()).run(model, toy_tasks(2), num_samples=2)


def test_stats_add_up(tokenizer: Any, model: Any) -> None:
    batch = make(tokenizer).run(model, toy_tasks(3), num_samples=4)
    sampled = sum(sum(rollout.env_mask) for rollout in batch.rollouts)
    metrics = batch.stats.metrics()
    assert metrics["rollout/sampled_tokens"] == sampled
    assert metrics["rollout/given_tokens"] == sum(len(rollout.env_mask) for rollout in batch.rollouts) - sampled
    assert metrics["rollout/kept_mass"] == 1.0
    assert all(metrics[name] > 0 for name in ("time/rollout_s", "time/grade_s", "rollout/tokens_per_s"))
    truncated = make(tokenizer, top_p=0.5).run(model, toy_tasks(3), num_samples=4).stats
    assert 0.5 <= truncated.metrics()["rollout/kept_mass"] < 1.0
    before = truncated.num_tokens
    truncated.add(batch.stats)
    assert truncated.num_tokens == before + sampled


def test_evaluation_can_be_greedy(tokenizer: Any, model: Any) -> None:
    rollout = MultiTurnRollout.from_settings(
        ToyEnvironment(), tokenizer, RolloutSettings(), seed=0, sampling=SamplingParams(temperature=0.0)
    )
    found = rollout.run(model, toy_tasks(2), num_samples=2).rollouts
    assert found[0].completion_ids == found[1].completion_ids


def test_stop_ids_of_a_generation_config(model: Any) -> None:
    assert generation_stop_ids(model) == (2,)
    model.generation_config.eos_token_id = [2, 5]
    assert generation_stop_ids(model) == (2, 5)
    model.generation_config.eos_token_id = None
    assert generation_stop_ids(model) == ()
    assert generation_stop_ids(torch.nn.Linear(1, 1)) == ()
