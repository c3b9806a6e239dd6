"""How far requests that are slow together weaken the evidence of their number.

Requests in flight at the same time share batches, stalls and preemptions, so a hundred of them say
less than a hundred independent ones. Owns the estimate of by how much (the design effect), and the
counts that the share test works on; the test itself is in ``share_test``.

The estimate is that of overlapping batch means: the variance of means over blocks of successive
requests, against what independent requests would have. (Meketon and Schmeiser, Overlapping batch
means, Winter Simulation Conference 1984.) A block spans two rounds of what is in flight. It is an
estimate, so the exact guarantee of the share test holds for independent requests; for correlated
ones the error rates are shown by simulation (``tests/bench/sequential.py``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from objectives.operating_point import Exceedance
from objectives.records import RequestRecord
from objectives.slo import Slo

_MIN_BLOCK = 8
# Fewer blocks than this, and their variance is not known well enough to prove anything.
_MIN_BLOCKS = 5
# A share that is rarely exceeded has too few late requests to show that they clump; what is slow
# by the sample's own measure clumps alike and is seen ten times as often.
_OWN_QUANTILE = 0.9


def in_due_order(records: Sequence[RequestRecord]) -> list[RequestRecord]:
    """The records in the order in which the requests were due, which is how they clump."""
    return sorted(records, key=lambda record: (record.due_s, record.index))


def mean_in_flight(records: Sequence[RequestRecord]) -> float:
    """Mean number of requests in flight at the same time.

    Args:
        records: Any order.

    Returns:
        The sum of their durations by the time that they span (Little's law); at least 1.
    """
    if not records:
        return 1.0
    span_s = max(r.end_s for r in records) - min(r.due_s for r in records)
    total_s = sum(r.end_s - r.due_s for r in records)
    return max(1.0, total_s / span_s) if span_s > 0 else 1.0


def count_exceedance(
    latencies: Sequence[float] | NDArray[np.float64], limit: float, *, in_flight: float = 1.0
) -> Exceedance:
    """Count requests over a limit, and judge how much their number is worth.

    Args:
        latencies: In the order in which the requests were due; ``inf`` for failed ones.
        limit: In the unit of the latencies.
        in_flight: Mean requests in flight.

    Returns:
        The counts with their design effect.
    """
    over = np.asarray(latencies, dtype=float) > limit
    block, is_long = _block(len(over), in_flight)
    effect = max(
        design_effect(over, block), clumping_at(latencies, _OWN_QUANTILE, in_flight=in_flight)
    )
    return Exceedance(
        n_over=int(over.sum()), n_total=len(over), design_effect=effect, is_long_enough=is_long
    )


def _block(n: int, in_flight: float) -> tuple[int, bool]:
    """Requests per block, and whether there are blocks enough to judge by."""
    block = max(_MIN_BLOCK, math.ceil(2 * in_flight))
    is_long = n >= _MIN_BLOCKS * block
    return block if is_long else max(4, math.ceil(in_flight)), is_long


def clumping_at(
    latencies: Sequence[float] | NDArray[np.float64], quantile_frac: float, *, in_flight: float
) -> float:
    """Design effect of the requests that are slow by their own sample's measure.

    Args:
        latencies: In the order in which the requests were due; ``inf`` for failed ones.
        quantile_frac: Slow is above this quantile, in (0, 1), and never rarer than one in ten.
        in_flight: Mean requests in flight.

    Returns:
        At least 1.
    """
    values = np.asarray(latencies, dtype=float)
    n = len(values)
    if not n:
        return 1.0
    block, _ = _block(n, in_flight)
    own = np.sort(values)[math.ceil(min(quantile_frac, _OWN_QUANTILE) * n) - 1]
    return design_effect(values > own, block)


def count_exceedances(
    measured: Sequence[RequestRecord], slos: Sequence[Slo]
) -> dict[str, Exceedance]:
    """Requests over the limit of each SLO that can be tested request by request.

    Args:
        measured: Requests of the window.
        slos: Others than per-request percentiles are passed over.

    Returns:
        By metric name; requests that an SLO does not apply to are not in its total.
    """
    in_order = in_due_order(measured)
    in_flight = mean_in_flight(in_order)
    counts = {}
    for slo in slos:
        if slo.max_share_frac is None:
            continue
        latencies = [value for value in map(slo.latency_ms, in_order) if value is not None]
        counts[slo.metric] = count_exceedance(latencies, slo.limit, in_flight=in_flight)
    return counts


def design_effect(flags: NDArray[np.bool_], block: int) -> float:
    """How many of these requests weigh as much as one independent request.

    Args:
        flags: Shape ``(n,)``, in the order in which the requests were due.
        block: Successive requests per block, at least 1.

    Returns:
        At least 1; 1 where all flags are equal or there are fewer than two blocks.
    """
    n = len(flags)
    share = float(flags.mean()) if n else 0.0
    if n < 2 * block or share in {0.0, 1.0}:
        return 1.0
    sums = np.concatenate(([0.0], np.cumsum(flags, dtype=float)))
    means = (sums[block:] - sums[:-block]) / block
    variance = block * float(np.mean((means - share) ** 2)) * n / (n - block)
    return max(1.0, variance / (share * (1 - share)))
