"""A child in a session of its own, and the certain end of everything in it.

Owns starting, finding and stopping the processes of one launch. A member of the launch is any
process in its session, or any that carries its launch id in its environment: vLLM's workers
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
class SessionId:
    """What identifies the processes of a launch.

    Attributes:
        launch_id: Value of ``TUNE_LAUNCH_ID`` in their environment.
        leader_pid: The session's leader, which is also its session id.
        leader_created_s: When the leader was created, see ``created_s``; it tells the leader from
            a later process that got the same pid.
    """

    launch_id: str
    leader_pid: int
    leader_created_s: float


def spawn(
    command: Sequence[str], *, launch_id: str, env: Mapping[str, str], log_file: Path
) -> subprocess.Popen[bytes]:
    """Start a command in its own session with its output in a file.

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
            start_new_session=True,
            close_fds=True,
        )


def identify(child: subprocess.Popen[bytes], launch_id: str) -> SessionId:
    """The identity of a child just started; works while it is not reaped."""
    return SessionId(
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


def members(session: SessionId) -> list[psutil.Process]:
    """Every living process of a launch; a zombie, which holds nothing, is not among them."""
    has_session = not _is_given_anew(session)
    found = []
    for process in psutil.process_iter():
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            if (has_session and _is_in(process, session)) or _has_mark(process, session):
                found.append(process)
        except psutil.Error:
            continue
    return found


def _is_given_anew(session: SessionId) -> bool:
    """Whether the session id is another's by now, whose processes are none of ours.

    The kernel gives no pid anew while a session has it as its id, so ours had ended by then.
    """
    try:
        return created_s(session.leader_pid) != session.leader_created_s
    except psutil.NoSuchProcess:
        return False


def _is_in(process: psutil.Process, session: SessionId) -> bool:
    try:
        in_session = os.getsid(process.pid) == session.leader_pid
    except OSError:
        return False
    # The leader is the first of its session.
    return in_session and created_s(process.pid) >= session.leader_created_s


def _has_mark(process: psutil.Process, session: SessionId) -> bool:
    try:
        return process.environ().get(LAUNCH_ID_VARIABLE) == session.launch_id
    except (psutil.Error, OSError):
        return False


def stop_session(
    session: SessionId,
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
        session: Whose processes.
        grace_s: How long an orderly end may take; 0 kills at once.
        kill_wait_s: How long to wait for the kernel after SIGKILL.
        reap: Called while waiting, to collect the leader if it is our child.
        sleep: Waits some seconds.

    Returns:
        Pids that are still there, which is a fault of the machine; empty as a rule.
    """
    if grace_s > 0:
        _signal_leader(session)
        if not _wait_until_gone(session, grace_s, reap, sleep):
            return []
    for process in members(session):
        try:
            process.kill()
        except psutil.Error:
            continue
    return [process.pid for process in _wait_until_gone(session, kill_wait_s, reap, sleep)]


def _signal_leader(session: SessionId) -> None:
    try:
        leader = psutil.Process(session.leader_pid)
        if created_s(leader.pid) == session.leader_created_s:
            leader.send_signal(signal.SIGTERM)
    except psutil.Error:
        return


def _wait_until_gone(
    session: SessionId,
    limit_s: float,
    reap: Callable[[], object],
    sleep: Callable[[float], None],
) -> list[psutil.Process]:
    deadline_s = time.monotonic() + limit_s
    while True:
        left = members(session)
        # After the look: a leader that ended just before it is no member any more.
        reap()
        if not left or time.monotonic() >= deadline_s:
            return left
        sleep(0.05)
