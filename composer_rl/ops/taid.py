"""TAID: cross-entropy against a target between the student and the teacher, and the schedule of that target.

    p_t = softmax((1 - t) stop_grad(student logits) + t teacher logits)
    L   = -(sum over tokens, sum over v of p_t(v) log softmax(student logits)(v)) / number of tokens

arXiv 2501.16937 (eq. 3 and algorithm 1); SakanaAI/TAID at a062892, `compute_loss` and `update_t`. The loss is a
cross-entropy: at t = 0 its gradient is 0 while its value is the student's entropy.

Departures from upstream, none of which changes a healthy run: no active token gives 0 instead of 0/0; a loss that is
no observation (NaN, infinite, or the 0 of a batch without active tokens) leaves the momentum alone, which it would
spoil for good; t never passes t_end, also with adaptation off and more steps than planned, and never falls; t_start
above t_end is refused; the state is made on the CPU unless told otherwise. Update once per optimizer step of training,
not once per forward.
"""

from __future__ import annotations

import math

import torch

from composer_rl.ops.logprobs import at_least_float32, log_floor, log_softmax
from composer_rl.ops.reductions import Selection, check_same_shape


def check_t(t: float | torch.Tensor, *, name: str = "t") -> None:
    """Raise ValueError unless t is one number in [0, 1]."""
    if isinstance(t, torch.Tensor) and t.numel() != 1:
        raise ValueError(f"{name} must be one number, got a tensor of shape {tuple(t.shape)}")
    if not 0 <= float(t) <= 1:
        raise ValueError(f"{name} must be in [0, 1], got {float(t)}")


def taid_per_token(student: torch.Tensor, teacher: torch.Tensor, t: float | torch.Tensor) -> torch.Tensor:
    """(N, V) logits of student and teacher to (N,) cross-entropies in nats, at least float32; t as in `taid_loss`."""
    student, teacher = at_least_float32(student, teacher)
    t = float(t)
    # A forbidden token (-inf) would be 0 * inf = NaN in the mix at either end of t.
    floor = log_floor(student.dtype)
    target = ((1 - t) * student.detach().clamp(min=floor) + t * teacher.clamp(min=floor)).softmax(-1)
    return -(target * log_softmax(student)).sum(-1)


def taid_loss(
    student_logits: torch.Tensor,
    teacher_logits: torch.Tensor,
    mask: torch.Tensor | None = None,
    *,
    t: float | torch.Tensor,
) -> torch.Tensor:
    """Cross-entropy of the student against the interpolated target, averaged over tokens.

    Args:
        student_logits: (B, T, V), any floating dtype; at least float32 inside, float64 stays.
        teacher_logits: (B, T, V), aligned with the student's. Not detached here.
        mask: (B, T), 1 = the token counts; 0 and -100 entries may hold NaN logits. None = every token counts.
        t: in [0, 1]: 0 = the student itself (no gradient), 1 = the teacher; usually `TAIDScheduler.t`.

    Returns:
        Scalar in nats, the mean over active tokens; 0 attached to the graph where there is none.

    Raises:
        ValueError: shapes differ, or t is not one number in [0, 1].
    """
    check_t(t)
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    tokens = Selection.of_mask(mask, student_logits.shape[:-1])
    return tokens.reduce(taid_per_token(tokens.pick(student_logits), tokens.pick(teacher_logits), t), "batchmean")


