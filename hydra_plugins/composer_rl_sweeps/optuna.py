"""`hydra/sweeper=optuna`: the next settings are chosen by what the earlier ones scored (extra composer-rl[sweep])."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


class OptunaSweeper(Sweeper):
    """See `composer_rl.sweeps.search` and, for its settings, `composer_rl.sweeps.search_space.SearchSettings`.

    It has no `n_jobs`: jobs run side by side by the launcher's.
    """

    def __init__(self, **settings: Any) -> None:
        # Read again from the whole configuration, together with the command line.
        pass

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Build the launcher."""
        self._config, self._loader = config, hydra_context.config_loader
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Mapping[str, Any]:
        """Run the trials that are left and return the best one."""
        from composer_rl.sweeps.from_config import search_from_config

        return search_from_config(self._launcher, self._config, arguments, self._loader)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="optuna",
    node={
        "_target_": f"{OptunaSweeper.__module__}.{OptunaSweeper.__name__}",
        "params": {},
        "seeds": [],
        "n_trials": 20,
        "random_seed": 0,
        "question": None,
        "baseline": None,
        "objective": "heldout/solve_rate_after",
        "direction": "maximize",
    },
    provider="composer_rl",
)
