"""An upgrade of TRL that moves a hook fails with one clear sentence."""

from __future__ import annotations

import pytest
import trl

from composer_rl.trainer import trl_hooks


def test_the_installed_trl_has_every_hook() -> None:
    trl_hooks.check_trl_hooks()


def test_every_override_of_the_trainer_is_listed() -> None:
    from composer_rl.trainer.composer_trainer import ComposerReplicationTrainer

    own = {name for name in vars(ComposerReplicationTrainer) if hasattr(trl.GRPOTrainer, name)}
    own -= {"__init__", "__doc__", "__module__", "__firstlineno__", "__static_attributes__", "log", "__annotations__"}
    assert own == {hook.method for hook in trl_hooks.HOOKS}


def test_a_moved_method_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(trl.GRPOTrainer, "_calculate_rewards")
    with pytest.raises(RuntimeError, match=r"_calculate_rewards is gone .*trl>=1.16"):
        trl_hooks.check_trl_hooks()


def test_a_changed_signature_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl.GRPOTrainer, "_compute_loss", lambda self, batch: None)
    with pytest.raises(RuntimeError, match="_compute_loss takes"):
        trl_hooks.check_trl_hooks()


def test_a_dropped_config_field_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trl_hooks, "CONFIG_FIELDS", ("loss_type", "steps_per_epoch"))
    with pytest.raises(RuntimeError, match="GRPOConfig has no steps_per_epoch"):
        trl_hooks.check_trl_hooks()
