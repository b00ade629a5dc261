"""Keep the libraries' own progress bars and notices out of the run's display."""

from __future__ import annotations

import logging
import os
import warnings

_KNOWN_NOTICES = (
    # transformers 5.24 renames these; accelerate and TRL 1.16 still use the old names.
    ("`gradient_checkpointing` is deprecated", FutureWarning),
    ("`is_gradient_checkpointing` is deprecated", FutureWarning),
    ("`gradient_checkpointing_enable` is deprecated", FutureWarning),
)


def quiet_libraries() -> None:
    """Switch off progress bars and notices that a user can do nothing about; errors still come through."""
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    import datasets
    import transformers

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    datasets.disable_progress_bars()
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    for message, category in _KNOWN_NOTICES:
        warnings.filterwarnings("ignore", message=message, category=category)
