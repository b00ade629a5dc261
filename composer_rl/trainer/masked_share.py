"""Warn when masks take much of a batch out of the loss: the loss looks normal and little is learnt (case B34)."""

from __future__ import annotations

import logging
from collections.abc import Mapping

_LOG = logging.getLogger(__name__)

LIMIT = 0.2
"""Share of a step's tokens or rows above which a mask is warned about."""


class MaskedShareWarning:
    """Observer of the logged metrics; warns once for each mask.

    Args:
        masks: Logged share of what a mask removes -> the setting behind it and what to do.
    """

    def __init__(self, masks: Mapping[str, str]) -> None:
        self._masks = dict(masks)

    def observe(self, metrics: Mapping[str, float | None]) -> None:
        """Look at one logged step."""
        for name, advice in list(self._masks.items()):
            share = metrics.get(name)
            if share is not None and share > LIMIT:
                del self._masks[name]
                _LOG.warning("%.0f%% of a step is masked out of the loss (%s) by %s", 100 * share, name, advice)
