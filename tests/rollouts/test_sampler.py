"""The sampler against Hugging Face generate, against a full forward, and against itself."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from composer_rl.errors import RolloutError
from composer_rl.rollouts.choose_decoder import choose_decoder
from composer_rl.rollouts.sampler import BatchedSampler, SampledTurn
from composer_rl.rollouts.sampling import SamplingParams

EOS = 2
GREEDY = SamplingParams(temperature=0.0)
KINDS = [
    ("llama", "shared_prefix"),
    ("qwen2", "shared_prefix"),
    ("qwen3", "shared_prefix"),
    ("llama", "cached_forward"),
    ("qwen3", "cached_forward"),
    ("sliding", "cached_forward"),
    ("gemma", "cached_forward"),
]


def make(decoder: Any = None, *, stop_ids: Any = (EOS,), seed: int = 0, share: float = 0.85, **params: Any) -> Any:
    return BatchedSampler(SamplingParams(**params), stop_ids=stop_ids, seed=seed, decoder=decoder, compact_share=share)


def ids_of(turns: list[SampledTurn]) -> list[list[int]]:
    return [turn.ids for turn in turns]


def generate_reference(model: Any, prompts: list[list[int]], *, stop_ids: list[int], length: int) -> list[list[int]]:
    """Greedy ids of Hugging Face generate on left-padded prompts, cut after the first stop token."""
    longest = max(len(prompt) for prompt in prompts)
    padded = torch.tensor([[0] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = model.generate(
        input_ids=padded,
        attention_mask=mask,
        do_sample=False,
        max_new_tokens=length,
        eos_token_id=stop_ids,
        pad_token_id=0,
    )[:, longest:]
    rows = []
    for row in out.tolist():
        ends = [i for i, token in enumerate(row) if token in stop_ids]
        rows.append(row[: ends[0] + 1] if ends else row)
    return rows


def forward_logprobs(model: Any, prompt: list[int], ids: list[int], temperature: float, padding: str) -> list[float]:
    """Log-probabilities of `ids` after `prompt` from one forward with 3 padding tokens on one side."""
    row = [*prompt, *ids]
    padded = [0, 0, 0, *row] if padding == "left" else [*row, 0, 0, 0]
    mask = [0, 0, 0, *[1] * len(row)] if padding == "left" else [*[1] * len(row), 0, 0, 0]
    first = padded.index(row[0], 3 if padding == "left" else 0)
    with torch.no_grad():
        logits = model(
            input_ids=torch.tensor([padded]),
            attention_mask=torch.tensor([mask]),
            position_ids=(torch.tensor([mask]).cumsum(1) - 1).clamp(min=0),
        ).logits[0]
    start = first + len(prompt) - 1
    logprobs = torch.log_softmax(logits[start : start + len(ids)].float() / temperature, dim=-1)
    return logprobs.gather(1, torch.tensor(ids).unsqueeze(1)).squeeze(1).tolist()


@pytest.mark.parametrize(("kind", "decoder"), KINDS)
@pytest.mark.parametrize("stop_ids", [[EOS], [EOS, 17, 40, 63]])
def test_greedy_equals_generate(
    load_model: Any, prompts: list[list[int]], kind: str, decoder: Any, stop_ids: list[int]
) -> None:
    model = load_model(kind)
    turns = make(decoder, stop_ids=stop_ids, temperature=0.0).generate(model, prompts, samples=1, max_new_tokens=20)
    assert ids_of(turns) == generate_reference(model, prompts, stop_ids=stop_ids, length=20)
    assert [turn.stopped for turn in turns] == [turn.ids[-1] in stop_ids for turn in turns]


@pytest.mark.parametrize(("kind", "decoder"), KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logprobs_equal_a_full_forward(
    load_model: Any, prompts: list[list[int]], kind: str, decoder: Any, temperature: float
) -> None:
    model = load_model(kind)
    sampler = make(decoder, temperature=temperature)
    turns = sampler.generate(model, prompts, samples=3, max_new_tokens=16)
    for i, turn in enumerate(turns):
        assert len(turn.ids) == len(turn.logprobs)
        for padding in ("left", "right"):
            expected = forward_logprobs(model, prompts[i // 3], turn.ids, temperature, padding)
            assert turn.logprobs == pytest.approx(expected, abs=1e-5)


def test_greedy_logprobs_are_those_at_temperature_one(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    turn = make(temperature=0.0).generate(model, prompts[:1], samples=1, max_new_tokens=6)[0]
    assert turn.logprobs == pytest.approx(forward_logprobs(model, prompts[0], turn.ids, 1.0, "left"), abs=1e-5)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_both_decoders_and_any_compaction_give_the_same_samples(
    load_model: Any, prompts: list[list[int]], kind: str
) -> None:
    model = load_model(kind)
    stop_ids = [EOS, *range(20, 32)]
    results = [
        make(decoder, stop_ids=stop_ids, seed=5, share=share).generate(
            model, prompts, samples=[1, 4, 2, 3, 5], max_new_tokens=24
        )
        for decoder in ("shared_prefix", "cached_forward")
        for share in (0.0, 0.5, 0.85, 1.0)
    ]
    lengths = {len(turn.ids) for turn in results[0]}
    assert len(lengths) > 5, "the case should hold rows that end at different times"
    for other in results[1:]:
        assert ids_of(other) == ids_of(results[0])
        for a, b in zip(other, results[0], strict=True):
            assert a.logprobs == pytest.approx(b.logprobs, abs=1e-5)


def test_samples_depend_on_the_row_and_not_on_how_rows_are_grouped(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    grouped = make(seed=3).generate(model, [prompts[0], prompts[1]], samples=[3, 1], max_new_tokens=12)
    repeated = [prompts[0]] * 3 + [prompts[1]]
    assert ids_of(make(seed=3).generate(model, repeated, samples=1, max_new_tokens=12)) == ids_of(grouped)
    assert len({tuple(turn.ids) for turn in grouped[:3]}) == 3


def test_the_generator_is_the_samplers_own(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    sampler = make(seed=7)
    sampler.generate(model, prompts, samples=2, max_new_tokens=8)
    state = sampler.state_dict()
    before = torch.get_rng_state()
    first = sampler.generate(model, prompts, samples=2, max_new_tokens=8)
    assert torch.equal(before, torch.get_rng_state())
    torch.manual_seed(99)
    other = make(seed=0)
    other.load_state_dict(state)
    assert ids_of(other.generate(model, prompts, samples=2, max_new_tokens=8)) == ids_of(first)
    assert ids_of(sampler.generate(model, prompts, samples=2, max_new_tokens=8)) != ids_of(first)
    with pytest.raises(ValueError, match="seed, device and generator"):
        other.load_state_dict({"seed": 1})


def test_limits_hold_row_by_row(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    sampler = make(temperature=0.0)
    free = ids_of(sampler.generate(model, prompts, samples=1, max_new_tokens=10))
    with sampler.session(model) as session:
        session.start(prompts, [1] * len(prompts), capacity=10)
        turns = session.sample([1, 10, 4, 2, 7])
    for turn, limit, whole in zip(turns, [1, 10, 4, 2, 7], free, strict=True):
        assert turn.ids == whole[:limit]
        assert turn.stopped == (turn.ids[-1] == EOS)


@pytest.mark.parametrize("kind", ["llama", "qwen3", "sliding"])
@pytest.mark.parametrize("share", [0.0, 0.9])
def test_a_second_turn_equals_starting_from_the_whole_conversation(
    load_model: Any, prompts: list[list[int]], kind: str, share: float
) -> None:
    model = load_model(kind)
    sampler = make(stop_ids=[EOS, *range(20, 32)], share=share, seed=1)
    added = {0: [5, 6, 7], 2: [8], 3: [9] * 11, 6: [4, 4], 7: [3, 2, 3, 2], 8: [7]}
    with sampler.session(model) as session:
        session.start(prompts, [2] * len(prompts), capacity=12, retain=True)
        first = session.sample([12] * 10)
        session.extend(list(added), list(added.values()), capacity=9)
        second = session.sample([9] * len(added))
        session.extend([2, 7], [[11, 12, 13], [14]], capacity=6)
        third = session.sample([6, 3])
    for number, (row, new) in enumerate(added.items()):
        history = [*prompts[row // 2], *first[row].ids, *new]
        expected = forward_logprobs(model, history, second[number].ids, 1.0, "left")
        assert second[number].logprobs == pytest.approx(expected, abs=2e-5)
    for turn, row, new in ((third[0], 2, [11, 12, 13]), (third[1], 7, [14])):
        place = list(added).index(row)
        history = [*prompts[row // 2], *first[row].ids, *added[row], *second[place].ids, *new]
        assert turn.logprobs == pytest.approx(forward_logprobs(model, history, turn.ids, 1.0, "left"), abs=2e-5)
    assert len(third[1].ids) <= 3


def test_modes_are_restored_and_dropout_is_off(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    model.train()
    model.model.layers[1].mlp.eval()
    flags = {name: module.training for name, module in model.named_modules()}
    turns = make(temperature=0.0).generate(model, prompts, samples=1, max_new_tokens=5)
    assert {name: module.training for name, module in model.named_modules()} == flags
    assert ids_of(turns) == ids_of(make(temperature=0.0).generate(model.eval(), prompts, samples=1, max_new_tokens=5))
    with pytest.raises(RuntimeError, match="stop here"), make().session(model.train()):
        raise RuntimeError("stop here")
    assert model.training


def test_lora_acts_in_the_fast_path(load_model: Any, prompts: list[list[int]]) -> None:
    peft = pytest.importorskip("peft", reason="LoRA needs the lora extra")
    model = load_model("qwen3")
    plain = ids_of(make(temperature=0.0).generate(model, prompts, samples=1, max_new_tokens=8))
    config = peft.LoraConfig(r=4, target_modules=["q_proj", "v_proj", "down_proj"], lora_dropout=0.5)
    wrapped = peft.get_peft_model(model, config).train()
    generator = torch.Generator().manual_seed(0)
    for name, parameter in wrapped.named_parameters():
        if "lora_B" in name:
            parameter.data.normal_(generator=generator)
    assert choose_decoder(wrapped.eval()) == "shared_prefix"
    turns = make(temperature=0.0).generate(wrapped.train(), prompts, samples=1, max_new_tokens=8)
    assert ids_of(turns) != plain
    assert ids_of(turns) == generate_reference(wrapped.eval(), prompts, stop_ids=[EOS], length=8)
    slow = make("cached_forward", temperature=0.0).generate(wrapped, prompts, samples=1, max_new_tokens=8)
    assert ids_of(slow) == ids_of(turns)


def test_virtual_token_adapters_are_refused(load_model: Any, prompts: list[list[int]]) -> None:
    peft = pytest.importorskip("peft", reason="prefix tuning needs the lora extra")
    config = peft.PromptTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=2)
    wrapped = peft.get_peft_model(load_model("llama"), config)
    with pytest.raises(RolloutError, match="virtual tokens"):
        make().generate(wrapped, prompts, samples=1, max_new_tokens=2)


def test_bfloat16_is_sampled_in_its_own_precision(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama", dtype=torch.bfloat16)
    assert choose_decoder(model) == "shared_prefix"
    turns = make().generate(model, prompts, samples=2, max_new_tokens=8)
    for i, turn in enumerate(turns):
        expected = forward_logprobs(model, prompts[i // 2], turn.ids, 1.0, "left")
        assert turn.logprobs == pytest.approx(expected, abs=0.25)


def test_autocast_is_sampled_as_it_trains(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("qwen3")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        sampler = make()
        turns = sampler.generate(model, prompts, samples=2, max_new_tokens=6)
        assert choose_decoder(model) == "shared_prefix"
        for i, turn in enumerate(turns):
            expected = forward_logprobs(model, prompts[i // 2], turn.ids, 1.0, "left")
            assert turn.logprobs == pytest.approx(expected, abs=0.25)


def test_a_patched_decoder_is_noticed(load_model: Any, caplog: pytest.LogCaptureFixture) -> None:
    model = load_model("llama")
    model.model.layers[0].register_forward_hook(lambda module, args, output: output * 1.5)
    with caplog.at_level(logging.WARNING):
        assert choose_decoder(model) == "cached_forward"
    assert "LlamaForCausalLM" in caplog.text


@pytest.mark.parametrize(("kind", "expected"), [("gemma", "cached_forward"), ("sliding", "cached_forward")])
def test_other_architectures_take_their_own_forward(load_model: Any, kind: str, expected: str) -> None:
    assert choose_decoder(load_model(kind)) == expected


def test_weights_that_are_not_finite_are_an_error(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    sampler = make()
    sampler.generate(model, prompts, samples=1, max_new_tokens=2)
    model.model.layers[0].mlp.down_proj.weight.data.fill_(float("nan"))
    with pytest.raises(RolloutError, match="not finite"):
        sampler.generate(model, prompts, samples=1, max_new_tokens=2)
    with pytest.raises(RolloutError, match="not finite"):
        make().generate(model, prompts, samples=1, max_new_tokens=2)


def test_bad_requests_are_named(load_model: Any, prompts: list[list[int]]) -> None:
    model = load_model("llama")
    with pytest.raises(ValueError, match="stop_ids"):
        make(stop_ids=[])
    with pytest.raises(RolloutError, match=r"prompt 1 has 250 tokens.*context of 256"):
        make().generate(model, [[5], [5] * 250], samples=1, max_new_tokens=7)
    with pytest.raises(ValueError, match="no empty prompt"):
        make().generate(model, [[]], samples=1, max_new_tokens=7)
    with make().session(model) as session:
        with pytest.raises(RuntimeError, match="needs a start"):
            session.sample([3])
        session.start(prompts, [1] * len(prompts), capacity=3)
        with pytest.raises(ValueError, match="one limit"):
            session.sample([3])
        session.sample([3] * len(prompts))
        with pytest.raises(ValueError, match="ascending rows"):
            session.extend([2, 1], [[3], [3]], capacity=3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_cuda_gives_what_the_cpu_gives_when_greedy(load_model: Any, prompts: list[list[int]]) -> None:
    expected = make(temperature=0.0).generate(load_model("qwen3"), prompts, samples=2, max_new_tokens=16)
    found = make(temperature=0.0).generate(load_model("qwen3").cuda(), prompts, samples=2, max_new_tokens=16)
    assert ids_of(found) == ids_of(expected)
