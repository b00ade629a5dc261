from __future__ import annotations

import csv
import io
import json

import pytest

from composer_rl.errors import ConfigError
from composer_rl.report.statistics import VerdictKind, paired_difference
from composer_rl.report.sweep.arms import group_sweeps
from composer_rl.report.sweep.comparison import compare
from composer_rl.report.sweep.cost import cost_of
from composer_rl.report.sweep.figures import curves_figure, differences_figure, finals_figure, heatmap_figure
from composer_rl.report.sweep.jobs import load_sweep
from composer_rl.report.sweep.panels import sweep_panels
from composer_rl.report.sweep.rollouts import samples
from composer_rl.report.sweep.table import jobs_csv
from tests.report.make_sweep import PRESETS, ROUNDS, ArmPlan, row, write_sweep


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_sweep(tmp_path_factory.mktemp("sweep") / "presets", num_steps=12)


@pytest.fixture(scope="module")
def comparison(folder):
    sweep = load_sweep(folder)
    return compare(group_sweeps([sweep]), objective=sweep.objective, minimize=False, baseline=sweep.baseline)


def test_verdicts(comparison):
    base, dapo, clip, gspo = comparison.results
    assert (base.is_baseline, base.verdict, base.index) == (True, None, 0)
    assert dapo.verdict.kind is VerdictKind.BETTER
    assert dapo.verdict.difference.mean == pytest.approx(paired_difference(base.scores, dapo.scores).mean)
    assert clip.is_void
    assert gspo.verdict.kind is VerdictKind.NOT_SEPARABLE
    assert dapo.missing == ("seed 3 failed",)
    assert gspo.missing == ("seed 2 interrupted", "seed 4 missing")
    assert (len(gspo.scores), gspo.num_planned) == (3, 5)
    assert comparison.objective.resolution == pytest.approx(1 / 200)


def test_nothing_is_hidden(comparison):
    assert comparison.status_counts == {"succeeded": 17, "failed": 1, "interrupted": 1, "missing": 1}
    (note,) = comparison.notes
    assert "po=dapo: seed 3 failed; " in note
    assert note.endswith("seed 2 interrupted, seed 4 missing. Verdicts may change when these jobs end.")


def test_seeds_that_only_other_arms_have_are_missing(tmp_path):
    first = load_sweep(write_sweep(tmp_path / "s", (ArmPlan(choice={"po": "a"}),), num_seeds=2, num_steps=2))
    other = ArmPlan(choice={"po": "b"}, settings={"po.loss_type": "dapo"})
    second = load_sweep(write_sweep(tmp_path / "t", (other,), num_seeds=3, num_steps=2))
    found = compare(group_sweeps([first, second]))
    assert found.results[0].missing == ("seed 2 missing",)
    assert found.status_counts == {"succeeded": 5, "missing": 1}
    assert "No baseline was named" in found.notes[0]


def test_one_seed_makes_no_claim(tmp_path):
    arms = (ArmPlan(choice={"po": "a"}), ArmPlan(choice={"po": "b"}, settings={"po.loss_type": "dapo"}, skill=0.4))
    sweep = load_sweep(write_sweep(tmp_path, arms, num_seeds=1, num_steps=2))
    found = compare(group_sweeps([sweep]), baseline=sweep.baseline)
    assert found.results[1].verdict.kind is VerdictKind.NOT_SEPARABLE
    assert found.results[1].improvement is None
    assert found.notes[0].startswith("One seed an arm: no statistical claim is made.")


def test_lower_is_better(folder):
    sweep = load_sweep(folder)
    down = compare(group_sweeps([sweep]), minimize=True, baseline=sweep.baseline)
    up = compare(group_sweeps([sweep]), minimize=False, baseline=sweep.baseline)
    assert down.results[1].verdict.kind is VerdictKind.WORSE
    assert down.results[1].improvement.value == pytest.approx(1 - up.results[1].improvement.value)


@pytest.mark.parametrize("wanted", ["po=dapo", {"po": "dapo"}])
def test_another_baseline(folder, wanted):
    assert compare(group_sweeps([load_sweep(folder)]), baseline=wanted).baseline.arm.label == "po=dapo"


def test_a_baseline_by_number_and_by_configuration(tmp_path):
    rates = [ArmPlan(choice={"optim.learning_rate": r}, settings={"optim.learning_rate": r}) for r in (1e-3, 5e-4)]
    grouping = group_sweeps([load_sweep(write_sweep(tmp_path, rates, num_seeds=1, num_steps=2))])
    assert compare(grouping, baseline="optim.learning_rate=5e-4").baseline.arm.label.endswith("=0.0005")
    several = compare(grouping, baseline={"po.loss_type": "dr_grpo"})
    assert "2 arms fit the baseline" in several.notes[0]
    with pytest.raises(ConfigError, match=r"no arm is the baseline po=sapo; there are: optim.learning_rate=0.001;"):
        compare(grouping, baseline="po=sapo")


