from composer_rl.trackers.summary import error_text, final_metrics


def test_final_metrics_are_finite_and_include_engagement(summary):
    assert final_metrics(summary) == {
        "heldout/solve_rate_before": 0.31,
        "heldout/solve_rate_after": 0.76,
        "heldout/num_tasks": 200.0,
        "time/train_s": 240.2,
        "engagement/epsilon_high": 0.0,
        "engagement/temperature": 0.4,
    }
    assert final_metrics({}) == {}
    assert final_metrics({"metrics": None, "engagement": None}) == {}


def test_error_text_of_each_form():
    assert error_text({}) == ""
    assert error_text({"error": None}) == ""
    assert error_text({"error": "it broke"}) == "it broke"
    assert (
        error_text({"error": {"type": "OSError", "message": "disk full", "traceback": "..."}}) == "OSError: disk full"
    )
