"""Which processes belong to a launch, and their end."""

import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from tests.integration.serving.conftest import marked
from tuner.serving.process import ProcessGroup, created_s, identify, members, spawn, stop_group
from tuner.serving.shared_memory import segments_of

SLEEP = "import time; time.sleep(120)"

# A leader and one child, which may leave the group or drop its environment.
PARENT = """
import subprocess, sys, time
options = {{"process_group": 0 if {leaves} else None}}
if {is_scrubbed}:
    options["env"] = {{}}
subprocess.Popen([sys.executable, "-c", "import time; time.sleep(120)"], **options)
print("ready", flush=True)
time.sleep(120)
"""

Start = Callable[[str], tuple[subprocess.Popen[bytes], ProcessGroup]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    children: list[tuple[subprocess.Popen[bytes], ProcessGroup]] = []

    def run(script: str) -> tuple[subprocess.Popen[bytes], ProcessGroup]:
        launch_id = f"test-{uuid.uuid4().hex[:12]}"
        log_file = tmp_path / f"{launch_id}.log"
        child = spawn(
            [sys.executable, "-c", script], launch_id=launch_id, env={}, log_file=log_file
        )
        children.append((child, identify(child, launch_id)))
        deadline_s = time.monotonic() + 20
        while "ready" in script and "ready" not in log_file.read_text():
            assert time.monotonic() < deadline_s
            time.sleep(0.02)
        return children[-1]

    yield run
    for child, group in children:
        for process in psutil.process_iter():
            try:
                if process.pid in marked(group.launch_id):
                    process.kill()
            except psutil.Error:
                continue
        child.kill()
        child.wait()


def is_living(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pids(group: ProcessGroup) -> set[int]:
    return {process.pid for process in members(group)}


@pytest.mark.parametrize(
    ("leaves", "is_scrubbed"),
    [(False, False), (True, False), (False, True)],
    ids=["stays", "leaves-the-group", "drops-its-mark"],
)
def test_a_child_is_known_by_its_group_or_by_its_mark(
    start: Start,
    leaves: bool,
    is_scrubbed: bool,
) -> None:
    child, group = start(PARENT.format(leaves=leaves, is_scrubbed=is_scrubbed))
    grandchildren = {process.pid for process in psutil.Process(child.pid).children()}
    assert len(grandchildren) == 1
    assert pids(group) == {child.pid} | grandchildren

    assert stop_group(group, grace_s=0.2, reap=child.poll) == []

    assert not is_living(grandchildren.pop())
    assert child.poll() == -signal.SIGTERM


def test_a_launch_leads_a_group_in_the_session_of_the_tuner(start: Start) -> None:
    # Its own group keeps Ctrl-C from it. The session is the tuner's, so that Linux's scheduler
    # does not divide the CPU between client and server as if they were two users.
    child, _ = start(SLEEP)
    assert os.getpgid(child.pid) == child.pid
    assert os.getsid(child.pid) == os.getsid(0)


def test_other_launches_and_this_process_are_no_members(start: Start) -> None:
    child, group = start(SLEEP)
    other, _ = start(SLEEP)
    assert pids(group) == {child.pid}
    stop_group(group, grace_s=0, reap=child.poll)
    assert child.poll() == -signal.SIGKILL
    assert other.poll() is None


def test_a_zombie_holds_nothing_and_is_no_member(start: Start) -> None:
    child, group = start("pass")
    while psutil.Process(child.pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert members(group) == []
    # It can still be identified, as its creation is known until it is reaped.
    assert identify(child, group.launch_id) == group


def test_a_group_id_given_anew_makes_no_stranger_a_member(start: Start) -> None:
    _, group = start(PARENT.format(leaves=False, is_scrubbed=False))
    # The record of a launch long ago, whose leader had the pid of a stranger's leader today.
    old = ProcessGroup(
        launch_id="test-of-old",
        leader_pid=group.leader_pid,
        leader_created_s=group.leader_created_s - 5.0,
    )
    assert members(old) == []
    assert stop_group(old, grace_s=0.2) == []
    assert len(pids(group)) == 2


def test_a_process_with_the_mark_is_a_member_whatever_its_group(start: Start) -> None:
    child, group = start(SLEEP)
    assert pids(replace(group, leader_pid=2**22 - 1)) == {child.pid}


def test_setting_the_clock_does_not_change_who_is_a_member(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    child, group = start(PARENT.format(leaves=False, is_scrubbed=True))
    booted_s = psutil.boot_time()
    monkeypatch.setattr(psutil._pslinux, "boot_time", lambda: booted_s - 3600)
    psutil.process_iter.cache_clear()
    assert len(pids(group)) == 2
    assert stop_group(group, grace_s=1.0, reap=child.poll) == []
    # SIGTERM reached the leader, which it would not, were it taken for another process.
    assert child.poll() == -signal.SIGTERM


def test_a_process_that_is_gone_was_never_created() -> None:
    with pytest.raises(psutil.NoSuchProcess):
        created_s(2**22 - 1)


def test_a_later_process_is_created_later(start: Start) -> None:
    first, _ = start(SLEEP)
    time.sleep(0.05)
    second, _ = start(SLEEP)
    assert created_s(first.pid) < created_s(second.pid)


def test_what_cannot_be_ended_is_named(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    child, group = start(SLEEP)
    monkeypatch.setattr(psutil.Process, "kill", lambda _: None)
    try:
        assert stop_group(group, grace_s=0, kill_wait_s=0.1) == [child.pid]
    finally:
        monkeypatch.undo()


def test_a_file_closed_while_it_is_listed_hides_no_other_segment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    segment = Path("/dev/shm") / f"test-{uuid.uuid4().hex}"  # noqa: S108 - where segments are
    readlink = Path.readlink

    def racing(path: Path) -> Path:
        if path.name == "0":
            raise FileNotFoundError(path)
        return readlink(path)

    try:
        with segment.open("wb"):
            monkeypatch.setattr(Path, "readlink", racing)
            assert str(segment) in segments_of([psutil.Process()])
        assert str(segment) not in segments_of([psutil.Process()])
    finally:
        segment.unlink()
