import math

import pytest

from objectives import CATALOGUE, Direction, Slo
from tests.unit.objectives.builders import answer, failure

TTFT = Slo(metric="p99_ttft_ms", limit=1000)
TPOT = Slo(metric="p99_tpot_ms", limit=100)
E2EL = Slo(metric="p90_e2el_ms", limit=2000)


@pytest.mark.parametrize(
    ("value", "slack"),
    [(40.0, 0.0), (50.0, 0.25), (30.0, -0.25), (0.0, -1.0), (math.inf, math.inf)],
)
def test_slack_of_an_upper_limit_is_the_share_above_it(value: float, slack: float) -> None:
    assert Slo(metric="p99_tpot_ms", limit=40).slack(value) == slack


@pytest.mark.parametrize(
    ("value", "slack"), [(1000.0, 0.0), (750.0, 0.25), (1500.0, -0.5), (0.0, 1.0)]
)
def test_slack_of_a_lower_limit_is_the_share_below_it(value: float, slack: float) -> None:
    assert Slo(metric="output_tok_per_s", limit=1000).slack(value) == slack


@pytest.mark.parametrize("value", [None, math.nan])
def test_an_unknown_value_has_no_slack(value: float | None) -> None:
    assert TPOT.slack(value) is None


def test_with_a_limit_of_zero_the_slack_is_the_value() -> None:
    slo = Slo(metric="error_frac", limit=0)
    assert slo.slack(0.0) == 0.0
    assert slo.slack(0.02) == 0.02


@pytest.mark.parametrize("limit", [0, -1, math.inf, math.nan])
def test_a_latency_limit_must_be_positive_and_finite(limit: float) -> None:
    with pytest.raises(ValueError, match="'p99_ttft_ms' must be positive"):
        Slo(metric="p99_ttft_ms", limit=limit)


@pytest.mark.parametrize("metric", ["error_frac", "n_failed"])
def test_no_errors_at_all_may_be_asked_for_but_not_fewer(metric: str) -> None:
    assert Slo(metric=metric, limit=0).limit == 0
    with pytest.raises(ValueError, match="must be positive"):
        Slo(metric=metric, limit=-0.01)


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="'p98_ttft_ms' is not a metric"):
        Slo(metric="p98_ttft_ms", limit=1)


def test_a_metric_that_merely_describes_has_no_limit() -> None:
    with pytest.raises(ValueError, match="'mean_running' has no better direction"):
        Slo(metric="mean_running", limit=1)


@pytest.mark.parametrize(
    ("metric", "share"),
    [
        ("p99_ttft_ms", 0.01),
        ("p95_tpot_ms", 0.05),
        ("p90_e2el_ms", 0.1),
        ("p50_ttft_ms", 0.5),
        ("p99_itl_ms", None),
        ("mean_ttft_ms", None),
        ("error_frac", None),
        ("output_tok_per_s", None),
    ],
)
def test_only_percentiles_of_whole_requests_are_a_share(metric: str, share: float | None) -> None:
    assert Slo(metric=metric, limit=1).max_share_frac == share


def test_the_definition_is_the_catalogues() -> None:
    assert TTFT.definition is CATALOGUE["p99_ttft_ms"]
    assert TTFT.definition.direction is Direction.MINIMIZE


def test_a_request_exactly_at_its_limit_is_not_over() -> None:
    assert TTFT.is_over(answer(1.0)) is False
    assert TTFT.is_over(answer(1.001)) is True


def test_each_limit_is_held_against_its_own_latency() -> None:
    # First text after 0.5 s, then 10 tokens in 2 s: TTFT 500 ms, TPOT 200 ms, E2EL 2500 ms.
    record = answer(0.5, 2.5, n_output_tok=11)
    assert [slo.is_over(record) for slo in (TTFT, TPOT, E2EL)] == [False, True, True]


def test_a_failed_request_is_over_every_limit_however_fast_it_began() -> None:
    for record in (failure(), failure(0.001, 0.002)):
        assert [slo.is_over(record) for slo in (TTFT, TPOT, E2EL)] == [True, True, True]


def test_a_tpot_limit_does_not_apply_to_an_answer_of_one_token() -> None:
    assert TPOT.is_over(answer(0.5)) is None
    assert TTFT.is_over(answer(0.5)) is False


def test_a_pooled_latency_or_a_rate_applies_to_no_request() -> None:
    for metric in ("p99_itl_ms", "mean_ttft_ms", "error_frac"):
        assert Slo(metric=metric, limit=1).is_over(failure()) is None


def test_an_upper_and_a_lower_limit_are_written_with_their_signs() -> None:
    assert str(Slo(metric="p99_ttft_ms", limit=150)) == "p99_ttft_ms <= 150"
    assert str(Slo(metric="request_per_s", limit=2.5)) == "request_per_s >= 2.5"
