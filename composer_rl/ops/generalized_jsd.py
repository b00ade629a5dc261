"""Generalised Jensen-Shannon divergence between student and teacher, the loss of OPSD and SDPO.

    D_beta = beta KL(T || M) + (1 - beta) KL(S || M),   M = (1 - beta) S + beta T,   0 < beta < 1
    D_0 = KL(T || S)  (forward),   D_1 = KL(S || T)  (reverse)

OPSD (arXiv 2601.18734; siyan-zhao/OPSD at 590ec26, `generalized_jsd_loss`) and SDPO (arXiv 2601.20802; lasgroup/SDPO
at 0e6d510), which differ in the support: OPSD takes the teacher's k likeliest tokens and renormalises both sides on
them, SDPO takes the student's and keeps the rest of the mass in one more bucket.

The ends are branches of their own, as upstream: D_beta itself tends to 0 at both ends, as `jsd_scale` says.

Departures from upstream: both sides are cast to at least float32 before the temperature; no active token gives 0
attached to the graph instead of 0/0; without labels the divisor is the number of tokens; top_k=1 without the tail
bucket, which is 0 for any teacher, is refused; the clip has a name for what it clips (OPSD's help says per token, its
code clips each vocabulary element).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch

from composer_rl.ops.logprobs import at_least_float32, log_of_probs, log_softmax
from composer_rl.ops.reductions import Selection, check_reduction, check_same_shape

EDGE = 0.05
"""Distance of beta from 0 and 1 below which the divergence has all but vanished, without being the KL of that end."""


def jsd_scale(beta: float) -> float:
    """Size of D_beta relative to the KL divergence that it approaches near the end of beta: min(beta, 1 - beta).

    1 at the ends themselves, which are KL divergences. Log it beside a loss with beta near an end.
    """
    return min(beta, 1 - beta) if 0 < beta < 1 else 1.0


def _forward_kl(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    return teacher.exp() * (teacher - student)


def _reverse_kl(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    return student.exp() * (student - teacher)


def _mixture(student: torch.Tensor, teacher: torch.Tensor, beta: float) -> torch.Tensor:
    mixture = torch.logaddexp(student + math.log1p(-beta), teacher + math.log(beta))
    return beta * teacher.exp() * (teacher - mixture) + (1 - beta) * student.exp() * (student - mixture)


_ENDS = {0.0: _forward_kl, 1.0: _reverse_kl}
"""Divergence, element by element of the vocabulary, at the values of beta that are no mixture."""


def _clip_token(elements: torch.Tensor, limit: float) -> torch.Tensor:
    return elements.sum(-1).clamp(max=limit)


def _clip_element(elements: torch.Tensor, limit: float) -> torch.Tensor:
    return elements.clamp(max=limit).sum(-1)


CLIPS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {"token": _clip_token, "element": _clip_element}
"""(N, V) elements and the limit to (N,) clipped token losses."""

SUPPORTS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "teacher": lambda student, teacher: teacher,
    "student": lambda student, teacher: student,
}
"""Whose likeliest tokens are the support of a top-k divergence."""


@dataclass(frozen=True, kw_only=True)
class GeneralizedJSD:
    """The divergence of single tokens, for callers that bring rows of logits (whole batches, chunks of a head).

    Raises ValueError naming the setting on construction; `generalized_jsd_loss` describes the settings.
    """

    beta: float = 0.5
    temperature: float = 1.0
    logits_are_probs: bool = False
    top_k: int | None = None
    topk_support: str = "teacher"
    tail: bool = False
    token_clip: float | None = None
    clip: str = "token"

    def __post_init__(self) -> None:
        if not 0 <= self.beta <= 1:
            raise ValueError(f"beta must be in [0, 1], got {self.beta}")
        if not self.temperature > 0:
            raise ValueError(f"temperature must be above 0, got {self.temperature}")
        if self.logits_are_probs and self.temperature != 1:
            raise ValueError(
                f"temperature must be 1 with logits_are_probs, got {self.temperature}: no softmax is taken"
            )
        if self.top_k is not None and self.top_k < 1:
            raise ValueError(f"top_k must be at least 1, got {self.top_k}")
        if self.top_k == 1 and not self.tail:
            raise ValueError(
                "top_k=1 renormalises to one token, a loss of 0 for any teacher: raise it or set tail=True"
            )
        if self.tail and self.top_k is None:
            raise ValueError("tail=True needs top_k: without it there is no mass outside the support")
        if self.topk_support not in SUPPORTS:
            raise ValueError(f"topk_support must be one of {', '.join(SUPPORTS)}, got {self.topk_support!r}")
        if self.clip not in CLIPS:
            raise ValueError(f"clip must be one of {', '.join(CLIPS)}, got {self.clip!r}")
        if self.token_clip is not None and not self.token_clip > 0:
            raise ValueError(f"token_clip must be above 0 or None, got {self.token_clip}")

    def num_elements(self, vocab_size: int) -> int:
        """How many vocabulary elements the loss of one token is the sum of: V, k, or k + 1 with the tail bucket."""
        if self.top_k is None or self.top_k == vocab_size:
            return vocab_size
        return self.top_k + self.tail

    def per_token(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        """(N, V) scores of student and teacher to (N,) divergences in nats, at least float32.

        Raises:
            ValueError: top_k is above V.
        """
        student, teacher = at_least_float32(student, teacher)
        if self.top_k is not None and self.top_k > student.size(-1):
            raise ValueError(f"top_k must be at most the vocabulary's {student.size(-1)}, got {self.top_k}")
        student, teacher = self._on_support(*map(self._scores, (student, teacher)))
        elements = _ENDS.get(self.beta, _mixture)(student, teacher, self.beta)
        return elements.sum(-1) if self.token_clip is None else CLIPS[self.clip](elements, self.token_clip)

    def _scores(self, values: torch.Tensor) -> torch.Tensor:
        """Unnormalised log-probabilities of logits; of probabilities the logarithms as they are."""
        return log_of_probs(values) if self.logits_are_probs else values / self.temperature

    def _normalised(self, scores: torch.Tensor) -> torch.Tensor:
        return scores if self.logits_are_probs else log_softmax(scores)

    def _on_support(self, student: torch.Tensor, teacher: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Scores (N, V) to log-probabilities over the support."""
        if self.top_k is None:
            return self._normalised(student), self._normalised(teacher)
        support = SUPPORTS[self.topk_support](student, teacher).detach().topk(self.top_k, sorted=False).indices
        if not self.tail:
            return log_softmax(student.gather(-1, support)), log_softmax(teacher.gather(-1, support))
        return _with_tail(self._normalised(student), support), _with_tail(self._normalised(teacher), support)


