"""Any causal language model by path, with and without LoRA; wrong settings say what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from composer_rl.errors import ConfigError
from composer_rl.models.hf import HFModel
from composer_rl.models.lora import LoraSettings

TEMPLATE = "{% for m in messages %}{{ m['role'] + ' ' + m['content'] + ' </s>' }}{% endfor %}"


def save(folder: Path, kind: str, *, template: str | None = TEMPLATE, eos: str | None = "</s>") -> Path:
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = {word: i for i, word in enumerate(["</s>", "<unk>", "user", "assistant", "a", "b"])}
    core = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=eos, unk_token="<unk>")
    tokenizer.chat_template = template
    sizes: dict[str, Any] = {
        "vocab_size": 8,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
    }
    torch.manual_seed(0)
    model = (
        Qwen3ForCausalLM(Qwen3Config(head_dim=8, **sizes))
        if kind == "qwen3"
        else LlamaForCausalLM(LlamaConfig(**sizes))
    )
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_saved_model_loads_by_path(tmp_path: Path, kind: str) -> None:
    import torch

    model, tokenizer = HFModel(name=str(save(tmp_path, kind))).load("cpu")
    assert model.dtype == torch.float32, "auto is float32 on CPU"
    assert tokenizer.padding_side == "left"
    assert tokenizer.pad_token_id == tokenizer.eos_token_id
    logits = model(input_ids=torch.tensor([[2, 4]])).logits
    assert logits.shape == (1, 2, 8)


def test_a_tokenizer_that_cannot_be_loaded_is_said_in_full(tmp_path: Path) -> None:
    folder = save(tmp_path, "llama")
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"^model.name=\S+: the tokenizer cannot be loaded: .{100,}$"):
        HFModel(name=str(folder)).load("cpu")


def test_lora_trains_adapters_alone_and_its_folder_loads_again(tmp_path: Path) -> None:
    source = HFModel(name=str(save(tmp_path / "base", "llama")), lora=LoraSettings(r=2))
    model, tokenizer = source.load("cpu")
    trainable = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    assert trainable
    assert all("lora_" in name for name in trainable)
    assert not any("lm_head" in name for name in trainable)
    model.save_pretrained(tmp_path / "adapter")
    tokenizer.save_pretrained(tmp_path / "adapter")
    again, _ = HFModel(name=str(tmp_path / "adapter")).load("cpu")
    assert any("lora_" in name for name, _ in again.named_parameters())


def test_a_chat_template_of_the_users_own(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", "llama", template=None)
    with pytest.raises(ConfigError, match="no chat template"):
        HFModel(name=str(folder)).load("cpu")
    file = tmp_path / "own.jinja"
    file.write_text(TEMPLATE)
    _, tokenizer = HFModel(name=str(folder), chat_template=file).load("cpu")
    assert tokenizer.chat_template == TEMPLATE


def test_a_tokenizer_without_eos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no end-of-sequence token"):
        HFModel(name=str(save(tmp_path, "llama", eos=None))).load("cpu")


def test_a_folder_without_a_model_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"model\.name=.* no config.json") as info:
        HFModel(name=str(tmp_path)).load("cpu")
    assert "\n" not in str(info.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": ""}, "name must be a folder or a hub id"),
        ({"name": "./no/such/folder"}, "which is no folder"),
        ({"name": "org/model", "chat_template": Path("no.jinja")}, "chat_template must be an existing file"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        HFModel(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"r": 0}, "r must be at least 1"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"target_modules": ["lm_head"]}, "must not contain 'lm_head'"),
    ],
)
def test_bad_lora_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LoraSettings(**settings)


def test_adapters_are_a_knob(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert HFModel(name=folder).knobs() == []
    assert [knob.name for knob in HFModel(name=folder, lora=LoraSettings(r=2)).knobs()] == ["lora.r"]
