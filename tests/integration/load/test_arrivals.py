"""When requests are sent, over a real socket: schedules, limits and sessions."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import numpy as np
import pytest

from tests.integration.load.test_client import END, HEAD, REQUEST, USAGE, mock, plan, text
from tuner.load.arrivals import Closed, Scheduled, draw_arrivals, replay
from tuner.load.client import Endpoint
from tuner.load.level import LevelResult, StopReason, run_level
from tuner.load.requests import Session

ONE = Session(turns=(REQUEST,))


async def after_30_ms() -> AsyncIterator[bytes]:
    yield HEAD
    await asyncio.sleep(0.03)
    yield text("a", "length")
    yield USAGE
    yield END


def run(sessions: list[Session], **changes: object) -> tuple[LevelResult, int]:
    """The result and the most requests that the server had at once."""
    with mock(after_30_ms) as server:
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{server.port}", model="m")
        return run_level(endpoint, sessions, plan(**changes)), server.max_open


def test_scheduled_sessions_are_sent_at_their_moments_whatever_is_in_flight() -> None:
    due_s = tuple(0.004 * k for k in range(60))
    result, n_open = run([ONE] * 60, arrivals=Scheduled(due_s=due_s), n_warmup=1, max_requests=99)
    assert result.stopped_because is StopReason.SCHEDULE_END
    assert [record.due_s for record in result.records] == pytest.approx(due_s)
    # 30 ms of service and 4 ms between arrivals: at least 7 at once.
    assert n_open >= 7
    assert all(r.sent_s is not None and r.sent_s >= r.due_s for r in result.records)
    late_s = np.median([(r.sent_s or 0.0) - r.due_s for r in result.records])
    assert late_s < 0.002
    # The window opens with the first answer, and whatever is due from then on is measured.
    opens_s = result.window.start_s
    assert result.records[0].end_s <= opens_s < 0.2
    assert [r.due_s for r in result.measured] == [x for x in due_s if x >= opens_s]
    assert all(record.is_success for record in result.measured)


def test_waiting_for_a_free_slot_counts_in_the_latency_and_drops_nothing() -> None:
    due_s = tuple(0.01 * k for k in range(20))
    result, n_open = run(
        [ONE] * 20,
        arrivals=Scheduled(due_s=due_s, max_concurrency=1),
        n_warmup=1,
        max_requests=10,
    )
    assert n_open == 1
    assert result.stopped_because is StopReason.REQUESTS
    assert len(result.measured) == 10
    # Each takes 30 ms and 10 ms later the next is due: every one waits 20 ms more.
    waits_s = [(record.sent_s or 0.0) - record.due_s for record in result.measured]
    assert all(later - sooner >= 0.015 for sooner, later in itertools.pairwise(waits_s))
    assert all((r.ttft_s or 0.0) >= 0.03 + (r.sent_s or 0.0) - r.due_s for r in result.measured)


def test_a_closed_loop_keeps_its_slots_busy_and_prefers_further_turns() -> None:
    session = Session(turns=(REQUEST, REQUEST, REQUEST))
    result, n_open = run([session] * 40, arrivals=Closed(max_concurrency=2), max_requests=12)
    assert n_open == 2
    assert len(result.measured) == 12
    assert all(record.is_success for record in result.measured)


def test_a_further_turn_is_due_when_its_user_has_thought() -> None:
    session = Session(turns=(REQUEST, REQUEST), think_s=0.05)
    due_s = (0.0, 0.2, 0.4)
    result, _ = run([session] * 3, arrivals=Scheduled(due_s=due_s), n_warmup=1, max_requests=9)
    first, further = result.records[0], result.records[1]
    assert further.due_s == pytest.approx(first.end_s + 0.05)
    assert result.records[2].due_s == 0.2


def test_equal_moments_are_all_measured_or_none_is() -> None:
    # Ten at once, twice: the limit of five falls within the second burst.
    due_s = (0.0,) * 10 + (0.5,) * 10
    result, _ = run([ONE] * 20, arrivals=Scheduled(due_s=due_s), n_warmup=1, max_requests=5)
    assert len(result.measured) == 10


def test_gaps_of_arrivals_have_the_rate_and_the_burstiness_asked_for() -> None:
    for burstiness in (0.5, 1.0, 4.0):
        arrival_s = draw_arrivals(
            40_000, request_rate_per_s=5.0, burstiness=burstiness, rng=np.random.default_rng(3)
        )
        gaps_s = np.diff(arrival_s)
        assert (gaps_s >= 0).all()
        # A gamma distribution of shape k: variation 1 / sqrt(k), its error here below 2 %.
        assert gaps_s.mean() == pytest.approx(0.2, rel=0.03)
        assert gaps_s.std() / gaps_s.mean() == pytest.approx(burstiness**-0.5, rel=0.03)


def test_a_replay_starts_with_the_first_arrival_and_scales_time() -> None:
    assert replay([3.0, 4.0, 4.0, 9.0], speed=2.0) == (0.0, 0.5, 0.5, 3.0)
