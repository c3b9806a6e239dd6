"""The `tune` application: its options and how an error becomes an exit status."""

from __future__ import annotations

import sys
import traceback
from importlib import metadata
from typing import Annotated

import typer

from tuner.errors import ExitStatus, TuneError
from tuner.logs import STDERR, configure_logging

app = typer.Typer(
    name="tune",
    help="Tune LLM serving on vLLM: the Pareto set of throughput against latency, by live "
    "benchmarks, filtered by P99 SLOs.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
_STATE = {"debug": False}


def print_version(value: bool) -> None:  # noqa: FBT001 - as typer calls it
    """Print the version and end."""
    if value:
        typer.echo(f"tune {metadata.version('vllm-tune')}")
        raise typer.Exit


@app.callback()
def options(
    *,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks and more.")] = False,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Tune LLM serving on vLLM."""
    _STATE["debug"] = debug
    configure_logging(debug=debug)


def main() -> None:
    """Run `tune`; a mendable error is one message and its exit status, anything else is a bug."""
    try:
        app()
    except TuneError as error:
        if _STATE["debug"]:
            traceback.print_exc()
        STDERR.print(f"Error: {error}", style="red", markup=False)
        sys.exit(error.exit_status)
    except KeyboardInterrupt:
        STDERR.print("Stopped at once; everything measured is kept.")
        sys.exit(ExitStatus.INTERRUPTED)
