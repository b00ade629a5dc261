"""Batched sampling from any Hugging Face causal LM, token ids in and token ids out.

A prompt is run once however many samples it gets, finished rows leave the batch, and a conversation goes on from the
keys and values it already has. Random numbers come from a generator of the sampler's own: they do not depend on the
global one, nor on when other rows finish.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from composer_rl.errors import RolloutError
from composer_rl.rollouts.choose_decoder import DecoderKind, choose_decoder, new_decoder
from composer_rl.rollouts.decoder_base import Decoder
from composer_rl.rollouts.sampling import MAX_UNIFORM, SamplingParams, draw

COMPACT_SHARE = 0.85
"""Finished rows leave the batch once at most this share of its rows is still being sampled."""


@dataclass(kw_only=True)
class SampledTurn:
    """What one row sampled in one turn."""

    ids: list[int]
    """Sampled ids, the stop token included; never empty."""
    logprobs: list[float]
    """Log-probability (nats) of each id under the full softmax at the sampling temperature; at 1 when greedy."""
    stopped: bool
    """Whether the last id is a stop token; otherwise the row reached its limit."""


@dataclass(kw_only=True)
class SamplingTotals:
    """Running totals of a session."""

    num_tokens: int = 0
    """Tokens sampled."""
    num_steps: int = 0
    """Decoding steps, each of all rows in the batch."""
    kept_mass: float = 0.0
    """Sum over the sampled tokens of the probability mass that truncation kept: num_tokens without truncation."""


class SamplingSession:
    """A batch of conversations sampled turn by turn; made by `BatchedSampler.session`."""

    def __init__(
        self,
        decoder: Decoder,
        *,
        params: SamplingParams,
        stop_ids: Sequence[int],
        generator: torch.Generator,
        compact_share: float,
    ) -> None:
        self._decoder = decoder
        self._params = params
        self._generator = generator
        self._device = generator.device
        self._stop_ids = torch.tensor(list(stop_ids), dtype=torch.long, device=self._device)
        self._compact_share = compact_share
        self._rows: list[int] = []
        self._histories: list[list[int]] = []
        self._num_run: list[int] = []
        self._logits: Tensor | None = None
        self.totals = SamplingTotals()

    def start(
        self, prompts: Sequence[Sequence[int]], samples: Sequence[int], *, capacity: int, retain: bool = False
    ) -> None:
        """Run the prompts; `samples[i]` consecutive rows start from prompt i.

        Args:
            prompts: token ids of the distinct prompts, none empty.
            samples: rows for each prompt, at least 1.
            capacity: most tokens that a row may sample in the coming turn.
            retain: whether `extend` will be called.
        """
        if not prompts or not all(prompts) or min(samples) < 1:
            raise ValueError("start needs at least one prompt, no empty prompt, and samples >= 1 for each")
        self._histories = [list(prompt) for prompt, count in zip(prompts, samples, strict=True) for _ in range(count)]
        self._num_run = [len(history) for history in self._histories]
        self._rows = list(range(len(self._histories)))
        self._logits = self._decoder.prefill(prompts, samples, capacity=capacity, retain=retain)

    def extend(self, rows: Sequence[int], ids: Sequence[Sequence[int]], *, capacity: int) -> None:
        """Append given ids to some of the rows just sampled; these (ascending) are the rows that go on."""
        if not set(rows) <= set(self._rows) or list(rows) != sorted(set(rows)):
            raise ValueError(f"extend takes ascending rows out of those sampled last, got {list(rows)}")
        for row, new in zip(rows, ids, strict=True):
            self._histories[row].extend(new)
        histories = [self._histories[row] for row in rows]
        num_new = [len(self._histories[row]) - self._num_run[row] for row in rows]
        for row in rows:
            self._num_run[row] = len(self._histories[row])
        self._rows = list(rows)
        self._logits = self._decoder.extend(rows, histories, num_new, capacity=capacity)

    def sample(self, limits: Sequence[int]) -> list[SampledTurn]:
        """Sample each current row until it draws a stop token or has `limits[i]` (at least 1) tokens.

        Raises RolloutError when the model's probabilities are not finite.
        """
        if self._logits is None:
            raise RuntimeError("sample needs a start or an extend before it")
        if len(limits) != len(self._rows) or min(limits) < 1:
            raise ValueError(f"sample needs one limit >= 1 for each of {len(self._rows)} rows, got {list(limits)}")
        logits, self._logits = self._logits, None
        tokens, probs, kept = self._decode(logits, limits)
        lengths, stopped = self._ends(tokens, limits)
        used = torch.arange(tokens.shape[0], device=self._device).unsqueeze(1) < lengths
        logprobs = torch.where(used, probs, 1.0).log()
        if not bool(torch.isfinite(logprobs).all()):
            raise RolloutError(
                "the model gave a probability of 0 or NaN to a token it sampled: its weights or logits are not "
                "finite, most often because the learning rate is too high"
            )
        self.totals.num_tokens += int(lengths.sum())
        self.totals.num_steps += tokens.shape[0]
        self.totals.kept_mass += float(used.sum() if kept is None else torch.where(used, kept, 0.0).sum())
        turns = []
        columns = zip(tokens.T.tolist(), logprobs.T.tolist(), lengths.tolist(), stopped.tolist(), strict=True)
        for row, (ids, values, length, stop) in zip(self._rows, columns, strict=True):
            turns.append(SampledTurn(ids=ids[:length], logprobs=values[:length], stopped=stop))
            # The last token of a turn was drawn but not run.
            self._num_run[row] = len(self._histories[row]) + length - 1
            self._histories[row].extend(turns[-1].ids)
        return turns

    def _decode(self, logits: Tensor, limits: Sequence[int]) -> tuple[Tensor, Tensor, Tensor | None]:
        """Ids, probabilities and kept masses, each `(steps, rows)`; past a row's end they mean nothing."""
        count, longest = len(limits), max(limits)
        uniforms = torch.rand(longest, count, generator=self._generator, device=self._device).clamp_(max=MAX_UNIFORM)
        tokens = torch.zeros(longest, count, dtype=torch.long, device=self._device)
        probs = torch.ones(longest, count, device=self._device)
        kept = torch.ones(longest, count, device=self._device) if self._params.truncated else None
        ends = torch.tensor(limits, device=self._device) if min(limits) < longest else None
        # A slice while all rows are in the batch: reading and writing through it copies nothing.
        active: Tensor | slice = slice(None)
        alive = torch.ones(count, dtype=torch.bool, device=self._device)
        for step in range(longest):
            drawn = draw(logits, uniforms[step, active], self._params)
            tokens[step, active] = drawn.tokens
            probs[step, active] = drawn.probs
            if kept is not None and drawn.kept_mass is not None:
                kept[step, active] = drawn.kept_mass
            alive = alive & ~self._is_stop(drawn.tokens)
            if ends is not None:
                alive = alive & (ends[active] > step + 1)
            num_alive = int(alive.sum())
            if num_alive == 0 or step + 1 == longest:
                longest = step + 1
                break
            new_tokens = drawn.tokens
            if num_alive <= self._compact_share * alive.numel():
                index = alive.nonzero().squeeze(1)
                self._decoder.keep(index)
                active = index if isinstance(active, slice) else active[index]
                new_tokens, alive = new_tokens[index], alive[index]
            logits = self._decoder.step(new_tokens)
        return tokens[:longest], probs[:longest], None if kept is None else kept[:longest]

    def _is_stop(self, tokens: Tensor) -> Tensor:
        if self._stop_ids.numel() == 1:
            return tokens == self._stop_ids
        return (tokens.unsqueeze(-1) == self._stop_ids).any(dim=-1)

    def _ends(self, tokens: Tensor, limits: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Number of tokens of each row, and whether the last one is a stop token; both `(rows,)`."""
        steps = torch.arange(1, tokens.shape[0] + 1, device=self._device).unsqueeze(1)
        never = tokens.shape[0] + 1
        first = torch.where(self._is_stop(tokens), steps, never).amin(dim=0)
        cap = torch.tensor(limits, device=self._device).clamp(max=tokens.shape[0])
        return torch.minimum(first, cap), first <= cap


class BatchedSampler:
    """Samples from a causal LM with a generator of its own.

    Works under peft (LoRA), in any floating dtype, on CPU and CUDA. The way of decoding is chosen once for each
    model (`choose_decoder`).
    """

    def __init__(
        self,
        params: SamplingParams,
        *,
        stop_ids: Sequence[int],
        seed: int = 0,
        decoder: DecoderKind | None = None,
        compact_share: float = COMPACT_SHARE,
    ) -> None:
        """
        Args:
            params: temperature and truncation.
            stop_ids: ids that end a turn, at least one.
            seed: of the sampler's generator.
            decoder: force one way of decoding; None chooses by the model.
            compact_share: see COMPACT_SHARE; 0 keeps finished rows in the batch. Changes speed, never a result.
        """
        if not stop_ids:
            raise ValueError("stop_ids must name at least one token id, or no turn would ever end")
        self.params = params
        self.stop_ids = tuple(dict.fromkeys(int(token) for token in stop_ids))
        self._seed = seed
        self._kind = decoder
        self._compact_share = compact_share
        self._generator: torch.Generator | None = None

    @contextmanager
    def session(self, model: Any) -> Iterator[SamplingSession]:
        """Put the model in eval mode without gradients, and give every module its mode back at the end."""
        modes = [(module, module.training) for module in model.modules()]
        device = model.get_input_embeddings().weight.device
        model.eval()
        try:
            with torch.no_grad():
                kind = self._kind or choose_decoder(model)
            # Inference mode saves a twentieth of the time where calls are small. Modules of other architectures,
            # quantised layers (on a GPU) and autocast may keep tensors for training, which must not be made in it.
            can_infer = kind == "shared_prefix" and device.type == "cpu" and not torch.is_autocast_enabled("cpu")
            with torch.inference_mode() if can_infer else torch.no_grad():
                yield SamplingSession(
                    new_decoder(model, kind),
                    params=self.params,
                    stop_ids=self.stop_ids,
                    generator=self._generator_on(device),
                    compact_share=self._compact_share,
                )
        finally:
            for module, training in modes:
                module.training = training

    def generate(
        self, model: Any, prompts: Sequence[Sequence[int]], *, samples: int | Sequence[int], max_new_tokens: int
    ) -> list[SampledTurn]:
        """One turn: rows prompt by prompt, `samples` for each.

        Raises RolloutError for a prompt that leaves no room for `max_new_tokens` in the model's context.
        """
        counts = [samples] * len(prompts) if isinstance(samples, int) else list(samples)
        context = context_length(model)
        for number, prompt in enumerate(prompts):
            if len(prompt) + max_new_tokens > context:
                raise RolloutError(
                    f"prompt {number} has {len(prompt)} tokens; with max_new_tokens={max_new_tokens} it does not "
                    f"fit the model's context of {context}"
                )
        with self.session(model) as session:
            session.start(prompts, counts, capacity=max_new_tokens)
            return session.sample([max_new_tokens] * sum(counts))

    def state_dict(self) -> dict[str, Any]:
        """The generator's state, for an exact continuation."""
        generator = self._generator
        return {
            "seed": self._seed,
            "device": None if generator is None else generator.device.type,
            "generator": None if generator is None else generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`. Raises ValueError for names that are not its own."""
        if set(state) != {"seed", "device", "generator"}:
            raise ValueError(f"state of a BatchedSampler has seed, device and generator, got {sorted(state)}")
        self._seed = int(state["seed"])
        self._generator = None
        if state["generator"] is not None:
            self._generator = torch.Generator(device=state["device"])
            self._generator.set_state(state["generator"])

    def _generator_on(self, device: torch.device) -> torch.Generator:
        if self._generator is None or self._generator.device.type != device.type:
            self._generator = torch.Generator(device=device)
            self._generator.manual_seed(self._seed)
        return self._generator


def context_length(model: Any) -> int:
    """Positions of the model's context, as its configuration says; a very large number where it says nothing."""
    config = model.config.get_text_config()
    return int(getattr(config, "max_position_embeddings", None) or 2**31 - 1)
