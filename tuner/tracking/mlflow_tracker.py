"""A study in MLflow: an experiment, a run per launch, a nested run per operating point.

MLflow is imported only when a tracker is opened, since that takes seconds.

A launch's run gets its ``kind`` with the last thing written when it starts, a point's run ends
with the last thing written to it: a run that was cut off is known by that, deleted, and written
anew.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

from objectives import Evaluation, OperatingPoint
from tuner.tracking import entries
from tuner.tracking.reach import artifact_store, check_database, quiet, reach
from tuner.tracking.store import apply_settings, artifact_location, is_database, tracking_uri
from tuner.trial import FailureKind, Launch

if TYPE_CHECKING:
    from mlflow.entities import Run
    from mlflow.tracking import MlflowClient

_log = logging.getLogger(__name__)
_MAX_TAG_CHARS = 5000
_PAGE = 1000


class MlflowTracker:
    """Writes launches and points of one study. Make it with ``open``.

    Every method raises ``UnreachableError`` when the server or its database does not answer; what
    was written before stays, and the call can be repeated after ``close_open_runs``. A run that
    the user has deleted in MLflow's UI is passed over.
    """

    def __init__(self, client: MlflowClient, uri: str, experiment_id: str, study: str) -> None:
        self._client = client
        self._uri = uri
        self._experiment_id = experiment_id
        self._study = study
        self._open_launches: set[str] = set()
        self._front: set[str] | None = None

    @classmethod
    def open(cls, *, uri: str | None, mlruns_dir: Path, study: str, description: str) -> Self:
        """Connect, and make the study's experiment if it is new.

        Args:
            uri: Tracking server, or a database's URL; ``None`` for SQLite under ``mlruns_dir``.
            mlruns_dir: Must exist.
            study: Name of the study and of its experiment.
            description: Markdown, shown above the experiment's runs.

        Raises:
            UsageError: ``uri`` is neither a server nor a database that can be used.
            UnreachableError: The server or database does not answer.
        """
        where = tracking_uri(uri, mlruns_dir)
        apply_settings()
        with quiet():
            from mlflow.tracking import MlflowClient

            with reach(where):
                if is_database(where):
                    check_database(where)
                client = MlflowClient(tracking_uri=where)
                location = artifact_location(uri, mlruns_dir, study)
                experiment_id = _experiment(client, study, location)
                client.set_experiment_tag(experiment_id, entries.NOTE, description)
                client.set_experiment_tag(experiment_id, entries.STUDY, study)
        return cls(client, where, experiment_id, study)

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the study's experiment."""
        return self._experiment_id

    def start_launch(self, launch: Launch) -> str:
        """Open the run of a launch.

        Returns:
            The run id.
        """
        values = dict(launch.configuration)
        with reach(self._uri):
            run_id = self._create_run(
                entries.launch_name(launch), entries.identity_tags(self._study, launch)
            )
            with artifact_store():
                if launch.command:
                    script = f"#!/bin/sh\n{launch.shell_line()}\n"
                    self._client.log_text(run_id, script, "command.sh")
                text = json.dumps(values, indent=2, sort_keys=True)
                self._client.log_text(run_id, f"{text}\n", "configuration.json")
            self._log(run_id, params=values, tags=entries.launch_tags(launch))
        self._open_launches.add(run_id)
        return run_id

    def log_point(
        self,
        run_id: str,
        launch: Launch,
        point: OperatingPoint,
        evaluation: Evaluation,
        records_file: Path | None,
    ) -> str:
        """Write a finished operating point as a nested run, and into the launch's series.

        Args:
            run_id: The launch's run.
            launch: The launch.
            point: What was measured.
            evaluation: How it stands against the SLOs.
            records_file: Attached to the run; ``None``, or a missing file, where there is none.

        Returns:
            The nested run's id.
        """
        identity = {**entries.identity_tags(self._study, launch), entries.PARENT: run_id}
        with reach(self._uri):
            nested_id = self._create_run(entries.point_name(launch, point), identity)
            if records_file is not None:
                self._attach(nested_id, records_file)
            self._log(
                nested_id,
                params={**launch.configuration, point.load.kind.value: point.load.number},
                metrics=entries.finite(entries.point_metrics(point, evaluation)),
                tags=entries.point_tags(launch, point, evaluation),
            )
            with self._unless_gone(run_id):
                series = entries.finite(entries.series(point))
                self._log(run_id, metrics=series, step=point.load.step)
            self._client.set_terminated(nested_id, "FINISHED")
        return nested_id

    def end_launch(self, run_id: str, launch: Launch, artifacts: Sequence[Path]) -> None:
        """Close the run of a launch.

        Args:
            run_id: The launch's run.
            launch: As it ended.
            artifacts: Files to attach; missing ones are passed over.
        """
        failure = launch.failure
        tags = {} if failure is None else entries.failure_tags(failure)
        metrics = {"start_s": launch.start_s, "duration_s": launch.duration_s}
        with reach(self._uri), self._unless_gone(run_id):
            for file in artifacts:
                self._attach(run_id, file)
            self._log(run_id, metrics=entries.finite(metrics), tags=tags)
            self._client.set_terminated(run_id, _status(launch))
        self._open_launches.discard(run_id)

    def close_open_runs(self) -> int:
        """Clear up what a killed tuner or a lost connection left open in this study.

        Launches end as KILLED, except those that this tracker has in hand; half-written runs are
        deleted, since whoever wrote them does not know them and writes them anew.

        Returns:
            How many runs there were.
        """
        with reach(self._uri):
            left = [
                run
                for run in self._search("attributes.status = 'RUNNING'")
                if run.data.tags.get(entries.STUDY) == self._study
                and entries.LAUNCH in run.data.tags
                and run.info.run_id not in self._open_launches
            ]
            for run in left:
                self._client.set_terminated(run.info.run_id, "KILLED")
                if run.data.tags.get(entries.KIND) != entries.KIND_LAUNCH:
                    self._client.delete_run(run.info.run_id)
        return len(left)

    def mark_front(self, run_ids: Sequence[str]) -> None:
        """Tag the runs of the Pareto set, and untag those that have left it.

        Args:
            run_ids: Runs of the operating points on the front now.
        """
        now = set(run_ids)
        with reach(self._uri):
            if self._front is None:
                marked = self._search(f"tags.{entries.PARETO} = 'true'")
                self._front = {run.info.run_id for run in marked}
            for run_id in sorted(now ^ self._front):
                with self._unless_gone(run_id):
                    value = "true" if run_id in now else "false"
                    self._client.set_tag(run_id, entries.PARETO, value, synchronous=True)
        self._front = now

    def _create_run(self, name: str, tags: Mapping[str, str]) -> str:
        run = self._client.create_run(self._experiment_id, run_name=name, tags=dict(tags))
        run_id: str = run.info.run_id
        return run_id

    def _attach(self, run_id: str, file: Path) -> None:
        if file.exists():
            with artifact_store():
                self._client.log_artifact(run_id, str(file))

    def _log(
        self,
        run_id: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float] | None = None,
        tags: Mapping[str, str] | None = None,
        step: int = 0,
    ) -> None:
        """Everything in one batch, written when this returns."""
        from mlflow.entities import Metric, Param, RunTag

        now_ms = time.time_ns() // 1_000_000
        self._client.log_batch(
            run_id,
            metrics=[Metric(name, value, now_ms, step) for name, value in (metrics or {}).items()],
            params=[Param(name, str(value)) for name, value in (params or {}).items()],
            tags=[RunTag(name, value[:_MAX_TAG_CHARS]) for name, value in (tags or {}).items()],
            synchronous=True,
        )

    def _search(self, filter_string: str) -> list[Run]:
        found: list[Run] = []
        token = None
        while True:
            page = self._client.search_runs(
                [self._experiment_id], filter_string, max_results=_PAGE, page_token=token
            )
            found += page
            token = page.token
            if not token:
                return found

    @contextmanager
    def _unless_gone(self, run_id: str) -> Iterator[None]:
        """Pass over what cannot be written because the run was deleted."""
        from mlflow.exceptions import MlflowException

        try:
            yield
        except MlflowException:
            if not self._is_gone(run_id):
                raise
            _log.info("MLflow run %s was deleted; it is passed over.", run_id)

    def _is_gone(self, run_id: str) -> bool:
        from mlflow.exceptions import MlflowException

        try:
            stage: str = self._client.get_run(run_id).info.lifecycle_stage
        except MlflowException as error:
            if error.error_code == "RESOURCE_DOES_NOT_EXIST":
                return True
            raise
        return stage == "deleted"


def _experiment(client: MlflowClient, study: str, location: str | None) -> str:
    """The id of the study's experiment, made or taken out of the bin if need be."""
    experiment = client.get_experiment_by_name(study)
    if experiment is None:
        made: str = client.create_experiment(study, artifact_location=location)
        return made
    found: str = experiment.experiment_id
    if experiment.lifecycle_stage == "deleted":
        client.restore_experiment(found)
    return found


def _status(launch: Launch) -> str:
    if launch.failure is None:
        return "FINISHED"
    return "KILLED" if launch.failure.kind is FailureKind.INTERRUPTED else "FAILED"
