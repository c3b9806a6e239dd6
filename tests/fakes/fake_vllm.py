"""A server that behaves like ``vllm serve``, without a model; standard library only.

Run as ``python fake_vllm.py serve MODEL --flag value ...``. It has vLLM's process shape (an API
server that leads, an engine as its child in the same process group), its log, its API and a simple
law of its speed:

    TPOT = (base + slope * running) * factor(dtype, quantization) / gain(speculation)
    TTFT = time in the queue + base_ttft

At most ``--max-num-seqs`` requests run; the others wait in the order in which they came.

Environment, times in milliseconds:
    FAKE_VLLM_TPOT_MS   base, default 1; 0 answers at once, without any sleep
    FAKE_VLLM_SLOPE_MS  default a tenth of the base
    FAKE_VLLM_TTFT_MS   default five times the base
    FAKE_VLLM_START_MS  from the start to the open port, default 0
    FAKE_VLLM_SHM       name of a segment that the engine makes under /dev/shm and keeps mapped
    FAKE_VLLM_FAULT     see ``FAULTS``; N counts completions, the readiness probe included
    FAKE_VLLM_FAULT_IF  the fault only where these words occur in the command line
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from typing import Any, NoReturn

FAULTS = (
    "refuse",  # the argument parser refuses a dtype: exit 2
    "oom",  # torch runs out of GPU memory: exit 1
    "hang",  # never listens, never ends
    "hang_first_token",  # listens, but no completion is ever answered
    "die_after:N",  # the engine is killed; later completions fail, /health still says 200
    "hang_after:N",  # later completions are never answered, /health still says 200
    "exit_after:N",  # the whole server exits with 1 at the next completion
    "ignore_sigterm",  # neither leader nor engine ends on SIGTERM
    "leave_grandchild",  # a process in the group that ignores SIGTERM outlives the leader
    "http500",  # every completion answers 500; "http500:N" after N good ones
    "wrong_length",  # half of the tokens that were asked for; "wrong_length:N" after N good ones
)
VERSION = "0.32.0"
# A lost server ends by itself, so that a test that was killed leaves nothing for ever.
MAX_LIFE_S = 600.0
DTYPE_FACTORS = {"float32": 1.5, "float16": 0.9, "half": 0.9}
QUANTIZATION_FACTORS = {"fp8": 0.6, "int8_per_channel_weight_only": 0.75}
ACCEPTANCE = 0.6
DRAFT_COST = 0.1
NOT_FOUND = 404


class Arguments:
    """The command line, every flag taken as it comes."""

    def __init__(self, words: list[str]) -> None:
        self.model = "unnamed"
        self.flags: dict[str, str] = {}
        rest = list(words)
        while rest:
            word = rest.pop(0)
            if not word.startswith("--"):
                self.model = word
                continue
            name, has_value, value = word[2:].partition("=")
            if not has_value:
                value = rest.pop(0) if rest and not rest[0].startswith("--") else "true"
            self.flags[name.replace("_", "-")] = value

    def text(self, name: str, default: str) -> str:
        return self.flags.get(name, default)

    def number(self, name: str, default: int) -> int:
        return int(self.flags.get(name, default))

    @property
    def served_name(self) -> str:
        return self.text("served-model-name", self.model)

    @property
    def speed_factor(self) -> float:
        """What a token costs against the base: lower is faster."""
        factor = DTYPE_FACTORS.get(self.text("dtype", "auto"), 1.0)
        factor *= QUANTIZATION_FACTORS.get(self.text("quantization", ""), 1.0)
        n_draft = int(json.loads(self.text("speculative-config", "{}")).get(_DRAFT_KEY, 0))
        # Expected tokens of one step with n drafts, each accepted with the same chance.
        n_accepted = sum(ACCEPTANCE**n for n in range(n_draft + 1))
        return factor * (1 + DRAFT_COST * n_draft) / n_accepted


_DRAFT_KEY = "num_speculative_tokens"


class Fault:
    """The fault asked for by the environment, if any."""

    def __init__(self, words: list[str]) -> None:
        asked = os.environ.get("FAKE_VLLM_FAULT", "")
        if os.environ.get("FAKE_VLLM_FAULT_IF", "") not in " ".join(words):
            asked = ""
        self.name, _, count = asked.partition(":")
        self._n_good = int(count or 0)
        if self.name and self.name not in {fault.partition(":")[0] for fault in FAULTS}:
            sys.exit(f"fake_vllm: unknown FAKE_VLLM_FAULT {asked!r}")

    def strikes(self, name: str, n_seen: int = 0) -> bool:
        """Whether this fault is on, for the completion after ``n_seen`` others."""
        return self.name == name and n_seen >= self._n_good


def env_ms(name: str, default_ms: float) -> float:
    return float(os.environ.get(f"FAKE_VLLM_{name}_MS", default_ms))


def log(text: str, *, who: str = "APIServer", level: str = "INFO", where: str = "x.py:1") -> None:
    stamp = time.strftime("%m-%d %H:%M:%S")
    print(f"({who} pid={os.getpid()}) {level} {stamp} [{where}] {text}", flush=True)


def start_engine(*, stays_on_sigterm: bool, leaves_grandchild: bool) -> int:
    """Fork the engine; it shares the process group and the environment of the leader."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stays_on_sigterm else signal.SIG_DFL)
    if leaves_grandchild and os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    segment = hold_segment(os.environ.get("FAKE_VLLM_SHM"))
    time.sleep(MAX_LIFE_S)
    del segment
    os._exit(0)


