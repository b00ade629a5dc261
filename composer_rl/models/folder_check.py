"""What is wrong with a folder of `save_pretrained`, found without torch: files that are missing, cut off or damaged."""

from __future__ import annotations

import json
import struct
from pathlib import Path

_CONFIGS = ("config.json", "adapter_config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model", "vocab.json", "vocab.txt")
_WEIGHTS = ("*.safetensors", "*.bin")
_LENGTH_BYTES = 8
"""Of the number at the start of a safetensors file: the length of the header behind it, in bytes, little endian."""


def model_problem(folder: Path) -> str | None:
    """Why configuration and weights cannot be read, naming the file; None where nothing is seen to be wrong."""
    found = [folder / name for name in _CONFIGS if (folder / name).is_file()]
    if not found:
        return f"{folder} is no folder written by save_pretrained: it has no config.json"
    if not any(path for pattern in _WEIGHTS for path in folder.glob(pattern)):
        return f"{folder} has no weights: no file *.safetensors"
    problems = [_json_problem(path) for path in found]
    problems += [_weights_problem(path) for path in sorted(folder.glob("*.safetensors"))]
    problems += [_index_problem(path) for path in sorted(folder.glob("*.safetensors.index.json"))]
    return next((problem for problem in problems if problem is not None), None)


def tokenizer_problem(folder: Path) -> str | None:
    """Why there is no tokenizer to read, naming the file; None where nothing is seen to be wrong."""
    found = [folder / name for name in _TOKENIZERS if (folder / name).is_file()]
    if not found:
        return f"{folder} has no tokenizer (no tokenizer.json)"
    problems = (_json_problem(path) for path in found if path.suffix == ".json")
    return next((problem for problem in problems if problem is not None), None)


def _json_problem(path: Path) -> str | None:
    try:
        json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        return f"{path} is no JSON ({error}); copy it again"
    return None


def _index_problem(path: Path) -> str | None:
    """Of the list of files that the weights are spread over."""
    if (problem := _json_problem(path)) is not None:
        return problem
    index = json.loads(path.read_bytes())
    shards = index.get("weight_map", {}).values() if isinstance(index, dict) else ()
    missing = sorted(name for name in set(shards) if not (path.parent / name).is_file())
    return f"{path.parent / missing[0]} is missing, which {path.name} lists; copy it too" if missing else None


def _weights_problem(path: Path) -> str | None:
    """The header says where the last tensor ends, and the file must end there."""
    damaged = f"{path} is damaged or cut off; copy it again"
    size = path.stat().st_size
    with open(path, "rb") as stream:
        start = stream.read(_LENGTH_BYTES)
        length = struct.unpack("<Q", start)[0] if len(start) == _LENGTH_BYTES else size
        if length > size - _LENGTH_BYTES:
            return damaged
        try:
            header = json.loads(stream.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, LookupError, TypeError, AttributeError):
            return damaged
    return damaged if _LENGTH_BYTES + length + max(ends, default=0) != size else None
