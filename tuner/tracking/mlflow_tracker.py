"""A study in MLflow: an experiment, a run per launch, a nested run per operating point.

The only module that imports MLflow, and only when a tracker is opened, since that takes seconds.
"""

from __future__ import annotations

import json
import logging
import math
import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from objectives import Evaluation, OperatingPoint
from tuner.errors import UnreachableError
from tuner.tracking.store import apply_settings, artifact_location, tracking_uri
from tuner.trial import FailureKind, Launch

if TYPE_CHECKING:
    from mlflow.tracking import MlflowClient

_PARENT = "mlflow.parentRunId"
_NOTE = "mlflow.note.content"
_STUDY = "study"
_LAUNCH = "launch"
_PARETO = "pareto"
_MAX_TAG_CHARS = 4000
# Metrics of the points that the launch's run repeats as a series over the batch size.
_SERIES = (
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "error_frac",
)


class MlflowTracker:
    """Writes launches and points of one study. Make it with ``open``.

    Every method raises ``UnreachableError`` when the server or its database does not answer;
    what was written before stays.
    """

    def __init__(self, client: MlflowClient, experiment_id: str, study: str) -> None:
        self._client = client
        self._experiment_id = experiment_id
        self._study = study
        self._front: set[str] = set()

    @classmethod
    def open(cls, *, uri: str | None, mlruns_dir: Path, study: str, description: str) -> Self:
        """Connect, and make the study's experiment if it is new.

        Args:
            uri: Tracking server; ``None`` for SQLite under ``mlruns_dir``.
            mlruns_dir: Must exist.
            study: Name of the study and of its experiment.
            description: Markdown, shown above the experiment's runs.

        Raises:
            UnreachableError: The server or database does not answer.
        """
        apply_settings()
        logging.getLogger("mlflow").setLevel(logging.WARNING)
        logging.getLogger("alembic").setLevel(logging.WARNING)
        from mlflow.tracking import MlflowClient

        with _reach():
            client = MlflowClient(tracking_uri=tracking_uri(uri, mlruns_dir))
            # MLflow sets its own level when its store is first used.
            logging.getLogger("mlflow").setLevel(logging.WARNING)
            experiment = client.get_experiment_by_name(study)
            if experiment is None:
                location = artifact_location(uri, mlruns_dir, study)
                experiment_id = client.create_experiment(study, artifact_location=location)
            elif experiment.lifecycle_stage == "deleted":
                client.restore_experiment(experiment.experiment_id)
                experiment_id = experiment.experiment_id
            else:
                experiment_id = experiment.experiment_id
            client.set_experiment_tag(experiment_id, _NOTE, description)
            client.set_experiment_tag(experiment_id, _STUDY, study)
        return cls(client, experiment_id, study)

    @property
    def experiment_id(self) -> str:
        """MLflow's id of the study's experiment."""
        return self._experiment_id

    def start_launch(self, launch: Launch) -> str:
        """Open the run of a launch.

        Returns:
            The run id.
        """
        tags = {
            _STUDY: self._study,
            _LAUNCH: str(launch.number),
            "kind": "launch",
            "origin": launch.origin,
            **_configuration_tags(launch.configuration),
        }
        with _reach():
            run = self._client.create_run(
                self._experiment_id, run_name=_launch_name(launch), tags=tags
            )
            run_id: str = run.info.run_id
            self._log(run_id, params=launch.configuration)
            self._client.log_text(run_id, f"{shlex.join(launch.command)}\n", "command.sh")
            self._client.log_text(
                run_id,
                json.dumps(dict(launch.configuration), indent=2, sort_keys=True) + "\n",
                "configuration.json",
            )
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
            records_file: Attached to the run; ``None`` where there is none.

        Returns:
            The nested run's id.
        """
        infinite = sorted(n for n, v in point.metrics.items() if v is not None and math.isinf(v))
        tags = {
            _STUDY: self._study,
            _LAUNCH: str(launch.number),
            "kind": "operating_point",
            _PARENT: run_id,
            "feasible": str(evaluation.is_within).lower(),
            "verdict": evaluation.verdict.value,
            "valid": str(point.is_valid).lower(),
            _PARETO: "false",
            **_configuration_tags(launch.configuration),
        }
        if point.invalid_reasons:
            tags["invalid_reasons"] = "; ".join(point.invalid_reasons)
        if infinite:
            tags["infinite_metrics"] = ", ".join(infinite)
        slacks = {f"slack_{name}": slack for name, slack in evaluation.slacks.items()}
        with _reach():
            run = self._client.create_run(
                self._experiment_id,
                run_name=f"launch-{launch.number:04d} batch-{point.batch_size:03d}",
                tags=tags,
            )
            nested_id: str = run.info.run_id
            self._log(
                nested_id,
                params={**launch.configuration, "batch_size": point.batch_size},
                metrics={**point.metrics, **slacks},
            )
            if records_file is not None and records_file.exists():
                self._client.log_artifact(nested_id, str(records_file))
            self._client.set_terminated(nested_id, "FINISHED")
            series = {name: point.metrics.get(name) for name in _SERIES}
            self._log(run_id, metrics=series, step=point.batch_size)
        return nested_id

    def end_launch(self, run_id: str, launch: Launch, artifacts: Sequence[Path]) -> None:
        """Close the run of a launch.

        Args:
            run_id: The launch's run.
            launch: As it ended.
            artifacts: Files to attach; missing ones are passed over.
        """
        failure = launch.failure
        status = "FINISHED" if failure is None else "FAILED"
        tags: dict[str, str] = {}
        if failure is not None:
            status = "KILLED" if failure.kind is FailureKind.INTERRUPTED else "FAILED"
            tags = {
                "failure_kind": failure.kind.value,
                "failure_phase": failure.phase.value,
                "failure_message": failure.message,
                "failure_evidence": failure.evidence or "",
                "failure_parameter": failure.parameter or "",
            }
        metrics = {"start_s": launch.start_s, "duration_s": launch.duration_s}
        with _reach():
            self._log(run_id, metrics=metrics, tags={k: v for k, v in tags.items() if v})
            for file in artifacts:
                if file.exists():
                    self._client.log_artifact(run_id, str(file))
            self._client.set_terminated(run_id, status)

    def close_open_runs(self) -> int:
        """End the study's runs that a killed tuner left open.

        Returns:
            How many there were.
        """
        with _reach():
            runs = self._client.search_runs(
                [self._experiment_id],
                filter_string=f"attributes.status = 'RUNNING' and tags.{_STUDY} = '{self._study}'",
                max_results=1000,
            )
            for run in runs:
                self._client.set_terminated(run.info.run_id, "KILLED")
        return len(runs)

    def mark_front(self, run_ids: Sequence[str]) -> None:
        """Tag the runs of the Pareto set, and untag those that have left it.

        Args:
            run_ids: Runs of the operating points on the front now.
        """
        now = set(run_ids)
        with _reach():
            for run_id in now - self._front:
                self._client.set_tag(run_id, _PARETO, "true")
            for run_id in self._front - now:
                self._client.set_tag(run_id, _PARETO, "false")
        self._front = now

    def _log(
        self,
        run_id: str,
        *,
        params: Mapping[str, object] | None = None,
        metrics: Mapping[str, float | None] | None = None,
        tags: Mapping[str, str] | None = None,
        step: int = 0,
    ) -> None:
        """One batch; a metric without a finite value is left out, never zero."""
        from mlflow.entities import Metric, Param, RunTag

        now_ms = time.time_ns() // 1_000_000
        self._client.log_batch(
            run_id,
            metrics=[
                Metric(name, float(value), now_ms, step)
                for name, value in (metrics or {}).items()
                if value is not None and math.isfinite(value)
            ],
            params=[Param(name, str(value)) for name, value in (params or {}).items()],
            tags=[RunTag(name, value[:_MAX_TAG_CHARS]) for name, value in (tags or {}).items()],
        )


def _launch_name(launch: Launch) -> str:
    short = " ".join(str(value) for value in launch.configuration.values())
    return f"launch-{launch.number:04d} {short}"


def _configuration_tags(configuration: Mapping[str, Any]) -> dict[str, str]:
    names = {"precision": "precision", "tensor_parallel_size": "tp", "speculation": "speculation"}
    return {tag: str(configuration[name]) for name, tag in names.items() if name in configuration}


@contextmanager
def _reach() -> Iterator[None]:
    """Turn MLflow's and its database's errors into ours."""
    from mlflow.exceptions import MlflowException
    from requests.exceptions import RequestException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, RequestException, SQLAlchemyError, OSError) as error:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        raise UnreachableError(
            f"MLflow cannot be written to: {first_line[:300]}. Check the tracking server, or "
            "leave --tracking-uri out to use the local store."
        ) from error
