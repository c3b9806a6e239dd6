import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tuner.tracking import MlflowTracker, ui_command, ui_environment


@pytest.fixture(autouse=True)
def restored_environment() -> Iterator[None]:
    before = dict(os.environ)
    yield
    for name in os.environ.keys() - before.keys():
        del os.environ[name]


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with its tables and no study of the tests: making the tables takes seconds."""
    folder = tmp_path_factory.mktemp("empty")
    MlflowTracker.open(uri=None, mlruns_dir=folder, study="none", description="")
    return folder / "mlflow.db"


@pytest.fixture
def mlruns(tmp_path: Path, empty_store: Path) -> Path:
    folder = tmp_path / "mlruns"
    folder.mkdir()
    shutil.copy(empty_store, folder)
    return folder


@dataclass(frozen=True, kw_only=True)
class Server:
    """A real MLflow server on a store of its own, as ``tune ui`` starts it."""

    uri: str
    mlruns: Path
    folder: Path
    group: int


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def members(session: int) -> list[int]:
    """Living processes of a session, zombies aside."""
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(status.parent.name))
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    mlruns = folder / "mlruns"
    mlruns.mkdir()
    uri = f"http://127.0.0.1:{(port := free_port())}"
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            ui_command(mlruns, port=port),
            env=ui_environment(),
            cwd=folder,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        for _ in range(400):
            try:
                urllib.request.urlopen(f"{uri}/health", timeout=5).close()  # noqa: S310 - ours
                break
            except (urllib.error.URLError, ConnectionError):
                assert process.poll() is None, (folder / "server.log").read_text()
                time.sleep(0.1)
        yield Server(uri=uri, mlruns=mlruns, folder=folder, group=process.pid)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            if members(process.pid):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(5)
