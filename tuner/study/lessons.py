"""What an outcome teaches the sampler: values, constraints and a trial state.

Owns the mapping; knows neither Optuna nor a server. Every trial of a study gets the same
constraints, one per SLO and one for the launch itself, since Optuna's GP sampler reads them by
position and a constraint that some trials lack would shift the others.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from objectives import Evaluation, Objective, OperatingPoint, Slo, choose, evaluate
from tuner.trial import Failed, Measured, Outcome

# A slack says how far a limit was missed in units of the limit. Beyond ten times the limit the
# distance teaches nothing more, and an infinite P99 must not swamp a sampler's regression.
MAX_SLACK = 10.0
LAUNCH_CONSTRAINT = "launch"


class Ending(StrEnum):
    """How a trial is told to the sampler."""

    COMPLETE = "complete"
    """With values; constraints say whether it met the SLOs."""
    PRUNED = "pruned"
    """Without values, violated constraints teach where not to go."""
    FAIL = "fail"
    """Not at all: nothing about the configuration was learned."""


@dataclass(frozen=True, kw_only=True)
class Lesson:
    """What is told of one trial.

    Attributes:
        ending: The state to tell.
        values: One per objective in natural direction; empty unless ``ending`` is COMPLETE.
        constraints: By name, > 0 means violated; empty when ``ending`` is FAIL.
    """

    ending: Ending
    values: tuple[float, ...] = ()
    constraints: Mapping[str, float] = field(default_factory=dict)


def lesson_of(
    outcome: Outcome, *, objectives: Sequence[Objective], slos: Sequence[Slo], confidence: float
) -> Lesson:
    """Turn the outcome of a launch into what the sampler is told.

    A measured launch gives the ends of its feasible front, one value per objective, each the best
    among the points within the SLOs; without such a point, the values and slacks of the valid
    point that misses them least. A deterministic failure is a broken promise of the configuration,
    so every constraint is violated. A transient failure says nothing about it.

    Args:
        outcome: What came of the launch.
        objectives: In the study's order.
        slos: In the study's order.
        confidence: Of the verdicts, e.g. 0.95.

    Returns:
        The lesson; PRUNED for a launch whose points lack a value of some objective or are invalid.
    """
    match outcome:
        case Failed(is_deterministic=True):
            return _crash(slos)
        case Failed():
            return Lesson(ending=Ending.FAIL)
        case Measured(points=points):
            return _front_ends(points, objectives, slos, confidence)


def _crash(slos: Sequence[Slo]) -> Lesson:
    constraints = {LAUNCH_CONSTRAINT: MAX_SLACK} | {_name(slo): MAX_SLACK for slo in slos}
    return Lesson(ending=Ending.PRUNED, constraints=constraints)


def _front_ends(
    points: Sequence[OperatingPoint],
    objectives: Sequence[Objective],
    slos: Sequence[Slo],
    confidence: float,
) -> Lesson:
    judged = [(point, evaluate(point, slos, confidence=confidence)) for point in points]
    within = [(point, evaluation) for point, evaluation in judged if evaluation.is_within]
    values = _best_values([point for point, _ in within], objectives)
    if values is None:
        return _nearest_miss(judged, objectives, slos)
    slacks = {_name(slo): min(_slack(evaluation, slo) for _, evaluation in within) for slo in slos}
    return Lesson(
        ending=Ending.COMPLETE, values=values, constraints=slacks | {LAUNCH_CONSTRAINT: -1.0}
    )


def _best_values(
    points: Sequence[OperatingPoint], objectives: Sequence[Objective]
) -> tuple[float, ...] | None:
    """The best value of each objective over the points; ``None`` if one of them has none."""
    values = []
    for objective in objectives:
        index = choose(points, objective, ())
        value = None if index is None else points[index].metrics[objective.metric]
        if value is None or not math.isfinite(value):
            return None
        values.append(value)
    return tuple(values)


def _nearest_miss(
    judged: Sequence[tuple[OperatingPoint, Evaluation]],
    objectives: Sequence[Objective],
    slos: Sequence[Slo],
) -> Lesson:
    """The valid point that misses the SLOs least, told as infeasible."""

    def miss(evaluation: Evaluation) -> float:
        return sum(max(0.0, _slack(evaluation, slo)) for slo in slos)

    # What an invalid point seems to have met must not hide what the valid ones measured.
    point, evaluation = min(judged, key=lambda pair: (not pair[0].is_valid, miss(pair[1])))
    constraints = {_name(slo): _slack(evaluation, slo) for slo in slos}
    # A point can be invalid, or decided infeasible by its request counts, with every slack met.
    constraints[LAUNCH_CONSTRAINT] = -1.0 if miss(evaluation) > 0 else 1.0
    values = _best_values([point], objectives)
    if values is None:
        return Lesson(ending=Ending.PRUNED, constraints=constraints)
    return Lesson(ending=Ending.COMPLETE, values=values, constraints=constraints)


def _slack(evaluation: Evaluation, slo: Slo) -> float:
    """A slack that a sampler can digest: unknown counts as just missed, far as ``MAX_SLACK``."""
    slack = evaluation.slacks[slo.metric]
    if slack is None:
        return 1.0
    return max(-1.0, min(MAX_SLACK, slack))


def _name(slo: Slo) -> str:
    return f"slo_{slo.metric}"
