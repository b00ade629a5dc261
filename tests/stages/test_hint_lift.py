"""The measure of a hint's content: conditions differ as they must, figures by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from composer_rl.envs.error_sites import MICRO_SITES, read_sites
from composer_rl.envs.micro import MicroEnvironment
from composer_rl.errors import ConfigError
from composer_rl.hints.none import NoHintGenerator
from composer_rl.hints.oracle import OracleHintGenerator
from composer_rl.hints.wrong import WrongHintGenerator
from composer_rl.models.tiny import TinyModel
from composer_rl.rollouts.sampler import BatchedSampler
from composer_rl.rollouts.sampling import SamplingParams
from composer_rl.rollouts.splice import TurnRenderer
from composer_rl.stages.hint_lift import SiteOutcome, answer_logprobs, lift_metrics, measure_hint_lift
from tests.sandboxes.helpers import open_or_skip


@pytest.fixture(scope="module")
def policy() -> tuple[Any, Any]:
    return TinyModel().load("cpu")


@pytest.fixture(scope="module")
def env() -> Iterator[MicroEnvironment]:
    sandbox = open_or_skip(num_workers=1)
    environment = MicroEnvironment(num_train=1, num_heldout=1)
    environment.open(sandbox)
    yield environment
    sandbox.close()


def test_right_and_wrong_hints_pull_apart_on_the_shipped_floor(policy: tuple[Any, Any], env: MicroEnvironment) -> None:
    model, tokenizer = policy
    sampler = BatchedSampler(SamplingParams(temperature=1.0), stop_ids=TurnRenderer(tokenizer).stop_ids, seed=0)
    hints = {"none": NoHintGenerator(), "right": OracleHintGenerator(), "wrong": WrongHintGenerator()}
    sites = read_sites(MICRO_SITES)[:120]
    outcomes = measure_hint_lift(model, tokenizer, env, sites, hints, sampler, max_new_tokens=48)
    metrics = lift_metrics(outcomes)
    assert metrics["hint_lift/none/num_sites"] == 120
    assert metrics["hint_lift/right/solve_rate"] > metrics["hint_lift/none/solve_rate"] + 0.1
    assert metrics["hint_lift/right/solve_rate"] > metrics["hint_lift/wrong/solve_rate"] + 0.2
    assert metrics["hint_lift/right/recovery_logprob"] > metrics["hint_lift/none/recovery_logprob"] + 0.5
    assert metrics["hint_lift/wrong/recovery_logprob"] < metrics["hint_lift/none/recovery_logprob"]
    assert not any(outcome.hinted for outcome in outcomes["none"])
    assert all(outcome.hinted for outcome in outcomes["right"])


def test_figures_by_hand() -> None:
    rows = [
        SiteOutcome(kind="json_decode", solved=True, logprob=-1.0, hinted=True),
        SiteOutcome(kind="json_decode", solved=False, logprob=-3.0, hinted=True),
        SiteOutcome(kind="type_error", solved=False, logprob=-2.0, hinted=True),
    ]
    metrics = lift_metrics({"right": rows})
    assert metrics["hint_lift/right/solve_rate"] == pytest.approx(1 / 3)
    assert metrics["hint_lift/right/recovery_logprob"] == pytest.approx(-2.0)
    assert metrics["hint_lift/json_decode/right/solve_rate"] == 0.5
    assert metrics["hint_lift/json_decode/right/num_sites"] == 2
    assert metrics["hint_lift/type_error/right/recovery_logprob"] == -2.0


def test_log_probabilities_equal_one_row_at_a_time(policy: tuple[Any, Any]) -> None:
    model, tokenizer = policy
    contexts = [tokenizer("repo fig").input_ids, tokenizer("FAILED assert calc(0) == 5").input_ids]
    answers = [tokenizer("write").input_ids, tokenizer('return x + 5"}}').input_ids]
    values = answer_logprobs(model, contexts, answers)
    for context, answer, value in zip(contexts, answers, values, strict=True):
        with torch.no_grad():
            logprobs = model(input_ids=torch.tensor([context + answer])).logits[0].log_softmax(-1)
        places = range(len(context) - 1, len(context) + len(answer) - 1)
        expected = sum(float(logprobs[place, token]) for place, token in zip(places, answer, strict=True))
        assert value == pytest.approx(expected, abs=1e-4)


def test_an_environment_must_know_the_right_answers(policy: tuple[Any, Any]) -> None:
    model, tokenizer = policy
    sampler = BatchedSampler(SamplingParams(temperature=1.0), stop_ids=[1], seed=0)
    with pytest.raises(ConfigError, match="gold_action"):
        measure_hint_lift(model, tokenizer, object(), [], {}, sampler, max_new_tokens=8)  # type: ignore[arg-type]
