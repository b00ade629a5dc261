"""A tiny model under TRL's own GRPOTrainer, with completions and rewards that the test decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

VOCABULARY = 24
PAD, EOS = 0, 1


@pytest.fixture(scope="session")
def tiny_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": PAD, "<eos>": EOS} | {f"t{i}": i for i in range(2, VOCABULARY)}
    core = Tokenizer(models.WordLevel(words, unk_token="t2"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>", padding_side="left")


@pytest.fixture
def make_trainer(tiny_tokenizer: Any, tmp_path: Path) -> Callable[..., Any]:
    """Build `GRPOTrainer` on 2 prompts. `completions` replaces generation: one list of ids per row.

    `logprob` is what the sampler says of every one of its tokens.
    """

    def build(
        *,
        completions: Sequence[Sequence[int]] | None = None,
        logprob: float | None = 0.0,
        reward_funcs: Any = None,
        **config: Any,
    ) -> Any:
        import torch
        from datasets import Dataset
        from transformers import LlamaConfig, LlamaForCausalLM
        from trl import GRPOConfig, GRPOTrainer

        def rollout(prompts: list[str], trainer: Any) -> dict[str, Any]:
            assert completions is not None
            ids = [list(row) for row in completions]
            return {
                "prompt_ids": [[5, 6]] * len(prompts),
                "completion_ids": ids,
                "logprobs": [[logprob] * len(i) for i in ids],
            }

        torch.manual_seed(0)
        shape = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
        model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, pad_token_id=PAD, eos_token_id=EOS, **shape))
        settings: dict[str, Any] = {
            "output_dir": str(tmp_path / "trl"),
            "per_device_train_batch_size": 8,
            "num_generations": 4,
            "max_completion_length": 6,
            "max_steps": 1,
            "optim": "sgd",
            "learning_rate": 1.0,
            "lr_scheduler_type": "constant",
            "max_grad_norm": 0.0,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": [],
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "disable_tqdm": True,
        }
        return GRPOTrainer(
            model=model,
            args=GRPOConfig(**(settings | config)),
            reward_funcs=reward_funcs or [lambda completion_ids, **_: [float(len(ids)) for ids in completion_ids]],
            train_dataset=Dataset.from_dict({"prompt": ["t5 t6", "t7 t8"]}),
            processing_class=tiny_tokenizer,
            rollout_func=rollout if completions is not None else None,
        )

    return build
