import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives import Direction, Exceedance, Load, Objective, OperatingPoint, Slo
from tuner.study.lessons import LAUNCH_CONSTRAINT, MAX_SLACK, Ending, Lesson, lesson_of
from tuner.trial import Failed, FailureKind, Measured, Phase

MOST = Objective(metric="output_tok_per_s", direction=Direction.MAXIMIZE)
FASTEST = Objective(metric="p99_tpot_ms", direction=Direction.MINIMIZE)
TPOT = Slo(metric="p99_tpot_ms", limit=40)
TTFT = Slo(metric="p99_ttft_ms", limit=1000)


def point(
    tpot_ms: float | None,
    tok_per_s: float | None,
    *,
    ttft_ms: float | None = 500.0,
    over: tuple[int, int] | None = None,
    invalid: tuple[str, ...] = (),
) -> OperatingPoint:
    return OperatingPoint(
        load=Load.batch(1),
        metrics={
            "p99_tpot_ms": tpot_ms,
            "output_tok_per_s": tok_per_s,
            "p99_ttft_ms": ttft_ms,
        },
        exceedances={}
        if over is None
        else {"p99_tpot_ms": Exceedance(n_over=over[0], n_total=over[1])},
        invalid_reasons=invalid,
    )


def lesson(*points: OperatingPoint) -> Lesson:
    outcome = Measured(points=points, start_s=60.0)
    return lesson_of(outcome, objectives=[MOST, FASTEST], slos=[TPOT, TTFT], confidence=0.95)


def failed(*, is_deterministic: bool, points: tuple[OperatingPoint, ...] = ()) -> Lesson:
    outcome = Failed(
        kind=FailureKind.OUT_OF_MEMORY,
        phase=Phase.START,
        message="the KV cache did not fit",
        is_deterministic=is_deterministic,
        points=points,
    )
    return lesson_of(outcome, objectives=[MOST, FASTEST], slos=[TPOT, TTFT], confidence=0.95)


def test_a_measured_launch_gives_the_ends_of_its_feasible_front() -> None:
    told = lesson(point(20.0, 100.0), point(30.0, 200.0), point(50.0, 300.0))
    assert told.ending is Ending.COMPLETE
    # The best throughput within 40 ms and the lowest latency, from two points.
    assert told.values == (200.0, 20.0)


def test_a_feasible_launch_is_told_the_best_slack_of_each_limit() -> None:
    told = lesson(point(20.0, 100.0, ttft_ms=900.0), point(30.0, 200.0, ttft_ms=250.0))
    assert told.constraints == {
        "slo_p99_tpot_ms": pytest.approx(-0.5),
        "slo_p99_ttft_ms": pytest.approx(-0.75),
        LAUNCH_CONSTRAINT: -1.0,
    }


def test_without_a_feasible_point_the_nearest_miss_is_told() -> None:
    told = lesson(point(60.0, 100.0), point(50.0, 90.0), point(80.0, 300.0))
    assert told.ending is Ending.COMPLETE
    assert told.values == (90.0, 50.0)
    assert told.constraints == {
        "slo_p99_tpot_ms": pytest.approx(0.25),
        "slo_p99_ttft_ms": pytest.approx(-0.5),
        LAUNCH_CONSTRAINT: -1.0,
    }


def test_being_well_within_one_limit_does_not_make_up_for_another() -> None:
    told = lesson(point(44.0, 100.0, ttft_ms=1000.0), point(48.0, 90.0, ttft_ms=1.0))
    assert told.values == (100.0, 44.0)


def test_a_point_proven_broken_within_its_estimate_is_told_as_a_broken_launch() -> None:
    told = lesson(point(39.0, 100.0, over=(20, 200)))
    assert told.ending is Ending.COMPLETE
    assert told.values == (100.0, 39.0)
    assert told.constraints["slo_p99_tpot_ms"] == pytest.approx(-0.025)
    assert told.constraints[LAUNCH_CONSTRAINT] > 0


def test_an_invalid_point_is_not_preferred_to_a_valid_miss() -> None:
    told = lesson(point(50.0, 90.0), point(10.0, 900.0, invalid=("the prefix cache was warm",)))
    assert told.ending is Ending.COMPLETE
    assert told.values == (90.0, 50.0)
    assert told.constraints["slo_p99_tpot_ms"] == pytest.approx(0.25)


def test_an_invalid_point_lends_no_value_to_a_feasible_launch() -> None:
    told = lesson(point(30.0, 90.0), point(10.0, 900.0, invalid=("the prefix cache was warm",)))
    assert told.values == (90.0, 30.0)


