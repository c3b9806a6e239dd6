"""Counting a level's requests against its SLOs as they end, to stop on evidence."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.operating_point import Exceedance, Verdict
from objectives.records import RequestRecord
from objectives.share_test import decide_share
from objectives.slo import Slo


class ShareWatch:
    """Says when a level is decided. The only thing in this package that holds state.

    Args:
        slos: Those that can be tested request by request are watched; without any, a level is
            never decided early.
        confidence: Of the decisions.
        min_feasible: A level is not ended as feasible before so many requests, so that its
            percentiles can be stated.
        min_infeasible: Nor as broken before so many. The test itself needs two requests, but the
            first of a level share one batch and whatever disturbed it.
    """

    def __init__(
        self, slos: Sequence[Slo], *, confidence: float, min_feasible: int, min_infeasible: int = 0
    ) -> None:
        self._shares = {slo: slo.max_share_frac for slo in slos if slo.max_share_frac is not None}
        self._counts = dict.fromkeys(self._shares, Exceedance(n_over=0, n_total=0))
        self._confidence = confidence
        self._min_feasible = min_feasible
        self._min_infeasible = min_infeasible
        self._n = 0

    def add(self, record: RequestRecord) -> bool:
        """Count one measured request.

        Args:
            record: It has ended, well or badly.

        Returns:
            Whether the level is decided: one SLO is broken, or all are met.
        """
        self._n += 1
        for slo, seen in self._counts.items():
            is_over = slo.is_over(record)
            if is_over is not None:
                self._counts[slo] = Exceedance(
                    n_over=seen.n_over + is_over, n_total=seen.n_total + 1
                )
        verdicts = [
            decide_share(seen, self._shares[slo], self._confidence)
            for slo, seen in self._counts.items()
        ]
        if Verdict.INFEASIBLE in verdicts and self._n >= self._min_infeasible:
            return True
        is_met = bool(verdicts) and set(verdicts) == {Verdict.FEASIBLE}
        return is_met and self._n >= self._min_feasible
