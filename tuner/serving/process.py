"""A child in a process group of its own, and the certain end of everything in it.

A group and not a session: Linux divides the CPU between sessions, and vLLM's busy waiting yields
only to its own, so that on few cores a client of another session gets no turn for whole requests.

Owns starting, finding and stopping the processes of one launch. A member of the launch is any
process in its group, or any that carries its launch id in its environment: vLLM's workers
rename themselves and can outlive their parent, so neither names nor parentage are relied on.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

LAUNCH_ID_VARIABLE = "TUNE_LAUNCH_ID"


@dataclass(frozen=True, kw_only=True)
class ProcessGroup:
    """What identifies the processes of a launch.

    Attributes:
        launch_id: Value of ``TUNE_LAUNCH_ID`` in their environment.
        leader_pid: The group's leader, whose pid is also the group's id.
        leader_created_s: When the leader was created, see ``created_s``; it tells the leader from
            a later process that got the same pid.
    """

    launch_id: str
    leader_pid: int
    leader_created_s: float


def spawn(
    command: Sequence[str], *, launch_id: str, env: Mapping[str, str], log_file: Path
) -> subprocess.Popen[bytes]:
    """Start a command in its own process group with its output in a file.

    Args:
        command: The words; never a shell.
        launch_id: Marks every process that comes of it.
        env: The whole environment, to which the mark is added.
        log_file: Gets stdout and stderr; a pipe that nobody drains would block the child.

    Returns:
        The running child.

    Raises:
        OSError: The program cannot be run or the log not be written.
    """
    with log_file.open("wb") as log:
        return subprocess.Popen(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**env, LAUNCH_ID_VARIABLE: launch_id},
            process_group=0,
            close_fds=True,
        )


def identify(child: subprocess.Popen[bytes], launch_id: str) -> ProcessGroup:
    """The identity of a child just started; works while it is not reaped."""
    return ProcessGroup(
        launch_id=launch_id,
        leader_pid=child.pid,
        leader_created_s=created_s(child.pid),
    )


def created_s(pid: int) -> float:
    """Seconds from the start of the system to that of a process, a zombie included.

    Not ``psutil``'s ``create_time``: that is a time of day, and changes for every process when
    the system's clock is set.

    Raises:
        psutil.NoSuchProcess: There is no such process.
    """
    try:
        stat = (Path("/proc") / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise psutil.NoSuchProcess(pid) from error
    # Field 22 of proc(5); the name, field 2, may itself hold blanks and brackets.
    return int(stat.rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")


def members(group: ProcessGroup) -> list[psutil.Process]:
    """Every living process of a launch; a zombie, which holds nothing, is not among them."""
    has_group = not _is_given_anew(group)
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if (has_group and _is_in(process, group)) or _has_mark(process, group):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_given_anew(group: ProcessGroup) -> bool:
    """Whether the group id is another's by now, whose processes are none of ours.

    The kernel gives no pid anew while a group has it as its id, so ours had ended by then.
    """
    try:
        return created_s(group.leader_pid) != group.leader_created_s
    except psutil.NoSuchProcess:
        return False


def _is_in(process: psutil.Process, group: ProcessGroup) -> bool:
    try:
        in_group = os.getpgid(process.pid) == group.leader_pid
    except OSError:
        return False
    # The leader is the first of its group.
    return in_group and created_s(process.pid) >= group.leader_created_s


def _has_mark(process: psutil.Process, group: ProcessGroup) -> bool:
    try:
        return process.environ().get(LAUNCH_ID_VARIABLE) == group.launch_id
    except (psutil.Error, OSError):
        return False


def stop_group(
    group: ProcessGroup,
    *,
    grace_s: float,
    kill_wait_s: float = 30.0,
    reap: Callable[[], object] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> list[int]:
    """End every process of a launch and wait until the last is gone.

    SIGTERM goes to the leader, which lets vLLM end its own children in order; whatever is left
    after the grace gets SIGKILL.

    Args:
        group: Whose processes.
        grace_s: How long an orderly end may take; 0 kills at once.
        kill_wait_s: How long to wait for the kernel after SIGKILL.
        reap: Called while waiting, to collect the leader if it is our child.
        sleep: Waits some seconds.

    Returns:
        Pids that are still there, which is a fault of the machine; empty as a rule.
    """
    if grace_s > 0:
        _signal_leader(group)
        if not _wait_until_gone(group, grace_s, reap, sleep):
            return []
    for process in members(group):
        try:
            process.kill()
        except psutil.Error:
            continue
    return [process.pid for process in _wait_until_gone(group, kill_wait_s, reap, sleep)]


def _signal_leader(group: ProcessGroup) -> None:
    try:
        leader = psutil.Process(group.leader_pid)
        if created_s(leader.pid) == group.leader_created_s:
            leader.send_signal(signal.SIGTERM)
    except psutil.Error:
        return


def _wait_until_gone(
    group: ProcessGroup,
    limit_s: float,
    reap: Callable[[], object],
    sleep: Callable[[float], None],
) -> list[psutil.Process]:
    deadline_s = time.monotonic() + limit_s
    while True:
        left = members(group)
        # After the look: a leader that ended just before it is no member any more.
        reap()
        if not left or time.monotonic() >= deadline_s:
            return left
        sleep(0.05)
