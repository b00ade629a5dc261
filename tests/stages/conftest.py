"""A small random model on disk, prompts of a user's own, and a way to run the command line in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

TEMPLATE = (
    "{% for m in messages %}{{ '<' + m['role'] + '>' + m['content'] + '</s>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


def save_model(folder: Path, kind: str) -> Path:
    """A one-layer model of the kind ("llama" or "qwen3") with a byte tokenizer."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    special = ["<pad>", "</s>", "<user>", "<assistant>", "<system>", "<tool>"]
    vocabulary = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(vocabulary)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens(special)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="</s>")
    tokenizer.chat_template = TEMPLATE
    sizes: dict[str, Any] = {
        "vocab_size": len(vocabulary),
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "eos_token_id": 1,
    }
    torch.manual_seed(0)
    if kind == "qwen3":
        model: Any = Qwen3ForCausalLM(Qwen3Config(head_dim=8, **sizes))
    else:
        model = LlamaForCausalLM(LlamaConfig(**sizes))
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    root = tmp_path_factory.mktemp("models")

    def folder(kind: str) -> Path:
        path = root / kind
        return path if path.exists() else save_model(path, kind)

    return folder


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("data") / "prompts.jsonl"
    words = "abcd"
    rows = [{"prompt": f"{x} {y}", "answer": y} for x in words for y in words]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def train(model_folder: Callable[[str], Path], prompts: Path, tmp_path: Path) -> Callable[..., tuple[int, Path]]:
    """Run train.py in this process on the small model and prompts; returns (exit code, run folder)."""

    own_reward = ("reward=function", "reward.function._target_=tests.stages.small_reward.printable")

    def run(
        *overrides: str, kind: str = "llama", folder: str = "run", reward: tuple[str, ...] = own_reward
    ) -> tuple[int, Path]:
        from composer_rl.cli import main

        run_dir = tmp_path / folder
        code = main(
            [
                "env=dataset",
                f"env.path={prompts}",
                "env.heldout_fraction=0.3",
                *reward,
                "trusted_packages=[tests]",
                "model=hf",
                f"model.name={model_folder(kind)}",
                "rollout.max_new_tokens=4",
                "rollout.max_tokens=4",
                "tracker=console",
                "tracker.trackers.console.mode=off",
                f"hydra.run.dir={run_dir}",
                *overrides,
            ]
        )
        return code, run_dir

    return run
