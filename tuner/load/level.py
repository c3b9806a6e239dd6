"""One load level: requests sent as their arrivals say, and the window in which they are measured.

Owns when requests are sent and which of them count:

* Closed: ``max_concurrency`` slots send one request after the other; a request is due when its
  slot is free. A slot prefers a session's next turn to a new session. Scheduled: a session is due
  at its moment, a further turn when its user has thought, whatever else is in flight.
* The first ``n_warmup`` requests are warm-up; in a closed loop at least one per slot, since all
  slots start at once. The window opens when the last of them has ended.
* A request is measured if it is due in the window. The window closes when the evidence suffices,
  at ``max_requests``, after ``max_s``, or when the schedule has ended; not before
  ``min_requests`` unless ``should_stop``.
* Every measured request is awaited to its end, while sending goes on, so that slow requests are
  neither dropped nor finished on an idle server. What is sent then is not measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from objectives import RequestRecord, Window
from tuner.load.arrivals import Arrivals, Closed, Scheduled
from tuner.load.client import Endpoint, StreamingClient
from tuner.load.client_stats import ClientStats, ClientWatch
from tuner.load.requests import PreparedRequest, Session

_POLL_S = 0.25
# So many failures in a row, with none getting a byte, and the server is asked whether it lives.
_SUSPICIOUS_FAILURES = 5
# Timers fire up to a millisecond late, which would be counted as the server's: the last of a wait
# is spent in turns of the event loop instead.
_TIMER_S = 0.0015


class StopReason(StrEnum):
    """Why a level ended."""

    REQUESTS = "requests"
    SCHEDULE_END = "schedule_end"
    TIME = "time"
    DECIDED = "decided"
    SERVER_GONE = "server_gone"
    CANCELLED = "cancelled"


@dataclass(frozen=True, kw_only=True)
class LevelPlan:
    """How one level is run.

    Attributes:
        arrivals: When requests are due.
        n_warmup: Requests before the window; raised to one per slot of a closed loop.
        min_requests: Measured requests before time may end the level.
        max_requests: Measured requests at most.
        max_s: Seconds of the window at most, once ``min_requests`` is reached.
        stall_s: A request without a byte for so long has failed.
    """

    arrivals: Arrivals
    n_warmup: int
    min_requests: int
    max_requests: int
    max_s: float
    stall_s: float

    @property
    def n_slots(self) -> int:
        """Requests in flight of a closed loop; 0 where arrivals decide."""
        return self.arrivals.max_concurrency if isinstance(self.arrivals, Closed) else 0


@dataclass(frozen=True, kw_only=True)
class LevelResult:
    """What came of a level.

    Attributes:
        records: Every request that was answered or failed, warm-up included and flagged.
        window: The measured window; of length 0 if it never opened.
        origin_s: ``time.perf_counter()`` at the zero of the records' clock.
        client: How the client did.
        stopped_because: Why it ended.
    """

    records: tuple[RequestRecord, ...]
    window: Window
    origin_s: float
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
    sessions: Sequence[Session],
    plan: LevelPlan,
    hooks: LevelHooks | None = None,
) -> LevelResult:
    """Run one level in an event loop of its own.

    Args:
        endpoint: Where requests go.
        sessions: In the order in which they begin; one per moment of a schedule. In a closed loop
            they are taken from the start again if they run out, which is only while measured
            requests are awaited.
        plan: Load and length.
        hooks: What to ask while it runs.

    Returns:
        The records and the window.
    """
    return asyncio.run(_Level(endpoint, sessions, plan, hooks or LevelHooks()).run())


@dataclass(frozen=True, kw_only=True, slots=True)
class _Admitted:
    """A request that is due."""

    index: int
    due_s: float
    is_measured: bool


class _Level:
    """State of one run."""

    def __init__(
        self,
        endpoint: Endpoint,
        sessions: Sequence[Session],
        plan: LevelPlan,
        hooks: LevelHooks,
    ) -> None:
        self._sessions = sessions
        self._n_begun = 0
        # Further turns by when they are due; the count keeps equal moments in order.
        self._further: list[tuple[float, int, Session, int]] = []
        self._tie = itertools.count()
        self._plan = plan
        self._hooks = hooks
        self._origin_s = time.perf_counter()
        self._client = StreamingClient(endpoint, stall_s=plan.stall_s, origin_s=self._origin_s)
        self._n_warmup = max(plan.n_warmup, plan.n_slots)
        self._n_due = 0
        self._n_warmup_ended = 0
        self._n_failed_in_a_row = 0
        self._records: list[RequestRecord] = []
        self._open_s: float | None = None
        self._close_s: float | None = None
        self._reason: StopReason | None = None
        self._in_flight: set[int] = set()
        self._n_measured = 0
        self._is_over = asyncio.Event()

    async def run(self) -> LevelResult:
        watch = ClientWatch()
        guard = asyncio.create_task(self._guard())
        senders: set[asyncio.Task[None]] = set()
        try:
            match self._plan.arrivals:
                case Closed(max_concurrency=n):
                    senders |= {asyncio.create_task(self._slot()) for _ in range(n)}
                case Scheduled() as schedule:
                    senders.add(asyncio.create_task(self._follow_schedule(schedule)))
            # The guard ends when the level is over; a sender ends only by an error of ours.
            done, _ = await asyncio.wait({guard, *senders}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (guard, *senders):
                task.cancel()
            await asyncio.gather(guard, *senders, return_exceptions=True)
            self._client.close()
        end_s = self._close_s if self._close_s is not None else self._client.now_s()
        start_s = self._open_s if self._open_s is not None else end_s
        records = tuple(sorted(self._records, key=lambda record: record.index))
        return LevelResult(
            records=records,
            window=Window(start_s=start_s, end_s=end_s),
            origin_s=self._origin_s,
            client=watch.stop(records),
            stopped_because=self._reason or StopReason.CANCELLED,
        )

    async def _slot(self) -> None:
        """Send one request after the other until cancelled."""
        while True:
            now_s = self._client.now_s()
            if self._further and self._further[0][0] <= now_s:
                _, _, session, turn = heapq.heappop(self._further)
            else:
                session, turn = self._sessions[self._n_begun % len(self._sessions)], 0
                self._n_begun += 1
            record = await self._send(session.turns[turn], self._admit(now_s))
            if record.is_success and turn + 1 < len(session.turns):
                ready_s = record.end_s + session.think_s
                heapq.heappush(self._further, (ready_s, next(self._tie), session, turn + 1))
            if not record.is_success:
                # A server that refuses at once must not be asked thousands of times a second.
                await asyncio.sleep(0.05)

    async def _follow_schedule(self, schedule: Scheduled) -> None:
        """Begin each session at its moment; then wait until cancelled."""
        slots = asyncio.Semaphore(schedule.max_concurrency or len(schedule.due_s) + 1)
        due_s = 0.0
        async with asyncio.TaskGroup() as group:
            for session, due_s in zip(self._sessions, schedule.due_s, strict=True):
                await self._until(due_s)
                group.create_task(self._run_session(session, self._admit(due_s), slots))
            self._close(StopReason.SCHEDULE_END, just_after_s=due_s)
            self._end_if_answered()
            # The guard says when the level is over; the last sessions may be awaited still.
            await asyncio.Event().wait()

    async def _run_session(
        self, session: Session, admitted: _Admitted, slots: asyncio.Semaphore
    ) -> None:
        for position, request in enumerate(session.turns):
            async with slots:
                record = await self._send(request, admitted)
            if not record.is_success or position + 1 == len(session.turns):
                return
            due_s = record.end_s + session.think_s
            await self._until(due_s)
            admitted = self._admit(due_s)

    async def _until(self, due_s: float) -> None:
        left_s = due_s - self._client.now_s()
        if left_s > _TIMER_S:
            await asyncio.sleep(left_s - _TIMER_S)
        while self._client.now_s() < due_s:  # noqa: ASYNC110 - time has no event of its own
            await asyncio.sleep(0)

    def _admit(self, due_s: float) -> _Admitted:
        """Count a request in when it is due, however long it then waits to be sent."""
        index = self._n_due
        self._n_due += 1
        is_measured = self._is_open(due_s)
        if is_measured:
            self._in_flight.add(index)
            self._n_measured += 1
            if self._n_measured >= self._plan.max_requests:
                # This one is the last that is due in the window.
                self._close(StopReason.REQUESTS, just_after_s=due_s)
        return _Admitted(index=index, due_s=due_s, is_measured=is_measured)

    async def _send(self, request: PreparedRequest, admitted: _Admitted) -> RequestRecord:
        record = await self._client.run(request, index=admitted.index, due_s=admitted.due_s)
        self._take(record, is_measured=admitted.is_measured)
        return record

    def _is_open(self, moment_s: float) -> bool:
        """Whether what is due at this moment is measured: the window alone decides."""
        if self._open_s is None or moment_s < self._open_s:
            return False
        return self._close_s is None or moment_s < self._close_s

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
        self._end_if_answered()

    def _end_if_answered(self) -> None:
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
        n_ended = self._n_measured - len(self._in_flight)
        is_enough = n_ended >= self._plan.min_requests
        return is_enough and self._client.now_s() - self._open_s >= self._plan.max_s

    def _is_hopeless(self) -> bool:
        """Whether requests fail one after the other and none has got an answer since."""
        limit = max(_SUSPICIOUS_FAILURES, 2 * self._plan.n_slots)
        return self._n_failed_in_a_row >= limit
