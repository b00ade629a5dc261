"""The seam between a run and where its policy comes from: weights plus the tokenizer that goes with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class ModelSource(ABC):
    """Base of all model sources. Building one is free; weights are read only by `load`."""

    def knobs(self) -> list[Knob]:
        """Settings that are switched on, with the metric that shows that each one acted; none by default."""
        return []

    def check(self) -> None:
        """Look at what the user gave (folders) as far as it goes without torch, before a run starts.

        Raises ConfigError. Nothing to look at by default.
        """
        return

    @abstractmethod
    def load(self, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Return the causal language model on `device` ("cpu", "cuda", "cuda:0") and its tokenizer.

        The tokenizer has a chat template that takes `add_generation_prompt`, a pad token and an eos token.
        Raises ConfigError when the source does not exist or has no chat template.
        """
