"""The sequential test, against its own published decision points and against simulation.

The simulations look after every request, as a level does, and are seeded.
"""

from __future__ import annotations

import bisect
import functools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from objectives import Exceedance, Verdict, decide_share
from objectives.share_test import _ABOVE, _BELOW, log_evidence

N_LEVELS = 4000
N_REQUESTS = 3000


def decide(n_over: int, n_total: int, share: float = 0.01, confidence: float = 0.95) -> Verdict:
    return decide_share(Exceedance(n_over=n_over, n_total=n_total), share, confidence)


@pytest.mark.parametrize(("n_over", "n"), [(0, 329), (1, 682), (2, 889), (3, 1090)])
def test_p99_is_met_after_329_682_889_or_1090_requests(n_over: int, n: int) -> None:
    assert decide(n_over, n - 1) is Verdict.UNDECIDED
    assert decide(n_over, n) is Verdict.FEASIBLE


@pytest.mark.parametrize("n_over", range(4))
def test_the_decision_points_follow_from_the_mixture_in_exact_fractions(n_over: int) -> None:
    # 0.50 at no request over, 0.30 at 0.15 %, 0.20 at 0.40 %, against 1 %; needed is 1 / 5 %.
    mixture = [
        (Fraction(0), Fraction(1, 2)),
        (Fraction(15, 10_000), Fraction(3, 10)),
        (Fraction(40, 10_000), Fraction(2, 10)),
    ]
    p0 = Fraction(1, 100)

    def evidence(n: int) -> Fraction:
        return sum(
            weight * (share / p0) ** n_over * ((1 - share) / (1 - p0)) ** (n - n_over)
            for share, weight in mixture
        )

    first = next(n for n in range(300, 1200) if evidence(n) >= 20)
    assert first == (329, 682, 889, 1090)[n_over]


@pytest.mark.parametrize("n_over", range(2, 8))
def test_the_last_broken_sample_size_follows_from_the_mixture_in_exact_fractions(
    n_over: int,
) -> None:
    # 0.15 at 2 %, 0.20 at 4 %, 0.30 at 10 %, 0.25 at 30 % and 0.10 at 50 %, against 1 %.
    weights = {2: 15, 4: 20, 10: 30, 30: 25, 50: 10}

    def evidence(n: int) -> Fraction:
        return sum(
            Fraction(weight, 100)
            * share**n_over
            * (Fraction(100 - share, 100) / Fraction(99, 100)) ** (n - n_over)
            for share, weight in weights.items()
        )

    last = max(n for n in range(n_over, 400) if evidence(n) >= 20)
    assert decide(n_over, last) is Verdict.INFEASIBLE
    assert decide(n_over, last + 1) is Verdict.UNDECIDED


def test_nothing_seen_decides_nothing() -> None:
    assert decide(0, 0) is Verdict.UNDECIDED


def test_a_level_where_everything_is_late_is_broken_after_two_requests() -> None:
    # One over is worth at most 0.15 x 2 + 0.2 x 4 + 0.3 x 10 + 0.25 x 30 + 0.1 x 50 = 16.6 < 20.
    assert decide(1, 1) is Verdict.UNDECIDED
    assert decide(2, 2) is Verdict.INFEASIBLE


def test_a_share_of_ten_percent_breaks_a_p99_and_keeps_a_p50() -> None:
    assert decide(10, 100) is Verdict.INFEASIBLE
    assert decide(10, 100, share=0.5) is Verdict.FEASIBLE


def test_exactly_the_allowed_share_decides_nothing() -> None:
    assert decide(10, 1000) is Verdict.UNDECIDED
    assert decide(100, 10_000) is Verdict.UNDECIDED


def test_more_confidence_needs_more_requests() -> None:
    # 0.5 x 0.99^-n >= 1 / alpha alone gives 367 at 95 % and 528 at 99 %; the mixture is sooner.
    assert decide(0, 400, confidence=0.95) is Verdict.FEASIBLE
    assert decide(0, 400, confidence=0.99) is Verdict.UNDECIDED
    assert decide(0, 528, confidence=0.99) is Verdict.FEASIBLE


@pytest.mark.parametrize("share", [0.5, 0.1, 0.05, 0.01])
def test_all_over_is_broken_and_none_over_is_met_for_every_percentile(share: float) -> None:
    assert decide(1000, 1000, share=share) is Verdict.INFEASIBLE
    assert decide(0, 1000, share=share) is Verdict.FEASIBLE


