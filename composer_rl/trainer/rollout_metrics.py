"""Figures of a set of episodes: solve rates, recovery, error kinds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from composer_rl.types import Rollout


def rollout_metrics(rollouts: Sequence[Rollout], *, prefix: str = "rollout") -> dict[str, float]:
    """Flat metrics of episodes.

    `solve_rate_first` counts episodes whose first turn scored 1.0; `solve_rate` those whose last turn did;
    `recovery_rate` is the share of failed first turns whose second turn scored 1.0, among those that had a second
    turn; `errors/<kind>` is the share of first turns that ended in that error kind. Empty input gives {}.
    """
    if not rollouts:
        return {}
    num = len(rollouts)
    second_turns = [rollout.turns[1].reward >= 1.0 for rollout in rollouts if len(rollout.turns) > 1]
    kinds = Counter(rollout.turns[0].error.kind for rollout in rollouts if rollout.turns and rollout.turns[0].error)
    metrics = {
        f"{prefix}/solve_rate": sum(rollout.solved for rollout in rollouts) / num,
        f"{prefix}/solve_rate_first": sum(rollout.solved_first for rollout in rollouts) / num,
        f"{prefix}/num_turns": sum(len(rollout.turns) for rollout in rollouts) / num,
        f"{prefix}/length_stops": sum(rollout.stop_reason == "length" for rollout in rollouts) / num,
    }
    if second_turns:
        metrics[f"{prefix}/recovery_rate"] = sum(second_turns) / len(second_turns)
    if prefix == "rollout":
        metrics |= {f"errors/{kind}": count / num for kind, count in sorted(kinds.items())}
    return metrics