class TAIDScheduler:
    """The interpolation coefficient t over training: a linear floor, lifted while the loss falls.

        r = (previous loss - loss) / (previous loss + 1e-15),   m <- beta m + (1 - beta) r
        delta = alpha sigmoid(m) (1 - t),   t <- min(t_end, max(t_start + (t_end - t_start) step / num_train_steps,
                                                                t + delta))

    State (t, previous loss, momentum) is in float32, as upstream.

    Args:
        num_train_steps: planned optimizer steps, at least 1.
        t_start: first t, in [0, t_end]; 0.4 in the paper.
        t_end: last t and ceiling, in [t_start, 1]; 1.0 in the paper.
        alpha: size of the adaptive part, at least 0; 5e-4 in the paper.
        beta: decay of the momentum, in [0, 1); 0.99 in the paper.
        disable_adaptive: follow the linear floor alone.
        device: of the state; losses are brought to it.

    Raises:
        ValueError: an argument is out of range.
    """

    def __init__(
        self,
        num_train_steps: int,
        *,
        t_start: float = 0.4,
        t_end: float = 1.0,
        alpha: float = 5e-4,
        beta: float = 0.99,
        disable_adaptive: bool = False,
        device: torch.device | str = "cpu",
    ) -> None:
        if num_train_steps < 1:
            raise ValueError(f"num_train_steps must be at least 1, got {num_train_steps}")
        if not 0 <= t_start <= t_end <= 1:
            raise ValueError(f"t_start and t_end must fulfil 0 <= t_start <= t_end <= 1, got {t_start} and {t_end}")
        if not 0 <= alpha < math.inf:
            raise ValueError(f"alpha must be at least 0 and finite, got {alpha}")
        if not 0 <= beta < 1:
            raise ValueError(f"beta must be in [0, 1), got {beta}")
        self.num_train_steps = num_train_steps
        self.t_start = t_start
        self.t_end = t_end
        self.alpha = alpha
        self.beta = beta
        self.disable_adaptive = disable_adaptive
        self._state = {
            name: torch.tensor(value, dtype=torch.float32, device=device)
            for name, value in {"t": t_start, "prev_loss": math.inf, "momentum": 0.0}.items()
        }

    @property
    def t(self) -> float:
        """Current interpolation coefficient."""
        # Never above t_end by the rounding to float32.
        return min(self._state["t"].item(), self.t_end)

    @property
    def prev_loss(self) -> torch.Tensor:
        """Scalar: the last loss that was observed, infinity before the first."""
        return self._state["prev_loss"]

    @property
    def momentum(self) -> torch.Tensor:
        """Scalar: moving average of the relative fall of the loss."""
        return self._state["momentum"]

    @torch.no_grad()
    def update_t(self, loss: torch.Tensor | float, global_step: int) -> torch.Tensor | None:
        """Take in the loss of one optimizer step.

        Args:
            loss: scalar TAID loss, averaged over the whole step (accumulation and ranks).
            global_step: 0-based number of that step; beyond num_train_steps the floor stays at t_end.

        Returns:
            Scalar adaptive step delta >= 0 that was tried on top of t (also with adaptation off, where it is not
            used); None if nothing was observed: the first loss is only stored, and one that is not finite and
            positive only lets t follow the floor.
        """
        state = self._state
        loss = torch.as_tensor(loss).detach().to(state["t"])
        observed = bool(torch.isfinite(loss) & (loss > 0))
        if torch.isinf(state["prev_loss"]):
            if observed:
                state["prev_loss"] = loss.clone()
            return None
        delta = None
        if observed:
            relative_fall = (state["prev_loss"] - loss) / (state["prev_loss"] + 1e-15)
            state["momentum"] = self.beta * state["momentum"] + (1 - self.beta) * relative_fall
            state["prev_loss"] = loss.clone()
            delta = self.alpha * torch.sigmoid(state["momentum"]) * (1 - state["t"])
        lifted = state["t"] if delta is None or self.disable_adaptive else state["t"] + delta
        floor = self.t_start + (self.t_end - self.t_start) * min(global_step / self.num_train_steps, 1.0)
        state["t"] = lifted.clamp(min=floor).clamp(max=self.t_end)
        return delta

    def to(self, device: torch.device | str) -> TAIDScheduler:
        """Move the state, and return self."""
        self._state = {name: value.to(device) for name, value in self._state.items()}
        return self

    def state_dict(self) -> dict[str, float]:
        """t, prev_loss (infinity before the first loss) and momentum as plain numbers."""
        return {name: value.item() for name, value in self._state.items()}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Take over a state of `state_dict`.

        Raises:
            ValueError: names are missing or unknown.
        """
        if state.keys() != self._state.keys():
            raise ValueError(f"the state of a TAIDScheduler has {sorted(self._state)}, got {sorted(state)}")
        self._state = {name: torch.as_tensor(state[name]).to(old) for name, old in self._state.items()}
