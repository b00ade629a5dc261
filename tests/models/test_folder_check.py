"""Files of a model folder that are missing or damaged are named without reading a weight."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from composer_rl.errors import ConfigError
from composer_rl.models.folder_check import model_problem, tokenizer_problem
from composer_rl.models.hf import HFModel
from composer_rl.models.tiny import ASSETS

HEADER = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}, "__metadata__": {"x": "y"}}).encode()
WEIGHTS = struct.pack("<Q", len(HEADER)) + HEADER + bytes(8)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "tokenizer.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(WEIGHTS)
    return tmp_path


def test_whole_folders_have_no_problem(folder: Path) -> None:
    assert model_problem(folder) is tokenizer_problem(folder) is None
    assert model_problem(ASSETS) is tokenizer_problem(ASSETS) is None
    HFModel(name=str(folder)).check()
    HFModel(name="some/id", tokenizer="other/id").check()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "config.json").unlink(), "{folder} is no folder written by save_pretrained"),
        (lambda folder: (folder / "config.json").write_text("{"), "{folder}/config.json is no JSON"),
        (lambda folder: (folder / "model.safetensors").unlink(), "{folder} has no weights"),
        *(
            (lambda folder, size=size: (folder / "model.safetensors").write_bytes(WEIGHTS[:size]), "is damaged or cut")
            for size in (0, 4, 20, len(WEIGHTS) - 1)
        ),
        (lambda folder: (folder / "model.safetensors").write_bytes(WEIGHTS + b"x"), "is damaged or cut off"),
        (lambda folder: (folder / "model.safetensors").write_text("version https://git-lfs"), "is damaged or cut"),
        (
            lambda folder: (folder / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "model.safetensors", "b": "part-2.safetensors"}}'
            ),
            "{folder}/part-2.safetensors is missing, which model.safetensors.index.json lists",
        ),
        (lambda folder: (folder / "tokenizer.json").unlink(), "{folder} has no tokenizer (no tokenizer.json); another"),
        (lambda folder: (folder / "tokenizer.json").write_text('{"a'), "{folder}/tokenizer.json is no JSON"),
    ],
)
def test_what_is_wrong_is_named(folder: Path, damage: Callable[[Path], object], message: str) -> None:
    damage(folder)
    with pytest.raises(ConfigError) as info:
        HFModel(name=str(folder)).check()
    assert str(info.value).startswith(f"model.name={folder}: ")
    assert message.format(folder=folder) in str(info.value)


def test_the_setting_that_chose_the_tokenizer_is_blamed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    with pytest.raises(ConfigError, match=f"^model.tokenizer={empty}: {empty} has no tokenizer"):
        HFModel(name=str(folder), tokenizer=str(empty)).check()