def hold_segment(name: str | None) -> mmap.mmap | None:
    if name is None:
        return None
    with open(f"/dev/shm/{name}", "w+b") as file:  # noqa: S108, PTH123 - this is its place
        file.truncate(mmap.PAGESIZE)
        file.flush()
        return mmap.mmap(file.fileno(), mmap.PAGESIZE)


class Server:
    """The API server."""

    def __init__(self, arguments: Arguments, fault: Fault, engine_pid: int) -> None:
        self.arguments = arguments
        self.fault = fault
        self.engine_pid = engine_pid
        self.is_engine_dead = False
        self.n_seen = self.n_running = self.n_waiting = 0
        self.n_prompt_tok = self.n_generated_tok = 0
        self.n_finished = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self.base_ms = env_ms("TPOT", 1.0)
        self.slope_ms = env_ms("SLOPE", self.base_ms / 10)
        self.ttft_ms = env_ms("TTFT", self.base_ms * 5)
        self.slots = asyncio.Semaphore(arguments.number("max-num-seqs", 256))
        self.created_s = int(time.clock_gettime(time.CLOCK_REALTIME))

    def kill_engine(self, number: int = signal.SIGKILL) -> None:
        self.is_engine_dead = True
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.engine_pid, number)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.engine_pid, 0 if number == signal.SIGKILL else os.WNOHANG)

    async def serve(self) -> None:
        host = self.arguments.text("host", "127.0.0.1")
        listener = await asyncio.start_server(
            self.on_connection, host, self.arguments.number("port", 8000), backlog=1024
        )
        port = listener.sockets[0].getsockname()[1]
        log(f"Starting vLLM server on http://{host}:{port}", where="entry.py:140")
        print(f"INFO:     Started server process [{os.getpid()}]")
        print("INFO:     Waiting for application startup.")
        print("INFO:     Application startup complete.", flush=True)
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        if not self.fault.strikes("ignore_sigterm"):
            loop.add_signal_handler(signal.SIGTERM, ended.set)
        loop.add_signal_handler(signal.SIGINT, ended.set)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(ended.wait(), MAX_LIFE_S)
        log("[shutdown] API server: shutdown triggered", where="launcher.py:254")
        self.kill_engine(signal.SIGTERM)
        listener.close()
        print("INFO:     Application shutdown complete.", flush=True)
        os._exit(0)

    async def on_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        try:
            while await self.one_exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    async def one_exchange(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        """Answer one request; tells whether the connection stays open."""
        head = await reader.readuntil(b"\r\n\r\n")
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        headers = dict(
            line.split(": ", 1) for line in head.decode("latin-1").lower().split("\r\n")[1:-2]
        )
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        answer = Answer(reader, writer)
        if method == "POST" and path in {"/v1/completions", "/v1/chat/completions"}:
            try:
                asked = Asked(json.loads(body), is_chat=path.endswith("chat/completions"))
            except (ValueError, KeyError, TypeError) as error:
                answer.send_json(400, error_body(f"bad request: {error}", "BadRequestError", 400))
            else:
                await self.complete(asked, answer)
        else:
            self.answer_get(path.partition("?")[0], answer)
        await writer.drain()
        return headers.get("connection") != "close"

    def answer_get(self, path: str, answer: Answer) -> None:
        card = {"id": self.arguments.served_name, "object": "model", "created": self.created_s}
        card |= {"owned_by": "vllm", "root": self.arguments.model}
        card |= {"max_model_len": self.arguments.number("max-model-len", 2048)}
        if path in {"/health", "/ping", "/reset_prefix_cache"}:
            answer.send(200, b"", "text/plain")
        elif path == "/version":
            answer.send_json(200, {"version": VERSION})
        elif path == "/v1/models":
            answer.send_json(200, {"object": "list", "data": [card]})
        elif path == "/metrics":
            answer.send(200, self.metrics().encode(), "text/plain; version=0.0.4; charset=utf-8")
        else:
            answer.send_json(NOT_FOUND, {"detail": "Not Found"})

    def metrics(self) -> str:
        name = self.arguments.served_name
        gauges = {
            "num_requests_running": self.n_running,
            "num_requests_waiting": self.n_waiting,
            "kv_cache_usage_perc": min(1.0, self.n_running / 256),
        }
        counters = {
            "prefix_cache_queries_total": self.n_prompt_tok,
            "prefix_cache_hits_total": 0,
            "num_preemptions_total": 0,
            "prompt_tokens_total": self.n_prompt_tok,
            "generation_tokens_total": self.n_generated_tok,
        }
        lines = []
        for kind, families in (("gauge", gauges), ("counter", counters)):
            for family, value in families.items():
                lines.append(f"# TYPE vllm:{family} {kind}")
                lines.append(f'vllm:{family}{{engine="0",model_name="{name}"}} {float(value)}')
        lines.append("# TYPE vllm:request_success_total counter")
        lines += [
            f'vllm:request_success_total{{engine="0",finished_reason="{reason}",'
            f'model_name="{name}"}} {float(count)}'
            for reason, count in self.n_finished.items()
        ]
        return "\n".join(lines) + "\n"

    async def complete(self, asked: Asked, answer: Answer) -> None:
        n_seen, self.n_seen = self.n_seen, self.n_seen + 1
        if asked.model not in {None, self.arguments.served_name}:
            text = f"The model `{asked.model}` does not exist."
            answer.send_json(NOT_FOUND, error_body(text, "NotFoundError", NOT_FOUND))
            return
        if self.fault.strikes("exit_after", n_seen):
            self.kill_engine()
            log("EngineCore died unexpectedly", level="ERROR", where="core_client.py:600")
            os._exit(1)
        if self.fault.strikes("die_after", n_seen) and not self.is_engine_dead:
            self.kill_engine()
            log("AsyncLLM output_handler failed.", level="ERROR", where="async_llm.py:700")
            log(f"{_DEAD}: {_DEAD_TEXT}", level="ERROR", where="async_llm.py:700")
        if self.is_engine_dead or self.fault.strikes("http500", n_seen):
            self.n_finished["error"] += 1
            answer.send_json(500, error_body(_DEAD_TEXT, "InternalServerError", 500))
            return
        if self.fault.strikes("hang_first_token") or self.fault.strikes("hang_after", n_seen):
            await asyncio.sleep(MAX_LIFE_S)
        if self.fault.strikes("wrong_length", n_seen):
            asked.n_tok = max(1, asked.n_tok // 2)
            asked.finish_reason = "stop"
        self.n_prompt_tok += asked.n_prompt_tok
        if asked.is_stream:
            await self.stream(asked, answer)
        else:
            n_made = 0
            async for _ in self.tokens(asked, answer):
                n_made += 1
            if n_made == asked.n_tok:
                answer.send_json(200, asked.whole(self.arguments.served_name))
            else:
                answer.send_json(500, error_body(_DEAD_TEXT, "InternalServerError", 500))

    async def stream(self, asked: Asked, answer: Answer) -> None:
        answer.open_stream()
        name = self.arguments.served_name
        if asked.is_chat:
            answer.send_event(asked.role_chunk(name))
        n_made = 0
        async for _ in self.tokens(asked, answer):
            n_made += 1
            answer.send_event(asked.chunk(name, n_made))
        if n_made < asked.n_tok:
            answer.send_event(error_body(_DEAD_TEXT, "InternalServerError", 500))
        elif asked.wants_usage:
            answer.send_event(asked.usage_chunk(name))
        answer.close_stream()

    async def tokens(self, asked: Asked, answer: Answer) -> AsyncIterator[None]:
        """One step per token, in time; ends early where the engine dies or the client leaves."""
        self.n_waiting += 1
        try:
            await self.slots.acquire()
        finally:
            self.n_waiting -= 1
        self.n_running += 1
        reason = "error"
        try:
            # Steps are due on a clock, so that late wake-ups do not add up.
            due_s = time.perf_counter()
            for step in range(asked.n_tok):
                tpot_ms = (self.base_ms + self.slope_ms * self.n_running) * self.speed
                due_s += (self.ttft_ms if step == 0 else tpot_ms) / 1000
                if self.base_ms:
                    await asyncio.sleep(max(0.0, due_s - time.perf_counter()))
                if self.is_engine_dead:
                    return
                if answer.is_client_gone():
                    reason = "abort"
                    return
                self.n_generated_tok += 1
                yield
            reason = asked.finish_reason
        finally:
            self.n_finished[reason] += 1
            self.n_running -= 1
            self.slots.release()

    @property
    def speed(self) -> float:
        return self.arguments.speed_factor


_DEAD = "vllm.v1.engine.exceptions.EngineDeadError"
_DEAD_TEXT = "EngineCore encountered an issue. See stack trace (above) for the root cause."


def error_body(message: str, kind: str, code: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


class Answer:
    """One HTTP answer on a connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    def is_client_gone(self) -> bool:
        return self._writer.is_closing() or self._reader.at_eof()

    def send(self, status: int, body: bytes, kind: str) -> None:
        head = f"HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + body)

    def send_json(self, status: int, body: dict[str, Any]) -> None:
        self.send(status, dump(body), "application/json")

    def open_stream(self) -> None:
        self._writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n"
            b"transfer-encoding: chunked\r\n\r\n"
        )

    def send_event(self, body: dict[str, Any]) -> None:
        self._chunk(b"data: " + dump(body) + b"\n\n")

    def close_stream(self) -> None:
        self._chunk(b"data: [DONE]\n\n")
        self._writer.write(b"0\r\n\r\n")

    def _chunk(self, data: bytes) -> None:
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))


def dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()


def count_tok(prompt: object) -> int:
    """Words of a text; token ids are counted as they are."""
    if isinstance(prompt, list) and prompt and isinstance(prompt[0], int):
        return len(prompt)
    if isinstance(prompt, list):
        return sum(
            count_tok(part.get("text") if isinstance(part, dict) else part) for part in prompt
        )
    return len(str(prompt or "").split())


class Asked:
    """One completion request and the shapes of its answer."""

    def __init__(self, body: dict[str, Any], *, is_chat: bool) -> None:
        self.is_chat = is_chat
        self.model = body.get("model")
        self.n_tok = max(1, int(body.get("max_completion_tokens") or body.get("max_tokens") or 16))
        self.is_stream = bool(body.get("stream"))
        self.wants_usage = bool((body.get("stream_options") or {}).get("include_usage"))
        self.finish_reason = "length"
        if is_chat:
            self.n_prompt_tok = sum(count_tok(m.get("content")) for m in body["messages"])
        else:
            self.n_prompt_tok = count_tok(body["prompt"])
        self._created_s = int(time.clock_gettime(time.CLOCK_REALTIME))
        self._id = f"{'chatcmpl' if is_chat else 'cmpl'}-{os.urandom(8).hex()}"

    def _frame(self, name: str, kind: str) -> dict[str, Any]:
        return {"id": self._id, "object": kind, "created": self._created_s, "model": name}

    @property
    def _chunk_kind(self) -> str:
        return "chat.completion.chunk" if self.is_chat else "text_completion"

    def usage(self) -> dict[str, int]:
        total = self.n_prompt_tok + self.n_tok
        return {
            "prompt_tokens": self.n_prompt_tok,
            "total_tokens": total,
            "completion_tokens": self.n_tok,
        }

    def role_chunk(self, name: str) -> dict[str, Any]:
        delta = {"role": "assistant", "content": ""}
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}
        return self._frame(name, self._chunk_kind) | {"choices": [choice]}

    def chunk(self, name: str, n_made: int) -> dict[str, Any]:
        """The n-th token; as in vLLM the last one also says why it is the last."""
        text: dict[str, Any] = {"delta": {"content": " a"}} if self.is_chat else {"text": " a"}
        reason = self.finish_reason if n_made == self.n_tok else None
        choice = {"index": 0} | text | {"logprobs": None, "finish_reason": reason}
        body = self._frame(name, self._chunk_kind) | {"choices": [choice]}
        return body if self.is_chat else body | {"usage": None}

    def usage_chunk(self, name: str) -> dict[str, Any]:
        return self._frame(name, self._chunk_kind) | {"choices": [], "usage": self.usage()}

    def whole(self, name: str) -> dict[str, Any]:
        text = " a" * self.n_tok
        said: dict[str, Any] = (
            {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        )
        choice = {"index": 0} | said | {"logprobs": None, "finish_reason": self.finish_reason}
        kind = "chat.completion" if self.is_chat else "text_completion"
        return self._frame(name, kind) | {"choices": [choice], "usage": self.usage()}


def refuse_dtype() -> NoReturn:
    print("usage: vllm serve [model_tag] [options]")
    print(
        "vllm-serve: error: argument --dtype: invalid choice: 'int4' (choose from 'auto', "
        "'bfloat16', 'float', 'float16', 'float32', 'half')",
        flush=True,
    )
    sys.exit(2)


def refuse_batched_tokens(n_batched_tok: int, n_seqs: int) -> NoReturn:
    print("Traceback (most recent call last):")
    print(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for SchedulerConfig\n"
        f"  Value error, max_num_batched_tokens ({n_batched_tok}) must be greater than or equal "
        f"to max_num_seqs ({n_seqs}). [type=value_error, input_value=ArgsKwargs((), "
        "{'runner_t..., 'stream_interval': 1}), input_type=ArgsKwargs]\n"
        "    For further information visit https://errors.pydantic.dev/2.14/v/value_error",
        flush=True,
    )
    sys.exit(1)


def run_out_of_memory() -> NoReturn:
    who = {"who": "EngineCore", "level": "ERROR", "where": "core.py:1510"}
    log("EngineCore failed to start.", **who)
    log("Traceback (most recent call last):", **who)
    log(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
        "total capacity of 79.11 GiB of which 1.06 GiB is free.",
        **who,
    )
    print("Traceback (most recent call last):")
    print(
        "RuntimeError: Engine core initialization failed. See root cause above. "
        "Failed core proc(s): {'EngineCore': 1}",
        flush=True,
    )
    sys.exit(1)


def stop_while_loading(engine_pid: int) -> NoReturn:
    with contextlib.suppress(ProcessLookupError):
        os.kill(engine_pid, signal.SIGTERM)
    os._exit(0)


def check_limits(arguments: Arguments) -> None:
    if {"max-num-batched-tokens", "max-num-seqs"} <= arguments.flags.keys():
        n_batched_tok = arguments.number("max-num-batched-tokens", 0)
        n_seqs = arguments.number("max-num-seqs", 0)
        if n_batched_tok < n_seqs:
            refuse_batched_tokens(n_batched_tok, n_seqs)


def load_model(arguments: Arguments) -> None:
    """Say what a loading server says."""
    engine, worker = {"who": "EngineCore"}, {"who": "Worker"}
    log(
        f"Initializing a V1 LLM engine (v{VERSION}) with config: model='{arguments.model}'",
        **engine,
    )
    log(f"Starting to load model {arguments.model}...", **worker)
    log("Loading weights took 0.02 seconds", **worker)
    log("GPU KV cache size: 1,048,576 tokens", **engine)
    log("init engine (profile, create kv cache, warmup model) took 0.01 s", **engine)


def main(words: list[str]) -> None:
    if words[:1] == ["serve"]:
        words = words[1:]
    arguments, fault = Arguments(words), Fault(words)
    log(f"version {VERSION}  model {arguments.model}")
    log(f"non-default args: {arguments.flags}")
    if fault.strikes("refuse"):
        refuse_dtype()
    check_limits(arguments)
    engine_pid = start_engine(
        stays_on_sigterm=fault.strikes("ignore_sigterm"),
        leaves_grandchild=fault.strikes("leave_grandchild"),
    )
    if fault.strikes("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: stop_while_loading(engine_pid))
    if fault.strikes("oom"):
        os.kill(engine_pid, signal.SIGKILL)
        run_out_of_memory()
    load_model(arguments)
    if fault.strikes("hang"):
        time.sleep(MAX_LIFE_S)
        sys.exit(1)
    time.sleep(env_ms("START", 0) / 1000)
    asyncio.run(Server(arguments, fault, engine_pid).serve())


if __name__ == "__main__":
    if sys.argv[1:] == ["--version"]:
        print(VERSION)
    else:
        main(sys.argv[1:])
