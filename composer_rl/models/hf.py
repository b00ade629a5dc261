"""Any Hugging Face causal language model with a chat template, by folder or hub id, with or without LoRA."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from composer_rl.errors import ConfigError
from composer_rl.models.base import ModelSource
from composer_rl.models.folder_check import model_problem, tokenizer_problem
from composer_rl.models.lora import LoraSettings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.engagement import Knob


@dataclass(kw_only=True)
class HFModel(ModelSource):
    """`model=hf model.name=<folder or hub id>`."""

    name: str
    """Folder written by `save_pretrained` (an adapter's folder too), or a hub id such as Qwen/Qwen3-0.6B."""
    revision: str | None = None
    """Branch, tag or commit of a hub id."""
    tokenizer: str | None = None
    """Folder or hub id of the tokenizer; None takes `name`."""
    chat_template: Path | None = None
    """File with a Jinja chat template that replaces the tokenizer's."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    """Precision of the weights; auto is float32 on CPU (bfloat16 is many times slower there) and bfloat16 on GPU."""
    attn_implementation: Literal["sdpa", "eager", "flash_attention_2"] = "sdpa"
    """Attention kernel of transformers."""
    trust_remote_code: bool = False
    """Run the model repository's own Python code. Only for repositories whose code you have read."""
    lora: LoraSettings = field(default_factory=LoraSettings)
    """Train adapters instead of the whole model: model.lora.r=16; needs the extra composer-rl[lora]."""

    def __post_init__(self) -> None:
        if not self.name or self.name == "???":
            raise ValueError("name must be a folder or a hub id, for instance model.name=Qwen/Qwen3-0.6B")
        looks_like_path = self.name.startswith(("/", "./", "../", "~"))
        if looks_like_path and not Path(self.name).expanduser().is_dir():
            raise ValueError(f"name must be an existing folder or a hub id, got {self.name!r}, which is no folder")
        if self.chat_template is not None and not Path(self.chat_template).is_file():
            raise ValueError(f"chat_template must be an existing file, got {str(self.chat_template)!r}")

    def check(self) -> None:
        """Look at the folders of model and tokenizer. Raises ConfigError naming the file that is missing or damaged."""
        folder = Path(self.name).expanduser()
        if folder.is_dir() and (problem := model_problem(folder)) is not None:
            raise ConfigError(f"model.name={self.name}: {problem}")
        own = Path(self.tokenizer or self.name).expanduser()
        if own.is_dir() and (problem := tokenizer_problem(own)) is not None:
            remedy = "" if self.tokenizer else "; another one is given with model.tokenizer=<folder or hub id>"
            raise ConfigError(f"{self._tokenizer_setting}: {problem}{remedy}")

    @property
    def _tokenizer_setting(self) -> str:
        """The setting that chose the tokenizer."""
        return f"model.tokenizer={self.tokenizer}" if self.tokenizer else f"model.name={self.name}"

    def knobs(self) -> list[Knob]:
        """Those of the adapters."""
        return [knob.under("lora") for knob in self.lora.knobs()]

    def load(self, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Read weights and tokenizer; see the base class."""
        from transformers import AutoModelForCausalLM

        self.check()
        path = self._path()
        tokenizer = self._load_tokenizer()
        with _as_config_error(f"model.name={self.name}: the model"):
            model: Any = AutoModelForCausalLM.from_pretrained(
                path,
                revision=self.revision,
                dtype=self._torch_dtype(device),
                attn_implementation=self.attn_implementation,
                trust_remote_code=self.trust_remote_code,
            )
        model = model.to(device)
        if self.lora.enabled:
            peft_config = self.lora.to_peft()
            from peft import get_peft_model

            model = get_peft_model(model, peft_config)
        return model, tokenizer

    def _path(self) -> str:
        return str(Path(self.name).expanduser()) if Path(self.name).expanduser().is_dir() else self.name

    def _load_tokenizer(self) -> PreTrainedTokenizerBase:
        from transformers import AutoTokenizer

        with _as_config_error(f"{self._tokenizer_setting}: the tokenizer"):
            tokenizer = AutoTokenizer.from_pretrained(
                self.tokenizer or self._path(),
                revision=self.revision if self.tokenizer is None else None,
                trust_remote_code=self.trust_remote_code,
                padding_side="left",
            )
        if self.chat_template is not None:
            tokenizer.chat_template = Path(self.chat_template).read_text(encoding="utf-8")
        if tokenizer.chat_template is None:
            raise ConfigError(
                f"model.name={self.name}: its tokenizer has no chat template; use an instruction-tuned model, or give "
                "one with model.chat_template=<file>"
            )
        if tokenizer.eos_token_id is None:
            raise ConfigError(f"model.name={self.name}: its tokenizer has no end-of-sequence token")
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer

    def _torch_dtype(self, device: str) -> torch.dtype:
        import torch

        if self.dtype == "auto":
            return torch.float32 if device == "cpu" else torch.bfloat16
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype


class _as_config_error:  # noqa: N801  (reads as a statement where it is used)
    """Turn what the loaders raise into one line that names the setting."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from safetensors import SafetensorError

        if isinstance(error, (OSError, ValueError, SafetensorError)):
            # Whole: the loaders' messages often begin with half a sentence and the reason comes lines later.
            text = " ".join(str(error).split()) or type(error).__name__
            raise ConfigError(f"{self._what} cannot be loaded: {text}") from error
