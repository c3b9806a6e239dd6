"""From a level of a study to what is sent and when.

Owns how a load becomes arrivals and how many requests that takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from objectives import Load, LoadKind
from tuner.config.schema import LevelSpec
from tuner.errors import UsageError
from tuner.load.arrivals import Arrivals, Closed, Scheduled, draw_arrivals, replay
from tuner.load.level import LevelPlan
from tuner.load.recorded import TraceSource
from tuner.load.requests import Session
from tuner.load.sources import SessionSource

# Warm-up requests of a level whose arrivals are scheduled. The window opens when the last of them
# is answered, so that the server is as full by then as the rate keeps it.
_SCHEDULED_WARMUP = 10
# Sessions that go on arriving while the measured ones are awaited, and before the window opens.
_SPARE_FRAC, _MIN_SPARE = 0.5, 100
# Random streams of one level: its prompts have [seed, step], its arrivals this, too.
_ARRIVALS_STREAM = 1


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What one level sends.

    Attributes:
        plan: When, and for how long.
        sessions: What, in the order in which they begin.
    """

    plan: LevelPlan
    sessions: tuple[Session, ...]


def plan_traffic(source: SessionSource, load: Load, spec: LevelSpec, *, model: str) -> Traffic:
    """Build one level's requests and their arrivals.

    Args:
        source: The study's workload.
        load: How hard the level loads the server.
        spec: How long it is measured.
        model: The served model's name.

    Returns:
        The traffic; the same for the same arguments.
    """
    n_slots = load.batch_size or 0
    n_warmup = spec.warmup_requests
    if n_warmup is None:
        n_warmup = n_slots or _SCHEDULED_WARMUP
    n_requests = max(n_warmup, n_slots) + spec.max_requests + 2 * n_slots
    if not n_slots:
        n_requests += max(_MIN_SPARE, round(_SPARE_FRAC * spec.max_requests))
    sessions = tuple(source.build(n_requests, level=load.step, model=model))
    plan = LevelPlan(
        arrivals=_arrivals(source, load, spec, sessions),
        n_warmup=n_warmup,
        min_requests=spec.min_requests,
        max_requests=spec.max_requests,
        max_s=spec.max_s,
        stall_s=spec.stall_s,
    )
    return Traffic(plan=plan, sessions=sessions)


def check_arrivals(source: SessionSource, ladder: Sequence[Load]) -> None:
    """See that a trace that is to be replayed says when its requests came.

    Raises:
        UsageError: It does not.
    """
    replays = any(load.kind is LoadKind.TRACE_SPEED for load in ladder)
    if replays and not (isinstance(source, TraceSource) and source.has_arrivals):
        raise UsageError(
            f"{LoadKind.TRACE_SPEED} replays arrivals, which the workload does not have: "
            f"give a trace that has them, or a ladder of {LoadKind.REQUEST_RATE}."
        )


def _arrivals(
    source: SessionSource, load: Load, spec: LevelSpec, sessions: tuple[Session, ...]
) -> Arrivals:
    if load.kind is LoadKind.BATCH_SIZE:
        return Closed(max_concurrency=int(load.value))
    if load.kind is LoadKind.TRACE_SPEED:
        recorded_s = [session.arrival_s or 0.0 for session in sessions]
        due_s = replay(recorded_s, speed=load.value)
    else:
        # A rate counts requests: a session of several turns brings as many.
        n_turns = sum(len(session.turns) for session in sessions) / len(sessions)
        workload = source.workload
        drawn = draw_arrivals(
            len(sessions),
            request_rate_per_s=load.value / n_turns,
            burstiness=workload.burstiness,
            rng=np.random.default_rng([workload.seed, load.step, _ARRIVALS_STREAM]),
        )
        due_s = tuple(drawn.tolist())
    return Scheduled(due_s=due_s, max_concurrency=spec.max_concurrency)
