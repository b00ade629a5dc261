"""How the next token is drawn from logits, and which log-probability goes with it.

The log-probability of a sampled token is always that of the full softmax at the sampling temperature, the value a
training forward at that temperature gives for the same token. With truncated sampling (top-k, top-p, min-p) the
token came from the softmax renormalised on the kept tokens, so its true sampling log-probability is larger by
-log(kept mass); `Draws.kept_mass` measures that gap (cases B32 and B34: an importance ratio built from these
log-probabilities is biased by exactly the kept mass).

Draws use the inverse of the cumulative distribution and one uniform number a row: a row's tokens depend on its own
numbers only, never on which other rows are still in the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """Settings of one draw. Raises ValueError when a value is outside its range."""

    temperature: float = 1.0
    """Divides the logits. 0 is greedy; log-probabilities are then those at temperature 1."""
    top_p: float = 1.0
    """Smallest set of most likely tokens whose mass reaches this, range (0, 1]; 1 is off."""
    top_k: int = 0
    """Number of most likely tokens that may be drawn; 0 is off."""
    min_p: float = 0.0
    """Lowest probability that may be drawn, relative to the most likely token's, range [0, 1]; 0 is off."""

    def __post_init__(self) -> None:
        if not 0.0 <= self.temperature < float("inf"):
            raise ValueError(f"temperature must be a finite number >= 0, got {self.temperature}")
        if not 0.0 < self.top_p <= 1.0:
            raise ValueError(f"top_p must be in (0, 1], got {self.top_p}")
        if self.top_k < 0:
            raise ValueError(f"top_k must be >= 0 (0 is off), got {self.top_k}")
        if not 0.0 <= self.min_p <= 1.0:
            raise ValueError(f"min_p must be in [0, 1], got {self.min_p}")

    @property
    def truncated(self) -> bool:
        """Whether tokens are cut from the distribution, so that it is not the training distribution."""
        return self.temperature > 0 and (self.top_p < 1.0 or self.top_k > 0 or self.min_p > 0.0)


@dataclass(kw_only=True)
class Draws:
    """Result of `draw` for A rows."""

    tokens: Tensor
    """`(A,)` int64, the drawn ids."""
    probs: Tensor
    """`(A,)` float32, full-softmax probability of each drawn id at the sampling temperature."""
    kept_mass: Tensor | None = None
    """`(A,)` float32, full-softmax mass of the tokens that could have been drawn; None without truncation."""


LARGE_VOCABULARY = 4096
BLOCK = 256
"""Distributions of at least LARGE_VOCABULARY tokens are searched in blocks of BLOCK tokens."""

MAX_UNIFORM = 1.0 - 2.0**-23
"""Largest uniform number `draw` accepts: below it, u * total rounds to less than total in float32."""


def draw(logits: Tensor, uniforms: Tensor, params: SamplingParams) -> Draws:
    """Draw one token a row.

    Args:
        logits: `(A, V)`, any floating dtype; the softmax is taken in float32.
        uniforms: `(A,)` float32 in [0, MAX_UNIFORM]; not read when greedy.
        params: temperature and truncation.
    """
    import torch

    logits = logits.float()
    if params.temperature == 0.0:
        probs = torch.softmax(logits, dim=-1)
        tokens = logits.argmax(dim=-1)
        return Draws(tokens=tokens, probs=_pick(probs, tokens))
    if params.temperature != 1.0:
        logits = logits / params.temperature
    probs = torch.softmax(logits, dim=-1)
    if not params.truncated:
        tokens = _invert(probs, uniforms)
        return Draws(tokens=tokens, probs=_pick(probs, tokens))
    candidates, ids = _candidates(probs, params)
    tokens = _invert(candidates, uniforms)
    if ids is not None:
        tokens = _pick(ids, tokens)
    return Draws(tokens=tokens, probs=_pick(probs, tokens), kept_mass=candidates.sum(dim=-1))


def _pick(values: Tensor, index: Tensor) -> Tensor:
    return values.gather(1, index.unsqueeze(1)).squeeze(1)


def _candidates(probs: Tensor, params: SamplingParams) -> tuple[Tensor, Tensor | None]:
    """Probabilities with the cut tokens at 0, and the ids they belong to (None: vocabulary order).

    Top-p counts mass relative to what top-k left, min-p is relative to the most likely token; in this order,
    which is that of the Hugging Face logits processors.
    """
    import torch

    ids: Tensor | None = None
    if params.top_k > 0 and params.top_k < probs.shape[-1]:
        probs, ids = probs.topk(params.top_k, dim=-1, sorted=True)
    elif params.top_p < 1.0:
        probs, ids = probs.sort(dim=-1, descending=True)
    if params.top_p < 1.0:
        before = probs.cumsum(dim=-1) - probs
        probs = torch.where(before < params.top_p * probs.sum(dim=-1, keepdim=True), probs, 0.0)
    if params.min_p > 0.0:
        floor = params.min_p * probs.amax(dim=-1, keepdim=True)
        probs = torch.where(probs >= floor, probs, 0.0)
    return probs, ids


def _invert(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Index of the first token whose cumulative weight exceeds u * total; a token of weight 0 is never chosen."""
    import torch

    if weights.shape[-1] < LARGE_VOCABULARY:
        index = _search(weights, uniforms)
    else:
        index = _search_in_blocks(weights, uniforms)
    if weights.device.type == "cpu":
        return index
    # A parallel scan need not be monotone in its last bit, so a weight of 0 can be hit there.
    return torch.where(_pick(weights, index) > 0, index, weights.argmax(dim=-1))


def _search(weights: Tensor, uniforms: Tensor) -> Tensor:
    import torch

    cumulative = weights.cumsum(dim=-1)
    target = uniforms.unsqueeze(1) * cumulative[:, -1:]
    # The clamp matters for NaN weights only; the sampler reports them from the probabilities.
    return torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(max=weights.shape[-1] - 1)


def _search_in_blocks(weights: Tensor, uniforms: Tensor) -> Tensor:
    """As `_search` without the running sum over the whole vocabulary: first the block, then the token in it."""
    import torch

    size = weights.shape[-1]
    whole = size - size % BLOCK
    sums = weights[:, :whole].unflatten(1, (-1, BLOCK)).sum(dim=-1)
    if whole < size:
        sums = torch.cat((sums, weights[:, whole:].sum(dim=-1, keepdim=True)), dim=1)
    cumulative = sums.cumsum(dim=-1)
    target = uniforms * cumulative[:, -1]
    block = torch.searchsorted(cumulative, target.unsqueeze(1), right=True).squeeze(1).clamp(max=sums.shape[1] - 1)
    chosen = _pick(sums, block)
    # What is left of the target, as a share of the block: rounding of the sums then cannot leave the block.
    share = ((target - (_pick(cumulative, block) - chosen)) / chosen).clamp(min=0.0, max=MAX_UNIFORM)
    start = (block * BLOCK).clamp(max=size - BLOCK)
    places = start.unsqueeze(1) + torch.arange(BLOCK, device=weights.device)
    # The last block is shorter: the places before it belong to another one.
    inside = torch.where(places >= (block * BLOCK).unsqueeze(1), weights.gather(1, places), 0.0)
    return start + _search(inside, share)
