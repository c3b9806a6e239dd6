"""The client's watch on itself: was it fast enough to be believed?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from objectives import RequestRecord, percentile

_TICK_S = 0.02


@dataclass(frozen=True, kw_only=True)
class ClientStats:
    """How the client did during a level.

    Attributes:
        lag_p90_ms: P90 of how late its event loop woke; ``None`` for a level too short to say.
        lag_p99_ms: The same at P99, which needs a level of two seconds.
        cpu_frac: Share of one core that it used.
        late_send_p99_ms: P99 of sent minus due; ``None`` below a hundred requests.
    """

    lag_p90_ms: float | None
    lag_p99_ms: float | None
    cpu_frac: float
    late_send_p99_ms: float | None

    def metrics(self) -> dict[str, float | None]:
        """By catalogue name."""
        return {
            "client_lag_p99_ms": self.lag_p99_ms,
            "client_cpu_frac": self.cpu_frac,
            "late_send_p99_ms": self.late_send_p99_ms,
        }


class ClientWatch:
    """Watches the event loop that it runs in, from its making to ``stop``."""

    def __init__(self) -> None:
        self._lags_s: list[float] = []
        self._started_s = time.perf_counter()
        self._cpu_started_s = time.process_time()
        self._task = asyncio.create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            due_s = time.perf_counter() + _TICK_S
            await asyncio.sleep(_TICK_S)
            self._lags_s.append(time.perf_counter() - due_s)

    def stop(self, records: Sequence[RequestRecord]) -> ClientStats:
        """End the watch.

        Args:
            records: Requests of the level.
        """
        self._task.cancel()
        wall_s = time.perf_counter() - self._started_s
        late_s = [r.sent_s - r.due_s for r in records if r.sent_s is not None]
        return ClientStats(
            lag_p90_ms=_milliseconds(percentile(self._lags_s, 0.9)),
            lag_p99_ms=_milliseconds(percentile(self._lags_s, 0.99)),
            cpu_frac=(time.process_time() - self._cpu_started_s) / wall_s if wall_s > 0 else 0.0,
            late_send_p99_ms=_milliseconds(percentile(late_s, 0.99)),
        )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000
