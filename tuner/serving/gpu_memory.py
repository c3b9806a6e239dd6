"""Whether the GPUs have got back the memory that a launch used."""

from __future__ import annotations

import time

from tuner.serving.hardware import query_gpus

# A driver context of another process, or the display, may come and go by this much.
_TOLERANCE_MIB = 512
_WAIT_S = 30.0


class GpuMemoryWatch:
    """Compares memory in use before a launch and after it; does nothing without a GPU."""

    def __init__(self) -> None:
        self._before_mib: dict[int, int] = {}

    def remember(self) -> None:
        """Note what is in use now."""
        self._before_mib = {
            gpu.index: gpu.used_mib for gpu in query_gpus() if gpu.used_mib is not None
        }

    def wait_until_back(self) -> list[str]:
        """Wait for the memory to be free again.

        Returns:
            GPUs whose memory did not come back, in words; empty if all did.
        """
        deadline_s = time.monotonic() + _WAIT_S
        while True:
            stuck = self._stuck() if self._before_mib else []
            if not stuck or time.monotonic() >= deadline_s:
                return stuck
            time.sleep(0.5)

    def _stuck(self) -> list[str]:
        return [
            f"GPU {gpu.index} holds {gpu.used_mib - before} MiB more than before the launch"
            for gpu in query_gpus()
            if gpu.used_mib is not None
            and (before := self._before_mib.get(gpu.index)) is not None
            and gpu.used_mib > before + _TOLERANCE_MIB
        ]
