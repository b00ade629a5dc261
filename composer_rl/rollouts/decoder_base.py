"""The seam between the sampler and the ways of running a causal language model token by token."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


class Decoder(ABC):
    """Key/value state of a batch of sequences ("rows") under one model.

    Rows are numbered once, by `prefill`, prompt by prompt: a prompt with G samples owns G consecutive rows. Rows
    are *active* while they are being sampled; `keep` narrows the active rows, `extend` makes rows active again.
    Every method returns the logits of the next token of each active row, `(A, V)` in the model's dtype, in
    ascending order of row number. Padding is known from lengths alone: no token id is ever compared with the pad
    id, so a model whose pad token is its end token is no special case.
    """

    @abstractmethod
    def prefill(
        self, prompts: Sequence[Sequence[int]], samples: Sequence[int], *, capacity: int, retain: bool
    ) -> Tensor:
        """Run each prompt once and start `samples[i]` rows from it; all rows become active.

        Args:
            prompts: token ids of the distinct prompts, each non-empty.
            samples: rows to start from each prompt, at least 1.
            capacity: tokens that may follow before the next `extend`; a hint for allocation.
            retain: whether `extend` will be called later, so that the state of rows that leave is kept.
        """

    @abstractmethod
    def step(self, tokens: Tensor) -> Tensor:
        """Append one token to every active row. `tokens` is `(A,)`, int64."""

    @abstractmethod
    def keep(self, index: Tensor) -> None:
        """Let only the active rows at `index` (ascending positions among the active rows, int64) go on."""

    @abstractmethod
    def extend(
        self, rows: Sequence[int], histories: Sequence[Sequence[int]], num_new: Sequence[int], *, capacity: int
    ) -> Tensor:
        """Append several tokens to some rows and make exactly those rows active.

        Args:
            rows: ascending row numbers; rows that are not named are dropped for good.
            histories: all token ids of each of these rows, prompt included.
            num_new: how many of the last ids of each history the model has not been run on, at least 1.
            capacity: as in `prefill`.
        """
