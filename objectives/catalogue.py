"""The metric catalogue: every name that a study file, a table or a tracking server may show.

Owns names, units, directions and definitions; computes nothing.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Direction(StrEnum):
    """Which way a metric is better."""

    MAXIMIZE = "maximize"
    MINIMIZE = "minimize"


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One metric.

    Attributes:
        name: Its name, unit included.
        unit: The unit as people write it; ``""`` for counts and shares.
        direction: Which way is better; ``None`` for what merely describes a point.
        definition: What is counted, in one sentence.
        source: Who sees it: ``client`` or ``server`` (its /metrics).
        quantile_frac: For a percentile of a per-request latency, e.g. 0.99; else ``None``.
        quantity: For a latency family: ``ttft``, ``tpot``, ``itl`` or ``e2el``; else ``None``.
    """

    name: str
    unit: str
    direction: Direction | None
    definition: str
    source: str
    quantile_frac: float | None = None
    quantity: str | None = None


LATENCIES = {
    "ttft": "time to first token, from when the request was due to its first text",
    "tpot": "time per output token after the first, (E2EL - TTFT) / (n_output_tok - 1)",
    "itl": "inter-token latency, the gaps between successive text chunks, pooled over requests",
    "e2el": "end-to-end latency, from when the request was due to its last text",
}
# ITL is pooled over requests; the others are one value per request.
PER_REQUEST = ("ttft", "tpot", "e2el")
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}

_MAX, _MIN = Direction.MAXIMIZE, Direction.MINIMIZE


def _latency_metrics() -> list[Metric]:
    summaries: dict[str, float | None] = {"mean": None, **QUANTILES}
    return [
        Metric(
            name=f"{label}_{quantity}_ms",
            unit="ms",
            direction=_MIN,
            definition=f"{label.capitalize()} of {words}; a failed request counts as infinite.",
            source="client",
            quantile_frac=quantile,
            quantity=quantity,
        )
        for quantity, words in LATENCIES.items()
        for label, quantile in summaries.items()
    ]


# name, unit, direction, who sees it, definition
_OTHERS: tuple[tuple[str, str, Direction | None, str, str], ...] = (
    ("output_tok_per_s", "tok/s", _MAX, "client", "Output tokens that arrived, per second."),
    (
        "output_tok_per_s_per_gpu",
        "tok/s",
        _MAX,
        "client",
        "output_tok_per_s by the GPUs of the launch; a launch without a GPU counts as one.",
    ),
    (
        "total_tok_per_s",
        "tok/s",
        _MAX,
        "client",
        "Output tokens, and prompt tokens of requests whose first token arrived, per second.",
    ),
    ("request_per_s", "1/s", _MAX, "client", "Requests that ended well, per second."),
    (
        "goodput_request_per_s",
        "1/s",
        _MAX,
        "client",
        "Requests that ended well and met every per-request SLO, per second.",
    ),
    ("error_frac", "", _MIN, "client", "Failed share of the measured requests."),
    ("n_requests", "", None, "client", "Measured requests, failed ones included."),
    ("n_failed", "", _MIN, "client", "Measured requests that failed."),
    ("duration_s", "s", None, "client", "Length of the measured window."),
    ("mean_running", "", None, "server", "Mean requests running in the engine."),
    ("mean_waiting", "", None, "server", "Mean requests waiting in the engine's queue."),
    ("max_running", "", None, "server", "Most requests seen running in the engine."),
    ("max_waiting", "", None, "server", "Most requests seen waiting in the engine's queue."),
    ("mean_iteration_tok", "tok", None, "server", "Tokens computed per step of the engine."),
    ("mean_queue_ms", "ms", None, "server", "Mean time in the queue, of requests that ended."),
    (
        "mean_prefill_ms",
        "ms",
        None,
        "server",
        "Mean time from leaving the queue to the first token, of requests that ended.",
    ),
    ("max_kv_cache_usage_frac", "", None, "server", "Largest share of the KV cache in use."),
    ("n_preemptions", "", None, "server", "Requests preempted during the level."),
    ("prefix_cache_hit_frac", "", None, "server", "Share of prompt tokens found in the cache."),
    ("draft_acceptance_frac", "", None, "server", "Share of draft tokens that were accepted."),
    ("mean_draft_accepted_tok", "tok", None, "server", "Accepted tokens per draft."),
    ("gpu_util_mean_frac", "", None, "driver", "Mean share of time in which a kernel ran."),
    ("gpu_memory_max_frac", "", None, "driver", "Largest share of a GPU's memory in use."),
    ("gpu_power_mean_w", "W", None, "driver", "Mean power of the launch's GPUs together."),
    ("gpu_energy_j", "J", None, "driver", "Energy of the launch's GPUs in the window."),
    ("client_lag_p99_ms", "ms", None, "client", "P99 lag of the client's own event loop."),
    ("client_cpu_frac", "", None, "client", "Share of one core that the client used."),
    ("late_send_p99_ms", "ms", None, "client", "P99 of how late requests were sent."),
)

CATALOGUE: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        *(
            Metric(name=name, unit=unit, direction=direction, definition=words, source=source)
            for name, unit, direction, source, words in _OTHERS
        ),
        *_latency_metrics(),
    )
}


def nearest_metric(name: str) -> str | None:
    """The catalogue's name most like a mistyped one; ``None`` if nothing is near."""
    near = difflib.get_close_matches(name, CATALOGUE, n=1, cutoff=0.5)
    return near[0] if near else None
