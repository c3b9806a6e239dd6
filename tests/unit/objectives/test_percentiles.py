import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives import n_required, percentile, percentile_interval
from objectives.percentiles import binomial_cdf

QUANTILES = (0.5, 0.9, 0.95, 0.99)
finite = st.floats(min_value=0, max_value=1e6, allow_subnormal=False)


@pytest.mark.parametrize(("quantile", "n"), [(0.5, 2), (0.9, 10), (0.95, 20), (0.99, 100)])
def test_a_percentile_needs_one_value_beyond_it(quantile: float, n: int) -> None:
    assert n_required(quantile) == n
    assert percentile([1.0] * (n - 1), quantile) is None
    assert percentile([1.0] * n, quantile) == 1.0


def test_no_values_have_no_percentile() -> None:
    assert percentile([], 0.5) is None


@given(st.lists(finite, min_size=100, max_size=140), st.sampled_from(QUANTILES))
def test_finite_percentiles_are_numpys(values: list[float], quantile: float) -> None:
    expected = float(np.percentile(values, 100 * quantile))
    assert percentile(values, quantile) == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_p99_of_0_to_100_is_99() -> None:
    assert percentile(list(range(100, -1, -1)), 0.99) == 99.0


def test_p99_of_100_values_lies_between_the_two_largest() -> None:
    # Rank 0.99 * 99 = 98.01 between 98 (0-based) and 99.
    assert percentile([0.0] * 99 + [100.0], 0.99) == pytest.approx(1.0)


def test_one_failure_in_100_makes_p99_infinite_and_one_in_101_does_not() -> None:
    assert percentile([1.0] * 99 + [math.inf], 0.99) == math.inf
    assert percentile([1.0] * 100 + [math.inf], 0.99) == 1.0


@pytest.mark.parametrize("hundreds", [1, 3, 7, 29, 100])
def test_p99_is_finite_up_to_exactly_one_percent_of_failures(hundreds: int) -> None:
    # Of 100 h + 1 values the rank is exactly 99 h: the h values beyond it may be anything.
    ok, failed = 99 * hundreds + 1, hundreds
    assert percentile([5.0] * ok + [math.inf] * failed, 0.99) == 5.0
    assert percentile([5.0] * (ok - 1) + [math.inf] * (failed + 1), 0.99) == math.inf


def test_when_all_failed_every_percentile_is_infinite_and_not_nan() -> None:
    for quantile in QUANTILES:
        assert percentile([math.inf] * 100, quantile) == math.inf


@given(st.lists(finite | st.just(math.inf), min_size=100, max_size=120))
def test_percentiles_never_fall_as_the_quantile_grows(values: list[float]) -> None:
    found = [percentile(values, quantile) for quantile in QUANTILES]
    assert all(a <= b * (1 + 1e-12) for a, b in itertools.pairwise(found))


@given(st.permutations(list(range(120))))
def test_the_order_of_values_does_not_matter(values: list[int]) -> None:
    assert percentile(values, 0.95) == pytest.approx(0.95 * 119)


def test_the_input_is_left_as_it_was() -> None:
    values = np.arange(100.0)[::-1].copy()
    percentile(values, 0.5)
    percentile_interval(values, 0.5)
    assert values[0] == 99.0


def test_an_upper_bound_of_p99_needs_299_requests() -> None:
    # 0.99^298 = 0.0500 > 5 % >= 0.99^299 = 0.0495.
    assert Fraction(99, 100) ** 298 > Fraction(5, 100) >= Fraction(99, 100) ** 299
    values = list(range(299))
    assert percentile_interval(values[:298], 0.99)[1] is None
    assert percentile_interval(values, 0.99)[1] == 298.0


def test_a_lower_bound_of_the_median_needs_5_values() -> None:
    # All five above the median: 1/32 = 3.1 % <= 5 %; all four: 1/16 = 6.3 %.
    assert percentile_interval([1.0, 2.0, 3.0, 4.0], 0.5) == (None, None)
    assert percentile_interval([1.0, 2.0, 3.0, 4.0, 5.0], 0.5) == (1.0, 5.0)


