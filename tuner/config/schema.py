"""The study file's schema: which keys there are and of what type.

Owns shape only; what the values mean together is in ``build``.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag

from tuner.config.workload import (
    ConversationsWorkload,
    Positive,
    Strict,
    SyntheticWorkload,
    TraceWorkload,
)

Value = bool | int | float | str
# A field called ``float`` hides the type of that name from the annotations of its class.
Number = float
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]


# A client has some 28,000 local ports, and a million records fill its memory.
MAX_BATCH_SIZE = 16_384
MAX_REQUESTS = 1_000_000


class ParameterSpec(Strict):
    """One entry of ``parameters``: exactly one kind, and what goes with it."""

    choices: list[Value] | None = None
    range: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    log2: Annotated[list[int], Field(min_length=2, max_length=2)] | None = None
    float: Annotated[list[Number], Field(min_length=2, max_length=2)] | None = None
    ladder: list[Annotated[Number, Field(gt=0, le=MAX_BATCH_SIZE)]] | None = None
    step: Positive | None = None
    when: dict[str, Value | list[Value]] | None = None
    method: dict[str, Any] | None = None
    methods: dict[str, dict[str, Any]] | None = None


KINDS = ("choices", "range", "log2", "float", "ladder")


class HardwareSpec(Strict):
    """What the study may use: GPUs of one node; 0 for a study on the CPU."""

    gpus: Annotated[int, Field(ge=0)]


class LevelSpec(Strict):
    """How long one operating point is measured.

    A level ends once every percentile SLO is decided, at ``max_requests`` or after ``max_s``,
    whichever comes first, but not before ``min_requests``: a P99 needs a hundred.
    ``max_concurrency`` limits the requests in flight where arrivals decide how many there are.
    """

    min_requests: Positive = 100
    max_requests: Annotated[int, Field(ge=1, le=MAX_REQUESTS)] = 2000
    max_s: Seconds = 120.0
    warmup_requests: Annotated[int, Field(ge=0)] | None = None
    stall_s: Seconds = 60.0
    max_concurrency: Positive | None = None


class LaunchSpec(Strict):
    """How a server is started."""

    ready_deadline_s: Seconds = 1800.0
    command: list[str] | None = None


class BudgetSpec(Strict):
    """What the study may spend."""

    launches: Positive = 40
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None


class SamplerSpec(Strict):
    """Who proposes configurations."""

    name: Literal["tpe", "gp", "qmc", "random"] = "tpe"
    seed: Annotated[int, Field(ge=0)] = 0


class ObjectiveSpec(Strict):
    """One objective: ``maximize`` or ``minimize`` a metric."""

    maximize: str | None = None
    minimize: str | None = None


class RuleSpec(Strict):
    """One rule between parameters: ``at_least`` or ``forbid``."""

    at_least: Annotated[list[str], Field(min_length=2, max_length=2)] | None = None
    forbid: dict[str, Value] | None = None


def _workload_kind(value: object) -> object:
    """Which workload a file means; ``synthetic`` if it does not say."""
    if isinstance(value, dict):
        return value.get("kind", "synthetic")
    return getattr(value, "kind", None)


class StudySpec(Strict):
    """A whole study file, version 1."""

    version: Literal[1]
    model: Annotated[str, Field(min_length=1)]
    hardware: HardwareSpec
    serve: dict[str, Any] = Field(default_factory=dict)
    env: dict[str, str] = Field(default_factory=dict)
    parameters: dict[str, ParameterSpec]
    workload: Annotated[
        Annotated[SyntheticWorkload, Tag("synthetic")]
        | Annotated[TraceWorkload, Tag("trace")]
        | Annotated[ConversationsWorkload, Tag("sharegpt")]
        | Annotated[ConversationsWorkload, Tag("jsonl")],
        Discriminator(_workload_kind),
    ]
    objectives: Annotated[list[ObjectiveSpec], Field(min_length=1)]
    slo: dict[str, float] = Field(default_factory=dict)
    rules: list[RuleSpec] = Field(default_factory=list)
    level: LevelSpec = LevelSpec()
    launch: LaunchSpec = LaunchSpec()
    budget: BudgetSpec = BudgetSpec()
    sampler: SamplerSpec = SamplerSpec()
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
