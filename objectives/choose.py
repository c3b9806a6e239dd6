"""Picking one operating point, and saying what came nearest where none will do."""

from __future__ import annotations

import math
from collections.abc import Sequence

from objectives.evaluation import Evaluation, evaluate
from objectives.objective import Objective, to_losses
from objectives.operating_point import OperatingPoint
from objectives.slo import Slo


def choose(
    points: Sequence[OperatingPoint],
    objective: Objective,
    slos: Sequence[Slo] = (),
    *,
    confidence: float = 0.95,
) -> int | None:
    """The best point within the SLOs.

    Args:
        points: Measured or published.
        objective: What to be best in.
        slos: The limits; see ``Evaluation.is_within``.
        confidence: Of a decision by request counts.

    Returns:
        Index into ``points``; of equal values the smaller load, then the earlier point.
        ``None`` if no point is within the SLOs and has the objective's metric.
    """
    losses = to_losses(points, [objective])[:, 0]
    candidates = [
        (float(losses[index]), point.load.value, index)
        for index, point in enumerate(points)
        if not math.isnan(losses[index]) and evaluate(point, slos, confidence=confidence).is_within
    ]
    return min(candidates)[2] if candidates else None


def nearest(
    points: Sequence[OperatingPoint], slos: Sequence[Slo], *, confidence: float = 0.95
) -> list[int]:
    """Points ordered by how far they miss the SLOs, for when nothing is feasible.

    Args:
        points: Measured or published; invalid ones are left out.
        slos: The limits.
        confidence: Of a decision by request counts.

    Returns:
        Indices into ``points``, the smallest sum of positive slacks first. A metric without data
        counts as an infinite miss.
    """
    misses = [
        (_miss(evaluate(point, slos, confidence=confidence)), point.load.value, index)
        for index, point in enumerate(points)
        if point.is_valid
    ]
    return [index for *_, index in sorted(misses)]


def _miss(evaluation: Evaluation) -> float:
    return sum(
        math.inf if slack is None else max(0.0, slack) for slack in evaluation.slacks.values()
    )
