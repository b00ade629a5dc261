"""Small random models and a tokenizer for the rollout tests, built here and loaded from disk by path."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

VOCAB = 96
EOS = 2


def build_model(kind: str, *, seed: int = 0, **overrides: Any) -> Any:
    """A random causal LM whose logits are spread enough for greedy decoding to be unambiguous."""
    import transformers

    settings: dict[str, Any] = {
        "vocab_size": VOCAB,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "max_position_embeddings": 256,
        "bos_token_id": 1,
        "eos_token_id": EOS,
        "pad_token_id": EOS,
        "initializer_range": 0.2,
    }
    if kind == "qwen3":
        settings |= {"num_key_value_heads": 2, "head_dim": 12}
    if kind == "qwen2":
        settings |= {"num_key_value_heads": 1}
    if kind == "sliding":
        settings |= {"sliding_window": 8}
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3", "sliding": "Mistral", "gemma": "Gemma2"}
    config = getattr(transformers, f"{names[kind]}Config")(**settings | overrides)
    torch.manual_seed(seed)
    return getattr(transformers, f"{names[kind]}ForCausalLM")(config).eval()


@pytest.fixture(scope="session")
def load_model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """`load_model(kind)`: the model after a round trip through a folder."""
    folders: dict[str, Path] = {}

    def load(kind: str, **arguments: Any) -> Any:
        from transformers import AutoModelForCausalLM

        if kind not in folders:
            folders[kind] = tmp_path_factory.mktemp(kind)
            build_model(kind).save_pretrained(folders[kind])
        return AutoModelForCausalLM.from_pretrained(folders[kind], **arguments).eval()

    return load


@pytest.fixture(scope="session")
def prompts() -> list[list[int]]:
    """Prompts of different lengths; some hold the id that is both end and pad token."""
    generator = torch.Generator().manual_seed(11)
    drawn = [torch.randint(3, VOCAB, (n,), generator=generator).tolist() for n in (9, 14, 3, 14, 1)]
    drawn[1][4] = EOS
    drawn[2][-1] = EOS
    return drawn