def test_curves_leave_void_arms_recognisable(comparison):
    figure = curves_figure(comparison, "heldout/solve_rate", "rate", is_rate=True)
    means = [trace for trace in figure.data if trace.showlegend is not False]
    assert [trace.meta["arm"] for trace in means] == [0, 1, 2, 3]
    assert means[2].name.endswith("(void)")
    assert means[2].line.dash == "dot"
    lines = [trace for trace in figure.data if "seed" in trace.meta and trace.meta["arm"] == 3]
    assert [trace.meta["seed"] for trace in lines] == [0, 1, 2, 3]
    assert all(trace.visible is False for trace in lines)
    assert curves_figure(comparison, "no/such", "") is None


def test_scores_and_differences_seed_by_seed(comparison):
    finals, differences = finals_figure(comparison), differences_figure(comparison)
    dots = [trace for trace in finals.data if "seeds" in trace.meta]
    assert [len(trace.x) for trace in dots] == [5, 4, 5, 3]
    shown = {trace.meta["arm"] for trace in differences.data}
    assert shown == {1, 3}  # No claim about the void arm.
    base, dapo = comparison.results[:2]
    (points,) = [trace for trace in differences.data if trace.meta.get("seeds") and trace.meta["arm"] == 1]
    assert list(points.x) == pytest.approx([dapo.scores[seed] - base.scores[seed] for seed in (0, 1, 2, 4)])


def grid(*, columns, rows, skip=()):
    return [
        ArmPlan(
            choice={"optim.learning_rate": rate, "po.beta": beta},
            settings={"optim.learning_rate": rate, "po.beta": beta},
            engagement=(ROUNDS, row("po.beta", "kl", 0.1, True)),
        )
        for rate in columns
        for beta in rows
        if (rate, beta) not in skip
    ]


def test_a_grid_of_two_settings_is_a_heat_map(tmp_path):
    plans = grid(columns=(1e-3, 5e-4), rows=(0.0, 0.1), skip={(5e-4, 0.1)})
    found = compare(group_sweeps([load_sweep(write_sweep(tmp_path, plans, num_seeds=1, num_steps=2))]))
    (cells,) = heatmap_figure(found).data
    assert list(cells.x) == ["0.0005", "0.001"]
    assert list(cells.y) == ["0.0", "0.1"]
    assert cells.z[1][0] is None
    assert cells.z[0][1] == pytest.approx(found.results[0].mean)


def test_no_heat_map_without_a_grid(tmp_path, comparison):
    assert heatmap_figure(comparison) is None
    diagonal = grid(columns=(1e-3, 5e-4), rows=(0.0, 0.1), skip={(1e-3, 0.1), (5e-4, 0.0)})
    found = compare(group_sweeps([load_sweep(write_sweep(tmp_path, diagonal, num_seeds=1, num_steps=2))]))
    assert heatmap_figure(found) is None


def test_panels_leave_no_hole(comparison):
    panels = sweep_panels(comparison)
    assert [panel.name for panel in panels] == ["objective", "finals", "differences", "reward", "entropy"]
    assert sum(not panel.wide for panel in panels) % 2 == 0


def test_cost_counts_failed_jobs_too(comparison):
    dapo, gspo = cost_of(comparison.results[1]), cost_of(comparison.results[3])
    assert dapo.num_jobs == 5
    assert dapo.dollars == pytest.approx(4 * 0.0125)
    assert dapo.tokens == 4 * 12 * 5760 + 6 * 5760
    assert gspo.num_jobs == 4
    assert gspo.seconds > 0


def test_rollouts_are_of_the_same_tasks(comparison):
    found = samples(comparison)
    assert set(found) == {0, 1, 2, 3}
    tasks = [[sample.rollout.task_id for sample in arm if sample.rollout.split == "heldout"] for arm in found.values()]
    assert len(tasks[0]) >= 2
    assert tasks[0] == tasks[1] == tasks[2] == tasks[3]
    assert all(len(arm) <= 8 for arm in found.values())


def test_one_row_a_job(comparison):
    rows = list(csv.DictReader(io.StringIO(jobs_csv(comparison))))
    assert len(rows) == 20
    failed = next(found for found in rows if found["status"] == "failed")
    assert failed["error"] == "SandboxError: the template process died"
    assert (failed["arm"], failed["seed"], failed["set/po"]) == ("po=dapo", "3", "dapo")
    assert failed["heldout/solve_rate_after"] == ""
    best = next(found for found in rows if found["arm"] == "po=dapo" and found["seed"] == "0")
    assert float(best["heldout/solve_rate_after"]) == pytest.approx(comparison.results[1].scores[0])
    assert {found["void"] for found in rows if "clip" in found["arm"]} == {"True"}
    assert sum(found["status"] == "missing" for found in rows) == 1


def test_no_cell_is_a_formula(tmp_path):
    folder = write_sweep(tmp_path, PRESETS[:1], num_seeds=1, num_steps=2)
    file = folder / "0-00000000" / "result.json"
    content = json.loads(file.read_text())
    content |= {"status": "failed", "error": "=HYPERLINK(1)"}
    file.write_text(json.dumps(content))
    assert ",'=HYPERLINK(1)," in jobs_csv(compare(group_sweeps([load_sweep(folder)])))
