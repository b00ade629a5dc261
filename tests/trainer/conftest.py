"""A random Llama of a few thousand parameters with a word tokenizer, and the plain-TRL way to train it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WORDS = [f"w{i}" for i in range(40)]
TEMPLATE = (
    "{% for message in messages %}{{ '<' + message['role'] + '> ' + message['content'] + ' <eos> ' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = ["<pad>", "<eos>", "<unk>", "<user>", "<assistant>", "<system>", "<tool>", *WORDS]
    core = Tokenizer(models.WordLevel({word: i for i, word in enumerate(vocabulary)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", padding_side="left"
    )
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture
def make_model(tokenizer: Any) -> Callable[[], Any]:
    def build(seed: int = 0) -> Any:
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.manual_seed(seed)
        config = LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            pad_token_id=tokenizer.pad_token_id,
            eos_token_id=tokenizer.eos_token_id,
            tie_word_embeddings=True,
        )
        return LlamaForCausalLM(config)

    return build


@pytest.fixture
def make_config(tmp_path: Path) -> Callable[..., Any]:
    def build(**overrides: Any) -> Any:
        from trl import GRPOConfig

        settings: dict[str, Any] = {
            "output_dir": str(tmp_path / "trl"),
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 8,
            "max_steps": 3,
            "learning_rate": 1e-2,
            "logging_steps": 1,
            "report_to": [],
            "save_strategy": "no",
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
            "seed": 3,
        }
        return GRPOConfig(**(settings | overrides))

    return build


@pytest.fixture
def prompts() -> Any:
    from datasets import Dataset

    return Dataset.from_list([{"prompt": [{"role": "user", "content": f"w{i} w{i + 1}"}]} for i in range(12)])


@pytest.fixture
def reward() -> Callable[..., list[float]]:
    def count_small_words(completions: Any, **kwargs: Any) -> list[float]:
        """Share of the words w0..w19 among the first three; many groups of it have no variance."""
        texts = [completion[0]["content"].split()[:3] for completion in completions]
        return [float(any(word in WORDS[:4] for word in words)) for words in texts]

    return count_small_words
