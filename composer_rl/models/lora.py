"""Low-rank adapters (arXiv 2106.09685) through peft."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from composer_rl.errors import MissingExtraError

if TYPE_CHECKING:
    from peft import LoraConfig

    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class LoraSettings:
    """`model.lora.*`: train adapters of this shape and leave the base weights frozen; off until `r` is given."""

    r: int | None = None
    """Rank, at least 1; None trains the whole model. The paper's range is 1 to 64."""
    alpha: float = 32.0
    """Scale: the update is multiplied by alpha / r; above 0."""
    dropout: float = 0.0
    """Dropout on the adapter's input, range [0, 1). Above 0 the teacher's prefix reuse of SDPO is not exact."""
    target_modules: list[str] | Literal["all-linear"] = "all-linear"
    """Module names to adapt. The language-model head cannot be one: TRL reads its weight directly."""
    exclude_modules: list[str] = field(default_factory=lambda: ["lm_head"])
    """Module names never adapted."""
    use_rslora: bool = False
    """Scale by alpha / sqrt(r) (arXiv 2312.03732)."""

    def __post_init__(self) -> None:
        if self.r is not None and self.r < 1:
            raise ValueError(f"r must be at least 1, or null for no adapter, got {self.r}")
        if self.alpha <= 0:
            raise ValueError(f"alpha must be above 0, got {self.alpha}")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")
        if isinstance(self.target_modules, list) and "lm_head" in self.target_modules:
            raise ValueError("target_modules must not contain 'lm_head': TRL reads its weight directly")

    @property
    def enabled(self) -> bool:
        """Whether adapters are trained."""
        return self.r is not None

    def knobs(self) -> list[Knob]:
        """The adapters, where they are trained: nothing else of the model takes a gradient then."""
        from composer_rl.engagement import Knob

        return [Knob(name="r", metric="grad_norm", advice="no gradient reached an adapter")] if self.enabled else []

    def to_peft(self) -> LoraConfig:
        """The peft configuration of an enabled adapter.

        Raises:
            MissingExtraError: when peft is not installed.
        """
        try:
            from peft import LoraConfig
        except ImportError as error:
            raise MissingExtraError("model.lora", package="peft", extra="lora") from error
        return LoraConfig(
            r=self.r,  # type: ignore[arg-type]  # not None when enabled
            lora_alpha=self.alpha,  # type: ignore[arg-type]  # peft annotates int, and divides it by r
            lora_dropout=self.dropout,
            target_modules=self.target_modules,
            exclude_modules=self.exclude_modules or None,
            use_rslora=self.use_rslora,
            task_type="CAUSAL_LM",
        )