def test_a_median_that_six_in_ten_requests_miss_stays_undecided() -> None:
    # Known: the alternatives of a P50 lie at 99 %, so only gross misses are decided. It errs on
    # the side of measuring on; the point estimate still keeps such a point off the front.
    assert decide(6_000, 10_000, share=0.5) is Verdict.UNDECIDED
    assert decide(9_000, 10_000, share=0.5) is Verdict.INFEASIBLE


def test_a_huge_sample_neither_overflows_nor_underflows() -> None:
    assert decide(0, 10**9) is Verdict.FEASIBLE
    assert decide(10**9, 10**9) is Verdict.INFEASIBLE


def test_counts_that_no_alternative_allows_are_no_evidence_for_any() -> None:
    seen = Exceedance(n_over=1, n_total=10)
    assert log_evidence(seen, 0.01, ((0.0, 1.0),)) == -math.inf


@given(st.integers(0, 60), st.integers(0, 3000))
def test_one_more_request_under_the_limit_speaks_for_it(n_over: int, n_under: int) -> None:
    before = Exceedance(n_over=n_over, n_total=n_over + n_under)
    after = Exceedance(n_over=n_over, n_total=n_over + n_under + 1)
    assert log_evidence(after, 0.01, _BELOW) > log_evidence(before, 0.01, _BELOW)
    assert log_evidence(after, 0.01, _ABOVE) < log_evidence(before, 0.01, _ABOVE)


@given(st.integers(0, 60), st.integers(0, 3000))
def test_one_more_request_over_the_limit_speaks_against_it(n_over: int, n_under: int) -> None:
    before = Exceedance(n_over=n_over, n_total=n_over + n_under)
    after = Exceedance(n_over=n_over + 1, n_total=n_over + n_under + 1)
    assert log_evidence(after, 0.01, _BELOW) < log_evidence(before, 0.01, _BELOW)
    assert log_evidence(after, 0.01, _ABOVE) > log_evidence(before, 0.01, _ABOVE)


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.5])
@pytest.mark.parametrize("alternatives", [_BELOW, _ABOVE])
def test_evidence_under_the_null_is_one_on_average(
    share: float, alternatives: tuple[tuple[float, float], ...]
) -> None:
    # The fact that Ville's inequality rests on, summed exactly over all counts of 40 requests.
    n = 40
    mean = sum(
        math.comb(n, k)
        * share**k
        * (1 - share) ** (n - k)
        * math.exp(log_evidence(Exceedance(n_over=k, n_total=n), share, alternatives))
        for k in range(n + 1)
    )
    assert mean == pytest.approx(1.0)


# Simulation ------------------------------------------------------------------------------------


@functools.cache
def boundaries() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """By count over: the first sample size that is feasible, the last that is infeasible.

    Found by bisection on ``decide_share``; that it is monotone is tested above.
    """
    feasible, infeasible = [], []
    for n_over in range(200):
        sizes = range(n_over, N_REQUESTS + 1)
        verdicts = functools.partial(decide, n_over)
        feasible.append(
            n_over + bisect.bisect_left(sizes, 1, key=lambda n: verdicts(n) is Verdict.FEASIBLE)
        )
        infeasible.append(
            n_over
            - 1
            + bisect.bisect_left(sizes, 1, key=lambda n: verdicts(n) is not Verdict.INFEASIBLE)
        )
    return np.array(feasible), np.array(infeasible)


def decided_shares(is_over: NDArray[np.bool_]) -> tuple[float, float]:
    """Shares of the levels that were first decided feasible, and first decided infeasible."""
    feasible_from, infeasible_to = boundaries()
    n_over = np.minimum(np.cumsum(is_over, axis=1, dtype=np.int16), 199)
    n = np.arange(1, is_over.shape[1] + 1)
    feasible = n >= feasible_from[n_over]
    decided = feasible | (n <= infeasible_to[n_over])
    first = decided.argmax(axis=1)
    rows = np.arange(len(is_over))
    was_decided = decided[rows, first]
    was_feasible = was_decided & feasible[rows, first]
    return float(was_feasible.mean()), float((was_decided & ~was_feasible).mean())


def levels(share: float, *, seed: int, n_alike: int = 1) -> NDArray[np.bool_]:
    """Levels of requests, in batches of ``n_alike`` that are all late or all in time."""
    rng = np.random.default_rng(seed)
    n_batches = math.ceil(N_REQUESTS / n_alike)
    late = rng.random((N_LEVELS, n_batches), dtype=np.float32) < share
    return np.repeat(late, n_alike, axis=1)[:, :N_REQUESTS]


