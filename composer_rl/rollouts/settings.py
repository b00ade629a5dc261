"""Settings of the rollouts of a run: how much is sampled, from which distribution, and by which backend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from composer_rl.rollouts.sampling import SamplingParams

if TYPE_CHECKING:
    from composer_rl.engagement import Knob

Backend = Literal["composer", "trl", "vllm"]
"""`composer`: our own sampler. `trl`: TRL's generation and tool loop over transformers' generate. `vllm`: the same
loop over a vLLM engine (a GPU and the package are needed)."""


@dataclass(kw_only=True)
class RolloutSettings:
    """Settings of the rollouts; the number of samples a prompt is the policy objective's.

    Log-probabilities are those of the full softmax at `temperature`. With top_p, top_k or min_p the tokens come from a
    narrower distribution; the metric rollout/kept_mass then says how much of the full one it covers.
    """

    prompts_per_rollout: int = 12
    """Tasks sampled together, each with the objective's number of samples; at least 1."""
    temperature: float = 1.0
    """Divides the logits, here and in training; more than 0."""
    top_p: float = 1.0
    """Probability mass that may be drawn from, range (0, 1]; 1 is off. DAPO (2503.14476) and Dr.GRPO (2503.20783)
    train with 1."""
    top_k: int = 0
    """Number of most likely tokens that may be drawn; 0 is off."""
    min_p: float = 0.0
    """Lowest probability that may be drawn, relative to the most likely token, range [0, 1]; 0 is off."""
    max_new_tokens: int = 48
    """Most tokens in one assistant turn; at least 1."""
    max_tokens: int = 256
    """Most tokens of a rollout after its prompt, tool turns included; at least max_new_tokens."""
    max_rows: int | None = None
    """Rollouts held in one batch; more are sampled one batch after another. None: all at once."""
    backend: Backend = "composer"
    """Who generates. The trl and vllm backends go through `environment_factory`: they know tool methods rather than
    free text, do not stop on success, and show no hints (hint.in_rollout)."""

    def __post_init__(self) -> None:
        if self.prompts_per_rollout < 1:
            raise ValueError(f"prompts_per_rollout must be at least 1, got {self.prompts_per_rollout}")
        if not self.temperature > 0:
            raise ValueError(
                f"temperature must be more than 0, got {self.temperature}: the policy gradient needs samples "
                "of the policy (evaluation has its own temperature)"
            )
        _ = self.sampling  # ranges of temperature, top_p, top_k and min_p
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens must be at least 1, got {self.max_new_tokens}")
        if self.max_tokens < self.max_new_tokens:
            raise ValueError(
                f"max_tokens must be at least max_new_tokens={self.max_new_tokens} (a whole turn has to fit), "
                f"got {self.max_tokens}"
            )
        if self.max_rows is not None and self.max_rows < 1:
            raise ValueError(f"max_rows must be at least 1 or null, got {self.max_rows}")

    @property
    def sampling(self) -> SamplingParams:
        """The distribution that tokens are drawn from."""
        return SamplingParams(temperature=self.temperature, top_p=self.top_p, top_k=self.top_k, min_p=self.min_p)

    def knobs(self) -> list[Knob]:
        """The cuts of the distribution that are switched on; they share a metric, so the tightest one speaks for all.

        Only our own sampler measures it: with another backend their rows say that nothing was measured.
        """
        from composer_rl.engagement import Knob

        switched_on = {"top_p": self.top_p < 1.0, "top_k": self.top_k > 0, "min_p": self.min_p > 0.0}
        return [
            Knob(
                name=name,
                metric="rollout/kept_mass",
                acts="below",
                threshold=1.0,
                tolerance=1e-5,
                advice="every distribution lay within the cut",
            )
            for name, is_on in switched_on.items()
            if is_on
        ]
