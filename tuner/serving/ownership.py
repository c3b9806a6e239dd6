"""Ownership records: what a tuner has started, so that the next one can clean up after it.

Owns the files under ``mlruns/owned/``. A record is written before a server is started and again
when its pid is known, and is removed once the server is known to be gone.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from tuner.serving.process import (
    LAUNCH_ID_VARIABLE,
    ProcessGroup,
    created_s,
    members,
    stop_group,
)
from tuner.serving.shared_memory import remove_segments, segments_of


@dataclass(frozen=True, kw_only=True)
class Owned:
    """One launch on record.

    Attributes:
        launch_id: See ``ProcessGroup``.
        tuner_pid: The tuner that started it.
        tuner_created_s: When that tuner was created (``process.created_s``), which tells it from
            a later process with its pid.
        leader_pid: The server's leader; ``None`` in the moment before it is started.
        leader_created_s: When the leader was created.
        log_file: Where its output went.
    """

    launch_id: str
    tuner_pid: int
    tuner_created_s: float
    leader_pid: int | None
    leader_created_s: float | None
    log_file: str


class OwnershipRecord:
    """The record of one launch, kept while the launch may be alive.

    Args:
        folder: Where records are; made if missing.
        launch_id: The launch.
        log_file: Where its output goes.
    """

    def __init__(self, folder: Path, launch_id: str, log_file: Path) -> None:
        self._file = folder / f"{launch_id}.json"
        self._launch_id = launch_id
        self._log_file = log_file

    def write(self, group: ProcessGroup | None) -> None:
        """Write or replace the record; ``None`` before the server is started.

        Raises:
            OSError: The folder cannot be written.
        """
        owned = Owned(
            launch_id=self._launch_id,
            tuner_pid=os.getpid(),
            tuner_created_s=created_s(os.getpid()),
            leader_pid=None if group is None else group.leader_pid,
            leader_created_s=None if group is None else group.leader_created_s,
            log_file=str(self._log_file),
        )
        self._file.parent.mkdir(parents=True, exist_ok=True)
        partial = self._file.with_suffix(".partial")
        partial.write_text(json.dumps(asdict(owned)), encoding="utf-8")
        partial.replace(self._file)

    def remove(self) -> None:
        """Forget the launch: it is known to be gone."""
        self._file.unlink(missing_ok=True)


def orphans(folder: Path) -> list[Owned]:
    """Records whose tuner is no longer alive."""
    found = []
    for file in sorted(folder.glob("*.json")):
        try:
            owned = Owned(**json.loads(file.read_text(encoding="utf-8")))
            is_orphan = not _is_alive(owned.tuner_pid, owned.tuner_created_s)
        except (OSError, ValueError, TypeError, OverflowError):
            # Half a record cannot say whose it is; it was replaced atomically, so it is not ours.
            continue
        if is_orphan:
            found.append(owned)
    return found


def reap_orphans(folder: Path) -> list[Owned]:
    """End what tuners that were killed have left running, and forget it.

    Args:
        folder: Where records are.

    Returns:
        The launches of which something was still alive and had to be ended.
    """
    reaped = []
    for owned in orphans(folder):
        group = _group_of(owned)
        if group is not None:
            alive = members(group)
            segments = segments_of(alive)
            if stop_group(group, grace_s=5.0):
                continue
            remove_segments(segments)
            if alive:
                reaped.append(owned)
        (folder / f"{owned.launch_id}.json").unlink(missing_ok=True)
    return reaped


def _group_of(owned: Owned) -> ProcessGroup | None:
    if owned.leader_pid is not None and owned.leader_created_s is not None:
        return ProcessGroup(
            launch_id=owned.launch_id,
            leader_pid=owned.leader_pid,
            leader_created_s=owned.leader_created_s,
        )
    # Killed between the start and the second record: the mark in the environment finds it.
    for process in psutil.process_iter():
        try:
            if process.environ().get(LAUNCH_ID_VARIABLE) == owned.launch_id:
                return _group_around(process.pid, owned.launch_id)
        except (psutil.Error, OSError):
            continue
    return None


def _group_around(pid: int, launch_id: str) -> ProcessGroup:
    for leader_pid in (os.getpgid(pid), pid):
        try:
            return ProcessGroup(
                launch_id=launch_id, leader_pid=leader_pid, leader_created_s=created_s(leader_pid)
            )
        except psutil.NoSuchProcess:
            # The leader is gone already: the mark will find the others.
            continue
    raise psutil.NoSuchProcess(pid)


def _is_alive(pid: int, pid_created_s: float) -> bool:
    try:
        process = psutil.Process(pid)
        return created_s(pid) == pid_created_s and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False
