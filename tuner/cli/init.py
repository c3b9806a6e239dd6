"""`tune init`: write a study file to start from."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.app import app
from tuner.errors import UsageError


@app.command()
def init(
    model: Annotated[str, typer.Option("--model", help="Model id, or a path with ./ or /.")],
    gpus: Annotated[int, typer.Option("--gpus", min=0, help="GPUs of the node, 0 for CPU.")],
    name: Annotated[str, typer.Option("--name", help="The study's name.")] = "study",
) -> None:
    """Write a commented study file to ./search_spaces/NAME.yaml."""
    from tuner.config.find import is_name
    from tuner.config.template import study_template

    if not is_name(name):
        raise UsageError(
            f"--name {name!r} is no name for a study: use letters, digits, '-', '_' and '.', "
            "with a letter or digit first."
        )
    file = Path("search_spaces") / f"{name}.yaml"
    try:
        file.parent.mkdir(exist_ok=True)
        with file.open("x", encoding="utf-8") as out:
            out.write(study_template(model, n_gpus=gpus, name=name))
    except FileExistsError as error:
        raise UsageError(f"{file} exists already: choose another --name.") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}.") from error
    typer.echo(f"Wrote {file}. Check it with `tune check {name}`.")
