"""A streaming OpenAI client that measures.

Owns one request on one connection: bytes out, arrival times in, and what every way of going wrong
means. It is written on asyncio protocols and a C parser, so that the time of arrival is taken
before anything is parsed and the client is not what limits the server.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import urlsplit

import httptools

from objectives import RequestRecord
from tuner.load.requests import PreparedRequest
from tuner.load.sse import TEXT, SseParser, read_event

_HTTP_OK = 200
_FIRST_FINAL = 200
_MAX_ERROR_BYTES = 400
_BUFFER_BYTES = 16_384
# A server that had closed an idle connection before it saw a request tells so at once; one that
# closes it later has taken the request and dropped it.
_IDLE_CLOSE_S = 0.1


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where requests go.

    Attributes:
        base_url: ``http://host:port``.
        model: The served model's name.
        api_key: Sent as a bearer token; ``None`` for none.
    """

    base_url: str
    model: str
    api_key: str | None = None


@dataclass(slots=True)
class _Answer:
    """What has come of one request so far."""

    done: asyncio.Future[None]
    status: int = 0
    chunk_s: list[float] = field(default_factory=list)
    usage: tuple[int, int] | None = None
    error: str | None = None
    is_finished: bool = False
    is_done: bool = False
    has_bytes: bool = False
    is_lost: bool = False
    last_s: float = 0.0
    body: bytes = b""
    sse: SseParser = field(default_factory=SseParser)

    def finish(self, error: str | None = None) -> None:
        """End the request; the first error stays."""
        self.error = self.error or error
        if not self.done.done():
            self.done.set_result(None)


class _Connection(asyncio.BufferedProtocol):
    """One keep-alive connection, one request at a time."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self._parser = httptools.HttpResponseParser(self)
        self._answer: _Answer | None = None
        self._now_s = 0.0
        self._has_length = False
        self._ends_with_connection = False
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None and exc is None and self._ends_with_connection:
            self.on_message_complete()
        elif self._answer is not None:
            self._answer.is_lost = True
            self._answer.finish(f"connection lost{f': {exc}' if exc else ''}")

    def send(self, answer: _Answer, head_and_body: bytes) -> None:
        """Send a request whose answer goes into ``answer``."""
        self._answer = answer
        self._has_length = False
        self._ends_with_connection = False
        self._parser = httptools.HttpResponseParser(self)
        assert self.transport is not None  # noqa: S101 - set when connected
        self.transport.write(head_and_body)

    def close(self) -> None:
        """Drop the connection and whatever is on it."""
        self.is_open = False
        self._answer = None
        if self.transport is not None:
            self.transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - as it is called
        """Called before each read: one buffer for all of them, since an event is small."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called after each read."""
        self._now_s = time.perf_counter()
        if self._answer is None:
            self.close()
            return
        self._answer.has_bytes = True
        self._answer.last_s = self._now_s
        try:
            self._parser.feed_data(self._buffer[:nbytes])
        except httptools.HttpParserError as error:
            answer, self._answer = self._answer, None
            if answer is not None:
                answer.finish(f"the answer is no HTTP: {error}")
            self.close()

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002 - as it is called
        """Called by the parser with each header."""
        self._has_length |= name.lower() in {b"content-length", b"transfer-encoding"}

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        # RFC 9112, 6.3: a body of no stated length ends where the connection does.
        self._ends_with_connection = not self._has_length
        if self._answer is not None:
            self._answer.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        """Called by the parser with each piece of the body."""
        answer = self._answer
        if answer is None:
            return
        if answer.status != _HTTP_OK:
            answer.body = (answer.body + body)[:_MAX_ERROR_BYTES]
            return
        for payload in answer.sse.feed(body):
            event = read_event(payload)
            if event is TEXT:
                # By far the most of all events: text and nothing else.
                answer.chunk_s.append(self._now_s)
                continue
            if event.has_text:
                answer.chunk_s.append(self._now_s)
            answer.is_finished |= event.is_finish
            answer.is_done |= event.is_done
            answer.usage = event.usage or answer.usage
            answer.error = answer.error or event.error

    def on_message_complete(self) -> None:
        """Called by the parser at the end of the answer."""
        if self._answer is not None and self._answer.status < _FIRST_FINAL:
            # An interim answer; the final one follows.
            return
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if answer.status != _HTTP_OK:
            text = answer.body.decode("utf-8", errors="replace")
            answer.finish(f"HTTP {answer.status}: {' '.join(text.split())[:200]}")
        elif not (answer.is_done or answer.is_finished):
            answer.finish("the stream was cut off before its end")
        else:
            answer.finish()
        if not self._parser.should_keep_alive():
            self.close()


