"""Recording a launch as it goes: in the ledger first, then as files, in MLflow and on the screen.

Owns that order, and that MLflow can be away: a launch that could not be logged is logged later,
from the ledger and the files, by the very same steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from optuna.trial import Trial

from objectives import Evaluation, Load, OperatingPoint, RequestRecord, evaluate, pareto_front
from tuner.config import Study, public_env
from tuner.errors import UnreachableError
from tuner.study.ledger import Ledger, LoggedRuns
from tuner.tracking import MlflowTracker, write_records
from tuner.trial import Launch

_log = logging.getLogger(__name__)


class Progress(Protocol):
    """Shows people what happens."""

    def stage(self, launch: Launch, stage: str, elapsed_s: float) -> None:
        """A launch has come this far."""

    def point(self, launch: Launch, point: OperatingPoint, evaluation: Evaluation) -> None:
        """An operating point is finished."""

    def closed(self, launch: Launch) -> None:
        """A launch is over."""


class Recording:
    """Where the launches of a study are recorded.

    Args:
        study: The study.
        ledger: Its ledger.
        tracker: MLflow.
        logs_dir: Gets a folder per launch.
        progress: The screen.
    """

    def __init__(
        self,
        study: Study,
        ledger: Ledger,
        tracker: MlflowTracker,
        logs_dir: Path,
        progress: Progress,
    ) -> None:
        self.study = study
        self.ledger = ledger
        self.progress = progress
        self._tracker = tracker
        self._logs_dir = logs_dir
        self._runs = ledger.logged_runs()
        self._is_behind = False
        self._front: dict[str, OperatingPoint] = {}

    def folder(self, number: int) -> Path:
        """The folder of a launch; made if missing."""
        folder = self._logs_dir / f"launch-{number:04d}"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def records_file(self, number: int, load: Load) -> Path:
        """The file of a point's request records."""
        return self.folder(number) / f"requests-{load.slug}.csv.gz"

    def catch_up(self) -> None:
        """Log everything that MLflow lacks, and mark the front there."""
        try:
            self._catch_up()
        except UnreachableError as error:
            self._fall_behind(error)

    def sync(self, launch: Launch) -> None:
        """Bring MLflow up to date with a launch, or note that it is behind."""
        try:
            if self._is_behind:
                self._catch_up()
                _log.warning("MLflow answers again; what was missing is logged.")
                self._is_behind = False
            self._sync(launch)
            if not launch.is_open:
                self._mark_front([launch])
        except UnreachableError as error:
            self._fall_behind(error)

    def _catch_up(self) -> None:
        self._tracker.close_open_runs()
        for launch in self.ledger.launches():
            if not launch.is_open and launch.was_started:
                self._sync(launch)
        self._mark_front(self.ledger.launches())

    def _fall_behind(self, error: UnreachableError) -> None:
        if not self._is_behind:
            _log.warning("%s The study goes on; what is missing is logged later.", error)
        self._is_behind = True

    def _sync(self, launch: Launch) -> None:
        runs = self._runs.get(launch.number, LoggedRuns())
        if runs.is_complete:
            return
        if runs.run_id is None:
            runs = self._save(launch, replace(runs, run_id=self._tracker.start_launch(launch)))
        run_id = runs.run_id or ""
        for point in launch.points[len(runs.point_run_ids) :]:
            evaluation = evaluate(point, self.study.slos, confidence=self.study.confidence)
            records = self.records_file(launch.number, point.load)
            nested = self._tracker.log_point(run_id, launch, point, evaluation, records)
            runs = self._save(launch, replace(runs, point_run_ids=(*runs.point_run_ids, nested)))
        if not launch.is_open:
            log_file = self.folder(launch.number) / "server.log"
            self._tracker.end_launch(run_id, launch, [log_file])
            self._save(launch, replace(runs, is_complete=True))

    def _save(self, launch: Launch, runs: LoggedRuns) -> LoggedRuns:
        self._runs[launch.number] = runs
        self.ledger.set_logged_runs(launch.number, runs)
        return runs

    def _mark_front(self, launches: Iterable[Launch]) -> None:
        """Tag the front of what is on it already and of these launches' points.

        A point that has been beaten never comes back, so the rest need not be compared again.
        """
        for launch in launches:
            runs = self._runs.get(launch.number, LoggedRuns())
            self._front |= dict(zip(runs.point_run_ids, launch.points, strict=False))
        rows = list(self._front.items())
        points = [point for _, point in rows]
        study = self.study
        front = pareto_front(points, study.objectives, study.slos, confidence=study.confidence)
        # In the order measured: of equal points the first one stays on the front.
        self._front = dict(rows[index] for index in sorted(front))
        self._tracker.mark_front(list(self._front))


class LaunchRecorder:
    """Records one launch; a ``tuner.trial_runner.TrialObserver``.

    Args:
        recording: Where to.
        trial: The open trial.
        launch: As proposed.
    """

    def __init__(self, recording: Recording, trial: Trial, launch: Launch) -> None:
        self._recording = recording
        self._trial = trial
        self.launch = launch

    @property
    def folder(self) -> Path:
        """The launch's folder."""
        return self._recording.folder(self.launch.number)

    def on_command(self, command: tuple[str, ...], env: Mapping[str, str]) -> None:
        """Remember the command before it is run."""
        self.launch = replace(
            self.launch, command=command, env=public_env(env), folder=str(Path.cwd())
        )
        self._recording.ledger.set_command(self._trial, self.launch)
        self._recording.sync(self.launch)

    def on_stage(self, stage: str, elapsed_s: float) -> None:
        """Show how far it has come."""
        self._recording.progress.stage(self.launch, stage, elapsed_s)

    def on_point(
        self, point: OperatingPoint, evaluation: Evaluation, records: Sequence[RequestRecord]
    ) -> None:
        """Keep a finished point, whatever happens next."""
        self._recording.ledger.add_point(self._trial, len(self.launch.points), point)
        file = self._recording.records_file(self.launch.number, point.load)
        write_records(file, records)
        self.launch = replace(self.launch, points=(*self.launch.points, point))
        self._recording.sync(self.launch)
        self._recording.progress.point(self.launch, point, evaluation)
