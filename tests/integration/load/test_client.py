"""The client against a server whose moments are known, over a real socket."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from objectives import RequestRecord
from tuner.load.arrivals import Closed
from tuner.load.client import Endpoint, StreamingClient
from tuner.load.level import LevelHooks, LevelPlan, LevelResult, StopReason, run_level
from tuner.load.requests import PreparedRequest, Session

Script = Callable[[], AsyncIterator[bytes]]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
REQUEST = PreparedRequest(path="/v1/completions", body=b"{}", n_prompt_tok=3, n_output_tok=4)


def event(payload: object) -> bytes:
    text = payload if isinstance(payload, str) else json.dumps(payload, separators=(",", ":"))
    body = f"data: {text}\n\n".encode()
    return f"{len(body):x}\r\n".encode() + body + b"\r\n"


def text(word: str, finish: str | None = None) -> bytes:
    return event({"choices": [{"index": 0, "text": word, "finish_reason": finish}]})


USAGE = event({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4}})
END = event("[DONE]") + b"0\r\n\r\n"


class Mock:
    """Answers every request by the script and notes when each piece was written."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.written_s: list[float] = []
        self.n_open = 0
        self.max_open = 0
        self.loop = asyncio.new_event_loop()
        self.port = 0
        self.ready = threading.Event()
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        async def serve() -> None:
            self.stopped = asyncio.Event()
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
            self.port = server.sockets[0].getsockname()[1]
            self.ready.set()
            await self.stopped.wait()
            server.close()
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        self.loop.run_until_complete(serve())
        self.loop.run_until_complete(asyncio.sleep(0.05))
        self.loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await reader.readexactly(2)
                self.n_open += 1
                self.max_open = max(self.max_open, self.n_open)
                async for piece in self.script():
                    if piece == b"":
                        return
                    self.written_s.append(time.perf_counter())
                    writer.write(piece)
                self.n_open -= 1
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            return
        finally:
            writer.close()


@contextmanager
def mock(script: Script) -> Iterator[Mock]:
    server = Mock(script)
    server.thread.start()
    server.ready.wait(10)
    try:
        yield server
    finally:
        server.loop.call_soon_threadsafe(server.stopped.set)
        server.thread.join(10)


def ask(server: Mock, *, stall_s: float = 5.0) -> tuple[RequestRecord, float]:
    origin_s = time.perf_counter()

    async def one() -> RequestRecord:
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{server.port}", model="m")
        client = StreamingClient(endpoint, stall_s=stall_s, origin_s=origin_s)
        record = await client.run(REQUEST, index=0, due_s=0.0)
        client.close()
        return record

    return asyncio.run(one()), origin_s


def test_latencies_are_those_at_which_the_server_wrote_its_text() -> None:
    async def script() -> AsyncIterator[bytes]:
        yield HEAD
        yield event({"choices": [{"index": 0, "text": "", "finish_reason": None}]})
        await asyncio.sleep(0.1)
        yield text("a b")  # two tokens in one chunk, as with speculation
        await asyncio.sleep(0.2)
        yield text("c d", "length")
        await asyncio.sleep(0.1)
        yield USAGE
        yield END

    with mock(script) as server:
        record, origin_s = ask(server)
    first_s, last_s = (server.written_s[i] - origin_s for i in (2, 3))
    assert record.error is None
    assert record.ttft_s == pytest.approx(first_s, abs=0.02)
    assert record.e2el_s == pytest.approx(last_s, abs=0.02)
    assert record.tpot_s == pytest.approx((last_s - first_s) / 3, rel=0.02, abs=0.003)
    assert (record.n_prompt_tok, record.n_output_tok) == (3, 4)


def scripted(*pieces: bytes) -> Script:
    async def script() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    return script


@pytest.mark.parametrize(
    ("pieces", "error"),
    [
        ((HEAD, text("a"), b"0\r\n\r\n"), "cut off"),
        ((HEAD, text("a"), b""), "connection lost"),
        ((HEAD, text("a"), event({"error": {"message": "engine dead"}}), END), "engine dead"),
        ((b"HTTP/1.1 500 No\r\nContent-Length: 4\r\n\r\noops",), "HTTP 500: oops"),
        ((b"nonsense\r\n\r\n",), "no HTTP"),
        ((HEAD, USAGE, END), "no text"),
    ],
)
def test_each_fault_fails_the_request(pieces: tuple[bytes, ...], error: str) -> None:
    with mock(scripted(*pieces)) as server:
        record, _ = ask(server)
    assert not record.is_success
    assert error in str(record.error)


def test_a_stall_fails_after_its_time_and_keeps_the_first_token() -> None:
    async def script() -> AsyncIterator[bytes]:
        yield HEAD
        yield text("a")
        await asyncio.sleep(30)

    with mock(script) as server:
        record, _ = ask(server, stall_s=0.3)
    assert "no byte for 0.3 s" in str(record.error)
    assert record.ttft_s is not None


def plan(**changes: object) -> LevelPlan:
    usual: dict[str, Any] = {
        "arrivals": Closed(max_concurrency=3),
        "n_warmup": 0,
        "min_requests": 5,
        "max_requests": 20,
        "max_s": 30,
        "stall_s": 5,
    }
    return LevelPlan(**(usual | changes))


async def quick() -> AsyncIterator[bytes]:
    yield HEAD
    await asyncio.sleep(0.005)
    yield text("a", "length")
    yield USAGE
    yield END


def level(server: Mock, hooks: LevelHooks | None = None, **changes: object) -> LevelResult:
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{server.port}", model="m")
    return run_level(endpoint, [Session(turns=(REQUEST,))] * 30, plan(**changes), hooks)


def test_a_level_measures_exactly_its_requests_after_the_start_burst() -> None:
    with mock(quick) as server:
        result = level(server)
    assert result.stopped_because is StopReason.REQUESTS
    assert len(result.measured) == 20
    assert [r.index for r in result.records if r.is_warmup] == [0, 1, 2]
    assert server.max_open == 3
    assert all(r.due_s >= result.window.start_s for r in result.measured)


def test_a_level_ends_when_it_is_decided() -> None:
    with mock(quick) as server:
        result = level(server, LevelHooks(should_stop=lambda record: record.index >= 10))
    assert result.stopped_because is StopReason.DECIDED
    assert len(result.measured) < 20


def test_a_cancelled_level_ends_within_seconds() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield HEAD
        await asyncio.sleep(60)

    started_s = time.perf_counter()
    with mock(slow) as server:
        result = level(server, LevelHooks(is_cancelled=lambda: True))
    assert result.stopped_because is StopReason.CANCELLED
    assert time.perf_counter() - started_s < 30


def test_a_server_that_is_gone_ends_the_level() -> None:
    with mock(quick) as server:
        pass
    result = level(server)
    assert result.stopped_because is StopReason.SERVER_GONE
    assert all(not record.is_success for record in result.records)
