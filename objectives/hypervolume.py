"""Hypervolume: how much of the space below a fixed reference point a front dominates.

Exact, by sweeping the last dimension (HSO; While et al., IEEE Trans. Evol. Comput. 10(1), 2006).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from objectives.pareto import is_on_front

_N_PLANE = 2


def hypervolume(losses: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Volume dominated by the rows and bounded by the reference.

    Args:
        losses: Shape ``(n, m)``, smaller is better; rows with NaN are passed over.
        reference: Shape ``(m,)``, finite. It must stay the same for values to be compared; a row
            that is not better than it everywhere adds nothing.

    Returns:
        The volume, 0 for no rows.

    Raises:
        ValueError: The reference is not finite, or its length is not m.
    """
    if reference.shape != losses.shape[1:]:
        raise ValueError(f"a reference of shape {reference.shape} for losses {losses.shape}")
    if not np.isfinite(reference).all():
        raise ValueError(f"the reference must be finite, not {reference}")
    inside = losses[(losses < reference).all(axis=1)]
    if not len(inside):
        return 0.0
    return _sweep(inside[is_on_front(inside)], reference)


def _sweep(front: NDArray[np.float64], reference: NDArray[np.float64]) -> float:
    """Volume of rows that are all better than the reference."""
    n_dim = front.shape[1]
    if n_dim == 1:
        return float(reference[0] - front.min())
    ordered = front[np.argsort(front[:, -1], kind="stable")]
    if n_dim == _N_PLANE:
        best = np.minimum.accumulate(ordered[:, 0])
        widths = np.diff(np.append(ordered[:, 1], reference[1]))
        return float(((reference[0] - best) * widths).sum())
    volume = 0.0
    for row in range(len(ordered)):
        top = ordered[row + 1, -1] if row + 1 < len(ordered) else reference[-1]
        depth = float(top - ordered[row, -1])
        if depth > 0:
            slab = ordered[: row + 1, :-1]
            volume += depth * _sweep(slab[is_on_front(slab)], reference[:-1])
    return volume
