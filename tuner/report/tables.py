"""Rows as text tables and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from objectives import CATALOGUE, LoadKind, Slo, Verdict, bound_metrics
from tuner.config import Study
from tuner.report.rows import (
    PointRow,
    describe_configuration,
    describe_misses,
    json_number,
)

# Headers and digits of the figures that every table has, in order.
_RATES = {"output_tok_per_s": ("tok/s", 1), "output_tok_per_s_per_gpu": ("tok/s/GPU", 1)}
_LATENCIES = {
    "p50_ttft_ms": ("TTFT P50", 1),
    "p99_ttft_ms": ("TTFT P99", 1),
    "p50_tpot_ms": ("TPOT P50", 2),
    "p99_tpot_ms": ("TPOT P99", 2),
}
# The error share is told by the SLOs column: it is 0 or fails nearly every limit.
_TOLD = {*_RATES, *_LATENCIES, "error_frac"}
_LOAD_HEADERS = {
    LoadKind.BATCH_SIZE: "batch",
    LoadKind.REQUEST_RATE: "req/s",
    LoadKind.TRACE_SPEED: "trace x",
}
_VERDICTS = {
    Verdict.FEASIBLE: "met",
    Verdict.UNDECIDED: "open",
    Verdict.INFEASIBLE: "broken",
}


def pareto_table(rows: Sequence[PointRow], study: Study) -> str:
    """The rows as a table for people, latencies in ms.

    Args:
        rows: In the order to show.
        study: Its objectives and limits have columns beside the usual ones; throughput per GPU
            is shown if it has any.

    Returns:
        Lines; the SLOs column says ``met`` where they are proven at the study's confidence,
        ``open`` where the sample does not decide, ``broken`` where it decides against.
    """
    rates = {k: v for k, v in _RATES.items() if study.n_gpus or not k.endswith("_per_gpu")}
    wanted = [*(o.metric for o in study.objectives), *(slo.metric for slo in study.slos)]
    extra = {name: (name, _digits(name)) for name in wanted if name not in _TOLD}
    others = _LATENCIES | extra
    cells: list[tuple[str, ...]] = [
        (
            "#",
            *(header for header, _ in rates.values()),
            _load_header(rows),
            *(header for header, _ in others.values()),
            "n",
            "SLOs",
            "configuration",
            "run",
        )
    ]
    for number, row in enumerate(rows, start=1):
        metric = row.point.metrics.get
        verdict = _VERDICTS[row.evaluation.verdict]
        cells.append(
            (
                str(number),
                *(number_text(metric(name), digits) for name, (_, digits) in rates.items()),
                f"{row.point.load.number:g}",
                *(number_text(metric(name), digits) for name, (_, digits) in others.items()),
                number_text(metric("n_requests"), 0),
                verdict if row.point.is_valid else "invalid",
                describe_configuration(row.launch.configuration),
                (row.run_id or "-")[:8],
            )
        )
    return _aligned(cells)


def _digits(name: str) -> int:
    return 2 if CATALOGUE[name].unit else 4


def _load_header(rows: Sequence[PointRow]) -> str:
    """All points of a study have one kind of load."""
    kind = rows[0].point.load.kind if rows else LoadKind.BATCH_SIZE
    return _LOAD_HEADERS[kind]


def misses_table(rows: Sequence[PointRow], slos: Sequence[Slo]) -> str:
    """Rows with what each misses, for when nothing is feasible."""
    lines = [(_load_header(rows), "tok/s", "configuration", "misses")]
    lines += [
        (
            f"{row.point.load.number:g}",
            number_text(row.point.metrics.get("output_tok_per_s"), 1),
            describe_configuration(row.launch.configuration),
            describe_misses(row, slos),
        )
        for row in rows
    ]
    return _aligned(lines)


def pareto_csv(rows: Sequence[PointRow]) -> str:
    """The rows as CSV, one column per parameter and metric; empty where there is no data."""
    dicts = [row.to_dict() for row in rows]
    parameters = sorted({name for item in dicts for name in item["configuration"]})
    metrics = list(dict.fromkeys(name for item in dicts for name in item["metrics"]))
    bounds = [bound_metrics(row.point.bounds) for row in rows]
    bounded = list(dict.fromkeys(name for item in bounds for name in item))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    kinds = dict.fromkeys(row.point.load.kind.value for row in rows) or [LoadKind.BATCH_SIZE]
    fixed = ("launch", *kinds, "feasible", "verdict", "limited_by", "pareto", "mlflow_run_id")
    writer.writerow([*fixed, *parameters, *metrics, *bounded])
    for item, bound in zip(dicts, bounds, strict=True):
        writer.writerow(
            [
                *(item[name] for name in fixed),
                *(item["configuration"].get(name, "") for name in parameters),
                *(item["metrics"].get(name) for name in metrics),
                *(json_number(bound.get(name)) for name in bounded),
            ]
        )
    return out.getvalue()


def number_text(value: float | None, digits: int) -> str:
    """A figure for people: ``-`` without data, ``inf`` where requests failed."""
    if value is None:
        return "-"
    return "inf" if math.isinf(value) else f"{value:.{digits}f}"


def _aligned(cells: Sequence[Sequence[str]]) -> str:
    """Columns of equal width: numbers to the right, texts to the left."""
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    is_text = [
        not all(_is_figure(line[column]) for line in cells[1:]) for column in range(len(widths))
    ]
    lines = []
    for line in cells:
        parts = [
            text.ljust(width) if left else text.rjust(width)
            for text, width, left in zip(line, widths, is_text, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def _is_figure(text: str) -> bool:
    return text in {"-", "inf"} or text.replace(".", "", 1).isdigit()
