"""What is wanted: a metric and a direction, and the one place where a sign flips."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from objectives.catalogue import CATALOGUE, Direction
from objectives.operating_point import OperatingPoint


@dataclass(frozen=True, kw_only=True)
class Objective:
    """A metric to maximize or minimize.

    Attributes:
        metric: A catalogue name with a direction.
        direction: The catalogue's direction for it.
    """

    metric: str
    direction: Direction

    def __post_init__(self) -> None:
        """Refuse what nobody can want.

        Raises:
            ValueError: Unknown metric, one without a direction, or against the better direction.
        """
        known = CATALOGUE.get(self.metric)
        if known is None:
            raise ValueError(f"{self.metric!r} is not a metric of the catalogue")
        if known.direction is None:
            raise ValueError(f"{self.metric!r} has no better direction, so it is no objective")
        if known.direction is not self.direction:
            raise ValueError(f"{self.metric!r} is to {known.direction}, not to {self.direction}")


def to_losses(
    points: Sequence[OperatingPoint], objectives: Sequence[Objective]
) -> NDArray[np.float64]:
    """Values of the objectives with every direction turned to "smaller is better".

    Args:
        points: Any number.
        objectives: At least one.

    Returns:
        Shape ``(n_points, n_objectives)``; NaN where a point has no data.
    """
    losses = np.full((len(points), len(objectives)), math.nan)
    for column, objective in enumerate(objectives):
        sign = -1.0 if objective.direction is Direction.MAXIMIZE else 1.0
        for row, point in enumerate(points):
            value = point.metrics.get(objective.metric)
            if value is not None:
                losses[row, column] = sign * value
    return losses
