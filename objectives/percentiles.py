"""Percentiles that know how much they can claim.

Owns point estimates, their smallest sample and their distribution-free confidence bounds; knows
nothing of requests. A failed request is an infinite value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def n_required(quantile_frac: float) -> int:
    """Smallest sample for a point estimate: at least one value is expected beyond it.

    ``n * (1 - q) >= 1``, so 100 for P99 and 2 for P50. Below it, the estimate is the sample's
    maximum under another name.

    Args:
        quantile_frac: In (0, 1).

    Returns:
        The number of values.
    """
    # 1 / (1 - 0.99) is 99.99999999999991 in floating point.
    return math.ceil(round(1 / (1 - quantile_frac), 9))


def percentile(
    values: Sequence[float] | NDArray[np.float64], quantile_frac: float
) -> float | None:
    """Percentile by linear interpolation between order statistics, as numpy's and vLLM's.

    Args:
        values: Any order; ``inf`` for failed requests; no NaN.
        quantile_frac: In (0, 1).

    Returns:
        The percentile, ``inf`` where it falls among or next to infinite values, and ``None``
        below ``n_required`` values.
    """
    n = len(values)
    if n < n_required(quantile_frac):
        return None
    ordered = np.sort(np.asarray(values, dtype=float))
    rank = quantile_frac * (n - 1)
    below, above = math.floor(rank), math.ceil(rank)
    low, high = float(ordered[below]), float(ordered[above])
    # Interpolating with infinity would give inf - inf = NaN.
    return low if low == high else low + (rank - below) * (high - low)


def percentile_interval(
    values: Sequence[float] | NDArray[np.float64],
    quantile_frac: float,
    confidence: float = 0.95,
    *,
    design_effect: float = 1.0,
) -> tuple[float | None, float | None]:
    """One-sided lower and upper confidence bounds of a percentile by order statistics.

    The number of values below the true quantile is Binomial(n, q) whatever the distribution, so
    the k-th smallest value is an upper bound with probability P(Binomial(n, q) < k). (David and
    Nagaraja, Order Statistics, 3rd ed., section 7.1.) For continuous data; conservative with ties.
    Values that clump are taken for fewer ones: the ranks are found for ``n / design_effect``
    values and stretched to the sample. (After Woodruff, Confidence intervals for medians and
    other position measures, JASA 1952.)

    Args:
        values: Any order; ``inf`` for failed requests; no NaN.
        quantile_frac: In (0, 1).
        confidence: Of each bound by itself, in (0, 1).
        design_effect: So many values weigh as much as an independent one, at least 1.

    Returns:
        ``(lower, upper)``; each ``None`` where the sample is too small for it. An upper bound of
        P99 at 95 % needs 299 values.
    """
    ordered = np.sort(np.asarray(values, dtype=float))
    n = int(len(values) / design_effect)
    stretch = len(values) / n if n else 1.0
    cdf = binomial_cdf(n, quantile_frac)  # cdf[k] = P(X <= k)
    upper_ranks = np.flatnonzero(cdf >= confidence)  # first k with P(X <= k) >= c is rank k + 1
    upper = None
    if n and len(upper_ranks) and upper_ranks[0] + 1 <= n:
        upper = float(ordered[math.ceil((upper_ranks[0] + 1) * stretch - 1e-9) - 1])
    lower_ranks = np.flatnonzero(cdf <= 1 - confidence)  # last k with P(X <= k) <= 1 - c
    lower = None
    if len(lower_ranks):
        lower = float(ordered[max(math.floor((lower_ranks[-1] + 1) * stretch + 1e-9), 1) - 1])
    return lower, upper


def binomial_cdf(n: int, p: float) -> NDArray[np.float64]:
    """P(X <= k) for X ~ Binomial(n, p) and k = 0..n.

    Args:
        n: Trials, at least 0.
        p: Success share in (0, 1).

    Returns:
        Shape ``(n + 1,)``, ascending, last value 1.
    """
    k = np.arange(n + 1)
    log_factorial = np.concatenate(([0.0], np.cumsum(np.log(np.arange(1, n + 1)))))
    log_pmf = (
        log_factorial[n]
        - log_factorial
        - log_factorial[::-1]
        + k * math.log(p)
        + (n - k) * math.log1p(-p)
    )
    cdf: NDArray[np.float64] = np.minimum(np.cumsum(np.exp(log_pmf)), 1.0)
    cdf[-1] = 1.0
    return cdf
