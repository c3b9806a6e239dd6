"""Rows as text tables and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Sequence

from objectives import CATALOGUE, Slo, Verdict
from tuner.config import Study
from tuner.report.rows import PointRow, describe_configuration, describe_misses

_HEADERS = (
    "#",
    "tok/s",
    "tok/s/GPU",
    "batch",
    "TTFT P50",
    "TTFT P99",
    "TPOT P50",
    "TPOT P99",
    "n",
    "SLOs",
    "configuration",
    "run",
)
# Headers that are figures, up to n; what a study wants beside them comes after.
_N_FIGURES = _HEADERS.index("n")
# The error share is told by the SLOs column: it is 0 or fails nearly every limit.
_SHOWN = frozenset(
    {
        "output_tok_per_s",
        "output_tok_per_s_per_gpu",
        "p50_ttft_ms",
        "p99_ttft_ms",
        "p50_tpot_ms",
        "p99_tpot_ms",
        "error_frac",
    }
)
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
    wanted = [*(o.metric for o in study.objectives), *(slo.metric for slo in study.slos)]
    extra = [name for name in dict.fromkeys(wanted) if name not in _SHOWN]
    cells: list[tuple[str, ...]] = [(*_HEADERS[:_N_FIGURES], *extra, *_HEADERS[_N_FIGURES:])]
    for number, row in enumerate(rows, start=1):
        metric = row.point.metrics.get
        verdict = _VERDICTS[row.evaluation.verdict]
        cells.append(
            (
                str(number),
                number_text(metric("output_tok_per_s"), 1),
                number_text(metric("output_tok_per_s_per_gpu"), 1),
                str(row.point.batch_size),
                number_text(metric("p50_ttft_ms"), 1),
                number_text(metric("p99_ttft_ms"), 1),
                number_text(metric("p50_tpot_ms"), 2),
                number_text(metric("p99_tpot_ms"), 2),
                *(_extra_text(name, metric(name)) for name in extra),
                number_text(metric("n_requests"), 0),
                verdict if row.point.is_valid else "invalid",
                describe_configuration(row.launch.configuration),
                (row.run_id or "-")[:8],
            )
        )
    if not study.n_gpus:
        cells = [(*line[:2], *line[3:]) for line in cells]
    return _aligned(cells)


def _extra_text(name: str, value: float | None) -> str:
    return number_text(value, 4 if CATALOGUE[name].unit == "" else 2)


def misses_table(rows: Sequence[PointRow], slos: Sequence[Slo]) -> str:
    """Rows with what each misses, for when nothing is feasible."""
    lines = [("batch", "tok/s", "configuration", "misses")]
    lines += [
        (
            str(row.point.batch_size),
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
    bounded = list(dict.fromkeys(name for item in dicts for name in item["bounds"]))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    fixed = ("launch", "batch_size", "feasible", "verdict", "pareto", "mlflow_run_id")
    writer.writerow([*fixed, *parameters, *metrics, *_bound_names(bounded)])
    for item in dicts:
        writer.writerow(
            [
                *(item[name] for name in fixed),
                *(item["configuration"].get(name, "") for name in parameters),
                *(item["metrics"].get(name) for name in metrics),
                *(bound for name in bounded for bound in item["bounds"].get(name, (None, None))),
            ]
        )
    return out.getvalue()


def _bound_names(metrics: Sequence[str]) -> list[str]:
    return [f"{name}_{side}" for name in metrics for side in ("low", "high")]


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
