"""Rebuilds the files that ship with the package, from a finished run of `stage=sft`:

python -m composer_rl.stages.build_tiny tokenizer              # before training, when the vocabulary changed
python -m composer_rl.stages.build_tiny floor <run folder>     # the floor's weights and what they reproduce to
python -m composer_rl.stages.build_tiny sites                  # the frozen error sites of the floor
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from composer_rl.envs.error_sites import MICRO_SITES, ErrorSite, collect, write_sites
from composer_rl.envs.micro import MicroEnvironment
from composer_rl.envs.substrates.micro.vocabulary import phrases
from composer_rl.models.tiny import ASSETS, FLOOR_RECORD, TinyModel
from composer_rl.models.tiny_tokenizer import build_tokenizer

NUM_SITE_TASKS = 800
"""Held-out tasks that the floor is sampled on for the frozen sites."""
SITE_SEED = 1
"""Seed of these tasks: others than the ones that a default run evaluates on, which have seed 0."""
NUM_SITES = 500
"""Sites that are kept, in sampling order."""


def write_tokenizer() -> None:
    """Tokenizer, chat template and model configuration."""
    from transformers import LlamaConfig

    tokenizer = build_tokenizer(phrases())
    tokenizer.save_pretrained(ASSETS)
    LlamaConfig(
        vocab_size=8 * -(-len(tokenizer) // 8),
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        architectures=["LlamaForCausalLM"],
        dtype="float32",
    ).save_pretrained(ASSETS)


def write_floor(run_dir: Path) -> None:
    """Weights of a finished `stage=sft` run of this machine, and a record of what made them.

    The number of threads does not change the result; the vector instructions of the CPU do, by their rounding.
    """
    result = json.loads((run_dir / "result.json").read_text(encoding="utf-8"))
    if result["status"] != "succeeded" or "sft/loss" not in result["metrics"]:
        raise SystemExit(f"{run_dir} holds no finished run of stage=sft")
    for name in ("model.safetensors", "generation_config.json"):
        shutil.copyfile(run_dir / "checkpoint" / name, ASSETS / name)
    import torch

    record = {
        "seed": result["seeds"]["seed"],
        "loss": result["metrics"]["sft/loss"],
        "steps": result["metrics"]["train/steps"],
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "stage": result["config"]["stage"],
    }
    FLOOR_RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def sample_sites(num_tasks: int, *, seed: int) -> list[ErrorSite]:
    """Errors of the shipped floor on held-out tasks at temperature 1."""
    from composer_rl.rollouts.multi_turn import MultiTurnRollout
    from composer_rl.rollouts.sampler import BatchedSampler
    from composer_rl.rollouts.sampling import SamplingParams
    from composer_rl.rollouts.splice import TurnRenderer
    from composer_rl.sandboxes.process import ProcessSandbox

    model, tokenizer = TinyModel().load("cpu")
    env = MicroEnvironment(num_heldout=num_tasks, seed=seed)
    renderer = TurnRenderer(tokenizer)
    sampler = BatchedSampler(SamplingParams(temperature=1.0), stop_ids=renderer.stop_ids, seed=seed)
    with ProcessSandbox() as sandbox:
        env.open(sandbox)
        tasks = env.tasks("heldout")
        runner = MultiTurnRollout(env, renderer, sampler, max_new_tokens=48, max_tokens=256, max_rows=200)
        rollouts = runner.run(model, tasks, num_samples=1).rollouts
    return collect(rollouts, tasks)


def main(arguments: Sequence[str]) -> None:
    """Do what the command line asks for."""
    match list(arguments):
        case ["tokenizer"]:
            write_tokenizer()
        case ["floor", folder]:
            write_floor(Path(folder))
        case ["sites"]:
            write_sites(MICRO_SITES, sample_sites(NUM_SITE_TASKS, seed=SITE_SEED)[:NUM_SITES])
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
