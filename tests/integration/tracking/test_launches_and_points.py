"""What a study's launches look like to MLflow's own client."""

import math
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import Run
from mlflow.tracking import MlflowClient

from objectives import RequestRecord
from tests.integration.tracking.samples import LAUNCH, measured, open_local
from tuner.tracking import MlflowTracker, read_records, write_records
from tuner.trial import Failed, FailureKind, Phase

FAILED = Failed(
    kind=FailureKind.ENGINE_DIED,
    phase=Phase.MEASURE,
    message="the engine died",
    evidence="EngineDeadError: see above",
)
INTERRUPTED = Failed(kind=FailureKind.INTERRUPTED, phase=Phase.MEASURE, message="stopped")


@pytest.fixture
def tracker(mlruns: Path) -> MlflowTracker:
    return open_local(mlruns)


@pytest.fixture
def oracle(mlruns: Path, tracker: MlflowTracker) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{mlruns}/mlflow.db")


def download(oracle: MlflowClient, run_id: str, name: str, folder: Path) -> Path:
    return Path(oracle.download_artifacts(run_id, name, str(folder)))


def series(oracle: MlflowClient, run_id: str, name: str) -> list[tuple[int, float]]:
    return [(metric.step, metric.value) for metric in oracle.get_metric_history(run_id, name)]


def test_a_study_is_an_experiment_with_its_artifacts_under_mlruns(
    tracker: MlflowTracker, oracle: MlflowClient, mlruns: Path
) -> None:
    experiment = oracle.get_experiment_by_name("demo")
    assert experiment.experiment_id == tracker.experiment_id
    assert experiment.artifact_location == f"file://{mlruns}/artifacts/demo"
    assert experiment.tags["mlflow.note.content"] == "**demo**"
    assert experiment.tags["study"] == "demo"


