"""What our client costs per event, against ``vllm bench serve`` on the same server.

Usage: python -m tests.bench.client [--n-requests N] [--concurrency N] [--n-tok N] [--api API]
       [--ttft-ms MS] [--tpot-ms MS] [--n-repeats N] [--tokenizer FOLDER]

Both clients send the same number of requests for as many tokens, as many at a time, to one mock
(``tests/fakes/mock_openai.py``) that writes each token at its time. Exits with 1 below the goal:
three times the events per CPU-second.

CPU time is user plus system. Ours is this process's own while the requests run; that of
``vllm bench serve`` is the difference of ``RUSAGE_CHILDREN``. From both a run of almost no
requests is taken off, so that imports and start do not count. What is left of theirs holds the
making of its prompts, which ours does not, so a second figure compares the cost of one more event
alone: the run minus one of as many requests for a single token.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median

import numpy as np

from objectives import RequestRecord
from tests.fakes.mock_openai import fetch_truth, running_mock
from tuner.load.client import Endpoint, StreamingClient
from tuner.load.requests import PreparedRequest

GOAL = 3.0
PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
BACKENDS = {"completions": "openai", "chat": "openai-chat"}
N_ALMOST_NONE = 2
N_INPUT_TOK = 16
BIN = Path(sys.executable).parent


@dataclass(frozen=True, kw_only=True)
class Load:
    """What is sent."""

    n_requests: int
    concurrency: int
    n_tok: int
    api: str


@dataclass(frozen=True, kw_only=True)
class Run:
    """What came of one run of one client; latencies in milliseconds as (P50, P99)."""

    n_events: int
    cpu_s: float
    tok_per_s: float
    ttft_ms: tuple[float, float]
    tpot_ms: tuple[float, float]


def run_ours(port: int, load: Load) -> Run:
    """Our client, in this process."""
    body = {"model": "mock", "max_tokens": load.n_tok, "stream": True}
    body |= {"stream_options": {"include_usage": True}}
    text = " word" * N_INPUT_TOK
    body |= (
        {"messages": [{"role": "user", "content": text}]}
        if load.api == "chat"
        else {"prompt": text}
    )
    request = PreparedRequest(
        path=PATHS[load.api],
        body=json.dumps(body).encode(),
        n_prompt_tok=N_INPUT_TOK,
        n_output_tok=load.n_tok,
    )
    n_before = fetch_truth(port)["n_events"]
    started_s, cpu_started_s = time.perf_counter(), time.process_time()
    records = asyncio.run(send_all(port, request, load))
    cpu_s, wall_s = time.process_time() - cpu_started_s, time.perf_counter() - started_s
    errors = {record.error for record in records if record.error is not None}
    if errors:
        sys.exit(f"our client failed: {errors}")
    return Run(
        n_events=fetch_truth(port)["n_events"] - n_before,
        cpu_s=cpu_s,
        tok_per_s=sum(record.n_output_tok or 0 for record in records) / wall_s,
        ttft_ms=quantiles_ms([record.ttft_s for record in records]),
        tpot_ms=quantiles_ms([record.tpot_s for record in records]),
    )


async def send_all(port: int, request: PreparedRequest, load: Load) -> list[RequestRecord]:
    endpoint = Endpoint(base_url=f"http://127.0.0.1:{port}", model="mock")
    client = StreamingClient(endpoint, stall_s=30.0, origin_s=time.perf_counter())
    records: list[RequestRecord] = []
    indices = iter(range(load.n_requests))

    async def slot() -> None:
        for index in indices:
            records.append(  # noqa: PERF401 - the slots share it
                await client.run(request, index=index, due_s=client.now_s())
            )

    await asyncio.gather(*(slot() for _ in range(load.concurrency)))
    client.close()
    return records


def quantiles_ms(values_s: list[float | None]) -> tuple[float, float]:
    """P50 and P99; NaN without values, as for the TPOT of single tokens."""
    known_s = [value for value in values_s if value is not None]
    if not known_s:
        return float("nan"), float("nan")
    p50_s, p99_s = np.quantile(known_s, [0.5, 0.99])
    return float(p50_s) * 1000, float(p99_s) * 1000


def run_theirs(port: int, load: Load, *, tokenizer: Path, folder: Path) -> Run:
    """``vllm bench serve``, in a process of its own."""
    command = f"""
        {BIN / "vllm"} bench serve --backend {BACKENDS[load.api]} --endpoint {PATHS[load.api]}
        --base-url http://127.0.0.1:{port} --model mock --tokenizer {tokenizer}
        --dataset-name random --random-input-len {N_INPUT_TOK} --random-output-len {load.n_tok}
        --num-prompts {load.n_requests} --max-concurrency {load.concurrency} --request-rate inf
        --ignore-eos --ready-check-timeout-sec 0 --disable-tqdm --percentile-metrics ttft,tpot
        --metric-percentiles 50,99 --save-result --result-dir {folder} --result-filename it.json
    """.split()
    environment = os.environ | {
        "HF_HUB_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "NO_PROXY": "127.0.0.1",
    }
    n_before, cpu_before_s = fetch_truth(port)["n_events"], children_cpu_s()
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=False, timeout=900
    )
    cpu_s = children_cpu_s() - cpu_before_s
    if done.returncode:
        sys.exit(f"vllm bench serve failed:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    result = json.loads((folder / "it.json").read_text(encoding="utf-8"))
    if result["completed"] != load.n_requests:
        sys.exit(f"vllm bench serve completed {result['completed']} of {load.n_requests}")
    return Run(
        n_events=fetch_truth(port)["n_events"] - n_before,
        cpu_s=cpu_s,
        tok_per_s=result["output_throughput"],
        ttft_ms=(result["p50_ttft_ms"], result["p99_ttft_ms"]),
        tpot_ms=(result["p50_tpot_ms"], result["p99_tpot_ms"]),
    )


def children_cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, kw_only=True)
class Client:
    """The runs of one client: without load, with as many requests of a single token, in full."""

    start: Run
    single: Run
    full: Run

    @property
    def events_per_cpu_s(self) -> float:
        return per_cpu_s(self.full, self.start)

    @property
    def more_events_per_cpu_s(self) -> float:
        return per_cpu_s(self.full, self.single)


def per_cpu_s(run: Run, without: Run) -> float:
    return (run.n_events - without.n_events) / (run.cpu_s - without.cpu_s)


def run_both(port: int, load: Load, *, tokenizer: Path, folder: Path) -> tuple[Client, Client]:
    """Each load by our client and by theirs in turn."""
    loads = {
        "start": replace(load, n_requests=N_ALMOST_NONE, n_tok=2),
        "single": replace(load, n_tok=1),
        "full": load,
    }
    ours, theirs = {}, {}
    for name, one in loads.items():
        ours[name] = run_ours(port, one)
        theirs[name] = run_theirs(port, one, tokenizer=tokenizer, folder=folder)
    return Client(**ours), Client(**theirs)


def table(pairs: list[tuple[Client, Client]]) -> list[str]:
    """One line a figure, the median of the repeats; the ratio is the median of the ratios."""
    figures: dict[str, Callable[[Client], float]] = {
        "events": lambda client: client.full.n_events,
        "CPU s of the run": lambda client: client.full.cpu_s,
        "CPU s of almost no requests": lambda client: client.start.cpu_s,
        "CPU s of single tokens": lambda client: client.single.cpu_s,
        "events per CPU-second": lambda client: client.events_per_cpu_s,
        "the same, one more event alone": lambda client: client.more_events_per_cpu_s,
        "output tokens per second": lambda client: client.full.tok_per_s,
        "TTFT P50 ms": lambda client: client.full.ttft_ms[0],
        "TTFT P99 ms": lambda client: client.full.ttft_ms[1],
        "TPOT P50 ms": lambda client: client.full.tpot_ms[0],
        "TPOT P99 ms": lambda client: client.full.tpot_ms[1],
    }
    lines = [f"{'':32}{'ours':>12}{'vllm bench':>12}{'ratio':>8}"]
    for label, figure in figures.items():
        values = [(figure(ours), figure(theirs)) for ours, theirs in pairs]
        our, their = (median(side) for side in zip(*values, strict=True))
        ratio = median(our / their for our, their in values)
        lines.append(f"{label:32}{our:>12,.2f}{their:>12,.2f}{ratio:>8.2f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description="Our client against vllm bench serve.")
    parser.add_argument("--n-requests", type=int, default=1024)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--n-tok", type=int, default=128, help="output tokens of each request")
    parser.add_argument("--api", choices=sorted(PATHS), default="completions")
    parser.add_argument("--ttft-ms", default="50")
    parser.add_argument("--tpot-ms", default="10")
    parser.add_argument("--n-repeats", type=int, default=3)
    parser.add_argument("--tokenizer", type=Path, help="of a model; default: a new demo model's")
    words = parser.parse_args()
    load = Load(
        n_requests=words.n_requests,
        concurrency=words.concurrency,
        n_tok=words.n_tok,
        api=words.api,
    )
    mock_words = ["--ttft-ms", words.ttft_ms, "--tpot-ms", words.tpot_ms]
    with tempfile.TemporaryDirectory() as name, running_mock(*mock_words) as port:
        folder = Path(name)
        tokenizer: Path | None = words.tokenizer
        if tokenizer is None:
            subprocess.run([BIN / "tune", "demo-model", name], check=True, stdout=sys.stderr)
            tokenizer = folder / "target"
        pairs = [
            run_both(port, load, tokenizer=tokenizer, folder=folder)
            for _ in range(words.n_repeats)
        ]
    ratios = [ours.events_per_cpu_s / theirs.events_per_cpu_s for ours, theirs in pairs]
    ratio = median(ratios)
    print(
        f"{load.api}: {load.n_requests} requests of {load.n_tok} tokens, {load.concurrency} at a "
        f"time, TTFT {words.ttft_ms} ms, TPOT {words.tpot_ms} ms; medians of {len(pairs)} runs"
    )
    print("\n".join(table(pairs)))
    is_reached = ratio >= GOAL
    print(
        f"{ratio:.2f} times the events per CPU-second (runs: "
        f"{', '.join(f'{one:.2f}' for one in sorted(ratios))}); the goal of {GOAL:g} is "
        f"{'reached' if is_reached else 'MISSED'}."
    )
    return 0 if is_reached else 1


if __name__ == "__main__":
    sys.exit(main())