def test_a_launch_of_invalid_points_alone_is_pruned_as_broken() -> None:
    told = lesson(point(10.0, 900.0, invalid=("the client was saturated",)))
    assert told.ending is Ending.PRUNED
    assert told.values == ()
    assert told.constraints[LAUNCH_CONSTRAINT] > 0


def test_a_launch_without_a_value_of_some_objective_is_pruned() -> None:
    told = lesson(point(60.0, None))
    assert told.ending is Ending.PRUNED
    assert told.values == ()
    assert told.constraints["slo_p99_tpot_ms"] == pytest.approx(0.5)


def test_an_infinite_p99_is_ten_limits_off_and_no_value() -> None:
    told = lesson(point(math.inf, 5.0))
    assert told.ending is Ending.PRUNED
    assert told.constraints["slo_p99_tpot_ms"] == MAX_SLACK == 10.0


def test_an_unknown_p99_counts_as_twice_its_limit() -> None:
    told = lesson(point(50.0, 5.0, ttft_ms=None))
    assert told.ending is Ending.COMPLETE
    assert told.constraints["slo_p99_ttft_ms"] == 1.0


def test_a_throughput_far_above_its_lower_limit_counts_as_one_limit_above() -> None:
    outcome = Measured(points=(point(10.0, 900.0),), start_s=1.0)
    slos = [Slo(metric="output_tok_per_s", limit=100)]
    told = lesson_of(outcome, objectives=[MOST], slos=slos, confidence=0.95)
    assert told.constraints["slo_output_tok_per_s"] == -1.0


def test_a_deterministic_failure_breaks_every_promise() -> None:
    told = failed(is_deterministic=True)
    assert told.ending is Ending.PRUNED
    assert told.values == ()
    assert told.constraints == {
        "slo_p99_tpot_ms": 10.0,
        "slo_p99_ttft_ms": 10.0,
        LAUNCH_CONSTRAINT: 10.0,
    }


def test_what_was_measured_before_a_deterministic_failure_does_not_redeem_it() -> None:
    told = failed(is_deterministic=True, points=(point(10.0, 100.0),))
    assert told == failed(is_deterministic=True)


def test_a_transient_failure_teaches_nothing() -> None:
    assert failed(is_deterministic=False) == Lesson(ending=Ending.FAIL)


def test_without_limits_every_launch_is_feasible() -> None:
    outcome = Measured(points=(point(500.0, 1.0),), start_s=1.0)
    told = lesson_of(outcome, objectives=[MOST], slos=[], confidence=0.95)
    assert told == Lesson(
        ending=Ending.COMPLETE, values=(1.0,), constraints={LAUNCH_CONSTRAINT: -1.0}
    )


latency = st.sampled_from([None, 1.0, 40.0, 41.0, 90.0, math.inf])
measured = st.lists(
    st.builds(
        point,
        latency,
        st.sampled_from([None, 1.0, 2.0]),
        ttft_ms=st.sampled_from([None, 10.0, 1000.0, 5000.0, math.inf]),
        over=st.sampled_from([None, (0, 10), (0, 400), (20, 200)]),
        invalid=st.sampled_from([(), (), ("x",)]),
    ),
    min_size=1,
    max_size=5,
)


@given(measured)
def test_every_trial_gets_the_same_finite_constraints(points: list[OperatingPoint]) -> None:
    told = lesson(*points)
    assert set(told.constraints) == {"slo_p99_tpot_ms", "slo_p99_ttft_ms", LAUNCH_CONSTRAINT}
    assert all(-1.0 <= value <= MAX_SLACK for value in told.constraints.values())
    assert all(math.isfinite(value) for value in told.values)
    assert len(told.values) == (2 if told.ending is Ending.COMPLETE else 0)


@given(measured)
def test_a_launch_is_told_feasible_only_with_a_valid_point_within_every_limit(
    points: list[OperatingPoint],
) -> None:
    def is_good(candidate: OperatingPoint) -> bool:
        tpot_ms, ttft_ms = candidate.metrics["p99_tpot_ms"], candidate.metrics["p99_ttft_ms"]
        is_broken = candidate.exceedances.get("p99_tpot_ms") == Exceedance(n_over=20, n_total=200)
        return (
            not candidate.invalid_reasons
            and not is_broken
            and tpot_ms is not None
            and tpot_ms <= 40
            and ttft_ms is not None
            and ttft_ms <= 1000
        )

    told = lesson(*points)
    good = [candidate for candidate in points if is_good(candidate)]
    rates = [candidate.metrics["output_tok_per_s"] for candidate in good]
    has_value = any(rate is not None for rate in rates)
    assert all(value <= 0 for value in told.constraints.values()) == has_value
    if has_value:
        assert told.values[0] == max(rate for rate in rates if rate is not None)
