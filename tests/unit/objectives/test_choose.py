import math

from hypothesis import given
from hypothesis import strategies as st

from objectives import OperatingPoint, Slo, choose, nearest
from tests.unit.objectives.builders import FASTEST, MOST, point

TPOT = Slo(metric="p99_tpot_ms", limit=40)
ERRORS = Slo(metric="error_frac", limit=0)


def test_the_best_within_the_limits_is_chosen_in_either_direction() -> None:
    points = [
        point(p99_tpot_ms=50.0, output_tok_per_s=900.0),
        point(p99_tpot_ms=39.0, output_tok_per_s=700.0),
        point(p99_tpot_ms=20.0, output_tok_per_s=100.0),
    ]
    assert choose(points, MOST, [TPOT]) == 1
    assert choose(points, FASTEST, [TPOT]) == 2
    assert choose(points, MOST) == 0


def test_of_equal_values_the_smaller_batch_wins_then_the_earlier_point() -> None:
    points = [point(batch_size=size, output_tok_per_s=5.0) for size in (8, 4, 4)]
    assert choose(points, MOST) == 1


def test_a_point_without_the_metric_is_never_chosen() -> None:
    assert choose([point(output_tok_per_s=None), point()], MOST) is None
    assert choose([point(), point(output_tok_per_s=0.0)], MOST) == 1


def test_an_invalid_point_is_never_chosen() -> None:
    assert choose([point(output_tok_per_s=9.0, invalid=("x",))], MOST) is None


def test_nothing_to_choose_from_is_nothing_chosen() -> None:
    assert choose([], MOST, [TPOT]) is None
    assert nearest([], [TPOT]) == []


def test_a_point_that_is_proven_broken_is_not_chosen_for_its_estimate() -> None:
    points = [point(output_tok_per_s=9.0, p99_tpot_ms=39.0, over={"p99_tpot_ms": (20, 200)})]
    assert choose(points, MOST, [TPOT]) is None


def test_confidence_reaches_the_verdict() -> None:
    # 2 over of 10 have an evidence of about 32 against 1 %: over 1 / 5 %, far from a million.
    points = [point(output_tok_per_s=9.0, p99_tpot_ms=39.0, over={"p99_tpot_ms": (2, 10)})]
    assert choose(points, MOST, [TPOT], confidence=0.95) is None
    assert choose(points, MOST, [TPOT], confidence=0.999999) == 0


def test_nearest_adds_up_only_what_is_missed() -> None:
    points = [
        point(p99_tpot_ms=60.0, error_frac=0.0),  # 0.5
        point(p99_tpot_ms=10.0, error_frac=0.3),  # 0.3; being 75 % under TPOT earns nothing
        point(p99_tpot_ms=44.0, error_frac=0.1),  # 0.1 + 0.1
    ]
    assert nearest(points, [TPOT, ERRORS]) == [2, 1, 0]


def test_unknown_and_infinite_misses_come_last_and_invalid_points_not_at_all() -> None:
    points = [
        point(batch_size=4, p99_tpot_ms=None),
        point(batch_size=2, p99_tpot_ms=math.inf),
        point(batch_size=1, p99_tpot_ms=1.0, invalid=("x",)),
        point(batch_size=8, p99_tpot_ms=400.0),
    ]
    assert nearest(points, [TPOT]) == [3, 1, 0]


def test_equally_near_points_come_by_batch_size() -> None:
    points = [point(batch_size=size, p99_tpot_ms=50.0) for size in (8, 2, 4)]
    assert nearest(points, [TPOT]) == [1, 2, 0]


latency = st.sampled_from([None, 10.0, 40.0, 41.0, 80.0, math.inf])
points_drawn = st.lists(
    st.builds(
        lambda batch_size, tpot, rate, invalid: point(
            batch_size=batch_size, p99_tpot_ms=tpot, output_tok_per_s=rate, invalid=invalid
        ),
        st.integers(1, 4),
        latency,
        st.sampled_from([None, 1.0, 2.0, 3.0]),
        st.sampled_from([(), (), ("x",)]),
    ),
    max_size=8,
)


@given(points_drawn)
def test_no_usable_point_beats_the_chosen_one(points: list[OperatingPoint]) -> None:
    usable = [
        p
        for p in points
        if not p.invalid_reasons
        and p.metrics["output_tok_per_s"] is not None
        and p.metrics["p99_tpot_ms"] is not None
        and p.metrics["p99_tpot_ms"] <= 40
    ]
    index = choose(points, MOST, [TPOT])
    if index is None:
        assert not usable
        return
    best = max(p.metrics["output_tok_per_s"] for p in usable)
    smallest = min(p.batch_size for p in usable if p.metrics["output_tok_per_s"] == best)
    assert any(points[index] is p for p in usable)
    assert points[index].metrics["output_tok_per_s"] == best
    assert points[index].batch_size == smallest


@given(points_drawn)
def test_nearest_ranks_each_valid_point_once(points: list[OperatingPoint]) -> None:
    order = nearest(points, [TPOT])
    assert sorted(order) == [i for i, p in enumerate(points) if not p.invalid_reasons]
    misses = [
        math.inf if (value := points[i].metrics["p99_tpot_ms"]) is None else max(0.0, value - 40)
        for i in order
    ]
    assert misses == sorted(misses)
