"""A streaming OpenAI server whose every byte is on a plan, and that tells when it wrote it.

Run as ``python mock_openai.py``; standard library only. It prints its port and ends when its
standard input closes, so that no test can leave it behind.

A request to ``/v1/completions`` or ``/v1/chat/completions`` brings the plan of its own answer in
the field ``mock`` of its body:

    id       under which ``GET /truth`` gives back what was done
    steps    ``[at_ms, kind, value]`` each: when, counted from the arrival of the request, and what
    newline  ``"\\n"`` (default) or ``"\\r\\n"``, of the events
    split_ms each event is written in two halves, so far apart; absent for one piece
    framing  ``"chunked"`` (default), or ``"close"``: the body ends with the connection

Kinds that write an event: ``role``, ``empty``, ``text``, ``reasoning_content``, ``reasoning`` (the
value of the last three is their number of tokens), ``finish`` (value: the reason), ``usage``
(value: output tokens), ``done``, ``error`` (value: message), ``event`` (value: any payload).
Kinds that write something else: ``head`` (the head alone; otherwise it goes out with the first
piece of the body), ``raw`` (value: text put into the body as it is), ``http`` (value: ``[status,
text]``, a whole answer without a stream), ``bare`` (value: text instead of any HTTP).
Kinds that end: ``end`` (the last piece; the connection stays), ``leave`` (the last piece and, with
no word of it, FIN), ``close`` (FIN), ``reset`` (RST).
A plan that stops without one of them is a stall.

All moments are on an absolute plan, so that no lateness adds up; what counts for a test are the
moments in the truth, of ``time.perf_counter()``, which on Linux is one clock for all processes.
Without a plan the answer is that of the command line: ``--ttft-ms``, ``--tpot-ms`` and as many
one-token chunks as the request's ``max_tokens``.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import functools
import http.client
import json
import os
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Step = Sequence[Any]

WORD = " ä"
N_PROMPT_TOK = 7
PATHS = {"/v1/completions": False, "/v1/chat/completions": True}
TEXT_KINDS = ("text", "reasoning_content", "reasoning")
REASONS = {200: "OK", 404: "Not Found", 429: "Too Many Requests", 500: "Internal Server Error"}


@dataclass(frozen=True)
class Plan:
    """How one request is answered."""

    steps: Sequence[Step]
    is_chat: bool
    newline: str = "\n"
    split_s: float | None = None
    is_chunked: bool = True


@dataclass
class Exchange:
    """What was done for one request: ``written`` has kind, value and moment of each step."""

    received_s: float
    written: list[tuple[str, Any, float]] = field(default_factory=list)


class Mock:
    """What the connections share."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self.n_events = 0
        self.n_requests = 0
        self.exchanges: dict[str, list[Exchange]] = {}

    def truth(self) -> bytes:
        requests = {
            name: [{"received_s": one.received_s, "written": one.written} for one in exchanges]
            for name, exchanges in self.exchanges.items()
        }
        counts = {"n_events": self.n_events, "n_requests": self.n_requests}
        return json.dumps(counts | {"requests": requests}).encode()

    def begin(self, body: dict[str, Any], *, is_chat: bool) -> tuple[Plan, Exchange | None]:
        """The plan of one request, and where to note what was done if it asked for that."""
        self.n_requests += 1
        asked = body.get("mock")
        if asked is None:
            return self._usual(body, is_chat=is_chat), None
        split_ms = asked.get("split_ms")
        plan = Plan(
            steps=asked["steps"],
            is_chat=is_chat,
            newline=asked.get("newline", "\n"),
            split_s=None if split_ms is None else split_ms / 1000,
            is_chunked=asked.get("framing", "chunked") == "chunked",
        )
        exchange = Exchange(received_s=time.perf_counter())
        self.exchanges.setdefault(asked["id"], []).append(exchange)
        return plan, exchange

    def _usual(self, body: dict[str, Any], *, is_chat: bool) -> Plan:
        """As vLLM answers: role and first token together, the reason with the last token."""
        n_tok = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        ttft_ms, tpot_ms = self._arguments.ttft_ms, self._arguments.tpot_ms
        steps: list[Step] = [(ttft_ms, "role", None)] if is_chat else []
        steps += [(ttft_ms + tpot_ms * n, "text", 1) for n in range(n_tok)]
        last_ms = steps[-1][0]
        steps += [(last_ms, "finish", "length"), (last_ms, "usage", n_tok)]
        steps += [(last_ms, "done", None), (last_ms, "end", None)]
        return Plan(steps=steps, is_chat=is_chat)


