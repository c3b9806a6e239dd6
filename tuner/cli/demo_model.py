"""`tune demo-model`: write the small model that the demo serves."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tuner.cli.app import app


@app.command("demo-model")
def demo_model(
    path: Annotated[Path, typer.Argument(help="A new folder; gets target/ and draft/.")],
) -> None:
    """Write a small target, a draft that mostly agrees with it, and their tokenizer."""
    from tuner.demo_model import make_demo_model

    is_new = make_demo_model(path)
    typer.echo(f"{'Wrote' if is_new else 'There is already'} {path}/target and {path}/draft.")
