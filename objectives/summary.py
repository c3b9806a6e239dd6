"""From request records to the client's metrics of an operating point.

Owns which request belongs to the window and how each metric is computed; the per-request
definitions are in ``records``, the names in ``catalogue``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from objectives.catalogue import LATENCIES, PER_REQUEST, QUANTILES
from objectives.clumping import clumping_at, count_exceedances, in_due_order, mean_in_flight
from objectives.operating_point import Bounds, Exceedance
from objectives.percentiles import percentile, percentile_interval
from objectives.records import RequestRecord
from objectives.slo import Slo


@dataclass(frozen=True, kw_only=True)
class Window:
    """The measured part of a level, in seconds of the records' clock.

    Attributes:
        start_s: When steady load was reached.
        end_s: When the level stopped measuring; at least ``start_s``.
    """

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Length in seconds."""
        return self.end_s - self.start_s

    def __contains__(self, moment_s: float) -> bool:
        """Whether a moment lies in ``[start_s, end_s)``."""
        return self.start_s <= moment_s < self.end_s


@dataclass(frozen=True, kw_only=True)
class Summary:
    """What the client saw of a level.

    Attributes:
        metrics: By catalogue name; ``None`` without data.
        exceedances: By metric name of each SLO that can be tested request by request.
        bounds: Confidence bounds of each percentile of a per-request latency, by metric name.
    """

    metrics: Mapping[str, float | None]
    exceedances: Mapping[str, Exceedance]
    bounds: Mapping[str, Bounds]


def summarise(
    records: Sequence[RequestRecord],
    *,
    window: Window,
    n_gpus: int,
    slos: Sequence[Slo],
    confidence: float = 0.95,
) -> Summary:
    """Compute the client's metrics of one level.

    Latencies, errors and exceedances are those of the measured requests: not warm-up, and due
    in the window. Each of them is awaited to its end, however late, so that slow requests are not
    dropped. Rates count what happened in the window, whichever request it belongs to: a token
    counts where its chunk arrived, a request where it ended, so that neither what was in flight
    at the start nor what was at the end biases them.

    Args:
        records: All requests of the level that were answered or failed, warm-up included.
        window: The measured window.
        n_gpus: GPUs of the launch, 0 on a CPU.
        slos: Their percentile SLOs are counted request by request.
        confidence: Of each bound of a percentile by itself.

    Returns:
        The metrics and exceedances. Without a measured request every latency is ``None``.
    """
    measured = [r for r in records if not r.is_warmup and r.due_s in window]
    metrics: dict[str, float | None] = {
        "n_requests": float(len(measured)),
        "n_failed": float(sum(not r.is_success for r in measured)),
        "duration_s": window.length_s,
    }
    metrics["error_frac"] = _ratio(metrics["n_failed"], len(measured))
    metrics |= _rates(records, window=window, n_gpus=n_gpus, slos=slos)
    for quantity in LATENCIES:
        metrics |= _latency_metrics(quantity, _latencies_s(quantity, measured))
    return Summary(
        metrics=metrics,
        exceedances=count_exceedances(measured, slos),
        bounds=_bounds(measured, confidence),
    )


def _bounds(measured: Sequence[RequestRecord], confidence: float) -> dict[str, Bounds]:
    """Of percentiles over requests; ITL is pooled over the tokens of few, which clump by far."""
    in_order = in_due_order(measured)
    in_flight = mean_in_flight(in_order)
    bounds: dict[str, Bounds] = {}
    for quantity in PER_REQUEST:
        milliseconds = np.asarray(_latencies_s(quantity, in_order)) * 1000
        for label, quantile in QUANTILES.items():
            effect = clumping_at(milliseconds, quantile, in_flight=in_flight)
            bounds[f"{label}_{quantity}_ms"] = percentile_interval(
                milliseconds, quantile, confidence, design_effect=effect
            )
    return bounds


def _latencies_s(quantity: str, measured: Sequence[RequestRecord]) -> list[float]:
    """Values of one latency in seconds, infinite for a failed request."""
    values: list[float] = []
    for record in measured:
        if not record.is_success:
            values.append(math.inf)
        elif quantity == "itl":
            values += record.itl_s
        else:
            value: float | None = getattr(record, f"{quantity}_s")
            values += [] if value is None else [value]
    return values


def _latency_metrics(quantity: str, values_s: list[float]) -> dict[str, float | None]:
    milliseconds = np.asarray(values_s) * 1000
    metrics: dict[str, float | None] = {
        f"mean_{quantity}_ms": float(milliseconds.mean()) if len(values_s) else None
    }
    for label, quantile in QUANTILES.items():
        metrics[f"{label}_{quantity}_ms"] = percentile(milliseconds, quantile)
    return metrics


def _rates(
    records: Sequence[RequestRecord], *, window: Window, n_gpus: int, slos: Sequence[Slo]
) -> dict[str, float | None]:
    n_output_tok = 0.0
    n_prompt_tok = 0
    n_ended = n_good = 0
    for record in records:
        if not record.chunk_s:
            continue
        n_in = sum(moment in window for moment in record.chunk_s)
        # Without a usage field a chunk is taken as one token.
        n_output = record.n_output_tok or len(record.chunk_s)
        n_output_tok += n_output * n_in / len(record.chunk_s)
        if record.chunk_s[0] in window:
            n_prompt_tok += record.n_prompt_tok or 0
        if record.is_success and record.chunk_s[-1] in window:
            n_ended += 1
            n_good += is_good(record, slos)
    length_s = window.length_s
    output_rate = _ratio(n_output_tok, length_s)
    return {
        "output_tok_per_s": output_rate,
        "output_tok_per_s_per_gpu": None if output_rate is None else output_rate / max(1, n_gpus),
        "total_tok_per_s": _ratio(n_output_tok + n_prompt_tok, length_s),
        "request_per_s": _ratio(n_ended, length_s),
        "goodput_request_per_s": _ratio(n_good, length_s) if _has_request_slo(slos) else None,
    }


def is_good(record: RequestRecord, slos: Sequence[Slo]) -> bool:
    """Whether a request ended well and met every SLO that applies to single requests.

    A one-token answer has no TPOT; where a TPOT limit is set it is not good, since nothing shows
    that it would have met it.

    Args:
        record: The request.
        slos: Others than per-request percentiles are passed over.

    Returns:
        True for a good request.
    """
    limits = [slo for slo in slos if slo.max_share_frac is not None]
    return record.is_success and all(slo.is_over(record) is False for slo in limits)


def _has_request_slo(slos: Sequence[Slo]) -> bool:
    return any(slo.max_share_frac is not None for slo in slos)


def _ratio(value: float | None, by: float) -> float | None:
    return None if value is None or by <= 0 else value / by