def test_the_bounds_of_a_median_of_ten_are_the_second_and_the_ninth_value() -> None:
    # P(X <= 1) = 11/1024 = 1.1 % but P(X <= 2) = 56/1024 = 5.5 %; the upper one by symmetry.
    assert percentile_interval(list(range(1, 11)), 0.5) == (2.0, 9.0)


def test_values_that_clump_in_pairs_have_the_bounds_of_half_as_many() -> None:
    # Of ten the second and the ninth; of ten pairs the last of the second, and of the ninth.
    assert percentile_interval(list(range(1, 21)), 0.5, design_effect=2.0) == (4.0, 18.0)
    # 597 / 2 = 298.5 independent values are too few for an upper bound of P99, 598 / 2 are enough.
    assert percentile_interval(list(range(597)), 0.99, design_effect=2.0)[1] is None
    assert percentile_interval(list(range(598)), 0.99, design_effect=2.0)[1] == 597.0


def test_no_values_have_no_bounds() -> None:
    assert percentile_interval([], 0.99) == (None, None)


def test_a_failure_in_299_makes_the_upper_bound_infinite() -> None:
    assert percentile_interval([1.0] * 298 + [math.inf], 0.99)[1] == math.inf


def exact_cdf(n: int, p: Fraction) -> list[Fraction]:
    total, sums = Fraction(0), []
    for k in range(n + 1):
        total += math.comb(n, k) * p**k * (1 - p) ** (n - k)
        sums.append(total)
    return sums


@pytest.mark.parametrize("n", [0, 1, 2, 10, 60])
@pytest.mark.parametrize("p", [Fraction(1, 2), Fraction(99, 100), Fraction(1, 100)])
def test_the_binomial_distribution_matches_exact_fractions(n: int, p: Fraction) -> None:
    expected = [float(share) for share in exact_cdf(n, p)]
    np.testing.assert_allclose(binomial_cdf(n, float(p)), expected, rtol=1e-10, atol=1e-300)


@given(st.integers(0, 300), st.integers(1, 99))
def test_a_distribution_ascends_to_one(n: int, percent: int) -> None:
    cdf = binomial_cdf(n, percent / 100)
    assert cdf.shape == (n + 1,)
    assert (np.diff(cdf) >= 0).all()
    assert cdf[-1] == 1.0


@given(st.integers(1, 120), st.sampled_from([50, 90, 99]), st.sampled_from([80, 95]))
def test_the_bounds_are_the_tightest_order_statistics_that_hold(
    n: int, percent: int, confidence: int
) -> None:
    # Oracle in exact arithmetic over all ranks; values are their own rank.
    cdf = exact_cdf(n, Fraction(percent, 100))
    wanted = Fraction(confidence, 100)
    upper = [rank for rank in range(1, n + 1) if cdf[rank - 1] >= wanted]
    lower = [rank for rank in range(1, n + 1) if 1 - cdf[rank - 1] >= wanted]
    bounds = percentile_interval(list(range(1, n + 1)), percent / 100, confidence / 100)
    assert bounds == (max(lower, default=None), min(upper, default=None))


def test_each_bound_covers_the_true_p99_in_95_percent_of_samples() -> None:
    rng = np.random.default_rng(20)
    true_p99 = -math.log(0.01)
    samples = rng.exponential(size=(1500, 700))
    bounds = [percentile_interval(sample, 0.99) for sample in samples]
    n_above = sum(upper is not None and upper >= true_p99 for _, upper in bounds)
    n_below = sum(lower is not None and lower <= true_p99 for lower, _ in bounds)
    assert n_above / 1500 > 0.93
    assert n_below / 1500 > 0.93
    # Not vacuous: the lower bound exists and the upper one is no infinity.
    assert all(lower is not None and 0 < lower < upper < 20 for lower, upper in bounds)
