"""Service level objectives: a metric, its limit, and how far a value is from it.

Owns slacks and the per-request form of a percentile SLO; the confidence is in ``share_test``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from objectives.catalogue import CATALOGUE, PER_REQUEST, Direction, Metric
from objectives.records import RequestRecord


@dataclass(frozen=True, kw_only=True)
class Slo:
    """A limit on one metric of an operating point.

    Attributes:
        metric: A catalogue name with a direction. A metric to minimize has an upper limit, one to
            maximize a lower limit.
        limit: In the metric's unit; positive and finite. ``error_frac`` may be 0.
    """

    metric: str
    limit: float

    def __post_init__(self) -> None:
        """Refuse what can never be judged.

        Raises:
            ValueError: Unknown metric, one without a direction, or a limit that is not positive.
        """
        known = CATALOGUE.get(self.metric)
        if known is None:
            raise ValueError(f"{self.metric!r} is not a metric of the catalogue")
        if known.direction is None:
            raise ValueError(f"{self.metric!r} has no better direction, so it cannot have a limit")
        lowest_ok = (
            self.limit >= 0 if self.metric in {"error_frac", "n_failed"} else self.limit > 0
        )
        if not (math.isfinite(self.limit) and lowest_ok):
            raise ValueError(f"the limit of {self.metric!r} must be positive, not {self.limit!r}")

    @property
    def is_upper(self) -> bool:
        """Whether the metric must stay below the limit; else it must reach it."""
        return self.definition.direction is Direction.MINIMIZE

    def __str__(self) -> str:
        """The limit as people write it: ``p99_ttft_ms <= 150``."""
        sign = "<=" if self.is_upper else ">="
        return f"{self.metric} {sign} {self.limit:g}"

    @property
    def definition(self) -> Metric:
        """The catalogue's entry."""
        return CATALOGUE[self.metric]

    @property
    def max_share_frac(self) -> float | None:
        """Share of requests that may be over the limit, 0.01 for a P99; ``None`` if untestable.

        Only percentiles of a per-request latency can be tested request by request; ITL is pooled
        over requests.
        """
        known = self.definition
        if known.quantile_frac is None or known.quantity not in PER_REQUEST:
            return None
        return round(1 - known.quantile_frac, 9)

    def slack(self, value: float | None) -> float | None:
        """How far a value is over the limit, in units of the limit; feasible means <= 0.

        ``value / limit - 1`` for an upper limit and ``1 - value / limit`` for a lower one. With
        a limit of 0 the slack is the value itself.

        Args:
            value: In the metric's unit, or ``None`` where it is not known.

        Returns:
            The slack; ``None`` for an unknown value, which never counts as met.
        """
        if value is None or math.isnan(value):
            return None
        if self.limit == 0:
            return value
        relative = value / self.limit - 1
        return relative if self.is_upper else -relative

    def latency_ms(self, record: RequestRecord) -> float | None:
        """The latency of one request that a percentile SLO is about.

        Args:
            record: A measured request.

        Returns:
            Infinite for a failed request; ``None`` if the SLO does not apply to it: an answer of
            one token has no TPOT, and only ``max_share_frac`` SLOs apply to requests at all.
        """
        if self.max_share_frac is None:
            return None
        if not record.is_success:
            return math.inf
        seconds: float | None = getattr(record, f"{self.definition.quantity}_s")
        return None if seconds is None else seconds * 1000

    def is_over(self, record: RequestRecord) -> bool | None:
        """Whether one request broke the limit; ``None`` if the SLO does not apply to it."""
        latency_ms = self.latency_ms(record)
        return None if latency_ms is None else latency_ms > self.limit
