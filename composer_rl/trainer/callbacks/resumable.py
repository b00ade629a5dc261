"""Save and restore every stateful part of a run with the trainer's checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from transformers import TrainerCallback

from composer_rl.trainer.checkpoint import read_state, write_state


class Stateful(Protocol):
    """A part with JSON-serialisable state."""

    def state_dict(self) -> dict[str, Any]:
        """State to save."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore; refuses what does not fit."""
        ...


class ResumableCallback(TrainerCallback):
    """Writes `composer_state.json` last into each checkpoint, which marks the checkpoint as complete."""

    def __init__(self, parts: dict[str, Stateful]) -> None:
        self._parts = parts

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Called after the trainer wrote its own files."""
        if state.is_world_process_zero:
            checkpoint = Path(args.output_dir) / f"checkpoint-{state.global_step}"
            write_state(checkpoint, {name: part.state_dict() for name, part in self._parts.items()})

    def restore(self, checkpoint: Path) -> None:
        """Load every part.

        Raises:
            ValueError: when the checkpoint was written by a run with other stateful parts.
        """
        saved = read_state(checkpoint)
        if saved.keys() != self._parts.keys():
            raise ValueError(
                f"{checkpoint} holds the state of {sorted(saved)}, but this run has {sorted(self._parts)}; "
                "resume with the configuration that the run was started with"
            )
        for name, part in self._parts.items():
            part.load_state_dict(saved[name])
