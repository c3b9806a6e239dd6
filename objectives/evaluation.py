"""An operating point against its SLOs: slacks, verdict, and whether it may enter a front.

Owns how point estimates and request counts combine; the test itself is in ``share_test``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from objectives.operating_point import OperatingPoint, Verdict
from objectives.share_test import decide_share
from objectives.slo import Slo


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """A point judged.

    Attributes:
        slacks: By SLO metric, ``value / limit - 1`` (see ``Slo.slack``); ``None`` for a metric
            without data.
        verdict: FEASIBLE if every SLO is met at the stated confidence, INFEASIBLE if one is
            broken at that confidence, else UNDECIDED. An invalid point decides nothing.
        is_within: Valid, every slack known and at most 0, and no SLO decided broken: the point
            may enter a front. With an UNDECIDED verdict it is the best estimate, not proven.
        undecided: Metrics of the SLOs that are not decided.
    """

    slacks: Mapping[str, float | None]
    verdict: Verdict
    is_within: bool
    undecided: tuple[str, ...]


def evaluate(
    point: OperatingPoint, slos: Sequence[Slo], *, confidence: float = 0.95
) -> Evaluation:
    """Judge a point.

    Args:
        point: Measured or published.
        slos: The limits; without any, every valid point is feasible.
        confidence: Of a decision by request counts, e.g. 0.95.

    Returns:
        The evaluation.
    """
    slacks = {slo.metric: slo.slack(point.metrics.get(slo.metric)) for slo in slos}
    verdicts = {slo.metric: _verdict(slo, slacks[slo.metric], point, confidence) for slo in slos}
    undecided = tuple(name for name, verdict in verdicts.items() if verdict is Verdict.UNDECIDED)
    if not point.is_valid:
        verdict = Verdict.UNDECIDED
    elif Verdict.INFEASIBLE in verdicts.values():
        verdict = Verdict.INFEASIBLE
    elif undecided:
        verdict = Verdict.UNDECIDED
    else:
        verdict = Verdict.FEASIBLE
    is_met = all(slack is not None and slack <= 0 for slack in slacks.values())
    return Evaluation(
        slacks=slacks,
        verdict=verdict,
        is_within=point.is_valid and is_met and verdict is not Verdict.INFEASIBLE,
        undecided=undecided,
    )


def _verdict(slo: Slo, slack: float | None, point: OperatingPoint, confidence: float) -> Verdict:
    seen = point.exceedances.get(slo.metric)
    if seen is not None and slo.max_share_frac is not None:
        return decide_share(seen, slo.max_share_frac, confidence)
    if slack is None:
        return Verdict.UNDECIDED
    return Verdict.FEASIBLE if slack <= 0 else Verdict.INFEASIBLE
