"""Tokens per CPU-second: our sampler against TRL's own generation, on the same prompts, in one run, interleaved.

    python benchmarks/rollout.py                     # the tiny model, on its own tasks
    python benchmarks/rollout.py --model random      # its shape with random weights: no row ends by itself
    python benchmarks/rollout.py --model qwen3       # a random Qwen3 of 8 layers x 256 with a vocabulary of 50000
    python benchmarks/rollout.py --model <folder>    # any saved causal LM with its tokenizer

TRL's side is `GRPOTrainer._generate_single_turn`, that is transformers' generate as TRL 1.16 calls it: every prompt
repeated to its samples, left-padded, sampled at temperature 1. Ours is one `BatchedSampler.generate` call, once with
the decoder chosen for the model and once with the model's own forward. CPU time is that of the process; one thread by
default, because a second one costs more CPU time than it saves in calls this small, on both sides. A random model
draws its end token rarely, so every row runs to the limit, which favours TRL: ours drops rows that have ended.
`--end-share 0.07` declares that share of the vocabulary to be end tokens: random rows then end after 14 tokens on
average.
"""

from __future__ import annotations

import argparse
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from composer_rl.rollouts.sampler import BatchedSampler
from composer_rl.rollouts.sampling import SamplingParams
from composer_rl.rollouts.splice import TurnRenderer


def load(name: str) -> tuple[Any, Any]:
    """Model and tokenizer of a name that the module text lists, or of a folder."""
    import transformers

    from composer_rl.models.tiny import TinyModel

    if name == "tiny":
        return TinyModel().load("cpu")
    random, tokenizer = TinyModel(weights="random").load("cpu")
    if name == "random":
        return random, tokenizer
    if name != "qwen3":
        tokenizer = transformers.AutoTokenizer.from_pretrained(name)
        return transformers.AutoModelForCausalLM.from_pretrained(name), tokenizer
    torch.manual_seed(0)
    config = transformers.Qwen3Config(
        vocab_size=50_000,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=8,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return transformers.Qwen3ForCausalLM(config), tokenizer


def testbed_prompts(tokenizer: Any, count: int) -> list[list[int]]:
    """Token ids of the first training prompts of the embedded testbed."""
    from composer_rl.envs.micro import MicroEnvironment

    renderer = TurnRenderer(tokenizer)
    tasks = MicroEnvironment(num_train=count, num_heldout=1).tasks("train")
    return [renderer.prompt_ids(task.prompt) for task in tasks]


def end_tokens(tokenizer: Any, share: float) -> list[int]:
    """The tokenizer's own end tokens, or that share of the vocabulary, spread over it."""
    if share == 0.0:
        return list(TurnRenderer(tokenizer).stop_ids)
    size = len(tokenizer)
    return sorted({round(i / share) for i in range(1, int(size * share))} - {tokenizer.pad_token_id})


def trl_generation(model: Any, tokenizer: Any, *, samples: int, max_new_tokens: int, folder: str) -> Callable[..., Any]:
    """TRL's generation as a function of already repeated prompts; returns lists of sampled ids."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    settings = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        num_generations=samples,
        per_device_train_batch_size=samples,
        max_completion_length=max_new_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        report_to=[],
        max_steps=1,
    )
    trainer = GRPOTrainer(
        model=model,
        reward_funcs=lambda completions, **kwargs: [0.0] * len(completions),
        args=settings,
        train_dataset=Dataset.from_list([{"prompt": "unused"}] * samples),
        processing_class=tokenizer,
    )

    def generate(prompts: list[list[int]]) -> list[list[int]]:
        repeated = [prompt for prompt in prompts for _ in range(samples)]
        return trainer._generate_single_turn(repeated, None, {}, samples)[0]

    return generate


def measure(contenders: dict[str, Callable[..., Any]], prompts: list[list[int]], rounds: int) -> dict[str, list[float]]:
    """Tokens per CPU-second of each contender in each round; the order turns from round to round."""
    names = list(contenders)
    rates: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-1, rounds):  # round -1 warms up
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.process_time()
            rows = contenders[name](prompts)
            seconds = time.process_time() - start
            if number >= 0:
                rates[name].append(sum(len(row) for row in rows) / seconds)
    return rates


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", default="tiny", help="tiny, random, qwen3, or a folder")
    parser.add_argument("--prompts", type=int, default=12)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--max-new-tokens", type=int, default=48)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--end-share", type=float, default=0.0, help="share of the vocabulary that ends a row")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)

    model, tokenizer = load(arguments.model)
    prompts = testbed_prompts(tokenizer, arguments.prompts)
    stop_ids = end_tokens(tokenizer, arguments.end_share)
    model.generation_config.eos_token_id = stop_ids
    limits = {"samples": arguments.samples, "max_new_tokens": arguments.max_new_tokens}
    own = {
        "composer_rl": BatchedSampler(SamplingParams(), stop_ids=stop_ids),
        "composer_rl, model's own forward": BatchedSampler(
            SamplingParams(), stop_ids=stop_ids, decoder="cached_forward"
        ),
    }

    def ours(sampler: BatchedSampler) -> Callable[..., Any]:
        return lambda given: [turn.ids for turn in sampler.generate(model, given, **limits)]

    with tempfile.TemporaryDirectory() as folder:
        contenders = {"TRL (transformers generate)": trl_generation(model, tokenizer, **limits, folder=folder)}
        contenders |= {name: ours(sampler) for name, sampler in own.items()}
        rates = measure(contenders, prompts, arguments.rounds)

    lengths = [len(prompt) for prompt in prompts]
    table = Table(
        title=(
            f"{arguments.model}: {sum(p.numel() for p in model.parameters()) / 1e6:.2f}M parameters, "
            f"{arguments.prompts} prompts of {min(lengths)}-{max(lengths)} tokens x {arguments.samples} samples, "
            f"up to {arguments.max_new_tokens} new tokens, end share {arguments.end_share}, {arguments.rounds} rounds, "
            f"{torch.get_num_threads()} threads on {platform.machine()}"
        ),
        title_justify="left",
    )
    for heading in ("", "tokens per CPU-second (median)", "quartiles", "ratio to TRL (median of rounds)", "quartiles"):
        table.add_column(heading, justify="left" if not heading else "right")
    baseline = rates["TRL (transformers generate)"]
    for name, values in rates.items():
        ratios = [value / base for value, base in zip(values, baseline, strict=True)]
        table.add_row(
            name,
            f"{statistics.median(values):,.0f}",
            "{0:,.0f} to {2:,.0f}".format(*statistics.quantiles(values, n=4)),
            f"{statistics.median(ratios):.2f}",
            "{0:.2f} to {2:.2f}".format(*statistics.quantiles(ratios, n=4)),
        )
    Console(width=150).print(table)


if __name__ == "__main__":
    main()