class StreamingClient:
    """Sends prepared requests to one endpoint over a pool of connections.

    Args:
        endpoint: Where to.
        stall_s: A request that gets no byte for so long has failed.
        origin_s: ``time.perf_counter()`` at the zero of the records' clock.
    """

    def __init__(self, endpoint: Endpoint, *, stall_s: float, origin_s: float) -> None:
        parts = urlsplit(endpoint.base_url)
        self._host = parts.hostname or "127.0.0.1"
        self._port = parts.port or 80
        key = f"Authorization: Bearer {endpoint.api_key}\r\n" if endpoint.api_key else ""
        self._head = (
            f"Host: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Accept: text/event-stream\r\n{key}Content-Length: "
        )
        self._stall_s = stall_s
        self._origin_s = origin_s
        self._idle: list[_Connection] = []

    def now_s(self) -> float:
        """The time on the records' clock."""
        return time.perf_counter() - self._origin_s

    async def run(self, request: PreparedRequest, *, index: int, due_s: float) -> RequestRecord:
        """Send one request and follow its answer to the end.

        Args:
            request: What to send.
            index: Its position in the level.
            due_s: When it was due, on the records' clock.

        Returns:
            What happened; never an exception but cancellation.
        """
        head = f"POST {request.path} HTTP/1.1\r\n{self._head}{len(request.body)}\r\n\r\n"
        message = head.encode() + request.body
        answer = self._new_answer()
        sent_s: float | None = None
        connection: _Connection | None = None
        try:
            connection, is_reused = await self._connect()
            sent_s = self.now_s()
            connection.send(answer, message)
            await self._follow(answer, connection)
            lost_s = time.perf_counter() - self._origin_s - sent_s
            if is_reused and answer.is_lost and not answer.has_bytes and lost_s < _IDLE_CLOSE_S:
                # The server closed an idle connection just as we used it: it never saw this.
                answer = self._new_answer()
                connection, _ = await self._connect(fresh=True)
                sent_s = self.now_s()
                connection.send(answer, message)
                await self._follow(answer, connection)
        except OSError as error:
            answer.finish(f"cannot connect: {error}")
        except asyncio.CancelledError:
            if connection is not None:
                connection.close()
            raise
        if connection is not None and connection.is_open:
            self._idle.append(connection)
        return self._record(request, answer, index=index, due_s=due_s, sent_s=sent_s)

    def close(self) -> None:
        """Close the idle connections."""
        for connection in self._idle:
            connection.close()
        self._idle.clear()

    def _new_answer(self) -> _Answer:
        loop = asyncio.get_running_loop()
        return _Answer(done=loop.create_future(), last_s=time.perf_counter())

    async def _connect(self, *, fresh: bool = False) -> tuple[_Connection, bool]:
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_open:
                return connection, True
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(self._stall_s):
            _, connection = await loop.create_connection(_Connection, self._host, self._port)
        return connection, False

    async def _follow(self, answer: _Answer, connection: _Connection) -> None:
        """Wait for the end of an answer, or for the silence that counts as a stall."""
        while not answer.done.done():
            silent_s = time.perf_counter() - answer.last_s
            if silent_s >= self._stall_s:
                connection.close()
                answer.finish(f"no byte for {self._stall_s:g} s")
                return
            await asyncio.wait({answer.done}, timeout=self._stall_s - silent_s)

    def _record(
        self,
        request: PreparedRequest,
        answer: _Answer,
        *,
        index: int,
        due_s: float,
        sent_s: float | None,
    ) -> RequestRecord:
        n_prompt, n_output = answer.usage or (None, None)
        return RequestRecord(
            index=index,
            due_s=due_s,
            sent_s=sent_s,
            chunk_s=tuple(moment - self._origin_s for moment in answer.chunk_s),
            end_s=self.now_s(),
            n_prompt_tok=n_prompt,
            n_output_tok=n_output,
            n_output_tok_asked=request.n_output_tok,
            error=answer.error or (None if answer.chunk_s else "the answer has no text"),
        )
