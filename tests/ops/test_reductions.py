"""Sums and means over active positions, with anything under the mask."""

from __future__ import annotations

import math

import pytest
import torch

from composer_rl.ops.reductions import REDUCTIONS, Selection, active_positions, masked_mean, masked_sum

VALUES = [[1.0, math.nan, 3.0], [math.inf, -math.inf, 5.0]]
MASK = [[1, 0, 1], [-100, 0, 1]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32, torch.bfloat16])
def test_masks_of_any_dtype(dtype: torch.dtype) -> None:
    assert active_positions(torch.tensor([[0, 1]], dtype=dtype)).tolist() == [[False, True]]


def test_the_ignore_index_counts_as_zero() -> None:
    assert active_positions(torch.tensor(MASK)).tolist() == [[True, False, True], [False, False, True]]


def test_masked_sum_and_mean_by_hand() -> None:
    values, mask = torch.tensor(VALUES), torch.tensor(MASK)
    assert masked_sum(values, mask).tolist() == [4.0, 5.0]
    assert masked_mean(values, mask).tolist() == [2.0, 5.0]


def test_a_row_without_ones_has_mean_zero_and_a_gradient() -> None:
    values = torch.tensor([[math.nan, 1.0]], requires_grad=True)
    mean = masked_mean(values, torch.zeros(1, 2))
    mean.sum().backward()
    assert mean.tolist() == [0.0]
    assert values.grad is not None
    assert values.grad.tolist() == [[0.0, 0.0]]


@pytest.mark.parametrize(("reduction", "expected"), [("sum", 9.0), ("batchmean", 3.0), ("mean", 1.5)])
def test_reductions_by_hand(reduction: str, expected: float) -> None:
    values = torch.tensor(VALUES)
    selection = Selection.of_mask(torch.tensor(MASK), values.shape)
    assert selection.reduce(selection.pick(values), reduction, num_elements=2).item() == expected


def test_reduction_none_puts_values_back_in_their_place() -> None:
    values = torch.tensor(VALUES)
    selection = Selection.of_mask(torch.tensor(MASK), values.shape)
    assert selection.reduce(selection.pick(values), "none").tolist() == [[1.0, 0.0, 3.0], [0.0, 0.0, 5.0]]
    everything = Selection.of_mask(None, values.shape)
    assert everything.reduce(everything.pick(values), "none").shape == values.shape


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(("shape", "masked"), [((2, 3), True), ((0, 3), True), ((0, 3), False), ((2, 0), False)])
def test_nothing_active_gives_zero_attached_to_the_graph(reduction: str, shape: tuple[int, int], masked: bool) -> None:
    logits = torch.full((*shape, 4), math.nan, requires_grad=True)
    selection = Selection.of_mask(torch.zeros(shape) if masked else None, torch.Size(shape))
    loss = selection.reduce(selection.pick(logits).log_softmax(-1).sum(-1), reduction, num_elements=4).sum()
    loss.backward()
    assert loss.item() == 0.0
    assert logits.grad is not None
    assert torch.equal(logits.grad, torch.zeros_like(logits))


def test_labels_count_unless_they_are_the_ignore_index() -> None:
    selection = Selection.of_labels(torch.tensor([[0, 7, -100]]), torch.Size((1, 3)))
    assert selection.pick(torch.tensor([[1.0, 2.0, 3.0]])).tolist() == [1.0, 2.0]


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"response_mask must have shape \(2, 3\)"):
        Selection.of_mask(torch.ones(2, 4), torch.Size((2, 3)), name="response_mask")
    with pytest.raises(ValueError, match="reduction must be one of batchmean, sum, mean, none, got 'avg'"):
        Selection.of_mask(None, torch.Size((1,))).reduce(torch.ones(1), "avg")
    with pytest.raises(ValueError, match=r"values \(1, 2\), mask \(1, 3\)"):
        masked_sum(torch.ones(1, 2), torch.ones(1, 3))
