"""Operating points as rows: what tables, JSON and the screen show of a study.

Owns which points are compared and how a configuration reads; prints nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from objectives import (
    CATALOGUE,
    Evaluation,
    Objective,
    OperatingPoint,
    Slo,
    Verdict,
    evaluate,
    nearest,
    pareto_front,
)
from search_spaces.configuration import Configuration
from search_spaces.serve_args import BATCH_SIZE, DRAFT_LENGTH, OFF, SPECULATION
from tuner.trial import Launch

_METRICS = (
    "output_tok_per_s",
    "output_tok_per_s_per_gpu",
    "request_per_s",
    "goodput_request_per_s",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p99_tpot_ms",
    "p50_e2el_ms",
    "p99_e2el_ms",
    "error_frac",
    "n_requests",
    "duration_s",
)


@dataclass(frozen=True, kw_only=True)
class PointRow:
    """One operating point and where it comes from.

    Attributes:
        launch: The launch it was measured on.
        point: The point.
        evaluation: How it stands against the SLOs.
        run_id: MLflow run; ``None`` if it is not logged.
        is_on_front: It belongs to the Pareto set.
    """

    launch: Launch
    point: OperatingPoint
    evaluation: Evaluation
    run_id: str | None
    is_on_front: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As plain data for JSON; a metric without data is ``None``, an infinite one ``"inf"``."""
        names = (*_METRICS, *(name for name in self.point.metrics if name not in _METRICS))
        return {
            "launch": self.launch.number,
            "configuration": dict(self.launch.configuration),
            self.point.load.kind.value: self.point.load.number,
            "metrics": {name: json_number(self.point.metrics.get(name)) for name in names},
            "bounds": {
                name: [json_number(low), json_number(high)]
                for name, (low, high) in self.point.bounds.items()
            },
            "slacks": {k: json_number(v) for k, v in self.evaluation.slacks.items()},
            "requests_over": {
                name: {"n_over": seen.n_over, "n_total": seen.n_total}
                for name, seen in self.point.exceedances.items()
            },
            "verdict": self.evaluation.verdict.value,
            "feasible": self.evaluation.is_within,
            "pareto": self.is_on_front,
            "invalid_reasons": list(self.point.invalid_reasons),
            "limited_by": self.point.limited_by,
            "mlflow_run_id": self.run_id,
            "command": list(self.launch.command),
            "env": dict(self.launch.env),
            "shell_line": self.launch.shell_line(is_as_run=False),
        }


@dataclass(frozen=True, kw_only=True)
class Standing:
    """All points of a study and which of them form the Pareto set.

    Attributes:
        rows: Every point, in the order measured.
        front: The Pareto set within the SLOs, best in the first objective first.
        nearest: Valid points by how little they miss the SLOs, for an empty front.
    """

    rows: tuple[PointRow, ...]
    front: tuple[PointRow, ...]
    nearest: tuple[PointRow, ...]


def standing_of(
    launches: Iterable[Launch],
    run_ids: Mapping[int, Sequence[str]],
    *,
    objectives: Sequence[Objective],
    slos: Sequence[Slo],
    confidence: float,
    only_proven: bool = False,
) -> Standing:
    """Compare every operating point of a study.

    Args:
        launches: The study's.
        run_ids: MLflow runs of each launch's points, by launch number.
        objectives: What is wanted.
        slos: The limits.
        confidence: Of the verdicts.
        only_proven: Only points whose SLOs are decided to be met may form the front, not those
            that merely look so.

    Returns:
        The standing.
    """
    rows = [
        PointRow(
            launch=launch,
            point=point,
            evaluation=evaluate(point, slos, confidence=confidence),
            run_id=run_id,
        )
        for launch in launches
        for point, run_id in zip(
            launch.points, _padded(run_ids.get(launch.number, ()), len(launch.points)), strict=True
        )
    ]
    allowed = [
        index
        for index, row in enumerate(rows)
        if not only_proven or row.evaluation.verdict is Verdict.FEASIBLE
    ]
    front = pareto_front(
        [rows[index].point for index in allowed], objectives, slos, confidence=confidence
    )
    on_front = [allowed[index] for index in front]
    marked = [
        PointRow(
            launch=row.launch,
            point=row.point,
            evaluation=row.evaluation,
            run_id=row.run_id,
            is_on_front=index in set(on_front),
        )
        for index, row in enumerate(rows)
    ]
    by_miss = nearest([row.point for row in rows], slos, confidence=confidence)
    return Standing(
        rows=tuple(marked),
        front=tuple(marked[index] for index in on_front),
        nearest=tuple(marked[index] for index in by_miss),
    )


def _padded(run_ids: Sequence[str], n: int) -> list[str | None]:
    return [*run_ids[:n], *([None] * (n - len(run_ids)))]


def json_number(value: float | None) -> float | str | None:
    """A metric as JSON can hold it: infinity as text, absent as ``None``."""
    return "inf" if value is not None and math.isinf(value) else value


def describe_configuration(configuration: Configuration) -> str:
    """A configuration in one line, speculation as one word."""
    words = []
    for name, value in configuration.items():
        if name in {DRAFT_LENGTH, BATCH_SIZE}:
            continue
        if name == SPECULATION:
            length = configuration.get(DRAFT_LENGTH)
            words.append("no draft" if value == OFF else f"{value}={length}")
        elif name == "precision":
            words.append(str(value))
        else:
            words.append(f"{name}={value}")
    return " ".join(words) or "vLLM's defaults"


def describe_misses(row: PointRow, slos: Sequence[Slo]) -> str:
    """What a point misses, limit by limit, in words; limits that it meets are passed over.

    Of an invalid point only why it is: its figures say nothing of the limits.
    """
    if row.point.invalid_reasons:
        return "; ".join(row.point.invalid_reasons)
    words = []
    is_broken = row.evaluation.verdict is Verdict.INFEASIBLE
    for slo in slos:
        value, slack = row.point.metrics.get(slo.metric), row.evaluation.slacks[slo.metric]
        seen = row.point.exceedances.get(slo.metric)
        unit = CATALOGUE[slo.metric].unit
        limit = f"limit {slo.limit:g} {unit}".strip()
        if slack is not None and slack > 0:
            words.append(f"{slo.metric} {value:.1f} ({limit})")
        elif slack is None and is_broken and slo.metric in row.evaluation.undecided:
            # Another limit ended the level before this one could be judged.
            continue
        elif slack is None and seen is not None and seen.n_total:
            words.append(f"{slo.metric}: {seen.n_over} of {seen.n_total} requests over ({limit})")
        elif slack is None:
            words.append(f"{slo.metric} unknown ({limit})")
    return "; ".join(words) or "meets every limit"
