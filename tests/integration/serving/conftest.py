import json
import sys
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tuner.serving import ServerSpec

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm.py"
COMMAND = (sys.executable, str(FAKE), "serve")

MakeSpec = Callable[..., ServerSpec]


def marked(launch_id: str) -> list[int]:
    """Living processes with this launch's mark, by /proc alone: an oracle for the code."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "environ").read_bytes().split(b"\0")
            state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if f"TUNE_LAUNCH_ID={launch_id}".encode() in words and state != "Z":
            found.append(int(folder.name))
    return found


def listens(port: int) -> bool:
    return any(
        line.split()[1].endswith(f":{port:04X}") and line.split()[3] == "0A"
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]
    )


def get(url: str) -> tuple[int, str]:
    with urllib.request.urlopen(url, timeout=30) as answer:  # noqa: S310 - loopback
        return answer.status, answer.read().decode()


def post(url: str, body: dict[str, object]) -> str:
    request = urllib.request.Request(  # noqa: S310 - loopback
        url, json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310 - loopback
        text: str = answer.read().decode()
        return text


def port_of(base_url: str) -> int:
    return int(base_url.rpartition(":")[2])


@pytest.fixture
def make_spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeSpec]:
    """Specifications of fake servers; whatever a failed test leaves of them is ended."""
    # The fake is ready far sooner than vLLM.
    monkeypatch.setattr("tuner.serving.server._POLL_S", 0.03)
    launch_ids = []

    def build(
        *arguments: str, fault: str = "", ready_deadline_s: float = 40.0, **env: str
    ) -> ServerSpec:
        launch_id = f"test-{uuid.uuid4().hex[:12]}"
        launch_ids.append(launch_id)
        return ServerSpec(
            launch_id=launch_id,
            command=COMMAND,
            model="demo",
            arguments=arguments,
            env={"FAKE_VLLM_TPOT_MS": "0", "FAKE_VLLM_FAULT": fault, **env},
            log_file=tmp_path / f"{launch_id}.log",
            owned_dir=tmp_path / "owned",
            ready_deadline_s=ready_deadline_s,
        )

    yield build
    for launch_id in launch_ids:
        for pid in marked(launch_id):
            try:
                psutil.Process(pid).kill()
            except psutil.Error:
                continue


@pytest.fixture
def short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.serving.server._GRACE_S", 0.5)
