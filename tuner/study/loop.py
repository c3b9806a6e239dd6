"""The study loop: propose, launch, learn, until the budget is spent.

Owns the order of things and what counts against the budget. What a launch is, how it is logged
and how it is shown are handed in, so that the loop runs the same with a fake of each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Protocol

import optuna

from objectives import Evaluation, OperatingPoint
from search_spaces.configuration import Configuration, configuration_key
from tuner.config import Study
from tuner.study.ledger import Ledger, known_configurations
from tuner.study.lessons import lesson_of
from tuner.study.suggest import suggest_configuration, to_params
from tuner.trial import Failed, FailureKind, Launch, Measured, Outcome, Phase

# Proposals in a row that cost no launch: a sampler that has converged repeats itself, and rules
# may forbid most of a space. After so many there is nothing new to be had from it.
MAX_FREE_PROPOSALS = 200


class StopReason(StrEnum):
    """Why a study stopped."""

    LAUNCHES = "launch budget spent"
    HOURS = "time budget spent"
    EXHAUSTED = "every configuration that the rules allow is known"
    HOPELESS = "the model cannot be served"
    INTERRUPTED = "interrupted"


class LaunchLog(Protocol):
    """Where a launch is recorded beside the ledger, as it goes."""

    def opened(self, launch: Launch, command: tuple[str, ...]) -> None:
        """A server is about to be started."""

    def measured(self, index: int, point: OperatingPoint, evaluation: Evaluation) -> None:
        """One operating point is finished."""

    def closed(self, launch: Launch) -> None:
        """The launch is over and its server gone."""


class RunLaunch(Protocol):
    """Start a server, measure it, tear it down."""

    def __call__(
        self,
        number: int,
        configuration: Configuration,
        on_command: Callable[[tuple[str, ...]], None],
        on_point: Callable[[OperatingPoint, Evaluation], None],
    ) -> Outcome:
        """See ``tuner.trial_runner.run_trial``."""


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
class Collaborators:
    """What the loop works with."""

    study: Study
    optuna_study: optuna.Study
    ledger: Ledger
    run_launch: RunLaunch
    log: LaunchLog
    is_cancelled: Callable[[], bool]
    clock: Callable[[], float] = time.perf_counter


def run_study(world: Collaborators, budget: Budget) -> StopReason:
    """Run launches until the budget is spent, resuming what the ledger holds.

    Args:
        world: The study and what the loop works with.
        budget: What may be spent.

    Returns:
        Why it stopped.
    """
    _enqueue_first(world)
    started_s = world.clock()
    n_free = 0
    while True:
        if world.is_cancelled():
            return StopReason.INTERRUPTED
        launches = list(world.ledger.launches())
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
        launch.was_started
        and not launch.is_open
        and not (launch.failure and launch.failure.kind is FailureKind.INTERRUPTED)
        for launch in launches
    )


def _enqueue_first(world: Collaborators) -> None:
    """VLLM's defaults first in a new study; in a resumed one, what was interrupted."""
    for launch in world.ledger.close_stale():
        world.log.closed(launch)
    launches = list(world.ledger.launches())
    space = world.study.space
    waiting = world.optuna_study.get_trials(
        deepcopy=False, states=(optuna.trial.TrialState.WAITING,)
    )
    if not launches and not waiting:
        world.ledger.enqueue(
            to_params(world.study.default_configuration(), space), origin="default"
        )
    known = known_configurations(iter(launches))
    interrupted = {
        configuration_key(launch.configuration): launch.configuration
        for launch in launches
        if launch.failure is not None
        and launch.failure.kind is FailureKind.INTERRUPTED
        and configuration_key(launch.configuration) not in known
    }
    for configuration in () if waiting else interrupted.values():
        world.ledger.enqueue(to_params(configuration, space), origin="retry")


def _propose(world: Collaborators, launches: list[Launch]) -> bool:
    """Ask for one configuration and answer it.

    Returns:
        Whether it cost a launch.
    """
    trial = world.optuna_study.ask()
    configuration = suggest_configuration(trial, world.study.space)
    world.ledger.open_launch(trial, configuration)
    known = known_configurations(iter(launches)).get(configuration_key(configuration))
    if known is not None:
        lesson = _lesson(world, outcome_of(known))
        world.ledger.close_duplicate(trial, lesson, earlier=known.number)
        return False
    violations = world.study.violations(configuration)
    if violations:
        failed = Failed(
            kind=FailureKind.RULE_VIOLATION,
            phase=Phase.PLAN,
            message="; ".join(violation.message for violation in violations),
            is_deterministic=True,
        )
        world.ledger.close_launch(
            trial, _lesson(world, failed), failure=failed, start_s=None, duration_s=0.0
        )
        return False
    _launch(world, trial, configuration)
    return True


def _launch(world: Collaborators, trial: optuna.trial.Trial, configuration: Configuration) -> None:
    started_s = world.clock()
    proposed = Launch(
        number=trial.number,
        configuration=configuration,
        origin=trial.user_attrs.get("origin", "sampler"),
        is_open=True,
    )
    points: list[OperatingPoint] = []

    def on_command(command: tuple[str, ...]) -> None:
        world.ledger.set_command(trial, command)
        world.log.opened(replace(proposed, command=command), command)

    def on_point(point: OperatingPoint, evaluation: Evaluation) -> None:
        world.ledger.add_point(trial, len(points), point)
        world.log.measured(len(points), point, evaluation)
        points.append(point)

    outcome = world.run_launch(trial.number, configuration, on_command, on_point)
    failure = outcome if isinstance(outcome, Failed) else None
    world.ledger.close_launch(
        trial,
        _lesson(world, outcome),
        failure=failure,
        start_s=outcome.start_s if isinstance(outcome, Measured) else None,
        duration_s=world.clock() - started_s,
    )
    if failure is not None and _deserves_retry(failure, proposed.origin):
        world.ledger.enqueue(to_params(configuration, world.study.space), origin="retry")
    world.log.closed(world.ledger.launch(trial.number))


def _deserves_retry(failure: Failed, origin: str) -> bool:
    """Transient failures are tried once more; what the operator stopped waits for a resume."""
    return (
        not failure.is_deterministic
        and failure.kind is not FailureKind.INTERRUPTED
        and origin != "retry"
    )


def _is_hopeless(launches: list[Launch]) -> bool:
    """Whether the model itself is the trouble, which no other configuration will cure."""
    return any(
        launch.failure is not None and launch.failure.kind is FailureKind.MODEL_UNAVAILABLE
        for launch in launches
    ) and not any(launch.points for launch in launches)


def outcome_of(launch: Launch) -> Outcome:
    """The outcome of a finished launch, as it was told."""
    if launch.failure is not None:
        return replace(launch.failure, points=launch.points)
    return Measured(points=launch.points, start_s=launch.start_s or 0.0)


def _lesson(world: Collaborators, outcome: Outcome) -> ...:
    study = world.study
    return lesson_of(
        outcome, objectives=study.objectives, slos=study.slos, confidence=study.confidence
    )
