"""`hydra/sweeper=design` (the default): grid, paired lists and random draws over seeds, stated in a sweep file."""

from __future__ import annotations

from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore


class DesignSweeper(BasicSweeper):
    """Hydra's own sweeper, choices on the command line included, with the blocks of `composer_rl.sweeps.design`.

    All jobs go to the launcher in one batch.
    """

    def __init__(self, params: Any = None, **blocks: Any) -> None:
        super().__init__(max_batch_size=None, params=params)
        self._blocks = blocks

    def sweep(self, arguments: list[str]) -> Any:
        """Launch every job of the design."""
        from composer_rl.sweeps.design import design_rows
        from composer_rl.sweeps.returned import count_outcomes

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        rows = design_rows(self.config.hydra.sweeper, arguments, self.hydra_context.config_loader)
        returns = self.launcher.launch(rows, initial_job_idx=0)
        count_outcomes(returns)
        return [returns]


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="design",
    node={
        "_target_": f"{DesignSweeper.__module__}.{DesignSweeper.__name__}",
        "params": None,
        "grid": {},
        "zip": {},
        "random": {},
        "num_random": 10,
        "random_seed": 0,
        "seeds": [],
        "question": None,
        "baseline": None,
        "objective": "heldout/solve_rate_after",
        "direction": "maximize",
    },
    provider="composer_rl",
)
