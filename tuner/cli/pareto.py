"""`tune pareto`: the Pareto set within the SLOs."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tuner.cli.app import app
from tuner.cli.workspace import StorageOption, StoredStudy, StudyOption, open_stored
from tuner.errors import NothingFeasibleError, UsageError

_N_NEAREST = 5


@app.command()
def pareto(  # noqa: PLR0913 - one parameter per option
    study: StudyOption,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Every operating point, not the front alone.")
    ] = False,
    proven: Annotated[
        bool, typer.Option("--proven", help="Only points whose SLOs are proven to be met.")
    ] = False,
    command: Annotated[
        int | None,
        typer.Option(
            "--command",
            help="Print the vllm serve command of row N, without the host, port and served model "
            "name that were used to measure it.",
        ),
    ] = None,
    storage: StorageOption = None,
) -> None:
    """Print the Pareto set of a study, filtered by its P99 SLOs."""
    from tuner.report import pareto_csv, pareto_table

    if sum((as_json, as_csv, command is not None)) > 1:
        raise UsageError("give only one of --json, --csv and --command.")
    stored = open_stored(study, storage)
    standing = stored.standing(only_proven=proven)
    rows = standing.rows if show_all else standing.front
    if as_json:
        payload = {
            "study": stored.study.name,
            "points": [row.to_dict() for row in rows],
            "nearest": []
            if standing.front
            else [row.to_dict() for row in standing.nearest[:_N_NEAREST]],
        }
        typer.echo(json.dumps(payload, indent=2))
    elif as_csv:
        typer.echo(pareto_csv(rows), nl=False)
    elif command is not None:
        if rows and not 1 <= command <= len(rows):
            raise UsageError(f"--command {command}: there are rows 1 to {len(rows)}.")
        if rows:
            typer.echo(rows[command - 1].launch.shell_line(is_as_run=False))
    elif show_all and rows:
        typer.echo(pareto_table(rows, stored.study))
    else:
        print_pareto(stored, only_proven=proven)
        return
    if not standing.front:
        raise NothingFeasibleError("no operating point is within every SLO.")


def print_pareto(stored: StoredStudy, *, only_proven: bool = False) -> None:
    """Print the front, or what came nearest to it.

    Raises:
        NothingFeasibleError: The front is empty; the nearest points are printed first.
    """
    from tuner.report import misses_table, pareto_table

    study = stored.study
    standing = stored.standing(only_proven=only_proven)
    limits = ", ".join(map(str, study.slos)) or "no SLO"
    if not standing.front:
        if standing.nearest:
            typer.echo(f"Nothing feasible under {limits}. Nearest:")
            typer.echo(misses_table(standing.nearest[:_N_NEAREST], study.slos))
        raise NothingFeasibleError(
            f"none of the {len(standing.rows)} operating points of {study.name} is within every "
            "SLO: run more launches, or start a study with a wider search space or other limits "
            "in a file of another name."
        )
    typer.echo(
        f"Pareto set of {study.name}: {len(standing.front)} of {len(standing.rows)} operating "
        f"points, under {limits} (latencies in ms)"
    )
    typer.echo(pareto_table(standing.front, study))
    typer.echo(
        f"SLOs: met = proven at {study.confidence:.0%} confidence, open = within the limits but "
        "the sample is too small to prove it."
    )
