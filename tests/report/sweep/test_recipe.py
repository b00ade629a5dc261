from __future__ import annotations

from composer_rl.report.sweep.recipe import differing, recipe_of, without_seed_followers


def objective(**settings):
    return {"po": {"_target_": "composer_rl.po.base.PolicyObjective", **settings}}


def test_a_default_that_is_written_out_is_no_difference():
    bare, full = (recipe_of(objective(**given), stage="rl") for given in ({}, {"kl_estimator": "k3", "delta": None}))
    assert differing([bare, full]) == []
    assert bare["po.num_generations"] == 8


def test_names_seeds_and_trackers_are_no_settings():
    config = {
        "seed": 3,
        "run_name": "x",
        "tags": ["a"],
        "tracker": {"a": 1},
        "evaluate": {"k": [1]},
        "optim": {"lr": 1},
    }
    assert recipe_of(config, stage="rl") == {"optim.lr": 1}
    assert recipe_of(config, stage="evaluate") == {"evaluate.k": "[1]", "optim.lr": 1}


def test_classes_of_other_packages_are_not_imported():
    config = {"po": {"_target_": "somewhere.else.Objective", "epsilon": 0.1}}
    assert recipe_of(config, stage="rl") == {"po._target_": "somewhere.else.Objective", "po.epsilon": 0.1}


def test_a_seed_inside_a_component_follows_the_runs_own():
    recipes = [(seed, {"env.seed": seed, "model.seed": 0, "lr": 1}) for seed in (0, 1)]
    assert without_seed_followers(recipes) == [{"model.seed": 0, "lr": 1}] * 2
    assert without_seed_followers(recipes[:1]) == [recipes[0][1]]


def test_a_part_that_is_null_differs_in_what_fills_it():
    assert differing([{"a": None, "b": 1}, {"a.x": 1, "a.y": 2, "b": 1}]) == ["a.x", "a.y"]
    assert differing([{"a": 1}, {}]) == ["a"]
