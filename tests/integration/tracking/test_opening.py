"""Opening a store: quietly, or with a clear error soon."""

import json
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.tracking.conftest import free_port
from tests.integration.tracking.samples import LAUNCH, open_local
from tuner.errors import MissingDependencyError, UnreachableError, UsageError
from tuner.tracking import MlflowTracker

SESSION = """
import json, sys, threading
from pathlib import Path
connections = []
sys.addaudithook(
    lambda event, args: connections.append(str(args[1])) if event == "socket.connect" else None
)
sys.path.insert(0, {root!r})
from tests.integration.tracking.samples import LAUNCH, measured, open_local
tracker = open_local(Path({mlruns!r}))
run_id = tracker.start_launch(LAUNCH)
tracker.log_point(run_id, LAUNCH, *measured(1), None)
tracker.close_open_runs()
heavy = [name for name in ("torch", "vllm", "optuna") if name in sys.modules]
print(json.dumps([connections, [t.name for t in threading.enumerate()], heavy]))
"""


def open_remote(uri: str, mlruns: Path) -> MlflowTracker:
    return MlflowTracker.open(uri=uri, mlruns_dir=mlruns, study="demo", description="")


def test_a_session_prints_nothing_connects_nowhere_and_leaves_no_thread(
    mlruns: Path, request: pytest.FixtureRequest
) -> None:
    (mlruns / "mlflow.db").unlink()
    script = SESSION.format(root=str(request.config.rootpath), mlruns=str(mlruns))
    command = [sys.executable, "-W", "default", "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=mlruns)
    assert done.stderr == ""
    assert json.loads(done.stdout) == [[], ["MainThread"], []]
    assert sorted(path.name for path in mlruns.iterdir()) == ["artifacts", "mlflow.db"]


def test_a_dead_server_is_unreachable_in_seconds(mlruns: Path) -> None:
    # MLflow's own settings would outlast this test's time-out.
    uri = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(UnreachableError, match=f"{uri} cannot be used.*Connection refused"):
        open_remote(uri, mlruns)


def test_a_server_that_never_answers_is_given_up(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        uri = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(UnreachableError, match="timed out"):
            open_remote(uri, mlruns)


@pytest.fixture
def busy_server() -> Iterator[tuple[str, list[bytes]]]:
    """Answers every request with 503 and a long Retry-After, and remembers it."""
    seen: list[bytes] = []
    answer = b"HTTP/1.1 503 Busy\r\nRetry-After: 300\r\nContent-Length: 0\r\n\r\n"
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                request = connection.recv(65536)
                if request == b"stop":
                    return
                seen.append(request)
                connection.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    address = listener.getsockname()
    yield f"http://127.0.0.1:{address[1]}", seen
    with socket.create_connection(address) as connection:
        connection.sendall(b"stop")
    thread.join()
    listener.close()


def test_a_busy_server_is_asked_once(mlruns: Path, busy_server: tuple[str, list[bytes]]) -> None:
    uri, seen = busy_server
    with pytest.raises(UnreachableError, match="503"):
        open_remote(uri, mlruns)
    assert len(seen) == 1


@pytest.mark.parametrize("content", [None, b"not a database at all" * 100])
def test_a_damaged_local_store_is_unreachable_at_once(mlruns: Path, content: bytes | None) -> None:
    # MLflow's own retries would outlast this test's time-out.
    file = mlruns / "mlflow.db"
    file.unlink()
    if content is None:
        file.mkdir()
    else:
        file.write_bytes(content)
    with pytest.raises(UnreachableError, match=r"mlflow\.db cannot be used"):
        open_local(mlruns)


def test_a_database_driver_that_is_missing_is_named(
    mlruns: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # None in sys.modules makes an import fail, whatever is installed.
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingDependencyError, match="psycopg") as caught:
        open_remote("postgresql+psycopg://me:secret@127.0.0.1/db", mlruns)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["postgresql://host:port-is-no-number/db", "mssql+no_such_driver://host/db"]
)
def test_a_url_that_is_no_database_is_a_usage_error(uri: str, mlruns: Path) -> None:
    with pytest.raises(UsageError) as caught:
        open_remote(uri, mlruns)
    assert repr(uri) in str(caught.value)


def test_a_named_database_keeps_artifacts_out_of_the_working_folder(
    mlruns: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (work := tmp_path / "work").mkdir()
    monkeypatch.chdir(work)
    tracker = open_remote(f"sqlite:///{tmp_path}/named.db", mlruns)
    run_id = tracker.start_launch(LAUNCH)
    assert (mlruns / "artifacts" / "demo" / run_id / "artifacts" / "command.sh").is_file()
    assert list(work.iterdir()) == []
