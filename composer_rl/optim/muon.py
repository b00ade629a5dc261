"""Muon in fp32: momentum whose matrix updates are orthogonalised by Newton-Schulz iterations.

Source: Keller Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024). Departure: the
iteration runs in the parameters' own dtype, because bfloat16, the original's choice, is emulated on most CPUs and
takes twice as long there. Embeddings, heads and vectors do not belong in Muon; give them to AdamW.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import overload

import torch

COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Quintic polynomial of the iteration: steep at zero, about 1 on (0.3, 1.2)."""


def orthogonalise(matrix: torch.Tensor, *, steps: int = 5, eps: float = 1e-7) -> torch.Tensor:
    """Replace the singular values of `matrix` (R, C) by values near 1, keeping its singular vectors.

    The result has the input's shape and dtype. A zero matrix stays zero.
    """
    a, b, c = COEFFICIENTS
    tall = matrix.size(0) > matrix.size(1)
    x = matrix.T if tall else matrix
    x = x / (x.norm() + eps)
    for _ in range(steps):
        gram = x @ x.T
        x = a * x + (b * gram + c * (gram @ gram)) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Muon for 2-D parameters.

    Args:
        params: matrices (R, C), or parameter groups of them.
        lr: step size; the update has an RMS of about `lr * max(1, R / C) ** 0.5` per unit of sqrt(min(R, C)).
        momentum: Nesterov momentum in [0, 1).
        weight_decay: decoupled, per unit of lr, at least 0.

    Raises ValueError for a setting outside its range or a parameter that is no matrix.
    """

    def __init__(
        self,
        params: Iterable[torch.Tensor] | Iterable[dict[str, object]],
        *,
        lr: float = 2e-2,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        if lr < 0:
            raise ValueError(f"lr must be at least 0, got {lr}")
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be in [0, 1), got {momentum}")
        if weight_decay < 0:
            raise ValueError(f"weight_decay must be at least 0, got {weight_decay}")
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(f"Muon takes matrices only, got a parameter of shape {tuple(parameter.shape)}")

    @overload
    def step(self, closure: None = ...) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One update of every parameter that has a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            momentum = group["momentum"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                buffer = state["momentum_buffer"]
                buffer.lerp_(parameter.grad, 1 - momentum)
                update = orthogonalise(parameter.grad.lerp(buffer, momentum))
                rows, columns = parameter.shape
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.add_(update, alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)
        return loss
