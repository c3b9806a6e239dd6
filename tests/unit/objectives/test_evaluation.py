import math

import pytest

from objectives import Slo, Verdict, evaluate
from tests.unit.objectives.builders import point

TTFT = Slo(metric="p99_ttft_ms", limit=1000)
TPOT = Slo(metric="p99_tpot_ms", limit=40)
ERRORS = Slo(metric="error_frac", limit=0.01)


def test_slacks_are_by_metric_and_relative_to_the_limit() -> None:
    judged = evaluate(point(p99_ttft_ms=1250.0, p99_tpot_ms=30.0), [TTFT, TPOT, ERRORS])
    assert judged.slacks == {"p99_ttft_ms": 0.25, "p99_tpot_ms": -0.25, "error_frac": None}


def test_without_limits_every_valid_point_is_feasible() -> None:
    judged = evaluate(point(), [])
    assert (judged.verdict, judged.is_within, judged.undecided) == (Verdict.FEASIBLE, True, ())


@pytest.mark.parametrize(
    ("value", "verdict", "is_within"),
    [
        (39.9, Verdict.FEASIBLE, True),
        (40.0, Verdict.FEASIBLE, True),
        (40.1, Verdict.INFEASIBLE, False),
        (math.inf, Verdict.INFEASIBLE, False),
    ],
)
def test_a_published_figure_is_judged_by_its_slack_alone(
    value: float, verdict: Verdict, *, is_within: bool
) -> None:
    judged = evaluate(point(p99_tpot_ms=value), [TPOT])
    assert (judged.verdict, judged.is_within) == (verdict, is_within)


@pytest.mark.parametrize("metrics", [{}, {"p99_tpot_ms": None}, {"p99_tpot_ms": math.nan}])
def test_a_metric_without_data_is_undecided_and_never_met(metrics: dict[str, float]) -> None:
    judged = evaluate(point(**metrics), [TPOT])
    assert judged.verdict is Verdict.UNDECIDED
    assert judged.undecided == ("p99_tpot_ms",)
    assert not judged.is_within


def test_request_counts_decide_where_they_can() -> None:
    met = evaluate(point(p99_tpot_ms=30.0, over={"p99_tpot_ms": (0, 329)}), [TPOT])
    assert (met.verdict, met.is_within) == (Verdict.FEASIBLE, True)
    broken = evaluate(point(p99_tpot_ms=60.0, over={"p99_tpot_ms": (20, 200)}), [TPOT])
    assert (broken.verdict, broken.is_within) == (Verdict.INFEASIBLE, False)


def test_a_good_estimate_of_too_few_requests_may_enter_a_front_unproven() -> None:
    judged = evaluate(point(p99_tpot_ms=30.0, over={"p99_tpot_ms": (0, 328)}), [TPOT])
    assert (judged.verdict, judged.is_within) == (Verdict.UNDECIDED, True)
    assert judged.undecided == ("p99_tpot_ms",)


def test_a_bad_estimate_of_too_few_requests_stays_off_the_front() -> None:
    judged = evaluate(point(p99_tpot_ms=41.0, over={"p99_tpot_ms": (5, 300)}), [TPOT])
    assert (judged.verdict, judged.is_within) == (Verdict.UNDECIDED, False)


def test_counts_that_prove_a_limit_broken_outweigh_an_estimate_within_it() -> None:
    judged = evaluate(point(p99_tpot_ms=39.0, over={"p99_tpot_ms": (20, 200)}), [TPOT])
    assert judged.slacks["p99_tpot_ms"] == pytest.approx(-0.025)
    assert (judged.verdict, judged.is_within) == (Verdict.INFEASIBLE, False)


def test_counts_of_a_metric_that_is_no_share_are_passed_over() -> None:
    judged = evaluate(point(error_frac=0.005, over={"error_frac": (100, 100)}), [ERRORS])
    assert judged.verdict is Verdict.FEASIBLE


def test_one_broken_limit_is_enough_and_the_open_ones_are_named() -> None:
    mixed = point(
        p99_ttft_ms=500.0,
        p99_tpot_ms=30.0,
        error_frac=0.5,
        over={"p99_ttft_ms": (0, 10), "p99_tpot_ms": (0, 400)},
    )
    judged = evaluate(mixed, [TTFT, TPOT, ERRORS])
    assert judged.verdict is Verdict.INFEASIBLE
    assert judged.undecided == ("p99_ttft_ms",)


def test_an_invalid_point_is_never_within_and_never_feasible() -> None:
    judged = evaluate(point(p99_tpot_ms=30.0, invalid=("the client was saturated",)), [TPOT])
    assert (judged.verdict, judged.is_within) == (Verdict.UNDECIDED, False)


def test_more_confidence_leaves_open_what_less_confidence_decides() -> None:
    seen = point(p99_tpot_ms=30.0, over={"p99_tpot_ms": (0, 329)})
    assert evaluate(seen, [TPOT], confidence=0.99).verdict is Verdict.UNDECIDED
    assert evaluate(seen, [TPOT], confidence=0.90).verdict is Verdict.FEASIBLE


def test_an_invalid_point_decides_nothing_however_many_were_over() -> None:
    judged = evaluate(
        point(p99_tpot_ms=None, over={"p99_tpot_ms": (100, 100)}, invalid=("starved",)), [TPOT]
    )
    assert judged.verdict is Verdict.UNDECIDED
    assert not judged.is_within
