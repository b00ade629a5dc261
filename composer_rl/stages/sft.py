"""`stage=sft`: supervised training, on the testbed's generated corpus (makes the floor) or on conversations of yours.

The generator's corpus has two streams, first calls and recoveries, each with its own batch and weight. The first
steps show right first calls only; the noise that leaves reinforcement learning something to gain comes after,
when the model can already do the tasks. Matrices are trained with Muon, everything else with AdamW.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from composer_rl.envs.substrates.micro.corpus import Recoveries
from composer_rl.envs.substrates.micro.drafts import Noise
from composer_rl.envs.substrates.micro.tasks import Mix
from composer_rl.errors import ConfigError
from composer_rl.stages.base import RunContext, Stage, StageResult


@dataclass(kw_only=True)
class SFTStage(Stage):
    """Trains the model on conversations and leaves a checkpoint."""

    source: Literal["generator", "corpus"] = "generator"
    """The testbed's generated corpus, or a JSONL file of your own."""
    path: str | None = None
    """For source=corpus: a file with one `{"messages": [...]}` a line. A message may have `train` (bool, assistant
    messages, default true) and `emphasis` (list of str: tokens equal to one carry `content_weight`)."""
    fresh: bool | None = None
    """Start from random weights; null: yes for the generator, no for a corpus of your own."""
    max_steps: int = 900
    """Optimizer steps, at least 1; `max_steps` on the command line wins."""
    clean_share: float = 0.53
    """Share of the steps, at the start, with right first calls only (generator); range [0, 1]."""
    num_tasks: int = 4000
    """Tasks that the generator makes conversations of, two each, for the clean and for the noisy steps; at least 1."""
    batch_size: int = 12
    """First calls (generator) or conversations (corpus) a step, at least 1."""
    recovery_batch_size: int = 20
    """Recoveries a step (generator), at least 1."""
    recovery_share: float = 0.65
    """Weight of the recoveries' loss; the first calls' loss has the rest (generator); range [0, 1]."""
    content_weight: float = 6.0
    """Loss weight of emphasised tokens, the content that a hint states; above 0. Other trained tokens weigh 1."""
    max_length: int = 512
    """Tokens of a conversation that are kept, at least 8."""
    matrix_lr: float = 2e-2
    """Peak learning rate of Muon, above 0."""
    other_lr: float = 2e-3
    """Peak learning rate of AdamW on embeddings and norms, above 0."""
    warmup_steps: int = 20
    """Steps of linear warm-up, at least 0."""
    decay_share: float = 0.4
    """Share of the steps, at the end, over which the learning rate falls to 0; range [0, 1]."""
    mix: Mix = field(default_factory=lambda: Mix(mixture=0.25))
    """Kinds of generated tasks; more mixtures than the environment has, because they are the hardest to learn."""
    noise: Noise = field(default_factory=Noise)
    """How first calls go wrong."""
    recoveries: Recoveries = field(default_factory=Recoveries)
    """What recoveries look like."""

    def __post_init__(self) -> None:
        minimum = {"max_steps": 1, "num_tasks": 1, "batch_size": 1, "recovery_batch_size": 1, "max_length": 8}
        for name, least in (minimum | {"warmup_steps": 0}).items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("content_weight", "matrix_lr", "other_lr"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")
        for name in ("clean_share", "recovery_share", "decay_share"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], got {getattr(self, name)}")
        if self.source == "corpus" and not self.path:
            raise ValueError("source=corpus needs path=<file.jsonl>")
        if self.source == "generator" and self.path:
            raise ValueError(f"path is only read with source=corpus, got path={self.path!r} with source=generator")

    @property
    def required_groups(self) -> tuple[str, ...]:
        return ("model", "runtime")

    @property
    def starts_fresh(self) -> bool:
        """Whether training starts from random weights."""
        return self.source == "generator" if self.fresh is None else self.fresh

    def check(self, components: dict[str, Any], *, max_steps: int | None = None) -> None:
        """Refuse a corpus that is not there."""
        if self.path is not None and not Path(self.path).is_file():
            raise ConfigError(f"stage.path={self.path} is no file; give a JSONL file of conversations")

    def run(self, context: RunContext) -> StageResult:
        """Train and save."""
        from composer_rl.stages.sft_session import SFTSession

        if context.resume:
            raise ConfigError("stage=sft does not resume; start it again in a new folder")
        return SFTSession(self, context).run()
