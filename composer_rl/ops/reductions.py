"""Which positions of a batch count, and sums and means over them that cannot turn into NaN.

Every loss in this package takes its inputs through a `Selection`: the active positions are picked out before the first
operation, so what stands under the mask (NaN, infinities, padding) is never computed with and gets a gradient of
exactly 0. Setting the result to 0 afterwards would not do: the backward of a softmax or logarithm multiplies that 0 by
the NaN again. A batch without active positions gives 0 that is still attached to the graph, so that backward runs on
every rank.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

IGNORE_INDEX = -100
"""Label of a position that does not count (the convention of Hugging Face and of torch's cross-entropy)."""


def active_positions(mask: torch.Tensor) -> torch.Tensor:
    """Boolean mask of the same shape from a 0/1 mask of any dtype; -100 entries count as 0."""
    return mask > 0


@dataclass(frozen=True)
class Selection:
    """The active positions among `shape`, usually (B, T) tokens or (B,) pairs; build it with `of_mask`, `of_labels`."""

    shape: torch.Size
    active: torch.Tensor | None
    """(*shape) bool, True = counts; None = all positions count."""

    @classmethod
    def of_mask(cls, mask: torch.Tensor | None, shape: torch.Size, *, name: str = "mask") -> Selection:
        """From a mask (*shape) of any dtype: 1 = counts, 0 and -100 = does not; None = everything counts.

        Raises:
            ValueError: the mask has another shape; `name` is what the message calls it.
        """
        return cls(shape, None if mask is None else active_positions(_checked(mask, shape, name)))

    @classmethod
    def of_labels(cls, labels: torch.Tensor | None, shape: torch.Size, *, name: str = "labels") -> Selection:
        """From labels (*shape): everything but -100 counts, 0 included; None = everything counts.

        Raises:
            ValueError: the labels have another shape; `name` is what the message calls them.
        """
        return cls(shape, None if labels is None else _checked(labels, shape, name) != IGNORE_INDEX)

    def pick(self, values: torch.Tensor) -> torch.Tensor:
        """(*shape, ...) to (N, ...): the N active positions in row-major order."""
        if self.active is None:
            return values.reshape(self.shape.numel(), *values.shape[len(self.shape) :])
        return values[self.active]

    def spread(self, picked: torch.Tensor) -> torch.Tensor:
        """(N,) back to (*shape), with 0 where nothing was picked."""
        if self.active is None:
            return picked.reshape(self.shape)
        return picked.new_zeros(self.shape).masked_scatter(self.active, picked)

    def reduce(self, picked: torch.Tensor, reduction: str, *, num_elements: int = 1) -> torch.Tensor:
        """Reduce one value per active position.

        Args:
            picked: (N,) values of the active positions, as from `pick`.
            reduction: a name in REDUCTIONS. batchmean = sum / N; sum; mean = sum / (N * num_elements);
                none = (*shape) with 0 at inactive positions.
            num_elements: how many vocabulary elements each value is the sum of.

        Returns:
            A scalar, or (*shape) for none. 0 attached to the graph where N is 0.

        Raises:
            ValueError: unknown reduction.
        """
        check_reduction(reduction)
        return REDUCTIONS[reduction](self, picked, num_elements)


def _checked(mask: torch.Tensor, shape: torch.Size, name: str) -> torch.Tensor:
    if mask.shape != shape:
        raise ValueError(f"{name} must have shape {tuple(shape)}, one entry for each position, got {tuple(mask.shape)}")
    return mask


REDUCTIONS: dict[str, Callable[[Selection, torch.Tensor, int], torch.Tensor]] = {
    "batchmean": lambda selection, picked, num_elements: picked.sum() / max(picked.numel(), 1),
    "sum": lambda selection, picked, num_elements: picked.sum(),
    "mean": lambda selection, picked, num_elements: picked.sum() / max(picked.numel() * num_elements, 1),
    "none": lambda selection, picked, num_elements: selection.spread(picked),
}


def check_reduction(reduction: str) -> None:
    """Raise ValueError unless `reduction` is a name in REDUCTIONS."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"reduction must be one of {', '.join(REDUCTIONS)}, got {reduction!r}")


def check_same_shape(**tensors: torch.Tensor) -> None:
    """Raise ValueError naming the tensors and their shapes unless all shapes are equal."""
    if len({tensor.shape for tensor in tensors.values()}) > 1:
        shapes = ", ".join(f"{name} {tuple(tensor.shape)}" for name, tensor in tensors.items())
        raise ValueError(f"shapes must be equal, got {shapes}")


def masked_sum(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Sum over the last dimension where the mask is 1.

    Args:
        values: (..., T) floating; what stands under a 0 may be NaN or infinite.
        mask: (..., T), 1 = counts, 0 and -100 = does not.

    Returns:
        (...), 0 for a row without a 1.
    """
    check_same_shape(values=values, mask=mask)
    return values.where(active_positions(mask), 0).sum(-1)


def masked_mean(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Mean over the last dimension where the mask is 1: `masked_sum` / number of ones, 0 for a row without a 1."""
    return masked_sum(values, mask) / active_positions(mask).sum(-1).clamp(min=1)
