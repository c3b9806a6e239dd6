"""`tune status`: how far a study is, what it has found, and what went wrong on the way."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.app import app
from tuner.cli.workspace import StorageOption, StoredStudy, StudyOption, open_stored

if TYPE_CHECKING:
    from tuner.report import PointRow
    from tuner.trial import Failed, Launch


@app.command()
def status(
    study: StudyOption,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    storage: StorageOption = None,
) -> None:
    """Say how far a study is: launches, verdicts, the best point, failures, invalid points."""
    from tuner.study.loop import n_counted

    stored = open_stored(study, storage)
    launches = list(stored.ledger.launches())
    standing = stored.standing()
    failures = _failures(launches)
    invalid = [row for row in standing.rows if not row.point.is_valid]
    summary: dict[str, Any] = {
        "study": stored.study.name,
        "n_launches": n_counted(launches),
        "budget_launches": stored.study.budget.launches,
        "spent_s": sum(launch.duration_s or 0.0 for launch in launches),
        "n_open": sum(launch.is_open for launch in launches),
        "n_duplicates": sum(launch.duplicate_of is not None for launch in launches),
        "n_points": len(standing.rows),
        "verdicts": dict(Counter(map(_verdict, standing.rows))),
        "n_on_front": len(standing.front),
        "best": standing.front[0].to_dict() if standing.front else None,
        "failures": dict(Counter(failed.kind.value for _, failed in failures)),
        "invalid_points": [
            {
                "launch": row.launch.number,
                row.point.load.kind.value: row.point.load.number,
                "reasons": list(row.point.invalid_reasons),
            }
            for row in invalid
        ],
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    _print(stored, summary, standing.front)
    _print_troubles(failures, invalid)


def _verdict(row: PointRow) -> str:
    return row.evaluation.verdict.value if row.point.is_valid else "invalid"


def _failures(launches: list[Launch]) -> list[tuple[Launch, Failed]]:
    """Launches that failed, without the interrupted ones that a later launch has made good."""
    from search_spaces.configuration import configuration_key
    from tuner.study.ledger import known_configurations

    known = known_configurations(launches)
    return [
        (launch, launch.failure)
        for launch in launches
        if launch.failure is not None
        and not (launch.was_interrupted and configuration_key(launch.configuration) in known)
    ]


def _print(stored: StoredStudy, summary: dict[str, Any], front: tuple[PointRow, ...]) -> None:
    from tuner.report import describe_configuration, number_text

    typer.echo(
        f"{summary['study']}: {summary['n_launches']} launches (the file's budget is "
        f"{summary['budget_launches']}) in {summary['spent_s'] / 60:.0f} min, "
        f"{summary['n_duplicates']} duplicates not launched"
    )
    verdicts = ", ".join(f"{n} {name}" for name, n in sorted(summary["verdicts"].items()))
    typer.echo(
        f"{summary['n_points']} operating points{f' ({verdicts})' if verdicts else ''}, "
        f"{summary['n_on_front']} on the Pareto front"
    )
    if front:
        metric = stored.study.objectives[0].metric
        typer.echo(
            f"best {metric}: {number_text(front[0].point.metrics.get(metric), 1)} at "
            f"{front[0].point.load} with "
            f"{describe_configuration(front[0].launch.configuration)} ({_verdict(front[0])})"
        )
    if summary["n_open"]:
        typer.echo("A launch is open: a tune is running, or was killed and will be resumed.")


def _print_troubles(failures: list[tuple[Launch, Failed]], invalid: list[PointRow]) -> None:
    from tuner.report import describe_configuration

    for launch, failed in failures:
        what = describe_configuration(launch.configuration)
        typer.echo(f"launch {launch.number} failed ({failed.kind}): {what}: {failed.message}")
    for row in invalid:
        reasons = "; ".join(row.point.invalid_reasons)
        typer.echo(f"launch {row.launch.number} {row.point.load} invalid: {reasons}")
