"""Counting a level's requests against its SLOs as they end, to stop on evidence."""

from __future__ import annotations

from collections.abc import Sequence

from objectives.clumping import count_exceedances
from objectives.operating_point import Exceedance, Verdict
from objectives.records import RequestRecord
from objectives.share_test import decide_share
from objectives.slo import Slo

# How much requests clump is worked out from the whole level: where that held a decision back, it
# is asked again after so many requests.
_LOOK_EVERY = 8


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
        self._slos = [slo for slo in slos if slo.max_share_frac is not None]
        self._counts = [Exceedance(n_over=0, n_total=0)] * len(self._slos)
        self._confidence = confidence
        self._min_feasible = min_feasible
        self._min_infeasible = min_infeasible
        self._records: list[RequestRecord] = []
        self._next_look = 0

    def add(self, record: RequestRecord) -> bool:
        """Count one measured request.

        Args:
            record: It has ended, well or badly.

        Returns:
            Whether the level is decided: one SLO is broken, or all are met.
        """
        self._records.append(record)
        for position, (slo, seen) in enumerate(zip(self._slos, self._counts, strict=True)):
            is_over = slo.is_over(record)
            if is_over is not None:
                self._counts[position] = Exceedance(
                    n_over=seen.n_over + is_over, n_total=seen.n_total + 1
                )
        # As if the requests were independent, which is the most that they can be worth.
        n = len(self._records)
        if n < self._next_look or not self._is_decided(self._counts):
            return False
        self._next_look = n + _LOOK_EVERY
        return self._is_decided(list(count_exceedances(self._records, self._slos).values()))

    def _is_decided(self, counts: Sequence[Exceedance]) -> bool:
        verdicts = [
            decide_share(seen, slo.max_share_frac or 0.0, self._confidence)
            for slo, seen in zip(self._slos, counts, strict=True)
        ]
        n = len(self._records)
        if Verdict.INFEASIBLE in verdicts and n >= self._min_infeasible:
            return True
        is_met = bool(verdicts) and set(verdicts) == {Verdict.FEASIBLE}
        return is_met and n >= self._min_feasible
