from objectives import Exceedance, Load, OperatingPoint, Slo, evaluate
from tuner.report import describe_misses
from tuner.report.rows import PointRow
from tuner.trial import Launch

TTFT = Slo(metric="p99_ttft_ms", limit=150)
TPOT = Slo(metric="p99_tpot_ms", limit=25)


def misses(point: OperatingPoint) -> str:
    slos = [TTFT, TPOT]
    launch = Launch(number=0, configuration={})
    return describe_misses(
        PointRow(launch=launch, point=point, evaluation=evaluate(point, slos), run_id=None), slos
    )


def test_a_limit_that_was_not_broken_when_another_ended_the_level_is_no_miss() -> None:
    point = OperatingPoint(
        load=Load.batch(4),
        metrics={"p99_ttft_ms": None, "p99_tpot_ms": None},
        exceedances={
            "p99_ttft_ms": Exceedance(n_over=16, n_total=31),
            "p99_tpot_ms": Exceedance(n_over=0, n_total=31),
        },
    )
    assert misses(point) == "p99_ttft_ms: 16 of 31 requests over (limit 150 ms)"


def test_a_level_too_short_for_a_p99_says_how_many_were_over() -> None:
    point = OperatingPoint(
        load=Load.batch(4),
        metrics={"p99_ttft_ms": None, "p99_tpot_ms": 20.0},
        exceedances={"p99_ttft_ms": Exceedance(n_over=0, n_total=31)},
    )
    assert misses(point) == "p99_ttft_ms: 0 of 31 requests over (limit 150 ms)"


def test_a_p99_above_its_limit_is_given_with_it_and_one_not_known_beside_it_is_no_miss() -> None:
    point = OperatingPoint(
        load=Load.batch(4), metrics={"p99_ttft_ms": 160.04, "p99_tpot_ms": None}
    )
    assert misses(point) == "p99_ttft_ms 160.0 (limit 150 ms)"


def test_of_an_invalid_point_only_the_reasons_are_told() -> None:
    point = OperatingPoint(
        load=Load.batch(4),
        metrics={"p99_ttft_ms": 419.4},
        invalid_reasons=("the client was starved",),
    )
    assert misses(point) == "the client was starved"
