"""One supervised run: data, two optimizers, the loop, the checkpoint."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from composer_rl.optim.muon import Muon
from composer_rl.stages.base import RunContext, StageResult
from composer_rl.stages.quiet import quiet_libraries
from composer_rl.stages.sft_data import generated, read_corpus
from composer_rl.stages.sft_loop import Example, batches, encode, learning_rate_factor, weighted_loss
from composer_rl.types import Message

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.stages.sft import SFTStage

FINAL_CHECKPOINT = "checkpoint"
"""Folder of the trained model and its tokenizer, in the run directory."""
NUM_MEASURED = 512
"""Conversations of each stream over which the final loss is taken."""


class SFTSession:
    """Holds what one call of SFTStage.run needs."""

    def __init__(self, stage: SFTStage, context: RunContext) -> None:
        self._stage = stage
        self._context = context
        self._num_steps = context.max_steps or stage.max_steps

    def run(self) -> StageResult:
        """Train from the start."""
        quiet_libraries()
        trackers, components = self._context.trackers, self._context.components
        trackers.phase("loading the model")
        model, tokenizer = components["model"].load(components["runtime"].torch_device())
        if self._stage.starts_fresh:
            model = reinitialised(model, seed=self._context.seed)
        trackers.phase("making the conversations")
        phases = self._phases(tokenizer)
        trackers.phase("")
        started = time.perf_counter()
        num_tokens = self._train(model, tokenizer, phases)
        seconds = time.perf_counter() - started
        trackers.phase("saving the model")
        loss = self._final_loss(model, tokenizer, phases[-1][1])
        folder = self._context.run_dir / FINAL_CHECKPOINT
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        return StageResult(
            metrics={
                "sft/loss": loss,
                "train/steps": float(self._num_steps),
                "train/tokens": float(num_tokens),
                "time/train_s": seconds,
            }
        )

    def _phases(self, tokenizer: PreTrainedTokenizerBase) -> list[tuple[int, list[list[Example]]]]:
        """Number of steps and the streams of examples, phase by phase."""
        stage = self._stage
        if stage.source == "corpus":
            assert stage.path is not None
            return [(self._num_steps, [self._encode(read_corpus(Path(stage.path)), tokenizer)])]
        clean_steps = round(self._num_steps * stage.clean_share)
        phases = []
        for num_steps, clean in ((clean_steps, True), (self._num_steps - clean_steps, False)):
            if num_steps == 0 and clean:
                continue
            streams = generated(
                seed=self._context.seed,
                num_tasks=stage.num_tasks,
                clean=clean,
                mix=stage.mix,
                noise=stage.noise,
                recoveries=stage.recoveries,
            )
            phases.append((num_steps, [self._encode(stream, tokenizer) for stream in streams]))
        return phases

    def _encode(self, conversations: Sequence[Sequence[Message]], tokenizer: PreTrainedTokenizerBase) -> list[Example]:
        return encode(
            conversations,
            tokenizer,
            content_weight=self._stage.content_weight,
            max_length=self._stage.max_length,
        )

    def _train(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        phases: Sequence[tuple[int, list[list[Example]]]],
    ) -> int:
        """All steps; returns the tokens seen."""
        stage, trackers = self._stage, self._context.trackers
        optimizers = self._optimizers(model)
        peaks = [optimizer.param_groups[0]["lr"] for optimizer in optimizers]
        num_tokens = 0
        model.train()
        for step, batch in enumerate(self._batches(phases)):
            started = time.perf_counter()
            factor = learning_rate_factor(
                step, num_steps=self._num_steps, warmup_steps=stage.warmup_steps, decay_share=stage.decay_share
            )
            for optimizer, peak in zip(optimizers, peaks, strict=True):
                optimizer.param_groups[0]["lr"] = peak * factor
                optimizer.zero_grad()
            losses = [weighted_loss(model, part, pad_id=_pad_id(tokenizer)) for part in batch]
            shares = (1 - stage.recovery_share, stage.recovery_share) if len(losses) == 2 else (1.0,)
            loss = torch.stack([part * share for part, share in zip(losses, shares, strict=True)]).sum()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
            step_tokens = sum(len(example.ids) for part in batch for example in part)
            num_tokens += step_tokens
            seconds = time.perf_counter() - started
            metrics = {
                "loss": loss.item(),
                "learning_rate": peaks[0] * factor,
                "num_tokens": float(num_tokens),
                "tokens_per_s": step_tokens / seconds,
                "time/step_s": seconds,
            }
            if len(losses) == 2:
                metrics |= {"loss/first_calls": losses[0].item(), "loss/recoveries": losses[1].item()}
            trackers.log(metrics, step=step + 1)
        model.eval()
        return num_tokens

    def _batches(self, phases: Sequence[tuple[int, list[list[Example]]]]) -> Iterator[list[list[Example]]]:
        """One list of batches, a batch a stream, for each step."""
        sizes = (self._stage.batch_size, self._stage.recovery_batch_size)
        for num_steps, streams in phases:
            sources = [
                batches(stream, batch_size=size, seed=2 * self._context.seed + index)
                for index, (stream, size) in enumerate(zip(streams, sizes, strict=False))
            ]
            for _ in range(num_steps):
                yield [next(source) for source in sources]

    def _optimizers(self, model: PreTrainedModel) -> list[torch.optim.Optimizer]:
        """Muon for the matrices of the decoder's layers, AdamW for the rest."""
        tables = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        matrices = [p for p in trained if p.ndim == 2 and id(p) not in tables]
        rest = [p for p in trained if p.ndim != 2 or id(p) in tables]
        optimizers: list[torch.optim.Optimizer] = []
        if matrices:
            optimizers.append(Muon(matrices, lr=self._stage.matrix_lr))
        if rest:
            optimizers.append(torch.optim.AdamW(rest, lr=self._stage.other_lr, betas=(0.9, 0.95), weight_decay=0.0))
        return optimizers

    def _final_loss(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, streams: Sequence[Sequence[Example]]
    ) -> float:
        """Mean over the streams of the loss on the first NUM_MEASURED examples of the last phase."""
        totals = []
        with torch.no_grad():
            for stream in streams:
                measured = stream[:NUM_MEASURED]
                totals.append(float(weighted_loss(model, measured, pad_id=_pad_id(tokenizer))))
        return sum(totals) / len(totals)


def reinitialised(model: PreTrainedModel, *, seed: int) -> PreTrainedModel:
    """A model of the same class, configuration and device with fresh weights drawn from `seed`."""
    device = next(model.parameters()).device
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        fresh: PreTrainedModel = type(model)(model.config)
    fresh.to(device)  # type: ignore[arg-type]  # transformers' decorated `to` hides nn.Module's signature
    return fresh


def _pad_id(tokenizer: PreTrainedTokenizerBase) -> int:
    """Any valid id: padding is masked by length, never by id."""
    return int(tokenizer.pad_token_id or 0)
