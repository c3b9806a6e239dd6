from itertools import pairwise
from pathlib import Path

import pytest

from tuner.tracking import ui_command, ui_environment


def test_the_ui_listens_on_loopback_and_finds_its_data_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ui_command(Path("mlruns"), port=5001)
    options = dict(pairwise(command))
    assert options["--host"] == "127.0.0.1"
    assert options["--port"] == "5001"
    assert options["--backend-store-uri"] == f"sqlite:///{tmp_path}/mlruns/mlflow.db"
    assert options["--default-artifact-root"] == f"file://{tmp_path}/mlruns/artifacts"


def test_the_ui_sends_nothing_home_unless_the_user_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MLFLOW_DISABLE_TELEMETRY", raising=False)
    assert ui_environment()["MLFLOW_DISABLE_TELEMETRY"] == "true"
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "false")
    assert ui_environment()["MLFLOW_DISABLE_TELEMETRY"] == "false"
