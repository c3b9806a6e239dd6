"""The published figures of a 70B model in BF16 on eight H100, through the public API alone."""

import pytest

from objectives import (
    Direction,
    Load,
    Objective,
    OperatingPoint,
    Slo,
    Verdict,
    choose,
    evaluate,
    nearest,
    pareto_front,
)

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
P99_TPOT_MS = (22.1, 23.4, 25.1, 28.7, 34.5, 44.2, 58.3, 82.1)
OUTPUT_KTOK_PER_S = (0.8, 1.5, 2.9, 5.2, 9.1, 14.3, 19.8, 24.1)
POINTS = [
    OperatingPoint(
        load=Load.batch(batch_size),
        metrics={"p99_tpot_ms": tpot_ms, "output_tok_per_s": 1000 * ktok_per_s},
    )
    for batch_size, tpot_ms, ktok_per_s in zip(
        BATCH_SIZES, P99_TPOT_MS, OUTPUT_KTOK_PER_S, strict=True
    )
]
THROUGHPUT = Objective(metric="output_tok_per_s", direction=Direction.MAXIMIZE)
TPOT = Objective(metric="p99_tpot_ms", direction=Direction.MINIMIZE)


def tpot_limit(limit_ms: float) -> list[Slo]:
    return [Slo(metric="p99_tpot_ms", limit=limit_ms)]


@pytest.mark.parametrize(
    ("limit_ms", "batch_size"), [(40, 16), (25, 2), (22.1, 1), (82.1, 128), (44.1, 16), (44.2, 32)]
)
def test_the_largest_throughput_within_the_limit_is_chosen(
    limit_ms: float, batch_size: int
) -> None:
    index = choose(POINTS, THROUGHPUT, tpot_limit(limit_ms))
    assert index is not None
    assert POINTS[index].batch_size == batch_size


def test_a_limit_of_20_ms_leaves_nothing_and_batch_1_comes_nearest() -> None:
    slos = tpot_limit(20)
    assert choose(POINTS, THROUGHPUT, slos) is None
    assert pareto_front(POINTS, [THROUGHPUT, TPOT], slos) == []
    assert [POINTS[index].batch_size for index in nearest(POINTS, slos)] == list(BATCH_SIZES)


def test_batch_1_misses_a_limit_of_20_ms_by_a_tenth_and_a_half_percent() -> None:
    evaluation = evaluate(POINTS[0], tpot_limit(20))
    assert evaluation.slacks["p99_tpot_ms"] == pytest.approx(0.105)
    assert evaluation.verdict is Verdict.INFEASIBLE


def test_without_a_limit_every_batch_size_is_on_the_front() -> None:
    assert pareto_front(POINTS, [TPOT, THROUGHPUT]) == list(range(8))
    assert pareto_front(POINTS, [THROUGHPUT, TPOT]) == list(reversed(range(8)))


def test_a_limit_of_40_ms_leaves_five_batch_sizes_on_the_front() -> None:
    front = pareto_front(POINTS, [TPOT, THROUGHPUT], tpot_limit(40))
    assert [POINTS[index].batch_size for index in front] == [1, 2, 4, 8, 16]


def test_the_lowest_latency_is_that_of_batch_1() -> None:
    assert choose(POINTS, TPOT, tpot_limit(40)) == 0
