"""Optuna's study of a search: what was tried and scored, kept in `search/journal.log` of the sweep's folder.

A trial that was asked for and not told is open: a kill leaves it so, and it is handed out again before new ones, to be
told under its own number. Every trial draws from a generator of its own, so that a search which was cut off goes on
like one that was not.
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from composer_rl.errors import MissingExtraError
from composer_rl.sweeps.search_space import SearchSettings
from composer_rl.sweeps.space import Draw, text_of

FOLDER = "search"
JOURNAL = "journal.log"
_RETRY = "retry_of"
"""Attribute of a trial that repeats a failed one; it does not count towards n_trials."""


class _HeldLock:
    """The folder is held by this process for as long as the study lasts; a lock file would outlive a kill."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass


class SearchStudy:
    """Asks for settings and takes scores.

    Args:
        folder: Held by the caller; the journal goes there.
        settings: What is searched.
        recipe: Hash of the configuration under the searched settings. Scores of another recipe, range, objective or
            seeds say nothing about this one, so that each has a study of its own in the journal.

    Raises MissingExtraError without optuna.
    """

    def __init__(self, folder: Path, settings: SearchSettings, *, recipe: str = "") -> None:
        try:
            import optuna
            from optuna.storages import JournalStorage
            from optuna.storages.journal import JournalFileBackend
        except ModuleNotFoundError as error:
            if error.name != "optuna":
                raise
            raise MissingExtraError("hydra/sweeper=optuna", package="optuna", extra="sweep") from error
        self._optuna, self._settings = optuna, settings
        self._distributions = {key: _distribution(optuna, draw) for key, draw in settings.params.items()}
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        journal = folder / JOURNAL
        drop_cut_line(journal)
        held: Any = _HeldLock()
        storage = JournalStorage(JournalFileBackend(str(journal), lock_obj=held))
        name = _name(settings, recipe)
        others = [study.study_name for study in optuna.get_all_study_summaries(storage) if study.study_name != name]
        self._study = optuna.create_study(
            study_name=name, storage=storage, direction=settings.direction, load_if_exists=True
        )
        if others and not self._study.trials:
            sys.stdout.write("a new search: the earlier one in this folder had another configuration or range\n")
        for trial in self._open():
            if trial.params.keys() != settings.params.keys():  # Cut off while it was asked for.
                self._study.tell(trial.number, state=optuna.trial.TrialState.FAIL)

    @property
    def num_left(self) -> int:
        """Trials that are still to be finished."""
        finished = [trial for trial in self._finished() if _RETRY not in trial.user_attrs]
        return max(0, self._settings.n_trials - len(finished))

    def retry_failed(self) -> None:
        """Open a trial with the settings of every trial that failed and was not repeated with a score since."""
        good = [trial.params for trial in self._finished() if trial.value is not None]
        open_now = [trial.params for trial in self._open()]
        for trial in self._finished():
            if trial.value is None and trial.params not in [*good, *open_now]:
                self._study.enqueue_trial(trial.params, user_attrs={_RETRY: trial.number})
                open_now.append(self._ask().params)

    def next_trials(self, most: int) -> list[Any]:
        """Up to `most` trials: open ones first, then new ones as long as some are left."""
        batch = self._open()[:most]
        new = sum(_RETRY not in trial.user_attrs for trial in self._open())
        while len(batch) < most and new < self.num_left:
            batch.append(self._ask())
            new += 1
        return batch

    def tell(self, number: int, score: float | None) -> None:
        """Record the score of a trial; None for one that failed, which teaches the search nothing."""
        if score is None:
            self._study.tell(number, state=self._optuna.trial.TrialState.FAIL)
        else:
            self._study.tell(number, score)

    def best(self) -> Any:
        """The trial with the best score so far; None without any."""
        return self._study.best_trial if any(trial.value is not None for trial in self._study.trials) else None

    @property
    def num_scored(self) -> int:
        """Trials with a score."""
        return sum(trial.value is not None for trial in self._study.trials)

    def _ask(self) -> Any:
        number = len(self._study.trials)
        text = f"{self._settings.random_seed}/{number}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
        self._study.sampler = self._optuna.samplers.TPESampler(seed=seed)
        asked = self._study.ask(self._distributions)
        return self._study.trials[asked.number]

    def _open(self) -> list[Any]:
        return list(self._study.get_trials(states=(self._optuna.trial.TrialState.RUNNING,)))

    def _finished(self) -> list[Any]:
        states = (self._optuna.trial.TrialState.COMPLETE, self._optuna.trial.TrialState.FAIL)
        trials = self._study.get_trials(states=states)
        return [trial for trial in trials if trial.params.keys() == self._settings.params.keys()]


def drop_cut_line(journal: Path) -> None:
    """Shorten a journal to its last complete line: a kill in the middle of one leaves what optuna cannot read."""
    if not journal.is_file():
        return
    content = journal.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    if len(complete) < len(content):
        os.truncate(journal, len(complete))


def _name(settings: SearchSettings, recipe: str) -> str:
    params: Sequence[Any] = sorted((key, repr(draw)) for key, draw in settings.params.items())
    content = repr((recipe, params, list(settings.seeds), settings.objective, settings.direction, settings.random_seed))
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _distribution(optuna: Any, draw: Draw) -> Any:
    if draw.choices:
        # As text: lists and mappings cannot be stored.
        return optuna.distributions.CategoricalDistribution([text_of(choice) for choice in draw.choices])
    assert draw.low is not None
    assert draw.high is not None
    if draw.integer:
        low, high = math.ceil(draw.low), math.floor(draw.high)
        return optuna.distributions.IntDistribution(low, high, log=draw.log)
    return optuna.distributions.FloatDistribution(draw.low, draw.high, log=draw.log)
