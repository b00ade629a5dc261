"""The embedded model: its shipped files load, fit together and stay small."""

from __future__ import annotations

import json
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from composer_rl.envs.substrates.micro.contents import gold_call
from composer_rl.envs.substrates.micro.protocol import prompt
from composer_rl.envs.substrates.micro.tasks import Mix, generate
from composer_rl.envs.substrates.micro.vocabulary import phrases
from composer_rl.models.tiny import ASSETS, FLOOR_RECORD, TinyModel
from composer_rl.models.tiny_tokenizer import build_tokenizer


def test_the_floor_and_its_tokenizer_load_both_ways() -> None:
    model, tokenizer = TinyModel().load("cpu")
    assert model.dtype == torch.float32
    assert model.num_parameters() < 600_000
    assert model.config.vocab_size >= len(tokenizer)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    other = AutoModelForCausalLM.from_pretrained(ASSETS, dtype=torch.float32)
    ids = AutoTokenizer.from_pretrained(ASSETS)("repo fig", return_tensors="pt").input_ids
    assert ids.tolist()[0] == tokenizer("repo fig").input_ids
    with torch.no_grad():
        assert torch.equal(model(input_ids=ids).logits, other(input_ids=ids).logits)


def test_the_shipped_files_are_small() -> None:
    assert (ASSETS / "model.safetensors").stat().st_size <= 4_000_000
    assert sum(path.stat().st_size for path in ASSETS.iterdir()) < 5_000_000


def test_the_shipped_tokenizer_is_the_one_that_the_vocabulary_makes() -> None:
    shipped = json.loads((ASSETS / "tokenizer.json").read_text())
    built = json.loads(build_tokenizer(phrases()).backend_tokenizer.to_str())
    assert shipped["added_tokens"] == built["added_tokens"], "run: python -m composer_rl.stages.build_tiny tokenizer"
    assert shipped["model"]["vocab"] == built["model"]["vocab"]


def test_prompts_and_answers_are_short() -> None:
    _, tokenizer = TinyModel().load("cpu")
    for spec in islice(generate("train", seed=9, mix=Mix()), 100):
        ids = tokenizer.apply_chat_template(prompt(spec), add_generation_prompt=True, return_dict=False)
        assert len(ids) <= 120
        assert 10 <= len(tokenizer.encode(gold_call(spec).render(), add_special_tokens=False)) <= 30


def test_random_weights_follow_their_seed() -> None:
    first, _ = TinyModel(weights="random", seed=1).load("cpu")
    torch.rand(3)
    again, _ = TinyModel(weights="random", seed=1).load("cpu")
    other, _ = TinyModel(weights="random", seed=2).load("cpu")
    name = "model.layers.0.mlp.up_proj.weight"
    assert torch.equal(first.state_dict()[name], again.state_dict()[name])
    assert not torch.equal(first.state_dict()[name], other.state_dict()[name])


def test_the_record_of_the_floor_is_complete() -> None:
    record = json.loads(FLOOR_RECORD.read_text())
    assert {"seed", "loss", "steps", "cpu_capability", "stage"} <= record.keys()


def test_unknown_weights_are_refused_by_the_configuration() -> None:
    from composer_rl.config.build import build
    from composer_rl.errors import ConfigError

    with pytest.raises(ConfigError, match="weights"):
        build({"_target_": "composer_rl.models.tiny.TinyModel", "weights": "nope"}, path="model")