def payload(kind: str, value: Any, *, is_chat: bool) -> str:  # noqa: ANN401 - a plan's value
    """The data of one event, in the shapes of vLLM 0.32."""
    if kind == "done":
        return "[DONE]"
    if kind == "event":
        return dump(value)
    if kind == "error":
        error = {"message": value, "type": "InternalServerError", "param": None, "code": 500}
        return dump({"error": error})
    name = "chatcmpl-0123456789abcdef" if is_chat else "cmpl-0123456789abcdef"
    sort = "chat.completion.chunk" if is_chat else "text_completion"
    frame = {"id": name, "object": sort, "created": 1_700_000_000, "model": "mock"}
    if kind == "usage":
        usage = {"prompt_tokens": N_PROMPT_TOK, "total_tokens": N_PROMPT_TOK + value}
        usage |= {"completion_tokens": value}
        return dump(frame | {"choices": [], "usage": usage})
    reason = value if kind == "finish" else None
    text = WORD * value if kind in TEXT_KINDS else ""
    rest = {"logprobs": None, "finish_reason": reason}
    if not is_chat:
        rest |= {"stop_reason": None, "prompt_token_ids": None, "token_ids": None}
        return dump(frame | {"choices": [{"index": 0, "text": text} | rest]})
    delta = {"content" if kind not in TEXT_KINDS[1:] else kind: text}
    if kind == "role":
        delta = {"role": "assistant"} | delta
    return dump(frame | {"choices": [{"index": 0, "delta": delta} | rest]})


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def event_bytes(kind: str, value: Any, plan: Plan) -> bytes:  # noqa: ANN401 - a plan's value
    """What goes into the body for one step."""
    if kind == "head":
        return b""
    if kind == "raw":
        return str(value).encode()
    if kind == "event":
        data = payload(kind, value, is_chat=plan.is_chat)
        return f"data: {data}{plan.newline}{plan.newline}".encode()
    return plain_event(kind, value, plan.is_chat, plan.newline)


@functools.lru_cache(maxsize=4096)
def plain_event(kind: str, value: int | str | None, is_chat: bool, newline: str) -> bytes:
    data = payload(kind, value, is_chat=is_chat)
    return f"data: {data}{newline}{newline}".encode()


@functools.lru_cache(maxsize=4096)
def as_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data) if data else b""


