"""What a checkpoint holds besides the Hugging Face trainer's files, and which checkpoint is whole.

`composer_state.json` is written last and atomically: a checkpoint without it was cut off by a kill or a full disk
and is never resumed from.
"""

from __future__ import annotations

import base64
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    import torch

STATE_FILE = "composer_state.json"
_CHECKPOINT_NAME = re.compile(r"checkpoint-(\d+)")


def write_state(checkpoint: Path, state: dict[str, Any]) -> None:
    """Write the state file of a checkpoint whose other files are complete."""
    temporary = checkpoint / f".{STATE_FILE}.{os.getpid()}"
    with open(temporary, "wb") as stream:
        stream.write(orjson.dumps(state, option=orjson.OPT_SERIALIZE_NUMPY))
        stream.flush()
        os.fsync(stream.fileno())
    os.replace(temporary, checkpoint / STATE_FILE)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """The state written by `write_state`."""
    return orjson.loads((checkpoint / STATE_FILE).read_bytes())


def newest_complete(run_dir: Path) -> Path | None:
    """The checkpoint with the highest step that was written to the end, or None."""
    complete = [
        (int(match.group(1)), folder)
        for folder in run_dir.glob("checkpoint-*")
        if (match := _CHECKPOINT_NAME.fullmatch(folder.name)) and (folder / STATE_FILE).is_file()
    ]
    return max(complete)[1] if complete else None


def encode_generator_state(state: torch.Tensor | None) -> str | None:
    """State of a torch generator as text; None stays None (a generator that was never used)."""
    return None if state is None else base64.b64encode(state.numpy().tobytes()).decode("ascii")


def decode_generator_state(text: str | None) -> torch.Tensor | None:
    """The state that `encode_generator_state` wrote, for `Generator.set_state`."""
    import torch

    return None if text is None else torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)
