"""What the server's own counters say of a level: how it ran, and what held it back.

Owns which looks belong to a window, what is made of them, and the rules by which a limit is named.
Knows neither vLLM's metric names nor how a look is taken; its metrics are in ``catalogue``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

# A KV cache this full cannot take another prompt of usual length.
FULL_KV_CACHE_FRAC = 0.95
# Of every burst some wait for a step or two: fewer than this share of the load are no queue.
WAITED_FRAC = 0.05
# With fewer of the client's requests than this in the engine, the rest are held up before it.
MIN_IN_ENGINE_FRAC = 0.5
# The seats count as taken from here on: a request that just ended has left its seat already.
SEATS_TAKEN_FRAC = 0.9


@dataclass(frozen=True, kw_only=True)
class Scrape:
    """One look at the server's counters and gauges.

    Attributes:
        at_s: When, on the clock that the window is given in.
        values: By short name; one that the server does not expose is absent. Gauges: ``running``,
            ``waiting``, ``kv_cache_usage_frac``. Counters: ``n_preemptions``,
            ``n_prefix_query_tok`` and ``n_prefix_hit_tok``; ``n_drafts``, ``n_draft_tok`` and
            ``n_accepted_tok``; ``n_iterations`` and ``n_iteration_tok``; ``n_queue_times`` and
            ``queue_time_s``, ``n_prefill_times`` and ``prefill_time_s``, both over requests that
            ended.
    """

    at_s: float
    values: Mapping[str, float]


def evidence_of(
    scrapes: Sequence[Scrape], start_s: float, end_s: float
) -> dict[str, float | None]:
    """The server's metrics of a window.

    Gauges are taken from the looks inside the window only: after it the load may be gone.
    Counters are subtracted over the looks around it, from the last one at or before the start to
    the first at or after the end, so that no preemption of the window is missed; where there is
    none around, the outermost inside serve. With a look a second that adds a second of the same
    load at each end, which a share or a mean does not feel; a count (``n_preemptions``) may be
    too large by what fell into it.

    Args:
        scrapes: In any order.
        start_s: When the window opened.
        end_s: When it closed; at least ``start_s``.

    Returns:
        By catalogue name, always all of them. ``None`` for a gauge without a look in the window,
        for a difference with fewer than two looks, for a counter that fell (the server began
        anew) or that a look lacks, and for a share or a mean of nothing.
    """
    ordered = sorted(scrapes, key=lambda scrape: scrape.at_s)
    inside = [scrape for scrape in ordered if start_s <= scrape.at_s <= end_s]
    around = _around(ordered, start_s, end_s)
    running, waiting = _gauge("running", inside), _gauge("waiting", inside)
    accepted = _increase("n_accepted_tok", around)
    return {
        "mean_running": _mean(running),
        "max_running": max(running, default=None),
        "mean_waiting": _mean(waiting),
        "max_waiting": max(waiting, default=None),
        "max_kv_cache_usage_frac": max(_gauge("kv_cache_usage_frac", inside), default=None),
        "n_preemptions": _increase("n_preemptions", around),
        "prefix_cache_hit_frac": _ratio(
            _increase("n_prefix_hit_tok", around), _increase("n_prefix_query_tok", around)
        ),
        "draft_acceptance_frac": _ratio(accepted, _increase("n_draft_tok", around)),
        "mean_draft_accepted_tok": _ratio(accepted, _increase("n_drafts", around)),
        "mean_iteration_tok": _ratio(
            _increase("n_iteration_tok", around), _increase("n_iterations", around)
        ),
        "mean_queue_ms": _mean_ms("queue_time_s", "n_queue_times", around),
        "mean_prefill_ms": _mean_ms("prefill_time_s", "n_prefill_times", around),
    }


def limited_by(
    evidence: Mapping[str, float | None],
    *,
    max_concurrency: float | None,
    client_is_limited: bool,
    max_num_seqs: float | None = None,
) -> str | None:
    """What kept a level from going faster, in a word.

    In this order, since each hides those after it:

    * ``client``: the client was too slow; then the server's figures show the client's pace.
    * ``kv_cache``: a request was preempted, which happens only when no block is free, or requests
      waited while at least 95% of the cache was in use at some moment.
    * ``max_num_seqs``: requests waited although the cache had room, so no seat was free. Where
      the number of seats is known and they were never taken, something else held requests back
      (the token budget of a step, or a prompt too long for the free blocks): ``None``.
    * ``load``: none waited, so more requests in flight might have been served. Where fewer than
      half of those in flight were in the engine, they were held up before it: ``None``.

    Requests waited if a twentieth of the load did on average: vLLM counts who is left after a
    step was filled, so that every burst of prompts waits for a moment.

    Args:
        evidence: As from ``evidence_of``.
        max_concurrency: Requests that the client kept in flight, the load; ``None`` if it kept no
            fixed number, and then it is what was in the engine.
        client_is_limited: Whether the client was the bottleneck.
        max_num_seqs: Seats of all engines together; ``None`` if unknown.

    Returns:
        One of ``client``, ``kv_cache``, ``max_num_seqs``, ``load``; ``None`` if it is unknown.
    """
    if client_is_limited:
        return "client"
    n_preemptions = evidence.get("n_preemptions")
    if n_preemptions:
        return "kv_cache"
    running, waiting = evidence.get("mean_running"), evidence.get("mean_waiting")
    if running is None or waiting is None:
        return None
    load = running + waiting if max_concurrency is None else max_concurrency
    if waiting > 0 and waiting >= WAITED_FRAC * load:
        return _what_held_back(evidence, max_num_seqs)
    is_fed = n_preemptions is not None and running + waiting >= MIN_IN_ENGINE_FRAC * load
    return "load" if is_fed else None


def _what_held_back(
    evidence: Mapping[str, float | None], max_num_seqs: float | None
) -> str | None:
    """Why requests waited, when none is known to have been preempted."""
    usage, most = evidence.get("max_kv_cache_usage_frac"), evidence.get("max_running")
    if usage is None:
        return None
    if usage >= FULL_KV_CACHE_FRAC:
        return "kv_cache"
    if evidence.get("n_preemptions") is None or most is None:
        return None
    has_seats = max_num_seqs is not None and most < SEATS_TAKEN_FRAC * max_num_seqs
    return None if has_seats else "max_num_seqs"


def _around(ordered: Sequence[Scrape], start_s: float, end_s: float) -> Sequence[Scrape]:
    """From the last look at or before the start to the first at or after the end."""
    first = max((n for n, scrape in enumerate(ordered) if scrape.at_s <= start_s), default=0)
    last = next((n for n, scrape in enumerate(ordered) if scrape.at_s >= end_s), len(ordered) - 1)
    return ordered[first : last + 1]


def _gauge(name: str, scrapes: Sequence[Scrape]) -> list[float]:
    return [scrape.values[name] for scrape in scrapes if name in scrape.values]


def _increase(name: str, scrapes: Sequence[Scrape]) -> float | None:
    values = _gauge(name, scrapes)
    is_whole = len(values) == len(scrapes) and len(values) > 1
    if not is_whole or any(later < earlier for earlier, later in pairwise(values)):
        return None
    return values[-1] - values[0]


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _mean_ms(sum_name: str, count_name: str, scrapes: Sequence[Scrape]) -> float | None:
    mean_s = _ratio(_increase(sum_name, scrapes), _increase(count_name, scrapes))
    return None if mean_s is None else mean_s * 1000


def _ratio(value: float | None, by: float | None) -> float | None:
    return None if value is None or by is None or by <= 0 else value / by
