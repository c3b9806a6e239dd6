import os
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.tracking import store


def test_the_default_store_is_an_absolute_database_under_mlruns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert store.tracking_uri(None, Path("mlruns")) == f"sqlite:///{tmp_path}/mlruns/mlflow.db"


@pytest.mark.parametrize(
    "uri", ["http://host:5000", "HTTPS://host/mlflow", "sqlite:////a/b.db", "mysql+pymysql://h/d"]
)
def test_servers_and_databases_are_used_as_named(uri: str, tmp_path: Path) -> None:
    assert store.tracking_uri(uri, tmp_path) == uri


@pytest.mark.parametrize(
    "uri", ["", "mlruns", "file:///mlruns", "localhost:5000", "sqlite:x", "ftp://host"]
)
def test_any_other_store_is_a_usage_error_that_shows_it(uri: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        store.tracking_uri(uri, tmp_path)
    assert repr(uri) in str(caught.value)


@pytest.mark.parametrize("uri", [None, "sqlite:////elsewhere/mlflow.db"])
def test_artifacts_of_a_database_stay_under_mlruns(uri: str | None, tmp_path: Path) -> None:
    expected = f"file://{tmp_path}/artifacts/demo"
    assert store.artifact_location(uri, tmp_path, "demo") == expected


def test_a_server_says_where_artifacts_go(tmp_path: Path) -> None:
    assert store.artifact_location("http://host:5000", tmp_path, "demo") is None


@pytest.mark.parametrize(
    ("uri", "shown"),
    [
        ("postgresql://me:secret@host:5432/db", "postgresql://me:***@host:5432/db"),
        ("https://me:p@ss@host/x", "https://me:***@host/x"),
        ("https://me@host", "https://me@host"),
        ("odd_scheme://me:secret@host", "odd_scheme://me:***@host"),
        ("http://host:5000/a@b", "http://host:5000/a@b"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
    ],
)
def test_a_password_is_never_shown(uri: str, shown: str) -> None:
    assert store.without_password(uri) == shown


def test_a_setting_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in store.SETTINGS:
        # The first remembers what to restore, the second makes it absent for this test.
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "77")
    store.apply_settings()
    assert os.environ["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "77"
    assert os.environ["MLFLOW_DISABLE_TELEMETRY"] == "true"
