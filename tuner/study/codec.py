"""Launches and operating points as JSON, the form in which the study storage keeps them.

Infinity is kept as the text ``"inf"``: JSON has no word for it, and a P99 that is infinite because
requests failed is a result, not a gap.
"""

from __future__ import annotations

import math
from typing import Any

from objectives import Load, LoadKind
from objectives.operating_point import Exceedance, OperatingPoint
from tuner.trial import Failed, FailureKind, Phase


def encode_number(value: float | None) -> float | str | None:
    """A metric value as JSON keeps it; NaN is a bug and refused.

    Raises:
        ValueError: The value is NaN.
    """
    if value is None or math.isfinite(value):
        return value
    if math.isnan(value):
        raise ValueError("NaN is not a metric value: a metric without data is None.")
    return "inf" if value > 0 else "-inf"


def decode_number(value: float | str | None) -> float | None:
    """The inverse of ``encode_number``."""
    return float(value) if isinstance(value, str) else value


def encode_point(point: OperatingPoint) -> dict[str, Any]:
    """One operating point as a JSON object."""
    return {
        "load": [point.load.kind.value, point.load.number],
        "metrics": {name: encode_number(value) for name, value in point.metrics.items()},
        "exceedances": {
            name: [seen.n_over, seen.n_total, seen.design_effect, seen.is_long_enough]
            for name, seen in point.exceedances.items()
        },
        "bounds": {name: list(map(encode_number, pair)) for name, pair in point.bounds.items()},
        "invalid_reasons": list(point.invalid_reasons),
        "limited_by": point.limited_by,
        "is_partial": point.is_partial,
    }


def decode_point(stored: dict[str, Any]) -> OperatingPoint:
    """The inverse of ``encode_point``."""
    return OperatingPoint(
        load=Load(kind=LoadKind(stored["load"][0]), value=stored["load"][1]),
        metrics={name: decode_number(value) for name, value in stored["metrics"].items()},
        exceedances={
            name: Exceedance(
                n_over=n_over, n_total=n_total, design_effect=effect, is_long_enough=is_long
            )
            for name, (n_over, n_total, effect, is_long) in stored["exceedances"].items()
        },
        bounds={
            name: (decode_number(low), decode_number(high))
            # Points of a study that began before bounds were kept have none.
            for name, (low, high) in stored.get("bounds", {}).items()
        },
        invalid_reasons=tuple(stored["invalid_reasons"]),
        limited_by=stored["limited_by"],
        is_partial=stored["is_partial"],
    )


def encode_failure(failed: Failed) -> dict[str, Any]:
    """A failure as a JSON object; its points are stored one by one as they are measured."""
    return {
        "kind": failed.kind.value,
        "phase": failed.phase.value,
        "message": failed.message,
        "evidence": failed.evidence,
        "is_deterministic": failed.is_deterministic,
        "parameter": failed.parameter,
        "exit_code": failed.exit_code,
    }


def decode_failure(stored: dict[str, Any]) -> Failed:
    """The inverse of ``encode_failure``, without points."""
    fields = dict(stored)
    return Failed(kind=FailureKind(fields.pop("kind")), phase=Phase(fields.pop("phase")), **fields)
