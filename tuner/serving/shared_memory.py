"""Shared memory segments that a launch leaves under /dev/shm.

Owns finding those of ours, by what our processes have mapped or opened, never by name or age; and
removing them once no living process has them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import psutil

_FOLDER = "/dev/shm/"  # noqa: S108 - this is what is cleaned


def segments_of(processes: Iterable[psutil.Process]) -> set[str]:
    """Segments that these processes have mapped or open."""
    found: set[str] = set()
    for process in processes:
        base = Path("/proc") / str(process.pid)
        try:
            lines = (base / "maps").read_text(encoding="utf-8", errors="replace").splitlines()
            found |= {line[line.index(_FOLDER) :] for line in lines if _FOLDER in line}
            files = list((base / "fd").iterdir())
        except OSError:
            continue
        found |= {link for link in map(_target_of, files) if link.startswith(_FOLDER)}
    return {name for name in found if not name.endswith("(deleted)")}


def _target_of(file: Path) -> str:
    """What an open file is; a busy process may have closed it since it was listed."""
    try:
        return str(file.readlink())
    except OSError:
        return ""


def remove_segments(names: set[str]) -> list[str]:
    """Remove segments that no living process uses any more.

    Args:
        names: Full paths, as ``segments_of`` gave them while their owners lived.

    Returns:
        Those removed.
    """
    left = {name for name in names if Path(name).exists()}
    if not left:
        return []
    unused = left - segments_of(psutil.process_iter())
    for name in unused:
        Path(name).unlink(missing_ok=True)
    return sorted(unused)
