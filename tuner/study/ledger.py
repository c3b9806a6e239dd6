"""The ledger: everything a study has proposed and measured, in its Optuna storage.

Owns how launches and points are written and read back, and that a point is written as soon as it
is measured, so that a killed tuner loses none. Knows nothing of servers, MLflow or the screen.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import optuna
from optuna.trial import FrozenTrial, Trial, TrialState

from objectives import OperatingPoint
from search_spaces.configuration import Configuration, ParameterValue, configuration_key
from tuner.study.codec import decode_failure, decode_point, encode_failure, encode_point
from tuner.study.lessons import Ending, Lesson
from tuner.trial import Failed, FailureKind, Launch, Phase

_STATES = {
    Ending.COMPLETE: TrialState.COMPLETE,
    Ending.PRUNED: TrialState.PRUNED,
    Ending.FAIL: TrialState.FAIL,
}
_CANONICAL = "canonical"
_TRACKING = "tracking_uri"


@dataclass(frozen=True, kw_only=True)
class LoggedRuns:
    """What of a launch is in MLflow.

    It is kept beside the trials, since a finished trial cannot be written to and a launch may be
    logged late.

    Attributes:
        run_id: The launch's run; ``None`` if it is not logged yet.
        point_run_ids: Nested runs of its points, in their order, as far as they are logged.
        is_complete: The launch was closed there, too.
    """

    run_id: str | None = None
    point_run_ids: tuple[str, ...] = ()
    is_complete: bool = False


class Ledger:
    """The launches of one study.

    Args:
        study: The Optuna study, created or loaded.
    """

    def __init__(self, study: optuna.Study) -> None:
        self._study = study
        self._closed: dict[int, Launch] = {}
        # Read once: a study's attributes are fetched all together, and there are more with every
        # launch. ``None`` for the local store.
        self._tracking_uri: str | None = study.user_attrs.get(_TRACKING)

    @property
    def canonical(self) -> dict[str, Any] | None:
        """What the study was created from, as ``Study.to_canonical`` gave it."""
        stored: dict[str, Any] | None = self._study.user_attrs.get(_CANONICAL)
        return stored

    def set_canonical(self, canonical: Mapping[str, Any]) -> None:
        """Remember what the study is made from."""
        self._study.set_user_attr(_CANONICAL, dict(canonical))

    def set_tracking_uri(self, uri: str | None) -> None:
        """Remember where the study is logged; runs logged elsewhere no longer count as logged."""
        if uri != self._tracking_uri:
            self._tracking_uri = uri
            self._study.set_user_attr(_TRACKING, uri)

    def launches(self) -> Iterator[Launch]:
        """Every launch, in the order proposed; enqueued trials that wait are left out."""
        for trial in self._study.get_trials(deepcopy=False):
            if "configuration" not in trial.user_attrs:
                continue
            launch = self._closed.get(trial.number) or _launch(trial)
            if not launch.is_open:
                # A finished trial cannot change; decoding all of them for every proposal would
                # make a long study slower and slower.
                self._closed[trial.number] = launch
            yield launch

    def logged_runs(self) -> dict[int, LoggedRuns]:
        """What of each launch is in MLflow, by launch number."""
        attrs = self._study.user_attrs
        prefix = self._runs_prefix()
        return {
            int(key.removeprefix(prefix)): LoggedRuns(
                run_id=stored["run"],
                point_run_ids=tuple(stored["points"]),
                is_complete=stored["complete"],
            )
            for key, stored in attrs.items()
            if key.startswith(prefix)
        }

    def _runs_prefix(self) -> str:
        where = hashlib.sha256((self._tracking_uri or "").encode()).hexdigest()[:8]
        return f"runs:{where}:"

    # -- writing, in the order of a launch's life -------------------------------------------

    def open_launch(self, trial: Trial, configuration: Configuration) -> None:
        """Remember what was proposed, before anything is started."""
        trial.set_user_attr("configuration", dict(configuration))

    def set_command(self, trial: Trial, launch: Launch) -> None:
        """Remember the command, before it is run."""
        trial.set_user_attr("env", dict(launch.env))
        trial.set_user_attr("folder", launch.folder)
        trial.set_user_attr("command", list(launch.command))

    def add_point(self, trial: Trial, index: int, point: OperatingPoint) -> None:
        """Write one operating point, as soon as it is measured."""
        trial.set_user_attr(f"point:{index:03d}", encode_point(point))

    def set_logged_runs(self, number: int, runs: LoggedRuns) -> None:
        """Remember what of a launch is in MLflow; possible after it is closed, too."""
        stored = {
            "run": runs.run_id,
            "points": list(runs.point_run_ids),
            "complete": runs.is_complete,
        }
        self._study.set_user_attr(f"{self._runs_prefix()}{number:06d}", stored)

    def close_launch(
        self,
        trial: Trial,
        lesson: Lesson,
        *,
        failure: Failed | None,
        start_s: float | None,
        duration_s: float,
    ) -> None:
        """Write how a launch ended and tell the sampler; nothing can be added afterwards."""
        if failure is not None:
            trial.set_user_attr("failure", encode_failure(failure))
        trial.set_user_attr("start_s", start_s)
        trial.set_user_attr("duration_s", duration_s)
        self._tell(trial, lesson)

    def close_duplicate(self, trial: Trial, lesson: Lesson, *, earlier: int) -> None:
        """Close a proposal that an earlier launch has answered already."""
        trial.set_user_attr("duplicate_of", earlier)
        self._tell(trial, lesson)

    def enqueue(self, params: Mapping[str, ParameterValue], *, origin: str) -> None:
        """Put a configuration at the head of what is proposed next.

        Args:
            params: Sampler parameters by name, as ``suggest.to_params`` gives them.
            origin: Who proposes it, for ``Launch.origin``.
        """
        self._study.enqueue_trial(dict(params), user_attrs={"origin": origin})

    def close_stale(self) -> list[Launch]:
        """Close launches left open by a tuner that was killed; their points stay.

        The caller must hold the study's lock, or it would close a living tuner's launch.

        Returns:
            The launches closed.
        """
        stale = self._study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))
        for trial in stale:
            self._study.tell(trial.number, state=TrialState.FAIL)
        numbers = {trial.number for trial in stale}
        return [launch for launch in self.launches() if launch.number in numbers]

    def _tell(self, trial: Trial, lesson: Lesson) -> None:
        for name, value in sorted(lesson.constraints.items()):
            trial.set_constraint(name, value)
        values = list(lesson.values) if lesson.ending is Ending.COMPLETE else None
        self._study.tell(trial, values, state=_STATES[lesson.ending])


def _launch(trial: FrozenTrial) -> Launch:
    attrs = trial.user_attrs
    return Launch(
        number=trial.number,
        configuration=attrs["configuration"],
        command=tuple(attrs.get("command", ())),
        env=attrs.get("env", {}),
        folder=attrs.get("folder"),
        points=tuple(
            decode_point(attrs[key]) for key in sorted(attrs) if key.startswith("point:")
        ),
        failure=_failure(trial),
        is_open=trial.state is TrialState.RUNNING,
        origin=attrs.get("origin", "sampler"),
        duplicate_of=attrs.get("duplicate_of"),
        start_s=attrs.get("start_s"),
        duration_s=attrs.get("duration_s"),
    )


def _failure(trial: FrozenTrial) -> Failed | None:
    stored = trial.user_attrs.get("failure")
    if stored is not None:
        return decode_failure(stored)
    if trial.state is TrialState.FAIL and "duplicate_of" not in trial.user_attrs:
        return Failed(
            kind=FailureKind.INTERRUPTED,
            phase=Phase.MEASURE,
            message="the tuner was killed during this launch",
        )
    return None


def known_configurations(launches: Iterable[Launch]) -> dict[str, Launch]:
    """Finished launches by configuration: what need not be launched again.

    A transient failure answers nothing, so its configuration is not among them.
    """
    return {
        configuration_key(launch.configuration): launch
        for launch in launches
        if not launch.is_open
        and launch.duplicate_of is None
        and (launch.failure is None or launch.failure.is_deterministic)
    }
