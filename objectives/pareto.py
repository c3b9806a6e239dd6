"""The Pareto front: what no other point beats.

Owns dominance; knows nothing of SLOs beyond which points may enter.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from objectives.evaluation import evaluate
from objectives.objective import Objective, to_losses
from objectives.operating_point import OperatingPoint
from objectives.slo import Slo

_N_PLANE = 2


def is_on_front(losses: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which rows are not dominated.

    A row is dominated by one that is at most as large everywhere and smaller somewhere. Of equal
    rows the first stays: the others add nothing. O(n log n) in two dimensions.

    Args:
        losses: Shape ``(n, m)``, smaller is better; a row with NaN is never on the front.

    Returns:
        Shape ``(n,)``.
    """
    mask = np.zeros(len(losses), dtype=bool)
    rows = np.flatnonzero(~np.isnan(losses).any(axis=1))
    if not len(rows):
        return mask
    # Lexicographic order, ties by position: a row can be dominated only by earlier ones.
    known = losses[rows]
    order = rows[np.lexsort((rows, *known.T[::-1]))]
    if losses.shape[1] == _N_PLANE:
        second = losses[order, 1]
        best_before = np.concatenate(([np.inf], np.minimum.accumulate(second)[:-1]))
        keep = second < best_before
        keep[0] = True
        mask[order[keep]] = True
        return mask
    front: list[int] = []
    for row in order:
        kept = losses[front]
        if not front or not (kept <= losses[row]).all(axis=1).any():
            front.append(int(row))
    mask[front] = True
    return mask


def pareto_front(
    points: Sequence[OperatingPoint],
    objectives: Sequence[Objective],
    slos: Sequence[Slo] = (),
    *,
    confidence: float = 0.95,
) -> list[int]:
    """The Pareto set among the points within the SLOs.

    Args:
        points: Measured or published.
        objectives: At least one.
        slos: The limits; see ``Evaluation.is_within``.
        confidence: Of a decision by request counts.

    Returns:
        Indices into ``points``, best in the first objective first.
    """
    within = [
        index
        for index, point in enumerate(points)
        if evaluate(point, slos, confidence=confidence).is_within
    ]
    losses = to_losses([points[index] for index in within], objectives)
    front = np.flatnonzero(is_on_front(losses))
    return [within[row] for row in sorted(front, key=lambda row: tuple(losses[row]))]
