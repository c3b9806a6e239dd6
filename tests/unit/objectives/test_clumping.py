"""How much clumped requests are worth, against closed forms and by simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectives import Slo, Verdict, count_exceedance, count_exceedances, decide_share
from objectives.clumping import clumping_at, design_effect, mean_in_flight
from objectives.percentiles import percentile_interval
from tests.unit.objectives.builders import answer, failure

N_LEVELS = 300
N_REQUESTS = 1000


def test_a_request_alone_in_flight_and_four_side_by_side() -> None:
    one_by_one = [answer(n + 0.5, n + 1.0, due_s=n) for n in range(10)]
    assert mean_in_flight(one_by_one) == pytest.approx(1.0)
    four = [answer(n // 4 + 0.5, n // 4 + 1.0, due_s=n // 4) for n in range(40)]
    assert mean_in_flight(four) == pytest.approx(4.0)
    assert mean_in_flight([]) == 1.0
    assert mean_in_flight([answer()]) == 1.0


def test_independent_flags_have_no_design_effect() -> None:
    flags = np.random.default_rng(1).random(200_000) < 0.1
    assert design_effect(flags, 16) == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("n_alike", [2, 4, 8])
def test_flags_in_groups_have_the_design_effect_of_their_autocovariance(n_alike: int) -> None:
    # Groups of G with one fate have the autocorrelation 1 - h / G, so block means over B have the
    # variance of independent ones times 1 + 2 sum over h < G of (1 - h / B) (1 - h / G).
    block = 16
    expected = 1 + 2 * sum((1 - h / block) * (1 - h / n_alike) for h in range(1, n_alike))
    flags = np.repeat(np.random.default_rng(2).random(100_000 // n_alike) < 0.1, n_alike)
    assert design_effect(flags, block) == pytest.approx(expected, rel=0.08)


def test_by_hand_two_halves_in_blocks_of_two() -> None:
    # 1 1 0 0: block means 1, 1/2, 0, share 1/2: mean square (1/4 + 0 + 1/4) / 3 = 1/6, times the
    # block 2 and n / (n - block) = 2 is 2/3, by share times rest 1/4 is 8/3.
    assert design_effect(np.array([True, True, False, False]), 2) == pytest.approx(8 / 3)


@pytest.mark.parametrize("flags", [[], [True], [False] * 50, [True] * 50, [True, False, True]])
def test_nothing_to_estimate_is_an_effect_of_one(flags: list[bool]) -> None:
    assert design_effect(np.array(flags, dtype=bool), 2) == 1.0


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 20))
def test_no_flags_weigh_more_than_independent_ones(flags: list[bool], block: int) -> None:
    effect = design_effect(np.array(flags, dtype=bool), block)
    assert math.isfinite(effect)
    assert effect >= 1.0


def test_counts_and_order_do_not_depend_on_who_ended_first() -> None:
    slo = Slo(metric="p99_ttft_ms", limit=100)
    records = [
        replace(answer(n + (0.2 if n % 40 < 8 else 0.05), due_s=float(n)), index=n)
        for n in range(400)
    ]
    in_order = count_exceedances(records, [slo])["p99_ttft_ms"]
    shuffled = [records[n] for n in np.random.default_rng(3).permutation(400)]
    assert count_exceedances(shuffled, [slo])["p99_ttft_ms"] == in_order
    assert (in_order.n_over, in_order.n_total) == (80, 400)
    assert in_order.design_effect > 3


def test_failed_requests_are_over_and_clump_too() -> None:
    slo = Slo(metric="p99_ttft_ms", limit=100)
    records = [
        replace(failure(due_s=float(n)) if n < 40 else answer(n + 0.05, due_s=float(n)), index=n)
        for n in range(400)
    ]
    seen = count_exceedances(records, [slo])["p99_ttft_ms"]
    assert seen.n_over == 40
    assert seen.design_effect > 5


def test_a_sample_of_few_rounds_proves_no_limit_met_but_shows_one_broken() -> None:
    # 64 in flight: blocks of 128, five of which are 640 requests.
    short = count_exceedance([1.0] * 639, 2.0, in_flight=64)
    assert decide_share(short, 0.01) is Verdict.UNDECIDED
    enough = count_exceedance([1.0] * 640, 2.0, in_flight=64)
    assert decide_share(enough, 0.01) is Verdict.FEASIBLE
    broken = count_exceedance([3.0] * 100, 2.0, in_flight=64)
    assert decide_share(broken, 0.01) is Verdict.INFEASIBLE


# Simulation ------------------------------------------------------------------------------------


def normal_levels(*, n_alike: int, correlation: float, seed: int) -> NDArray[np.float64]:
    """Standard normal latencies; those of one batch of ``n_alike`` are correlated."""
    rng = np.random.default_rng(seed)
    n_batches = math.ceil(N_REQUESTS / n_alike)
    shared = np.repeat(rng.standard_normal((N_LEVELS, n_batches)), n_alike, axis=1)
    own = rng.standard_normal((N_LEVELS, n_batches * n_alike))
    mixed: NDArray[np.float64] = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    return mixed[:, :N_REQUESTS]


def first_verdict(latencies: NDArray[np.float64], limit: float, in_flight: int) -> Verdict:
    for n in range(20 + 2 * in_flight, len(latencies) + 1, 8):
        seen = count_exceedance(latencies[:n], limit, in_flight=in_flight)
        verdict = decide_share(seen, 0.01)
        if verdict is not Verdict.UNDECIDED:
            return verdict
    return Verdict.UNDECIDED


def shares(limit: float, *, n_alike: int, correlation: float) -> tuple[float, float]:
    """Shares of the levels that are decided feasible and infeasible, looked at all the time."""
    levels = normal_levels(n_alike=n_alike, correlation=correlation, seed=n_alike)
    verdicts = [first_verdict(level, limit, n_alike) for level in levels]
    feasible = verdicts.count(Verdict.FEASIBLE) / N_LEVELS
    return feasible, verdicts.count(Verdict.INFEASIBLE) / N_LEVELS


# Limits that a standard normal latency exceeds with 1 %.
ONE_PERCENT = 2.3263


@pytest.mark.parametrize("correlation", [0.3, 0.6, 0.9])
def test_in_correlated_batches_each_wrong_decision_stays_near_5_percent(
    correlation: float,
) -> None:
    # At exactly 1 % both decisions are wrong. Three sigma of 300 levels at 5 % are 3.8 points.
    feasible, infeasible = shares(ONE_PERCENT, n_alike=8, correlation=correlation)
    assert feasible <= 0.05 + 0.038
    assert infeasible <= 0.05 + 0.038


def test_batches_of_8_with_one_fate_are_no_longer_called_feasible() -> None:
    # Without the design effect, 66 % of such levels are (see test_share_test).
    feasible, _ = shares(ONE_PERCENT, n_alike=8, correlation=1.0)
    assert feasible <= 0.05 + 0.038


@pytest.mark.parametrize("correlation", [0.3, 0.6, 1.0])
@pytest.mark.parametrize(("quantile", "true_value"), [(0.5, 0.0), (0.9, 1.2816)])
def test_bounds_of_correlated_batches_hold_in_95_percent_of_the_levels(
    correlation: float, quantile: float, true_value: float
) -> None:
    levels = normal_levels(n_alike=8, correlation=correlation, seed=11)
    n_below = n_above = 0
    for level in levels:
        effect = clumping_at(level, quantile, in_flight=8)
        low, high = percentile_interval(level, quantile, design_effect=effect)
        n_below += low is not None and low > true_value
        n_above += high is None or high < true_value
    # Three sigma of 300 levels at 5 % are 3.8 points.
    assert n_below / N_LEVELS <= 0.05 + 0.038
    assert n_above / N_LEVELS <= 0.05 + 0.038


def test_independent_requests_are_decided_as_before() -> None:
    # 3.09 is exceeded by 0.1 %, 1.645 by 5 %.
    assert shares(3.09, n_alike=1, correlation=0.0)[0] > 0.75
    assert shares(1.645, n_alike=1, correlation=0.0)[1] > 0.9
