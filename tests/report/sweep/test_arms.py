from __future__ import annotations

import shutil

from composer_rl.report.sweep.arms import AS_CONFIGURED, group_runs, group_sweeps
from composer_rl.report.sweep.jobs import load_runs, load_sweep
from tests.report.make_sweep import ArmPlan, write_sweep

LOW = ArmPlan(choice={"optim.learning_rate": 5e-4})
HIGH = ArmPlan(choice={"optim.learning_rate": 1e-3}, settings={"optim.learning_rate": 1e-3})


def sweep(folder, *arms, **options):
    return load_sweep(write_sweep(folder, arms, **{"num_seeds": 2, "num_steps": 2, **options}))


def members(grouping):
    return {arm.label: [(job.sweep, job.seed) for job in arm.jobs] for arm in grouping.arms}


def test_arms_of_a_plan_and_of_overrides_are_the_same(tmp_path):
    planned = group_sweeps([sweep(tmp_path / "s", LOW, HIGH)])
    (tmp_path / "s" / "sweep.json").unlink()
    bare = group_sweeps([load_sweep(tmp_path / "s")])
    assert members(planned) == {
        "optim.learning_rate=0.0005": [("s", 0), ("s", 1)],
        "optim.learning_rate=0.001": [("s", 0), ("s", 1)],
    }
    assert members(bare) == members(planned)
    assert bare.knobs == planned.knobs == ("optim.learning_rate",)


def test_sweeps_merge_by_configuration(tmp_path):
    """The second sweep repeats one arm under another name, with one common seed, and adds an arm."""
    first = sweep(tmp_path / "first", LOW, HIGH)
    again = ArmPlan(choice={"rate": "high"}, settings=HIGH.settings)
    other = ArmPlan(choice={"rate": "higher"}, settings={"optim.learning_rate": 2e-3})
    second = sweep(tmp_path / "second", again, other, num_seeds=3)
    grouping = group_sweeps([first, second])
    assert members(grouping) == {
        "optim.learning_rate=0.0005": [("first", 0), ("first", 1)],
        "optim.learning_rate=0.001": [("first", 0), ("first", 1), ("second", 2)],
        "rate=higher": [("second", 0), ("second", 1), ("second", 2)],
    }
    assert [(job.sweep, job.seed) for job in grouping.repeats] == [("second", 0), ("second", 1)]


def test_of_repeated_jobs_the_one_that_ended_counts(tmp_path):
    folder = write_sweep(tmp_path / "s", (ArmPlan(choice={"po": "a"}, status={0: "failed"}),), num_seeds=1, num_steps=4)
    redo = write_sweep(tmp_path / "t", (ArmPlan(choice={"po": "a"}),), num_seeds=1, num_steps=4)
    grouping = group_sweeps([load_sweep(folder), load_sweep(redo)])
    assert [job.status for job in grouping.arms[0].jobs] == ["succeeded"]
    assert [job.status for job in grouping.repeats] == ["failed"]


def test_jobs_that_left_nothing_join_their_arm_by_the_plan(tmp_path):
    lost = ArmPlan(choice={"po": "a"}, status={1: "absent"})
    grouping = group_sweeps(
        [sweep(tmp_path / "s", lost, ArmPlan(choice={"po": "b"}, status={0: "absent", 1: "absent"}))]
    )
    assert members(grouping) == {"po=a": [("s", 0), ("s", 1)], "po=b": [("s", 0), ("s", 1)]}
    assert grouping.arms[1].recipe is None


def test_without_a_plan_they_belong_nowhere(tmp_path):
    grouping = group_sweeps([sweep(tmp_path / "s", ArmPlan(choice={"po": "a"}, status={1: "empty"}), plan=False)])
    assert [job.name for job in grouping.strays] == ["1-00000001"]
    assert [arm.label for arm in grouping.arms] == [AS_CONFIGURED]


def test_arms_of_one_name_are_told_apart_by_their_settings(tmp_path):
    first, second = (
        sweep(tmp_path / name, ArmPlan(choice={"po": "a"}, settings=settings))
        for name, settings in (("s", {}), ("t", {"env.max_turns": 1}))
    )
    labels = [arm.label for arm in group_sweeps([first, second]).arms]
    assert labels == ["po=a (env.max_turns=3)", "po=a (env.max_turns=1)"]


def test_runs_are_arms_of_their_own(tmp_path):
    write_sweep(tmp_path / "s", (LOW, HIGH), num_seeds=1, num_steps=2)
    runs = [tmp_path / "s" / "0-00000000", tmp_path / "s" / "1-00000001"]
    assert [arm.label for arm in group_runs(load_runs(runs)).arms] == [
        "optim.learning_rate=0.0005",
        "optim.learning_rate=0.001",
    ]
    shutil.copytree(runs[0], tmp_path / "s" / "copy")
    twins = group_runs(load_runs([runs[0], tmp_path / "s" / "copy"]))
    assert [arm.label for arm in twins.arms] == ["0-00000000", "copy"]