def _with_tail(logprobs: torch.Tensor, support: torch.Tensor) -> torch.Tensor:
    """(N, V) log-probabilities to those of the support (N, k) and, behind them, of all other tokens together.

    The tail is summed itself: 1 minus the sum of the support loses it to rounding when the support has nearly all mass.
    """
    kept = logprobs.gather(-1, support)
    if support.size(-1) == logprobs.size(-1):
        return kept
    tail = logprobs.scatter(-1, support, -math.inf).logsumexp(-1, keepdim=True)
    return torch.cat([kept, tail], dim=-1)


def generalized_jsd_loss(
    student_logits: torch.Tensor,
    teacher_logits: torch.Tensor,
    labels: torch.Tensor | None = None,
    beta: float = 0.5,
    temperature: float = 1.0,
    reduction: str = "batchmean",
    logits_are_probs: bool = False,
    top_k: int | None = None,
    token_clip: float | None = None,
    *,
    topk_support: str = "teacher",
    tail: bool = False,
    clip: str = "token",
) -> torch.Tensor:
    """Generalised JSD of aligned logits: row (b, t) of both sides is the distribution of the same token.

    Args:
        student_logits: (B, T, V), any floating dtype; at least float32 inside, float64 stays.
        teacher_logits: (B, T, V). Not detached here: compute it under no_grad where the weights are shared.
        labels: (B, T); -100 positions are ignored and may hold NaN, every other value counts (0 is a token id).
            None = every position counts.
        beta: in [0, 1]: 0 = forward KL(T || S), 1 = reverse KL(S || T), 0.5 = the symmetric JSD.
            Warns for 0 < beta < 0.05 and 0.95 < beta < 1, where the value is `jsd_scale(beta)` of a KL divergence.
        temperature: divides both logits before the softmax; above 0.
        reduction: batchmean = sum / active tokens; sum; mean = sum / (active tokens x vocabulary elements), with V,
            k, or k + 1 elements a token (not a mean of tokens); none = (B, T) with 0 at ignored positions.
        logits_are_probs: the inputs are probabilities already.
        top_k: take the divergence on k tokens only, at least 2 without `tail`; None = the whole vocabulary.
        token_clip: upper limit of the loss, in nats, for what `clip` names; None = no limit.
        topk_support: whose likeliest k tokens: teacher (OPSD) or student (SDPO).
        tail: False = both sides renormalised on the support (OPSD); True = the remaining mass of each side is one more
            element (SDPO), which makes the divergence a lower bound of the whole one.
        clip: what `token_clip` limits: the sum of each token, or each (token, vocabulary) element before the sum.

    Returns:
        Scalar in nats (or (B, T) for none); 0 attached to the graph where nothing is active.

    Raises:
        ValueError: a setting is out of range or unknown, or shapes differ.
    """
    check_reduction(reduction)
    check_same_shape(student_logits=student_logits, teacher_logits=teacher_logits)
    divergence = GeneralizedJSD(
        beta=beta,
        temperature=temperature,
        logits_are_probs=logits_are_probs,
        top_k=top_k,
        topk_support=topk_support,
        tail=tail,
        token_clip=token_clip,
        clip=clip,
    )
    if 0 < beta < EDGE or 1 - EDGE < beta < 1:
        warnings.warn(
            f"beta={beta} makes the divergence about {jsd_scale(beta):.2g} times the KL divergence of that end; "
            f"for that KL divergence itself set beta={round(beta)}",
            UserWarning,
            stacklevel=2,
        )
    tokens = Selection.of_labels(labels, student_logits.shape[:-1])
    losses = divergence.per_token(tokens.pick(student_logits), tokens.pick(teacher_logits))
    return tokens.reduce(losses, reduction, num_elements=divergence.num_elements(student_logits.size(-1)))
