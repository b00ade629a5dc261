"""A few generated tasks."""

from __future__ import annotations

from itertools import islice

import pytest

from composer_rl.envs.substrates.micro.tasks import Mix, TaskSpec, generate


@pytest.fixture(scope="session")
def train_specs() -> list[TaskSpec]:
    return list(islice(generate("train", seed=3, mix=Mix()), 400))


@pytest.fixture(scope="session")
def heldout_specs() -> list[TaskSpec]:
    return list(islice(generate("heldout", seed=3, mix=Mix()), 300))
