"""Looks at a server's ``/metrics`` during a level, and at its prefix cache between levels.

Owns vLLM's metric names and when a look is taken. What follows from the looks is in
``objectives.server_evidence``. During a level it only stores text: the client runs in the same
process, and parsing would take its time.
"""

from __future__ import annotations

import http.client
import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit

from prometheus_client.parser import text_string_to_metric_families

from objectives import Scrape
from tuner.serving.http import ask

# A look that takes longer is worth nothing, and the end of a level waits for it.
_TIMEOUT_S = 2.0
_RESET_TIMEOUT_S = 10.0
_OK = 200

# Short name to vLLM's names, the newest first (v1/metrics/loggers.py and v1/spec_decode/metrics.py
# of 0.32; the gpu_ names are older). A counter's _total is not part of its name here.
_NAMES = {
    "running": ("num_requests_running",),
    "waiting": ("num_requests_waiting",),
    "kv_cache_usage_frac": ("kv_cache_usage_perc", "gpu_cache_usage_perc"),
    "n_preemptions": ("num_preemptions",),
    "n_prefix_query_tok": ("prefix_cache_queries", "gpu_prefix_cache_queries"),
    "n_prefix_hit_tok": ("prefix_cache_hits", "gpu_prefix_cache_hits"),
    "n_drafts": ("spec_decode_num_drafts",),
    "n_draft_tok": ("spec_decode_num_draft_tokens",),
    "n_accepted_tok": ("spec_decode_num_accepted_tokens",),
    # This histogram is itself called _total; one that is not would lose it.
    "n_iterations": ("iteration_tokens_total_count", "iteration_tokens_count"),
    "n_iteration_tok": ("iteration_tokens_total_sum", "iteration_tokens_sum"),
    "n_queue_times": ("request_queue_time_seconds_count",),
    "queue_time_s": ("request_queue_time_seconds_sum",),
    "n_prefill_times": ("request_prefill_time_seconds_count",),
    "prefill_time_s": ("request_prefill_time_seconds_sum",),
}
# Engines have a cache each: the fullest one holds requests back. All else is added up.
_LARGEST = frozenset({"kv_cache_usage_frac"})
_PREFIX = "vllm:"


def read_scrape(text: str, at_s: float) -> Scrape | None:
    """Read the answer of ``/metrics``.

    Args:
        text: In the Prometheus text format; of any vLLM, with any number of engines.
        at_s: When it was asked for.

    Returns:
        What the text has of the values that are used; a value that is not finite counts as
        absent. ``None`` if the text has none of them or is not in the format.
    """
    # Buckets are most of the text; without comments a sample keeps its name as it is written.
    lines = [
        line
        for line in text.split("\n")
        if line.startswith(_PREFIX) and "_bucket" not in line.partition("{")[0]
    ]
    samples: defaultdict[str, list[float]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families("\n".join(lines)):
            for sample in family.samples:
                samples[sample.name.removeprefix(_PREFIX)].append(float(sample.value))
    except (ValueError, IndexError, OverflowError):
        # The parser has no error of its own: these are what it raises on other text.
        return None
    values = {}
    for short, names in _NAMES.items():
        found = _first_found(samples, names)
        if found:
            value = max(found) if short in _LARGEST else sum(found)
            # A NaN among several makes the sum one; the maximum hides it.
            if math.isfinite(value) and all(map(math.isfinite, found)):
                values[short] = value
    return Scrape(at_s=at_s, values=values) if values else None


def _first_found(samples: dict[str, list[float]], names: tuple[str, ...]) -> list[float]:
    spellings = (f"{name}{ending}" for name in names for ending in ("_total", ""))
    return next((samples[name] for name in spellings if name in samples), [])


class Looks:
    """Calls a function at the start, about every interval in a thread of its own, and at the end.

    Args:
        look: Called from one thread at a time; must not raise.
        interval_s: From the end of one call to the start of the next.
    """

    def __init__(self, look: Callable[[], None], interval_s: float) -> None:
        self._look = look
        self._interval_s = interval_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)

    def start(self) -> None:
        """Take the first look, before this returns, and go on looking."""
        self._look()
        self._thread.start()

    def stop(self) -> None:
        """Wait for the thread to end and take the last look."""
        self._is_over.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._is_over.wait(self._interval_s):
            self._look()


class ScrapeWatch:
    """Looks at ``/metrics`` from its beginning to its end; a look without an answer is left out.

    Args:
        base_url: ``http://127.0.0.1:PORT``; only the port is used.
        interval_s: Between looks.
    """

    def __init__(self, base_url: str, *, interval_s: float = 1.0) -> None:
        self._port = _port_of(base_url)
        self._texts: list[tuple[float, bytes]] = []
        self._looks = Looks(self._look, interval_s)

    def __enter__(self) -> Self:
        """Take the first look."""
        self._looks.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the last look."""
        self._looks.stop()

    def scrapes(self) -> tuple[Scrape, ...]:
        """What was seen, read now; call it after the end.

        Returns:
            In order of time, ``at_s`` by ``time.perf_counter()``.
        """
        read = (read_scrape(text.decode(errors="replace"), at_s) for at_s, text in self._texts)
        return tuple(scrape for scrape in read if scrape is not None)

    def _look(self) -> None:
        asked_s = time.perf_counter()
        text = _get_metrics(self._port)
        if text is not None:
            # A busy server may answer late; the values are of some moment until then.
            self._texts.append(((asked_s + time.perf_counter()) / 2, text))


def _get_metrics(port: int) -> bytes | None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/metrics")
        response = connection.getresponse()
        text = response.read()
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    return text if response.status == _OK else None


def reset_prefix_cache(base_url: str) -> bool:
    """Empty the server's prefix cache, so that a level does not profit from the one before.

    Only a server with ``VLLM_SERVER_DEV_MODE=1`` can, and only while no request holds a block.

    Args:
        base_url: ``http://127.0.0.1:PORT``; only the port is used.

    Returns:
        Whether the server says that it did; False also when it cannot or does not answer.
    """
    answer = ask(_port_of(base_url), "/reset_prefix_cache", body={}, timeout_s=_RESET_TIMEOUT_S)
    match answer:
        case (200, {"success": False}):
            return False
        case (200, _):
            # Older servers answer without a body.
            return True
        case _:
            return False


def _port_of(base_url: str) -> int:
    port = urlsplit(base_url).port
    if port is None:
        raise ValueError(f"{base_url} has no port: give it as http://127.0.0.1:PORT")
    return port
