"""The embedded model: a Llama of two layers of width 128, small enough to train on a laptop CPU in minutes.

Tokenizer, chat template, configuration and the SFT floor checkpoint ship with the package; nothing is downloaded.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from composer_rl.errors import ConfigError
from composer_rl.models.base import ModelSource

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

ASSETS = Path(__file__).parent / "tiny_assets"
"""Folder with model.safetensors, config.json and the tokenizer's files; `from_pretrained` loads it."""

FLOOR_RECORD = ASSETS / "floor.json"
"""Seed, steps, settings, CPU capability and final loss (nats) of the `stage=sft` run that made the floor. The same
kind of CPU gives the same weights bit for bit; others round otherwise and end within about 0.01 nat."""


@dataclass(kw_only=True)
class TinyModel(ModelSource):
    """The embedded policy."""

    weights: Literal["floor", "random"] = "floor"
    """The shipped SFT checkpoint, or a fresh initialisation of the same size."""
    seed: int = 0
    """Seed of a fresh initialisation."""

    def load(self, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Model in fp32 on `device`, and its tokenizer. Raises ConfigError when the package lacks its assets."""
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

        if not (ASSETS / "config.json").is_file():
            raise ConfigError(f"model=tiny: no model files in {ASSETS}; install the package again")
        tokenizer = PreTrainedTokenizerFast.from_pretrained(ASSETS)
        model: PreTrainedModel
        if self.weights == "floor":
            model = LlamaForCausalLM.from_pretrained(ASSETS, dtype=torch.float32)
        else:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.seed)
                model = LlamaForCausalLM(LlamaConfig.from_pretrained(ASSETS))
        model.to(device)  # type: ignore[arg-type]  # transformers' decorated `to` hides nn.Module's signature
        return model, tokenizer
