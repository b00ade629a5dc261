"""Muon: singular values near one, momentum, and refusals."""

from __future__ import annotations

import pytest
import torch

from composer_rl.optim.muon import Muon, orthogonalise


@pytest.mark.parametrize("shape", [(8, 8), (16, 4), (4, 16)])
def test_singular_values_come_near_one_and_vectors_stay(shape: tuple[int, int]) -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.randn(*shape, generator=generator, dtype=torch.float64)
    result = orthogonalise(matrix, steps=8)
    assert result.shape == matrix.shape
    assert result.dtype == matrix.dtype
    values = torch.linalg.svdvals(result)
    assert values.min() > 0.6
    assert values.max() < 1.3
    left, _, right = torch.linalg.svd(matrix, full_matrices=False)
    rotated = left.T @ result @ right.T
    assert torch.allclose(rotated, torch.diag(rotated.diagonal()), atol=1e-6)


def test_a_zero_matrix_stays_zero() -> None:
    assert torch.equal(orthogonalise(torch.zeros(3, 5)), torch.zeros(3, 5))


def test_the_step_follows_the_orthogonalised_gradient_with_decay() -> None:
    weight = torch.nn.Parameter(torch.ones(6, 3))
    optimizer = Muon([weight], lr=0.1, momentum=0.0, weight_decay=0.5)
    gradient = torch.randn(6, 3, generator=torch.Generator().manual_seed(1))
    weight.grad = gradient.clone()
    optimizer.step()
    expected = torch.ones(6, 3) * (1 - 0.1 * 0.5) - 0.1 * 2**0.5 * orthogonalise(gradient)
    assert torch.allclose(weight, expected, atol=1e-6)


def test_momentum_is_nesterov() -> None:
    weight = torch.nn.Parameter(torch.zeros(2, 2))
    optimizer = Muon([weight], lr=1.0, momentum=0.5)
    first, second = torch.eye(2), torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    for gradient in (first, second):
        before = weight.detach().clone()
        weight.grad = gradient.clone()
        optimizer.step()
    buffer = 0.5 * (0.5 * first) + 0.5 * second
    assert torch.allclose(weight - before, -orthogonalise(0.5 * second + 0.5 * buffer), atol=1e-5)


def test_parameters_without_a_gradient_are_left_alone() -> None:
    weight = torch.nn.Parameter(torch.ones(2, 2))
    assert Muon([weight]).step() is None
    assert torch.equal(weight, torch.ones(2, 2))


def test_wrong_settings_are_refused() -> None:
    matrix = torch.nn.Parameter(torch.ones(2, 2))
    with pytest.raises(ValueError, match="lr must be at least 0, got -1"):
        Muon([matrix], lr=-1)
    with pytest.raises(ValueError, match="momentum must be in"):
        Muon([matrix], momentum=1.0)
    with pytest.raises(ValueError, match="weight_decay"):
        Muon([matrix], weight_decay=-0.1)
    with pytest.raises(ValueError, match="matrices only"):
        Muon([torch.nn.Parameter(torch.ones(3))])
