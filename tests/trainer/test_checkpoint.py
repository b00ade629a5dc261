"""A checkpoint without its state file is not a checkpoint."""

from __future__ import annotations

from pathlib import Path

import torch

from composer_rl.trainer.checkpoint import (
    decode_generator_state,
    encode_generator_state,
    newest_complete,
    read_state,
    write_state,
)


def test_the_newest_complete_checkpoint_wins(tmp_path: Path) -> None:
    assert newest_complete(tmp_path) is None
    for step in (9, 10, 100):
        (tmp_path / f"checkpoint-{step}").mkdir()
    (tmp_path / "checkpoint-final").mkdir()
    write_state(tmp_path / "checkpoint-9", {"step": 9})
    write_state(tmp_path / "checkpoint-10", {"step": 10})
    newest = newest_complete(tmp_path)
    assert newest == tmp_path / "checkpoint-10", "checkpoint-100 was cut off"
    assert read_state(newest) == {"step": 10}
    assert [path.name for path in newest.iterdir()] == ["composer_state.json"], "no temporary file is left"


def test_a_generator_survives_as_text() -> None:
    generator = torch.Generator().manual_seed(7)
    torch.rand(3, generator=generator)
    text = encode_generator_state(generator.get_state())
    expected = torch.rand(5, generator=generator)
    other = torch.Generator()
    other.set_state(decode_generator_state(text))
    assert torch.equal(torch.rand(5, generator=other), expected)
    assert decode_generator_state(encode_generator_state(None)) is None
