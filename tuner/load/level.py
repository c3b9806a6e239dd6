"""One load level: a closed loop of requests, and the window in which it is measured.

Owns when requests are sent and which of them count:

* ``max_concurrency`` slots send one request after the other; a request is due when its slot is
  free. The first ``n_warmup`` requests, at least one per slot since all slots start at once, are
  warm-up. The window opens when the last of them has ended.
* A request is measured if it is due in the window. The window closes when the evidence suffices,
  at ``max_requests``, or after ``max_s``; not before ``min_requests`` unless ``should_stop``.
* Every measured request is awaited to its end, while the slots go on sending, so that slow
  requests are neither dropped nor finished on an idle server. What is sent then is not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from objectives import RequestRecord, Window
from tuner.load.client import Endpoint, StreamingClient
from tuner.load.client_stats import ClientStats, ClientWatch
from tuner.load.requests import PreparedRequest

_POLL_S = 0.25
# So many failures in a row, with none getting a byte, and the server is asked whether it lives.
_SUSPICIOUS_FAILURES = 5


class StopReason(StrEnum):
    """Why a level ended."""

    REQUESTS = "requests"
    TIME = "time"
    DECIDED = "decided"
    SERVER_GONE = "server_gone"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class LevelPlan:
    """How one level is run.

    Attributes:
        max_concurrency: Requests in flight.
        n_warmup: Requests before the window; raised to ``max_concurrency``.
        min_requests: Measured requests before time may end the level.
        max_requests: Measured requests at most.
        max_s: Seconds of the window at most, once ``min_requests`` is reached.
        stall_s: A request without a byte for so long has failed.
    """

    max_concurrency: int
    n_warmup: int
    min_requests: int
    max_requests: int
    max_s: float
    stall_s: float


@dataclass(frozen=True, kw_only=True)
class LevelResult:
    """What came of a level.

    Attributes:
        records: Every request that was answered or failed, warm-up included and flagged.
        window: The measured window; of length 0 if it never opened.
        client: How the client did.
        stopped_because: Why it ended.
    """

    records: tuple[RequestRecord, ...]
    window: Window
    client: ClientStats
    stopped_because: StopReason

    @property
    def measured(self) -> list[RequestRecord]:
        """The records that count."""
        return [r for r in self.records if not r.is_warmup and r.due_s in self.window]


@dataclass(frozen=True, kw_only=True)
class LevelHooks:
    """What a level asks of its surroundings.

    Attributes:
        should_stop: Called with each measured request that ended; True ends the level.
        is_cancelled: Asked a few times a second.
        is_alive: Asked a few times a second and after failures in a row; False means the server
            is gone. It must answer quickly.
    """

    should_stop: Callable[[RequestRecord], bool] = lambda _: False
    is_cancelled: Callable[[], bool] = lambda: False
    is_alive: Callable[[], bool] = lambda: True


def run_level(
    endpoint: Endpoint,
    requests: Sequence[PreparedRequest],
    plan: LevelPlan,
    hooks: LevelHooks | None = None,
) -> LevelResult:
    """Run one level in an event loop of its own.

    Args:
        endpoint: Where requests go.
        requests: In the order in which they are sent; taken from the start again if they run
            out, which is only while measured requests are awaited (see ``n_needed``).
        plan: Load and length.
        hooks: What to ask while it runs.

    Returns:
        The records and the window.
    """
    return asyncio.run(_Level(endpoint, requests, plan, hooks or LevelHooks()).run())


def n_needed(plan: LevelPlan) -> int:
    """Requests to prepare: warm-up, the measured ones, and a slotful while they are awaited."""
    return max(plan.n_warmup, plan.max_concurrency) + plan.max_requests + 2 * plan.max_concurrency


class _Level:
    """State of one run."""

    def __init__(
        self,
        endpoint: Endpoint,
        requests: Sequence[PreparedRequest],
        plan: LevelPlan,
        hooks: LevelHooks,
    ) -> None:
        self._requests = requests
        self._plan = plan
        self._hooks = hooks
        self._client = StreamingClient(
            endpoint, stall_s=plan.stall_s, origin_s=time.perf_counter()
        )
        self._n_warmup = max(plan.n_warmup, plan.max_concurrency)
        self._n_sent = 0
        self._n_warmup_ended = 0
        self._n_failed_in_a_row = 0
        self._records: list[RequestRecord] = []
        self._open_s: float | None = None
        self._close_s: float | None = None
        self._reason: StopReason | None = None
        self._in_flight: set[int] = set()
        self._n_measured_sent = 0
        self._is_over = asyncio.Event()

    async def run(self) -> LevelResult:
        watch = ClientWatch()
        slots = [asyncio.create_task(self._slot()) for _ in range(self._plan.max_concurrency)]
        guard = asyncio.create_task(self._guard())
        try:
            # The guard ends when the level is over; a slot ends only by an error of ours.
            done, _ = await asyncio.wait({guard, *slots}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (guard, *slots):
                task.cancel()
            await asyncio.gather(guard, *slots, return_exceptions=True)
            self._client.close()
        end_s = self._close_s if self._close_s is not None else self._client.now_s()
        start_s = self._open_s if self._open_s is not None else end_s
        records = tuple(sorted(self._records, key=lambda record: record.index))
        return LevelResult(
            records=records,
            window=Window(start_s=start_s, end_s=end_s),
            client=watch.stop(records),
            stopped_because=self._reason or StopReason.CANCELLED,
        )

    async def _slot(self) -> None:
        """Send one request after the other until cancelled."""
        while True:
            index = self._n_sent
            self._n_sent += 1
            due_s = self._client.now_s()
            is_measured = self._is_open(due_s)
            if is_measured:
                self._in_flight.add(index)
                self._n_measured_sent += 1
                if self._n_measured_sent >= self._plan.max_requests:
                    # This one is the last that is due in the window.
                    self._close(StopReason.REQUESTS, just_after_s=due_s)
            request = self._requests[index % len(self._requests)]
            record = await self._client.run(request, index=index, due_s=due_s)
            self._take(record, is_measured=is_measured)
            if not record.is_success:
                # A server that refuses at once must not be asked thousands of times a second.
                await asyncio.sleep(0.05)

    def _is_open(self, moment_s: float) -> bool:
        return self._open_s is not None and self._close_s is None and moment_s >= self._open_s

    def _take(self, record: RequestRecord, *, is_measured: bool) -> None:
        is_warmup = record.index < self._n_warmup
        self._records.append(replace(record, is_warmup=True) if is_warmup else record)
        self._in_flight.discard(record.index)
        self._n_failed_in_a_row = 0 if record.is_success else self._n_failed_in_a_row + 1
        if is_warmup:
            self._n_warmup_ended += 1
            if self._n_warmup_ended == self._n_warmup:
                self._open_s = self._client.now_s()
        elif is_measured and self._hooks.should_stop(record):
            self._close(StopReason.DECIDED)
        if self._close_s is not None and not self._in_flight:
            self._is_over.set()

    def _close(self, reason: StopReason, *, just_after_s: float | None = None) -> None:
        """Close the window; what is due from now on is not measured."""
        if self._close_s is not None:
            return
        now_s = self._client.now_s()
        self._close_s = now_s if just_after_s is None else max(now_s, just_after_s + 1e-9)
        self._reason = reason

    async def _guard(self) -> None:
        """Watch time, cancellation and the server; return when the level is over."""
        while not self._is_over.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._is_over.wait(), _POLL_S)
            if self._hooks.is_cancelled():
                self._end_now(StopReason.CANCELLED)
                return
            if not self._hooks.is_alive() or self._is_hopeless():
                self._end_now(StopReason.SERVER_GONE)
                return
            if self._is_time_up():
                self._close(StopReason.TIME)
                if not self._in_flight:
                    return

    def _end_now(self, reason: StopReason) -> None:
        self._close(reason)
        self._reason = reason

    def _is_time_up(self) -> bool:
        if self._open_s is None:
            return False
        n_ended = self._n_measured_sent - len(self._in_flight)
        is_enough = n_ended >= self._plan.min_requests
        return is_enough and self._client.now_s() - self._open_s >= self._plan.max_s

    def _is_hopeless(self) -> bool:
        """Whether requests fail one after the other and none has got an answer since."""
        limit = max(_SUSPICIOUS_FAILURES, 2 * self._plan.max_concurrency)
        return self._n_failed_in_a_row >= limit
