"""The study loop: propose, launch, learn, until the budget is spent.

Owns the order of things and what counts against the budget. What a launch is and how it is
recorded are handed in, so that the loop runs the same with a fake of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import optuna
from optuna.trial import Trial, TrialState

from search_spaces.configuration import Configuration, configuration_key
from tuner.study.ledger import known_configurations
from tuner.study.lessons import Lesson, lesson_of
from tuner.study.recording import LaunchRecorder, Recording
from tuner.study.suggest import suggest_configuration, to_params
from tuner.trial import Failed, FailureKind, Launch, Measured, Outcome, Phase

# Proposals in a row that cost no launch: a sampler that has converged repeats itself, and rules
# may forbid most of a space. After so many there is nothing new to be had from it.
MAX_FREE_PROPOSALS = 100


class StopReason(StrEnum):
    """Why a study stopped."""

    LAUNCHES = "the launch budget is spent"
    HOURS = "the time budget is spent"
    EXHAUSTED = "the sampler proposes nothing new that the rules allow"
    HOPELESS = "the model cannot be served"
    INTERRUPTED = "interrupted"


RunTrial = Callable[[Configuration, Path, LaunchRecorder], Outcome]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What a study may spend.

    Attributes:
        n_launches: Launches over the whole life of the study; interrupted ones are not counted.
        hours: Hours of this run; ``None`` for no limit.
    """

    n_launches: int
    hours: float | None


@dataclass(frozen=True, kw_only=True)
class World:
    """What the loop works with.

    Attributes:
        optuna_study: Asks and tells.
        recording: Where launches are recorded; it knows the study.
        run_trial: Launches and measures a configuration.
        is_cancelled: Whether the operator wants to stop.
        clock: Seconds, for the time budget.
    """

    optuna_study: optuna.Study
    recording: Recording
    run_trial: RunTrial
    is_cancelled: Callable[[], bool]
    clock: Callable[[], float] = time.perf_counter

    def lesson(self, outcome: Outcome) -> Lesson:
        """What an outcome teaches the sampler."""
        study = self.recording.study
        return lesson_of(
            outcome, objectives=study.objectives, slos=study.slos, confidence=study.confidence
        )


def run_study(world: World, budget: Budget) -> StopReason:
    """Run launches until the budget is spent, resuming what the ledger holds.

    The caller holds the study's lock.

    Args:
        world: What the loop works with.
        budget: What may be spent.

    Returns:
        Why it stopped.
    """
    started_s = world.clock()
    world.recording.ledger.close_stale()
    world.recording.catch_up()
    _enqueue_first(world)
    n_free = 0
    while True:
        if world.is_cancelled():
            return StopReason.INTERRUPTED
        launches = list(world.recording.ledger.launches())
        if n_counted(launches) >= budget.n_launches:
            return StopReason.LAUNCHES
        if budget.hours is not None and world.clock() - started_s >= budget.hours * 3600:
            return StopReason.HOURS
        if _is_hopeless(launches):
            return StopReason.HOPELESS
        n_free = 0 if _propose(world, launches) else n_free + 1
        if n_free >= MAX_FREE_PROPOSALS:
            return StopReason.EXHAUSTED


def n_counted(launches: list[Launch]) -> int:
    """Launches that count against the budget: started, and not merely interrupted."""
    return sum(
        launch.was_started and not launch.is_open and not launch.was_interrupted
        for launch in launches
    )


def _enqueue_first(world: World) -> None:
    """VLLM's defaults first in a new study; in a resumed one, what was interrupted."""
    study, ledger = world.recording.study, world.recording.ledger
    if world.optuna_study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
        return
    launches = list(ledger.launches())
    if not launches:
        ledger.enqueue(to_params(study.default_configuration(), study.space), origin="default")
    known = known_configurations(launches)
    again = {configuration_key(x.configuration): x for x in launches if x.was_interrupted}
    for key, launch in again.items():
        if key not in known:
            ledger.enqueue(to_params(launch.configuration, study.space), origin=launch.origin)


def _propose(world: World, launches: list[Launch]) -> bool:
    """Ask for one configuration and answer it.

    Returns:
        Whether it cost a launch.
    """
    study, ledger = world.recording.study, world.recording.ledger
    trial = world.optuna_study.ask()
    configuration = suggest_configuration(trial, study.space)
    ledger.open_launch(trial, configuration)
    earlier = known_configurations(launches).get(configuration_key(configuration))
    if earlier is not None:
        lesson = world.lesson(outcome_of(earlier))
        ledger.close_duplicate(trial, lesson, earlier=earlier.number)
        return False
    violations = study.violations(configuration)
    if violations:
        failed = Failed(
            kind=FailureKind.RULE_VIOLATION,
            phase=Phase.PLAN,
            message="; ".join(violation.message for violation in violations),
            is_deterministic=True,
        )
        lesson = world.lesson(failed)
        ledger.close_launch(trial, lesson, failure=failed, start_s=None, duration_s=0.0)
        return False
    _launch(world, trial, configuration)
    return True


def _launch(world: World, trial: Trial, configuration: Configuration) -> None:
    recording = world.recording
    started_s = world.clock()
    origin = str(trial.user_attrs.get("origin", "sampler"))
    proposed = Launch(
        number=trial.number, configuration=configuration, origin=origin, is_open=True
    )
    recorder = LaunchRecorder(recording, trial, proposed)
    outcome = world.run_trial(configuration, recorder.folder, recorder)
    failure = outcome if isinstance(outcome, Failed) else None
    start_s = outcome.start_s if isinstance(outcome, Measured) else None
    duration_s = world.clock() - started_s
    recording.ledger.close_launch(
        trial, world.lesson(outcome), failure=failure, start_s=start_s, duration_s=duration_s
    )
    if failure is not None and _deserves_retry(failure, origin):
        params = to_params(configuration, recording.study.space)
        recording.ledger.enqueue(params, origin="retry")
    closed = replace(
        recorder.launch, failure=failure, is_open=False, start_s=start_s, duration_s=duration_s
    )
    recording.sync(closed)
    recording.progress.closed(closed)


def _deserves_retry(failure: Failed, origin: str) -> bool:
    """Transient failures are tried once more; what the operator stopped waits for a resume."""
    return (
        not failure.is_deterministic
        and failure.kind is not FailureKind.INTERRUPTED
        and origin != "retry"
    )


def _is_hopeless(launches: list[Launch]) -> bool:
    """Whether the model itself is the trouble, which no other configuration will cure."""
    is_missing = any(
        launch.failure is not None and launch.failure.kind is FailureKind.MODEL_UNAVAILABLE
        for launch in launches
    )
    return is_missing and not any(launch.points for launch in launches)


def outcome_of(launch: Launch) -> Outcome:
    """The outcome of a finished launch, as it was told."""
    if launch.failure is not None:
        return replace(launch.failure, points=launch.points)
    return Measured(points=launch.points, start_s=launch.start_s or 0.0)
