"""What MLflow is told of launches and operating points: names, tags, notes and metrics.

Owns the wording; pure, and knows nothing of MLflow but the names of the tags that it reads.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping

from objectives import Evaluation, OperatingPoint, bound_metrics
from search_spaces.configuration import Configuration
from search_spaces.serve_args import OFF
from tuner.trial import Failed, Launch

NOTE = "mlflow.note.content"
PARENT = "mlflow.parentRunId"
STUDY = "study"
LAUNCH = "launch"
KIND = "kind"
PARETO = "pareto"
KIND_LAUNCH = "launch"
KIND_POINT = "operating_point"

# Metrics of the points that the launch's run repeats as a series over the batch size.
SERIES = (
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "error_frac",
)
_TAGS = {"precision": "precision", "tensor_parallel_size": "tp", "speculation": "speculation"}
# In the order of a run's name. A value whose short name is empty speaks for itself.
_SHORT = {
    "precision": "",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "max_num_seqs": "seqs",
    "max_num_batched_tokens": "tokens",
    "speculation": "",
    "num_speculative_tokens": "draft",
    "batch_size": "batch",
}


def launch_name(launch: Launch) -> str:
    """A name that tells launches apart in a list, e.g. ``launch-0003 fp8 tp4 seqs128``."""
    values = launch.configuration
    known = [f"{_SHORT[name]}{values[name]}" for name in _SHORT if values.get(name, OFF) != OFF]
    others = [f"{name}={values[name]}" for name in sorted(values) if name not in _SHORT]
    return " ".join([f"launch-{launch.number:04d}", *known, *others])


def point_name(launch: Launch, point: OperatingPoint) -> str:
    """A name that stays clear where points of several launches are compared."""
    return f"launch-{launch.number:04d} {point.load.slug}"


def identity_tags(study: str, launch: Launch) -> dict[str, str]:
    """The tags that say whose a run is; it is given them when it is made."""
    return {STUDY: study, LAUNCH: str(launch.number)}


def launch_tags(launch: Launch) -> dict[str, str]:
    """The tags of a launch as it starts."""
    command = f"\n\n    {shlex.join(launch.command)}\n" if launch.command else ""
    return {
        KIND: KIND_LAUNCH,
        "origin": launch.origin,
        NOTE: f"Launch {launch.number}, proposed by: {launch.origin}.{command}",
        **_configuration_tags(launch.configuration),
    }


def failure_tags(failure: Failed) -> dict[str, str]:
    """Why a launch failed; what is not known has no tag."""
    note = f"**{failure.kind.value}** ({failure.phase.value}): {failure.message}"
    if failure.evidence:
        note += f"\n\n    {failure.evidence}\n"
    tags = {
        "failure_kind": failure.kind.value,
        "failure_phase": failure.phase.value,
        "failure_message": failure.message,
        "failure_evidence": failure.evidence,
        "failure_parameter": failure.parameter,
        "failure_exit_code": None if failure.exit_code is None else str(failure.exit_code),
        NOTE: note,
    }
    return {name: value for name, value in tags.items() if value}


def point_tags(launch: Launch, point: OperatingPoint, evaluation: Evaluation) -> dict[str, str]:
    """The tags of an operating point, its parent's aside."""
    tags = {
        KIND: KIND_POINT,
        PARETO: "false",
        "feasible": str(evaluation.is_within).lower(),
        "verdict": evaluation.verdict.value,
        "valid": str(point.is_valid).lower(),
        NOTE: _point_note(point, evaluation),
        **_configuration_tags(launch.configuration),
    }
    infinite = non_finite(point_metrics(point, evaluation))
    if infinite:
        tags["non_finite_metrics"] = infinite
    if point.limited_by is not None:
        tags["limited_by"] = point.limited_by
    if point.invalid_reasons:
        tags["invalid_reasons"] = "; ".join(point.invalid_reasons)
    return tags


def point_metrics(point: OperatingPoint, evaluation: Evaluation) -> dict[str, float | None]:
    """The metrics of an operating point, with slacks and bounds.

    A slack is ``slack_NAME``; the confidence bounds of P99s and of what has a limit are
    ``NAME_low`` and ``NAME_high``.
    """
    slacks = {f"slack_{name}": slack for name, slack in evaluation.slacks.items()}
    bounds = {
        name: pair
        for name, pair in point.bounds.items()
        if name.startswith("p99_") or name in evaluation.slacks
    }
    return {**point.metrics, **slacks, **bound_metrics(bounds)}


def series(point: OperatingPoint) -> dict[str, float | None]:
    """The point's part of its launch's series."""
    return {name: point.metrics.get(name) for name in SERIES}


def finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    """The metrics that MLflow can keep: without a value, or infinite, is left out."""
    return {
        name: float(value)
        for name, value in metrics.items()
        if value is not None and math.isfinite(value)
    }


def non_finite(metrics: Mapping[str, float | None]) -> str:
    """The metrics that are there but cannot be kept as such, e.g. ``p99_ttft_ms=inf``."""
    return ", ".join(
        f"{name}={value}"
        for name, value in sorted(metrics.items())
        if value is not None and not math.isfinite(value)
    )


def _configuration_tags(configuration: Configuration) -> dict[str, str]:
    return {tag: str(configuration[name]) for name, tag in _TAGS.items() if name in configuration}


def _point_note(point: OperatingPoint, evaluation: Evaluation) -> str:
    lines = [f"{str(point.load).capitalize()}: **{evaluation.verdict.value}**."]
    for name, slack in evaluation.slacks.items():
        value = point.metrics.get(name)
        if slack is None or value is None:
            lines.append(f"- {name}: not measured")
            continue
        side = "over" if slack > 0 else "within"
        undecided = ", undecided" if name in evaluation.undecided else ""
        lines.append(f"- {name}: {value:.4g}, {side} its limit ({slack:+.1%}{undecided})")
    lines += [f"- invalid: {reason}" for reason in point.invalid_reasons]
    return "\n".join(lines)
