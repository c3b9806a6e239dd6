"""Asks the mock what a test plans, and gives what the client saw beside the truth."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from objectives import RequestRecord
from tests.fakes.mock_openai import N_PROMPT_TOK, TEXT_KINDS, Step, fetch_truth
from tuner.load.client import Endpoint, StreamingClient
from tuner.load.requests import PreparedRequest

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
# Steps of a form or fault are so far apart that taking one for another shows, however noisy.
STEP_MS = 60.0
TOLERANCE_S = 0.02
STALL_S = 0.3
_ids = itertools.count()


@dataclass(frozen=True)
class Asked:
    """One request with the plan of its answer."""

    name: str
    steps: Sequence[Step]
    request: PreparedRequest


@dataclass(frozen=True)
class Outcome:
    """What the client says of a request and what the server did; moments on one clock."""

    asked: Asked
    record: RequestRecord
    origin_s: float
    due_s: float
    exchanges: Sequence[dict[str, Any]]

    @property
    def written(self) -> list[list[Any]]:
        """Kind, value and moment of each step of the only time that it was sent."""
        (exchange,) = self.exchanges
        written: list[list[Any]] = exchange["written"]
        return written

    @property
    def text_moments_s(self) -> list[float]:
        return [moment_s for kind, _, moment_s in self.written if kind in TEXT_KINDS]

    def true_s(self, quantity: str) -> float:
        """A latency by its definition, from the server's moments."""
        moments_s = self.text_moments_s
        if quantity == "ttft":
            return moments_s[0] - self.due_s
        if quantity == "e2el":
            return moments_s[-1] - self.due_s
        n_tok = sum(value for kind, value, _ in self.written if kind in TEXT_KINDS)
        return (moments_s[-1] - moments_s[0]) / float(n_tok - 1)


def asked(steps: Sequence[Step], *, api: str = "completions", **options: object) -> Asked:
    """A request for an answer by plan; ``options`` are the plan's other fields."""
    name = f"r{next(_ids)}"
    body = json.dumps({"stream": True, "mock": {"id": name, "steps": steps} | options}).encode()
    n_output_tok = sum(value for _, kind, value in steps if kind in TEXT_KINDS)
    request = PreparedRequest(
        path=PATHS[api], body=body, n_prompt_tok=N_PROMPT_TOK, n_output_tok=n_output_tok
    )
    return Asked(name=name, steps=steps, request=request)


def closing(at_ms: float, n_tok: int) -> list[Step]:
    """The end of a good answer."""
    return [
        (at_ms, "finish", "length"),
        (at_ms, "usage", n_tok),
        (at_ms, "done", None),
        (at_ms, "end", None),
    ]


def send(
    port: int, requests: Sequence[Asked], *, n_slots: int = 1, stall_s: float = 10.0
) -> tuple[list[Outcome], list[float]]:
    """Send requests by one client, ``n_slots`` at a time; also gives its loop's lags."""
    origin_s = time.perf_counter()
    records: list[tuple[Asked, RequestRecord, float]] = []
    lags_s: list[float] = []

    async def run() -> None:
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}", model="mock")
        client = StreamingClient(endpoint, stall_s=stall_s, origin_s=origin_s)
        queue = iter(enumerate(requests))
        stop = watch_lag(asyncio.get_running_loop(), lags_s)

        async def slot() -> None:
            for index, one in queue:
                due_s = client.now_s()
                record = await client.run(one.request, index=index, due_s=due_s)
                records.append((one, record, origin_s + due_s))

        await asyncio.gather(*(slot() for _ in range(n_slots)))
        client.close()
        stop()
        await asyncio.sleep(0)

    asyncio.run(run())
    truth = fetch_truth(port)["requests"]
    outcomes = [
        Outcome(one, record, origin_s, due_s, truth.get(one.name, []))
        for one, record, due_s in records
    ]
    return sorted(outcomes, key=lambda outcome: outcome.record.index), lags_s


def watch_lag(loop: asyncio.AbstractEventLoop, lags_s: list[float]) -> Any:  # noqa: ANN401
    """Note how long the loop takes to answer; gives a function that ends it.

    From a thread, since asyncio's timers are up to a millisecond late by design: they are rounded
    up to what epoll can wait. What arrives on a socket is not.
    """
    is_over = threading.Event()

    def probe() -> None:
        while not is_over.is_set():
            time.sleep(0.005)
            loop.call_soon_threadsafe(note, time.perf_counter())

    def note(asked_s: float) -> None:
        lags_s.append(time.perf_counter() - asked_s)

    thread = threading.Thread(target=probe)
    thread.start()

    def stop() -> None:
        is_over.set()
        thread.join()

    return stop
