"""What a killed tuner leaves is ended by the next one, and nothing else is."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path

import psutil
import pytest

from tests.integration.serving.conftest import MakeSpec, get, listens, marked, port_of
from tuner.serving import ServerSpec, reap_orphans
from tuner.serving.ownership import OwnershipRecord, orphans
from tuner.serving.process import identify, spawn

TUNER = """
import json, sys, time
from pathlib import Path
from tuner.serving import ServerSpec, VllmServer

told = json.loads(sys.argv[1])
for name in ("log_file", "owned_dir"):
    told[name] = Path(told[name])
for name in ("command", "arguments"):
    told[name] = tuple(told[name])
with VllmServer(ServerSpec(**told)) as server:
    failed = server.start()
    print(failed or server.base_url, flush=True)
    time.sleep(300)
"""

StartTuner = Callable[[ServerSpec], tuple[subprocess.Popen[str], int]]


@pytest.fixture
def start_tuner() -> Iterator[StartTuner]:
    """Another process that runs a server; gives it and the server's port."""
    tuners: list[subprocess.Popen[str]] = []

    def start(spec: ServerSpec) -> tuple[subprocess.Popen[str], int]:
        told = json.dumps(asdict(spec), default=str)
        tuner = subprocess.Popen(
            [sys.executable, "-c", TUNER, told], stdout=subprocess.PIPE, text=True
        )
        tuners.append(tuner)
        assert tuner.stdout is not None
        line = tuner.stdout.readline().strip()
        assert line.startswith("http://127.0.0.1:"), line
        return tuner, port_of(line)

    yield start
    for tuner in tuners:
        tuner.kill()
        tuner.wait()
        assert tuner.stdout is not None
        tuner.stdout.close()


def test_only_the_server_of_the_killed_tuner_is_ended(
    make_spec: MakeSpec, start_tuner: StartTuner
) -> None:
    dead_spec, living_spec = make_spec(), make_spec()
    dead, dead_port = start_tuner(dead_spec)
    _, living_port = start_tuner(living_spec)
    assert reap_orphans(dead_spec.owned_dir) == []
    dead.kill()
    dead.wait()
    assert listens(dead_port)

    reaped = reap_orphans(dead_spec.owned_dir)

    assert [owned.launch_id for owned in reaped] == [dead_spec.launch_id]
    assert marked(dead_spec.launch_id) == []
    assert not listens(dead_port)
    assert len(marked(living_spec.launch_id)) == 2
    assert get(f"http://127.0.0.1:{living_port}/health")[0] == 200
    left = [file.name for file in dead_spec.owned_dir.iterdir()]
    assert left == [f"{living_spec.launch_id}.json"]
    # There is nothing more to do.
    assert reap_orphans(dead_spec.owned_dir) == []


def test_a_tuner_that_is_a_zombie_is_dead(make_spec: MakeSpec, start_tuner: StartTuner) -> None:
    spec = make_spec()
    tuner, _ = start_tuner(spec)
    psutil.Process(tuner.pid).kill()
    # Not waited for, so that it stays a zombie.
    while psutil.Process(tuner.pid).status() != psutil.STATUS_ZOMBIE:
        pass
    assert [owned.launch_id for owned in reap_orphans(spec.owned_dir)] == [spec.launch_id]
    assert marked(spec.launch_id) == []


def write_record(folder: Path, **values: object) -> Path:
    folder.mkdir(exist_ok=True)
    record = {
        "launch_id": "gone",
        "tuner_pid": 2**22 - 1,
        "tuner_created_s": 1.0,
        "leader_pid": None,
        "leader_created_s": None,
        "log_file": "x.log",
    }
    file = folder / f"{values.get('launch_id', 'gone')}.json"
    file.write_text(json.dumps(record | values))
    return file


def test_a_record_of_a_launch_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    file = write_record(tmp_path)
    assert [owned.launch_id for owned in orphans(tmp_path)] == ["gone"]
    assert reap_orphans(tmp_path) == []
    assert not file.exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        '{"launch_id": "x", "tuner_pi',
        "[]",
        '{"launch_id": "x"}',
        json.dumps(
            {
                "launch_id": "x",
                "tuner_pid": "12",
                "tuner_created_s": 1.0,
                "leader_pid": None,
                "leader_created_s": None,
                "log_file": "x",
            }
        ),
    ],
)
def test_a_record_that_cannot_be_read_is_passed_over(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.json").write_text(text)
    write_record(tmp_path)
    assert [owned.launch_id for owned in orphans(tmp_path)] == ["gone"]


def test_no_folder_means_no_orphans(tmp_path: Path) -> None:
    assert reap_orphans(tmp_path / "none") == []


def test_a_launch_whose_pid_was_never_recorded_is_found_by_its_mark(make_spec: MakeSpec) -> None:
    spec = make_spec(fault="hang")
    child = spawn(
        spec.full_command, launch_id=spec.launch_id, env=spec.env, log_file=spec.log_file
    )
    write_record(spec.owned_dir, launch_id=spec.launch_id)
    assert [owned.launch_id for owned in reap_orphans(spec.owned_dir)] == [spec.launch_id]
    assert marked(spec.launch_id) == []
    child.wait()


def test_setting_the_clock_does_not_make_a_living_tuner_dead(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = make_spec()
    OwnershipRecord(spec.owned_dir, spec.launch_id, spec.log_file).write(None)
    booted_s = psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted_s + 3600)
    assert orphans(spec.owned_dir) == []


def test_the_record_names_tuner_leader_and_log(make_spec: MakeSpec, tmp_path: Path) -> None:
    spec = make_spec()
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    child = spawn(command, launch_id=spec.launch_id, env={}, log_file=spec.log_file)
    try:
        record = OwnershipRecord(spec.owned_dir, spec.launch_id, spec.log_file)
        record.write(identify(child, spec.launch_id))
        (file,) = spec.owned_dir.iterdir()
        written = json.loads(file.read_text())
        assert written["tuner_pid"] == psutil.Process().pid
        assert written["leader_pid"] == child.pid
        assert written["log_file"] == str(spec.log_file)
        record.remove()
        assert list(spec.owned_dir.iterdir()) == []
        # Twice is no error.
        record.remove()
    finally:
        child.kill()
        child.wait()
