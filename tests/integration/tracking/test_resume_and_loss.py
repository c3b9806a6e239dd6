"""What a killed tuner, a hasty user or a lost store leaves, and what the next call makes of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from mlflow.entities import ViewType
from mlflow.exceptions import MlflowException
from mlflow.tracking import MlflowClient

from tests.integration.tracking.samples import LAUNCH, measured, open_local
from tuner.errors import UnreachableError
from tuner.tracking import MlflowTracker


@pytest.fixture
def tracker(mlruns: Path) -> MlflowTracker:
    return open_local(mlruns)


@pytest.fixture
def oracle(mlruns: Path, tracker: MlflowTracker) -> MlflowClient:
    return MlflowClient(tracking_uri=f"sqlite:///{mlruns}/mlflow.db")


def names(oracle: MlflowClient, tracker: MlflowTracker) -> list[tuple[str, str]]:
    runs = oracle.search_runs([tracker.experiment_id])
    return sorted((run.info.run_name, run.info.status) for run in runs)


@pytest.fixture
def break_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a method of MLflow's client fail as a lost store does, until ``mend``."""

    def install(name: str) -> None:
        def lost(*args: object, **kwargs: object) -> None:
            raise ConnectionResetError(104, "Connection reset by peer")

        monkeypatch.setattr(MlflowClient, name, lost)

    return install


def test_launches_of_a_killed_tuner_are_killed_and_their_points_stay(
    tracker: MlflowTracker, oracle: MlflowClient, mlruns: Path
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    tracker.log_point(run_id, LAUNCH, *measured(1), None)
    resumed = open_local(mlruns)
    assert resumed.close_open_runs() == 1
    assert oracle.get_run(run_id).info.status == "KILLED"
    assert ("launch-0003 batch-001", "FINISHED") in names(oracle, tracker)
    assert resumed.close_open_runs() == 0


def test_a_launch_in_hand_is_not_closed(tracker: MlflowTracker, oracle: MlflowClient) -> None:
    run_id = tracker.start_launch(LAUNCH)
    assert tracker.close_open_runs() == 0
    assert oracle.get_run(run_id).info.status == "RUNNING"


def test_runs_of_others_in_the_experiment_are_left_alone(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    theirs = oracle.create_run(tracker.experiment_id).info.run_id
    assert tracker.close_open_runs() == 0
    assert oracle.get_run(theirs).info.status == "RUNNING"


@pytest.mark.parametrize("lost", ["log_text", "log_batch"])
def test_a_launch_that_was_half_written_is_written_once(
    tracker: MlflowTracker,
    oracle: MlflowClient,
    break_after: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    lost: str,
) -> None:
    break_after(lost)
    with pytest.raises(UnreachableError, match="Connection reset by peer"):
        tracker.start_launch(LAUNCH)
    monkeypatch.undo()
    assert tracker.close_open_runs() == 1
    run_id = tracker.start_launch(LAUNCH)
    runs = oracle.search_runs([tracker.experiment_id])
    assert [run.info.run_id for run in runs] == [run_id]


@pytest.mark.parametrize("lost", ["log_artifact", "log_batch", "set_terminated"])
def test_a_point_that_was_half_written_is_written_once(
    tracker: MlflowTracker,
    oracle: MlflowClient,
    break_after: Callable[[str], None],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    lost: str,
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    records = tmp_path / "requests.csv.gz"
    records.touch()
    break_after(lost)
    with pytest.raises(UnreachableError):
        tracker.log_point(run_id, LAUNCH, *measured(8), records)
    monkeypatch.undo()
    assert tracker.close_open_runs() == 1
    tracker.log_point(run_id, LAUNCH, *measured(8), records)
    assert names(oracle, tracker) == [
        ("launch-0003 batch-008", "FINISHED"),
        ("launch-0003 fp8 seqs128 enable_prefix_caching=True", "RUNNING"),
    ]


def test_an_artifact_store_may_fail_in_its_own_way(
    tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class CloudError(Exception):
        pass

    def refuse(*args: object) -> None:
        raise CloudError("AccessDenied: no such bucket")

    (tmp_path / "server.log").touch()
    run_id = tracker.start_launch(LAUNCH)
    monkeypatch.setattr(MlflowClient, "log_artifact", refuse)
    with pytest.raises(UnreachableError, match="AccessDenied"):
        tracker.end_launch(run_id, replace(LAUNCH, is_open=False), [tmp_path / "server.log"])


def test_a_launch_killed_and_resumed_ends_as_it_ended(
    tracker: MlflowTracker, oracle: MlflowClient, mlruns: Path
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    resumed = open_local(mlruns)
    resumed.close_open_runs()
    resumed.log_point(run_id, LAUNCH, *measured(1), None)
    resumed.end_launch(run_id, replace(LAUNCH, is_open=False), [])
    assert oracle.get_run(run_id).info.status == "FINISHED"


def test_more_open_runs_than_a_page_are_all_closed(
    tracker: MlflowTracker, mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.tracking.mlflow_tracker._PAGE", 2)
    for number in range(5):
        tracker.start_launch(replace(LAUNCH, number=number))
    assert open_local(mlruns).close_open_runs() == 5


def test_a_run_that_the_user_deleted_is_passed_over(
    tracker: MlflowTracker, oracle: MlflowClient
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    kept, deleted = (tracker.log_point(run_id, LAUNCH, *measured(size), None) for size in (1, 2))
    oracle.delete_run(deleted)
    never_there = "0" * 32
    tracker.mark_front([deleted, never_there, kept])
    assert oracle.get_run(kept).data.tags["pareto"] == "true"
    oracle.delete_run(run_id)
    tracker.log_point(run_id, LAUNCH, *measured(4), None)
    tracker.end_launch(run_id, replace(LAUNCH, is_open=False), [])


def test_a_refusal_is_not_taken_for_a_deleted_run(
    tracker: MlflowTracker, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = tracker.start_launch(LAUNCH)

    def refuse(*args: object) -> None:
        raise MlflowException("no such status")

    monkeypatch.setattr(MlflowClient, "set_terminated", refuse)
    with pytest.raises(UnreachableError, match="no such status"):
        tracker.end_launch(run_id, replace(LAUNCH, is_open=False), [])


def test_an_experiment_that_the_user_deleted_comes_back(
    tracker: MlflowTracker, oracle: MlflowClient, mlruns: Path
) -> None:
    run_id = tracker.start_launch(LAUNCH)
    oracle.delete_experiment(tracker.experiment_id)
    again = open_local(mlruns)
    assert again.experiment_id == tracker.experiment_id
    runs = oracle.search_runs([again.experiment_id], run_view_type=ViewType.ACTIVE_ONLY)
    assert [run.info.run_id for run in runs] == [run_id]


def test_a_users_choice_of_asynchronous_logging_loses_nothing(
    tracker: MlflowTracker, oracle: MlflowClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", "true")
    run_id = tracker.start_launch(LAUNCH)
    assert oracle.get_run(run_id).data.params["precision"] == "fp8"
    nested_id = tracker.log_point(run_id, LAUNCH, *measured(1), None)
    tracker.mark_front([nested_id])
    assert oracle.get_run(nested_id).data.tags["pareto"] == "true"
