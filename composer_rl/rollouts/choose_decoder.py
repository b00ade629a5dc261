"""Which way of decoding fits a model, checked against the model's own forward before the first use."""

from __future__ import annotations

import logging
import weakref
from typing import Any, Literal

import torch

from composer_rl.errors import RolloutError
from composer_rl.rollouts import shared_prefix
from composer_rl.rollouts.cached_forward import CachedForwardDecoder
from composer_rl.rollouts.decoder_base import Decoder

logger = logging.getLogger(__name__)

DecoderKind = Literal["shared_prefix", "cached_forward"]
"""`shared_prefix`: our attention over standard Llama-style layers. `cached_forward`: the model's own forward."""

PROBE_TOKENS = 12
TOLERANCE = {torch.float32: 1e-3, torch.float64: 1e-6}
HALF_TOLERANCE = 0.1
"""Largest difference of two logits that may come from rounding, relative to the largest logit."""

_chosen: weakref.WeakKeyDictionary[Any, DecoderKind] = weakref.WeakKeyDictionary()


def new_decoder(model: Any, kind: DecoderKind) -> Decoder:
    """A decoder without state. `model` may be wrapped by peft and is in eval mode."""
    if kind == "cached_forward":
        return CachedForwardDecoder(model)
    return shared_prefix.SharedPrefixDecoder(_bare(model))


def choose_decoder(model: Any) -> DecoderKind:
    """`shared_prefix` where the architecture is known and the logits agree with the model's forward.

    A model that should agree and does not (patched layers, an attention hook) is sampled through its own forward,
    with a warning. The answer is kept for the life of the model. Raises RolloutError for adapters that prepend
    virtual tokens, whose cache neither way tracks, and for logits that are not finite.
    """
    if model not in _chosen:
        _chosen[model] = _choose(model)
    return _chosen[model]


@torch.no_grad()
def _choose(model: Any) -> DecoderKind:
    peft_config = getattr(model, "peft_config", None) or {}
    if any(getattr(config, "is_prompt_learning", False) for config in peft_config.values()):
        raise RolloutError(
            "adapters with virtual tokens (prompt, prefix or p-tuning) are not supported by the sampler; "
            "use LoRA, or sample through TRL with rollout.backend=trl"
        )
    if not shared_prefix.supports(_bare(model)):
        return "cached_forward"
    vocabulary = model.get_input_embeddings().weight.shape[0]
    device = model.get_input_embeddings().weight.device
    ids = [(7 * i + 3) % vocabulary for i in range(PROBE_TOKENS)]
    expected = model(input_ids=torch.tensor([ids], device=device), use_cache=False).logits[0, -1].float()
    decoder = new_decoder(model, "shared_prefix")
    decoder.prefill([ids[:-1]], [1], capacity=1, retain=False)
    found = decoder.step(torch.tensor(ids[-1:], device=device))[0].float()
    dtype = model.get_input_embeddings().weight.dtype
    relative = HALF_TOLERANCE if torch.is_autocast_enabled(device.type) else TOLERANCE.get(dtype, HALF_TOLERANCE)
    allowed = relative * (1.0 + expected.abs().max())
    worst = (found - expected).abs().max()
    if bool(worst <= allowed):
        return "shared_prefix"
    if not bool(torch.isfinite(expected).all()):
        raise RolloutError("the model's logits are not finite; it cannot be sampled from")
    logger.warning(
        "%s looks like a standard decoder but its forward differs from ours by %.3g in a logit; "
        "sampling through its own forward instead, which is slower",
        type(_bare(model)).__name__,
        float(worst),
    )
    return "cached_forward"


def _bare(model: Any) -> Any:
    return model.get_base_model() if hasattr(model, "get_base_model") else model