def test_a_started_launch_is_a_running_run_that_can_be_compared(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run: Run = oracle.get_run(tracker.start_launch(LAUNCH))
    assert run.info.run_name == "launch-0003 fp8 seqs128 enable_prefix_caching=True"
    assert run.info.status == "RUNNING"
    assert run.data.params == {
        "max_num_seqs": "128",
        "precision": "fp8",
        "enable_prefix_caching": "True",
    }
    expected = {"study": "demo", "launch": "3", "kind": "launch", "precision": "fp8"}
    assert expected.items() <= run.data.tags.items()


def test_the_command_of_a_launch_can_be_run_as_it_is(
    tracker: MlflowTracker, oracle: MlflowClient, tmp_path: Path
) -> None:
    script = download(oracle, tracker.start_launch(LAUNCH), "command.sh", tmp_path)
    done = subprocess.run(["/bin/sh", str(script)], capture_output=True, text=True, check=True)
    # The launch's command is printf: it prints the words that it was given, one a line.
    assert done.stdout.splitlines() == ["serve", "a model", "--json={'a': 1}"]


def test_a_point_is_a_nested_run_with_params_metrics_and_tags(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    nested: Run = oracle.get_run(tracker.log_point(run_id, LAUNCH, *measured(16), None))
    assert nested.info.run_name == "launch-0003 batch-016"
    assert nested.info.status == "FINISHED"
    assert nested.data.params["batch_size"] == "16"
    assert nested.data.params["max_num_seqs"] == "128"
    assert nested.data.metrics == {
        "output_tok_per_s": 1600.0,
        "p99_tpot_ms": 26.0,
        "slack_p99_tpot_ms": -0.5,
    }
    expected = {
        "mlflow.parentRunId": run_id,
        "study": "demo",
        "launch": "3",
        "feasible": "true",
        "verdict": "feasible",
        "pareto": "false",
    }
    assert expected.items() <= nested.data.tags.items()


def test_a_launch_has_its_points_as_series_over_the_batch_size(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    for batch_size in (1, 4, 16):
        tracker.log_point(run_id, LAUNCH, *measured(batch_size), None)
    assert series(oracle, run_id, "output_tok_per_s") == [(1, 100.0), (4, 400.0), (16, 1600.0)]
    assert series(oracle, run_id, "p99_tpot_ms") == [(1, 11.0), (4, 14.0), (16, 26.0)]


def test_metrics_that_are_not_finite_are_told_in_a_tag_and_break_nothing(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    metrics = {
        "output_tok_per_s": 0.0,
        "p99_tpot_ms": math.inf,
        "p50_ttft_ms": math.nan,
        "p99_ttft_ms": None,
    }
    nested: Run = oracle.get_run(tracker.log_point(run_id, LAUNCH, *measured(2, metrics), None))
    assert nested.data.metrics == {"output_tok_per_s": 0.0, "slack_p99_tpot_ms": -0.5}
    assert nested.data.tags["non_finite_metrics"] == "p50_ttft_ms=nan, p99_tpot_ms=inf"
    assert series(oracle, run_id, "p99_tpot_ms") == []


def test_request_records_come_back_from_mlflow(
    tracker: MlflowTracker, oracle: MlflowClient, tmp_path: Path
) -> None:
    record = RequestRecord(
        index=0,
        due_s=0.0,
        sent_s=0.1,
        chunk_s=(0.5, 2 / 3),
        end_s=0.75,
        n_prompt_tok=4,
        n_output_tok=2,
        n_output_tok_asked=2,
    )
    file = tmp_path / "requests-batch-001.csv.gz"
    write_records(file, [record])
    run_id = tracker.start_launch(LAUNCH)
    nested_id = tracker.log_point(run_id, LAUNCH, *measured(1), file)
    (tmp_path / "down").mkdir()
    assert read_records(download(oracle, nested_id, file.name, tmp_path / "down")) == [record]


def test_a_measured_launch_is_finished_and_keeps_its_log(
    tracker: MlflowTracker, oracle: MlflowClient, tmp_path: Path
) -> None:
    (tmp_path / "server.log").write_text("INFO ready\n")
    run_id = tracker.start_launch(LAUNCH)
    closed = replace(LAUNCH, is_open=False, start_s=61.5, duration_s=90.0)
    tracker.end_launch(run_id, closed, [tmp_path / "server.log", tmp_path / "not-there.log"])
    run: Run = oracle.get_run(run_id)
    assert run.info.status == "FINISHED"
    assert run.data.metrics == {"start_s": 61.5, "duration_s": 90.0}
    assert not [tag for tag in run.data.tags if tag.startswith("failure")]
    assert sorted(item.path for item in oracle.list_artifacts(run_id)) == [
        "command.sh",
        "configuration.json",
        "server.log",
    ]


@pytest.mark.parametrize(
    ("failure", "status"), [(FAILED, "FAILED"), (INTERRUPTED, "KILLED")], ids=lambda x: str(x)[:9]
)
def test_a_failed_launch_says_why(
    tracker: MlflowTracker, oracle: MlflowClient, failure: Failed, status: str
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    tracker.end_launch(run_id, replace(LAUNCH, is_open=False, failure=failure), [])
    run: Run = oracle.get_run(run_id)
    assert run.info.status == status
    assert run.data.tags["failure_kind"] == failure.kind.value
    assert run.data.tags["failure_message"] == failure.message
    # A time that was never measured is absent.
    assert run.data.metrics == {}


def test_a_message_longer_than_mlflow_takes_is_cut(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    failure = replace(FAILED, message="x" * 20_000)
    tracker.end_launch(run_id, replace(LAUNCH, is_open=False, failure=failure), [])
    assert oracle.get_run(run_id).data.tags["failure_message"] == "x" * 5000


def test_the_front_is_tagged_and_what_leaves_it_is_not(
    tracker: MlflowTracker, oracle: MlflowClient, mlruns: Path
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    first, second, third = (
        tracker.log_point(run_id, LAUNCH, *measured(size), None) for size in (1, 2, 4)
    )

    def front() -> set[str]:
        found = oracle.search_runs([tracker.experiment_id], "tags.pareto = 'true'")
        return {run.info.run_id for run in found}

    tracker.mark_front([first, second])
    assert front() == {first, second}
    # A tracker of a later session knows what the earlier one has marked.
    resumed = open_local(mlruns)
    resumed.mark_front([second, third])
    assert front() == {second, third}
    resumed.mark_front([])
    assert front() == set()


def test_two_studies_share_a_store_and_no_run(tracker: MlflowTracker, mlruns: Path) -> None:
    run_id = tracker.start_launch(LAUNCH)
    other = MlflowTracker.open(uri=None, mlruns_dir=mlruns, study="it's 2", description="")
    assert other.experiment_id != tracker.experiment_id
    other.start_launch(LAUNCH)
    other_again = MlflowTracker.open(uri=None, mlruns_dir=mlruns, study="it's 2", description="")
    assert other_again.close_open_runs() == 1
    oracle = MlflowClient(tracking_uri=f"sqlite:///{mlruns}/mlflow.db")
    assert oracle.get_run(run_id).info.status == "RUNNING"


def test_a_folder_with_an_odd_name_holds_a_store(tmp_path: Path) -> None:
    folder = tmp_path / "it's 100% ünd #1 mlruns"
    folder.mkdir()
    tracker = open_local(folder)
    tracker.log_point(tracker.start_launch(LAUNCH), LAUNCH, *measured(1), None)
    assert (folder / "mlflow.db").stat().st_size > 0
    assert len(list((folder / "artifacts" / "demo").glob("*/artifacts/command.sh"))) == 1
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]
