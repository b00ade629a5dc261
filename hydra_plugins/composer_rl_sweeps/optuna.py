"""`hydra/sweeper=optuna`: the next settings are chosen by what the earlier ones scored (extra composer-rl[sweep])."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper


class OptunaSweeper(Sweeper):
    """See `composer_rl.sweeps.search.search`.

    Args:
        params: Setting -> {low, high, log, integer} or {choices}.
        seeds: Every trial runs over these and scores their mean; one run of the configured seed without any.
        n_trials: Trials in all, those of earlier calls included.
        n_jobs: Trials asked for at once, before any of them is told.
        random_seed: Of the search.
        question: What the search is to answer.
        baseline: Not used by a search; a sweep file may state it.
        objective: Final figure of a job that is optimised.
        direction: maximize or minimize.
    """

    def __init__(self, **settings: Any) -> None:
        from composer_rl.sweeps.search import SearchSettings

        self._settings = SearchSettings.of(settings)

    def setup(self, *, hydra_context: Any, task_function: Any, config: Any) -> None:
        """Build the launcher."""
        self._config = config
        self._launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Mapping[str, Any]:
        """Run the trials that are left and return the best one."""
        from composer_rl.sweeps.search import search

        return search(self._launcher, str(self._config.hydra.sweep.dir), arguments, self._settings)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="optuna",
    node={
        "_target_": f"{OptunaSweeper.__module__}.{OptunaSweeper.__name__}",
        "params": {},
        "seeds": [],
        "n_trials": 20,
        "n_jobs": 1,
        "random_seed": 0,
        "question": None,
        "baseline": None,
        "objective": "heldout/solve_rate_after",
        "direction": "maximize",
    },
    provider="composer_rl",
)
