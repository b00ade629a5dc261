"""Any Hugging Face causal language model with a chat template, by folder or hub id, with or without LoRA."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from composer_rl.errors import ConfigError
from composer_rl.models.base import ModelSource
from composer_rl.models.lora import LoraSettings

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from composer_rl.engagement import Knob


_CONFIG_FILES = ("config.json", "adapter_config.json")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")


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
        """Refuse a folder that lacks what no model can do without."""
        folder = Path(self.name).expanduser()
        if not folder.is_dir():
            return
        if not any((folder / name).is_file() for name in _CONFIG_FILES):
            raise ConfigError(f"model.name={self.name}: no folder written by save_pretrained, it has no config.json")
        if self.tokenizer is None and not any((folder / name).is_file() for name in _TOKENIZER_FILES):
            raise ConfigError(
                f"model.name={self.name}: the folder has no tokenizer (no {_TOKENIZER_FILES[0]}); give one with "
                "model.tokenizer=<folder or hub id>"
            )

    def knobs(self) -> list[Knob]:
        """Those of the adapters."""
        return [knob.under("lora") for knob in self.lora.knobs()]

    def load(self, device: str) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
        """Read weights and tokenizer; see the base class."""
        from transformers import AutoModelForCausalLM

        path = self._path()
        tokenizer = self._load_tokenizer()
        with _as_config_error(f"model.name={self.name}"):
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

        with _as_config_error(f"model.tokenizer={self.tokenizer or self.name}"):
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
    """Turn the loader's OSError and ValueError into one line that names the setting."""

    def __init__(self, setting: str) -> None:
        self._setting = setting

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        from safetensors import SafetensorError

        if isinstance(error, (OSError, ValueError, SafetensorError)):
            first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ConfigError(f"{self._setting} cannot be loaded: {self._broken_weights() or first_line}") from error

    def _broken_weights(self) -> str:
        """Which file of weights is cut off or no safetensors file; "" when all can be opened."""
        from safetensors import SafetensorError, safe_open

        folder = Path(self._setting.partition("=")[2]).expanduser()
        for path in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
            try:
                with safe_open(path, framework="pt"):
                    pass
            except (OSError, SafetensorError) as error:
                return f"{path} is damaged or cut off ({error}); copy it again"
        return ""