def exact_shares(share: float) -> tuple[float, float]:
    """What ``decided_shares`` estimates for independent requests, by exact recursion.

    The probability of each count over among levels that are still undecided, request by request.
    """
    feasible_from, infeasible_to = boundaries()
    undecided = np.zeros(len(feasible_from))
    undecided[0] = 1.0
    feasible = infeasible = 0.0
    for n in range(1, N_REQUESTS + 1):
        late = undecided * share
        undecided *= 1 - share
        undecided[1:] += late[:-1]
        is_feasible, is_infeasible = n >= feasible_from, n <= infeasible_to
        feasible += float(undecided[is_feasible].sum())
        infeasible += float(undecided[is_infeasible].sum())
        undecided[is_feasible | is_infeasible] = 0.0
    return feasible, infeasible


@pytest.mark.parametrize("share", [0.003, 0.01, 0.02])
def test_simulated_and_exact_error_rates_agree(share: float) -> None:
    for simulated, exact in zip(
        decided_shares(levels(share, seed=1)), exact_shares(share), strict=True
    ):
        four_sigma = 4 * math.sqrt(max(exact * (1 - exact), 1e-4) / N_LEVELS)
        assert simulated == pytest.approx(exact, abs=four_sigma)


def test_at_exactly_one_percent_each_wrong_decision_is_rarer_than_5_percent() -> None:
    feasible, infeasible = exact_shares(0.01)
    # Both nulls hold at the edge, so each decision is an error of its own test.
    assert feasible <= 0.05
    assert infeasible <= 0.05
    # The bound is used, not wasted: a test that never decides would pass the lines above.
    assert feasible >= 0.01
    assert infeasible >= 0.01


@pytest.mark.parametrize("share", [0.0101, 0.012, 0.015, 0.02, 0.05, 0.2])
def test_a_broken_level_is_called_feasible_in_less_than_5_percent(share: float) -> None:
    assert exact_shares(share)[0] <= 0.05


@pytest.mark.parametrize("share", [0.0, 0.001, 0.003, 0.005, 0.008, 0.0099])
def test_a_good_level_is_called_infeasible_in_less_than_5_percent(share: float) -> None:
    assert exact_shares(share)[1] <= 0.05


@pytest.mark.parametrize(("share", "side"), [(0.02, 0), (0.005, 1)])
def test_clearly_on_one_side_simulated_levels_err_in_less_than_5_percent(
    share: float, side: int
) -> None:
    assert decided_shares(levels(share, seed=2))[side] <= 0.05


def test_levels_clearly_on_one_side_are_decided_nearly_always() -> None:
    assert decided_shares(levels(0.0, seed=4)) == (1.0, 0.0)
    assert decided_shares(levels(0.001, seed=4))[0] > 0.95
    assert decided_shares(levels(0.05, seed=4))[1] > 0.95
    assert decided_shares(levels(1.0, seed=4)) == (0.0, 1.0)


def test_repeated_looks_at_a_bound_for_one_sample_size_would_err_more_often() -> None:
    # What the sequential test is for: "stop as soon as the exact binomial probability of so few
    # over falls to 5 %" is right for one look. None over comes to that at 299 requests, and one
    # and two over, later on, get their chances on top.
    n = np.arange(1, N_REQUESTS + 1)
    n_over = np.cumsum(levels(0.01, seed=5), axis=1)
    at_most = [
        sum(
            np.array([math.comb(int(size), k) for size in n]) * 0.01**k * 0.99 ** (n - k)
            for k in range(most + 1)
        )
        for most in range(3)
    ]
    stops = [((n_over == most) & (at_most[most] <= 0.05)).any(axis=1) for most in range(3)]
    assert stops[0].mean() == pytest.approx(0.05, abs=0.015)
    assert (stops[0] | stops[1] | stops[2]).mean() > 0.08


def test_batches_of_8_with_one_fate_are_called_feasible_in_two_of_three_broken_levels() -> None:
    # The test assumes independent requests. If the 8 requests of a batch are late together, 329
    # clean ones are only 42 clean batches, and 0.99^42 = 66 % of levels at the edge begin so.
    # This is why finalists are confirmed on fresh launches; nothing here makes up for it.
    feasible, _ = decided_shares(levels(0.01, seed=6, n_alike=8))
    assert feasible >= 0.99**42 - 0.03
    assert feasible <= 0.72


def test_batches_of_8_with_one_fate_break_a_good_level_too_often_as_well() -> None:
    # One late batch among the first few is 8 late requests at once: at half the allowed share,
    # an independent level is called infeasible in under 5 %, this one in about 14 %.
    _, infeasible = decided_shares(levels(0.005, seed=7, n_alike=8))
    assert 0.10 < infeasible < 0.20
    assert exact_shares(0.005)[1] < 0.05
