"""When requests are due.

Owns the two ways in which a level is loaded: closed, where the next request is due when one has
ended, and scheduled, where requests are due whatever the server does. Only the second shows what
users see of a server that falls behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class Closed:
    """So many requests in flight, always.

    Attributes:
        max_concurrency: Requests in flight.
    """

    max_concurrency: int


@dataclass(frozen=True, kw_only=True)
class Scheduled:
    """Sessions begin at moments fixed beforehand.

    Attributes:
        due_s: When each session's first request is due, from the level's start, rising.
        max_concurrency: Requests in flight at most; one that has to wait for another to end stays
            due when it was, so that the wait counts in its latency. ``None`` for no limit.
    """

    due_s: tuple[float, ...]
    max_concurrency: int | None = None


Arrivals = Closed | Scheduled


def draw_arrivals(
    n: int, *, request_rate_per_s: float, burstiness: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Moments of arrival with gamma-distributed gaps, the definition of ``vllm bench serve``.

    Args:
        n: How many.
        request_rate_per_s: Their mean rate.
        burstiness: Shape of the gamma distribution: 1 is a Poisson process, below 1 arrivals come
            in bursts, above 1 they are more even.
        rng: Where they are drawn from.

    Returns:
        Shape ``(n,)``, seconds from the start, rising.
    """
    scale_s = 1 / (request_rate_per_s * burstiness)
    return np.cumsum(rng.gamma(shape=burstiness, scale=scale_s, size=n))


def replay(arrival_s: Sequence[float], *, speed: float) -> tuple[float, ...]:
    """A trace's moments of arrival, from its first one, so many times as fast as recorded."""
    first_s = arrival_s[0] if arrival_s else 0.0
    return tuple((moment_s - first_s) / speed for moment_s in arrival_s)
