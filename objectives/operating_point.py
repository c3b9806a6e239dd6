"""An operating point: one load level measured (or published) on one configuration.

Owns the shape that summaries, verdicts, fronts and picks agree on; knows no server and no file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from objectives.load import Load

Bounds = tuple[float | None, float | None]


def bound_metrics(bounds: Mapping[str, Bounds]) -> dict[str, float | None]:
    """Confidence bounds as plain metrics, each metric's as ``NAME_low`` and ``NAME_high``."""
    return {
        f"{name}_{side}": bound
        for name, pair in bounds.items()
        for side, bound in zip(("low", "high"), pair, strict=True)
    }


class Verdict(StrEnum):
    """What is known, at the stated confidence, of a point against all its SLOs."""

    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNDECIDED = "undecided"


@dataclass(frozen=True, kw_only=True)
class Exceedance:
    """How many requests were over a percentile SLO's limit.

    Attributes:
        n_over: Requests over the limit, failed ones included.
        n_total: Requests that the SLO applies to.
        design_effect: So many requests weigh as much as one independent one (see ``clumping``).
        is_long_enough: Whether the sample spans enough rounds of what was in flight to tell how
            much the requests clump; otherwise it proves no limit met.
    """

    n_over: int
    n_total: int
    design_effect: float = 1.0
    is_long_enough: bool = True


@dataclass(frozen=True, kw_only=True)
class OperatingPoint:
    """One load level of one configuration.

    Attributes:
        load: What it was measured under.
        metrics: Value by catalogue name, in the unit that the name carries; ``None`` for a
            metric without data, never zero.
        exceedances: By SLO metric name, the requests over its limit; empty for points that
            were published as plain figures, whose verdict is then by slack alone.
        bounds: By percentile metric name, its one-sided lower and upper confidence bounds; each
            ``None`` where the sample is too small for it, empty for published points.
        invalid_reasons: Why the point must not be used; empty for a valid point. An invalid
            point never enters a front.
        limited_by: What kept the server from going faster (``server_evidence.limited_by``);
            ``None`` where that is not known.
        is_partial: The level was stopped before its plan ended (decided early is not partial).
    """

    load: Load
    metrics: Mapping[str, float | None]
    exceedances: Mapping[str, Exceedance] = field(default_factory=dict)
    bounds: Mapping[str, Bounds] = field(default_factory=dict)
    invalid_reasons: tuple[str, ...] = ()
    limited_by: str | None = None
    is_partial: bool = False

    @property
    def batch_size(self) -> int | None:
        """Requests in flight; ``None`` where arrivals decide how many there are."""
        return self.load.batch_size

    @property
    def is_valid(self) -> bool:
        """Whether nothing speaks against using the point."""
        return not self.invalid_reasons