class Connection(asyncio.Protocol):
    """One connection, one request at a time."""

    transport: asyncio.Transport

    def __init__(self, mock: Mock) -> None:
        self._mock = mock
        self._loop = asyncio.get_running_loop()
        self._buffer = b""
        self._timer: asyncio.TimerHandle | None = None
        self._plan: Plan | None = None
        self._exchange: Exchange | None = None
        self._start_s = 0.0
        self._at = 0
        self._has_head = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - a protocol's
        self._plan = None
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._plan is None:
            self._read_request()

    def _read_request(self) -> None:
        head, is_whole, rest = self._buffer.partition(b"\r\n\r\n")
        if not is_whole:
            return
        first, *lines = head.decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in lines)
        n_body = int(headers.get("content-length", "0"))
        if len(rest) < n_body:
            return
        body, self._buffer = rest[:n_body], rest[n_body:]
        path = first.split(" ")[1]
        if path in PATHS:
            self._plan, self._exchange = self._mock.begin(json.loads(body), is_chat=PATHS[path])
            self._start_s, self._at, self._has_head = time.perf_counter(), 0, False
            self._go_on()
        else:
            is_truth = path == "/truth"
            self._whole(200 if is_truth else 404, self._mock.truth() if is_truth else b"{}")

    def _whole(self, status: int, body: bytes) -> None:
        head = f"HTTP/1.1 {status} {REASONS.get(status, 'Unknown')}\r\n"
        head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        self.transport.write(head.encode() + body)

    def _go_on(self) -> None:
        """Do the steps that are due."""
        while self._plan is not None and self._at < len(self._plan.steps):
            at_ms, kind, value = self._plan.steps[self._at]
            due_s = self._start_s + at_ms / 1000
            if due_s > time.perf_counter():
                self._timer = self._loop.call_at(due_s, self._go_on)
                return
            self._at += 1
            self._do(kind, value, self._plan)

    def _do(self, kind: str, value: Any, plan: Plan) -> None:  # noqa: ANN401 - a plan's value
        match kind:
            case "http":
                self._note(kind, value)
                self._whole(value[0], value[1].encode())
                self._end()
            case "bare":
                self._note(kind, value)
                self.transport.write(value.encode())
            case "close":
                self._note(kind, value)
                self.transport.close()
                self._end()
            case "reset":
                self._note(kind, value)
                linger = struct.pack("ii", 1, 0)
                sock = self.transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                self.transport.abort()
                self._end()
            case "end" | "leave":
                self._note(kind, value)
                self.transport.write(b"0\r\n\r\n")
                if kind == "leave":
                    self.transport.close()
                self._end()
            case _:
                self._write(kind, value, plan)

    def _end(self) -> None:
        self._plan = None
        # Not at once: the steps of the answer that ends are still on the stack.
        self._loop.call_soon(self._read_request)

    def _write(self, kind: str, value: Any, plan: Plan) -> None:  # noqa: ANN401 - a plan's value
        data = event_bytes(kind, value, plan)
        wire = as_chunk(data) if plan.is_chunked else data
        if not self._has_head:
            self._has_head = True
            framing = "transfer-encoding: chunked" if plan.is_chunked else "connection: close"
            head = f"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{framing}\r\n\r\n"
            if plan.split_s is None:
                wire = head.encode() + wire
            else:
                self.transport.write(head.encode())
        self._mock.n_events += kind not in {"head", "raw"}
        if plan.split_s is None or not wire:
            self._note(kind, value)
            self.transport.write(wire)
            return
        self.transport.write(wire[: len(wire) // 2])
        # The other steps wait for the second half.
        self._plan = None
        self._timer = self._loop.call_at(
            time.perf_counter() + plan.split_s,
            lambda: self._second_half(kind, value, plan, wire[len(wire) // 2 :]),
        )

    def _second_half(self, kind: str, value: object, plan: Plan, wire: bytes) -> None:
        self._note(kind, value)
        self.transport.write(wire)
        self._plan = plan
        self._go_on()

    def _note(self, kind: str, value: object) -> None:
        """Before the bytes go: a client cannot have got them earlier."""
        if self._exchange is not None:
            self._exchange.written.append((kind, value, time.perf_counter()))


def end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


async def serve(arguments: argparse.Namespace) -> None:
    mock = Mock(arguments)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(mock), "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextlib.contextmanager
def running_mock(*words: str) -> Iterator[int]:
    """The mock in a process of its own; gives its port.

    Args:
        words: Of its command line.
    """
    command = [sys.executable, __file__, *words]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.stdin.close()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                raise


def fetch_truth(port: int) -> dict[str, Any]:
    """What the mock has done: ``n_events``, ``n_requests``, ``requests`` by id.

    Each request has a list of its exchanges, one for each time that it was sent; each of those
    has ``received_s`` and ``written``, a list of kind, value and moment.
    """
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", "/truth")
        truth: dict[str, Any] = json.loads(connection.getresponse().read())
    finally:
        connection.close()
    return truth


def main() -> None:
    parser = argparse.ArgumentParser(description="A mock OpenAI server; see the module's head.")
    parser.add_argument("--ttft-ms", type=float, default=50.0)
    parser.add_argument("--tpot-ms", type=float, default=10.0)
    arguments = parser.parse_args()
    threading.Thread(target=end_with_parent, daemon=True).start()
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
