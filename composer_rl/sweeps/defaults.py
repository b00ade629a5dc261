"""Make our launcher and sweeper the ones that a sweep uses where nobody chooses.

They are set in the defaults list that Hydra itself starts from. An `override hydra/launcher` in conf/config.yaml would
win over the one of a sweep file, so that no sweep file could choose a sweeper.
"""

from __future__ import annotations

DEFAULTS = {"launcher": "processes", "sweeper": "design"}


def set_sweep_defaults() -> None:
    """Register the plugins and change Hydra's own defaults list in this process. Idempotent."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import read_write

    import hydra_plugins.composer_rl_sweeps.design
    import hydra_plugins.composer_rl_sweeps.processes  # noqa: F401  (registers its configuration)

    node = ConfigStore.instance().repo["hydra"]["config.yaml"].node
    with read_write(node):
        for entry in node.defaults:
            for group, option in DEFAULTS.items():
                if group in entry:
                    entry[group] = option
