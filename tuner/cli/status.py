"""`tune status`: how far a study is, and what went wrong on the way."""

from __future__ import annotations

import json
from collections import Counter
from typing import Annotated

import typer

from tuner.cli.app import app
from tuner.cli.workspace import StorageOption, StudyOption, open_stored


@app.command()
def status(
    study: StudyOption,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    storage: StorageOption = None,
) -> None:
    """Say how far a study is: launches, points, failures, invalid points."""
    from tuner.report import describe_configuration
    from tuner.study.loop import n_counted

    stored = open_stored(study, storage)
    launches = list(stored.ledger.launches())
    standing = stored.standing()
    failures = [launch for launch in launches if launch.failure is not None]
    kinds = Counter(str(launch.failure.kind) for launch in failures if launch.failure)
    invalid = [row for row in standing.rows if not row.point.is_valid]
    summary = {
        "study": stored.study.name,
        "n_launches": n_counted(launches),
        "budget_launches": stored.study.budget.launches,
        "n_open": sum(launch.is_open for launch in launches),
        "n_duplicates": sum(launch.duplicate_of is not None for launch in launches),
        "n_points": len(standing.rows),
        "n_on_front": len(standing.front),
        "failures": dict(kinds),
        "invalid_points": [
            {
                "launch": row.launch.number,
                "batch_size": row.point.batch_size,
                "reasons": list(row.point.invalid_reasons),
            }
            for row in invalid
        ],
    }
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
        return
    typer.echo(
        f"{summary['study']}: {summary['n_launches']} launches (the file's budget is "
        f"{summary['budget_launches']}), "
        f"{summary['n_points']} operating points, {summary['n_on_front']} on the Pareto front, "
        f"{summary['n_duplicates']} duplicates not launched"
    )
    if summary["n_open"]:
        typer.echo("A launch is open: a tune is running, or was killed and will be resumed.")
    for launch in failures:
        if launch.failure is not None:
            what = describe_configuration(launch.configuration)
            kind, message = launch.failure.kind.value, launch.failure.message
            typer.echo(f"launch {launch.number} failed ({kind}): {what}: {message}")
    for row in invalid:
        reasons = "; ".join(row.point.invalid_reasons)
        typer.echo(f"launch {row.launch.number} batch {row.point.batch_size} invalid: {reasons}")
