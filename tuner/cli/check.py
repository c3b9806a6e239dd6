"""`tune check`: a study file against its schema and against the installed vLLM, without a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.app import app
from tuner.errors import MissingDependencyError, StudyFileError


@app.command()
def check(
    file: Annotated[str, typer.Argument(help="A study file, or the name of a study.")],
) -> None:
    """Check a study file: schema, rules, and every value by vLLM's own argument parser."""
    from search_spaces.serve_args import SPECULATION
    from tuner.config import check_models_exist, read_study
    from tuner.serving import find_vllm
    from tuner.serving.vllm_check import check_study

    study = read_study(file, folder=Path.cwd())
    check_models_exist(study)
    try:
        vllm = find_vllm()
    except MissingDependencyError:
        typer.echo(f"{study.file}: the schema is met; vLLM is not installed to check its values.")
        return
    problems = check_study(study, vllm.python)
    if problems:
        found = "\n".join(f"{problem.key}: {problem.message}" for problem in problems)
        raise StudyFileError(f"vLLM {vllm.version} refuses:\n{found}", file=study.file)
    ladder = [study.ladder[0].kind.value] if study.ladder else []
    names = ", ".join([*ladder, *(name for name in study.space.order if name != SPECULATION)])
    typer.echo(f"{study.file}: fine for vLLM {vllm.version}; it varies {names or 'nothing'}.")
