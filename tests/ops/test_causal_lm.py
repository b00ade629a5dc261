"""The arguments of a forward are found under wrappers and under both names of the cache."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import LlamaConfig, LlamaForCausalLM

from composer_rl.ops.causal_lm import cache_argument, forward_arguments


@pytest.fixture
def model() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(vocab_size=8, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2)
    )


def test_a_forward_is_seen_through_its_adapter(model: Any) -> None:
    from peft import LoraConfig, get_peft_model

    plain = forward_arguments(model)
    assert {"input_ids", "position_ids", "logits_to_keep"} <= plain
    assert forward_arguments(get_peft_model(model, LoraConfig(r=2, target_modules=["q_proj"]))) == plain


def test_the_cache_goes_under_the_name_that_raises_no_warning(model: Any, recwarn: pytest.WarningsRecorder) -> None:
    import torch
    from transformers import DynamicCache

    cache = DynamicCache()
    model(input_ids=torch.tensor([[1, 2]]), use_cache=True, **{cache_argument(model): cache})
    assert cache.get_seq_length() == 2
    assert not [warning for warning in recwarn if "deprecated" in str(warning.message)]


def test_an_older_forward_takes_past_key_values() -> None:
    class Older:
        def forward(self, input_ids: Any, past_key_values: Any = None) -> None: ...

    assert cache_argument(Older()) == "past_key_values"
