"""The UI's server, started as ``tune ui`` does, shows what was logged, and serves as a remote."""

import json
import os
import signal
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from mlflow.tracking import MlflowClient

from tests.integration.tracking.conftest import Server, members
from tests.integration.tracking.samples import LAUNCH, measured, open_local
from tuner.errors import UnreachableError
from tuner.tracking import MlflowTracker

pytestmark = pytest.mark.slow


def get(server: Server, page: str, **query: str) -> bytes:
    address = f"{server.uri}{page}?{urllib.parse.urlencode(query)}"
    with urllib.request.urlopen(address, timeout=10) as answer:  # noqa: S310 - our own server
        content: bytes = answer.read()
        return content


def get_json(server: Server, page: str, **query: str) -> Any:  # noqa: ANN401 - as JSON is
    return json.loads(get(server, f"/api/2.0/mlflow{page}", **query))


def test_runs_of_the_local_store_and_their_artifacts_are_shown(server: Server) -> None:
    tracker = open_local(server.mlruns)
    run_id = tracker.start_launch(LAUNCH)
    shown = get_json(server, "/experiments/get-by-name", experiment_name="demo")
    assert shown["experiment"]["experiment_id"] == tracker.experiment_id
    listed = get_json(server, "/artifacts/list", run_id=run_id)["files"]
    assert [file["path"] for file in listed] == ["command.sh", "configuration.json"]
    content = get(server, "/get-artifact", run_uuid=run_id, path="configuration.json")
    assert json.loads(content) == dict(LAUNCH.configuration)


def test_a_page_of_another_site_is_refused(server: Server) -> None:
    request = urllib.request.Request(  # noqa: S310 - our own server
        f"{server.uri}/api/2.0/mlflow/experiments/get-by-name?experiment_name=demo",
        headers={"Host": "evil.example"},
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request, timeout=10)  # noqa: S310 - our own server
    assert caught.value.code == 403
    caught.value.close()


def test_the_server_is_small_and_leaves_nothing_in_its_folder(server: Server) -> None:
    # The command and its one worker; with the job runner there would be ten.
    assert len(members(server.group)) == 2
    assert sorted(path.name for path in server.folder.iterdir()) == ["mlruns", "server.log"]


def test_a_study_is_logged_to_a_server(server: Server, mlruns: Path) -> None:
    tracker = MlflowTracker.open(
        uri=server.uri, mlruns_dir=mlruns, study="remote", description="far away"
    )
    run_id = tracker.start_launch(LAUNCH)
    nested_id = tracker.log_point(run_id, LAUNCH, *measured(4), None)
    tracker.mark_front([nested_id])
    oracle = MlflowClient(tracking_uri=f"sqlite:///{server.mlruns}/mlflow.db")
    nested = oracle.get_run(nested_id)
    assert nested.data.metrics["output_tok_per_s"] == 400.0
    assert nested.data.tags["pareto"] == "true"
    assert [item.path for item in oracle.list_artifacts(run_id)] == [
        "command.sh",
        "configuration.json",
    ]
    oracle.delete_run(nested_id)
    tracker.mark_front([])
    assert not (mlruns / "artifacts").exists()


def test_a_server_that_stops_answering_is_unreachable_and_can_be_resumed(
    server: Server, mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tracker = MlflowTracker.open(uri=server.uri, mlruns_dir=mlruns, study="outage", description="")
    run_id = tracker.start_launch(LAUNCH)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    os.killpg(server.group, signal.SIGSTOP)
    try:
        with pytest.raises(UnreachableError, match="timed out"):
            tracker.log_point(run_id, LAUNCH, *measured(4), None)
    finally:
        os.killpg(server.group, signal.SIGCONT)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
    tracker.close_open_runs()
    nested_id = tracker.log_point(run_id, LAUNCH, *measured(4), None)
    oracle = MlflowClient(tracking_uri=f"sqlite:///{server.mlruns}/mlflow.db")
    assert oracle.get_run(nested_id).info.status == "FINISHED"
    assert oracle.get_run(run_id).info.status == "RUNNING"
