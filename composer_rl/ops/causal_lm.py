"""What the forward of a causal language model takes; it differs between architectures and transformers releases."""

from __future__ import annotations

import inspect
from typing import Any


def forward_arguments(model: Any) -> frozenset[str]:
    """Names of the arguments of a model's forward, under its peft wrapper if it has one."""
    bare = model.get_base_model() if hasattr(model, "get_base_model") else model
    return frozenset(inspect.signature(bare.forward).parameters)


def cache_argument(model: Any) -> str:
    """Under which name the forward takes a key/value cache.

    transformers renamed it in 5.24; the old name is what earlier versions and remote-code models take.
    """
    return "cache" if "cache" in forward_arguments(model) else "past_key_values"
