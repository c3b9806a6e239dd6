"""`tune ui`: MLflow's UI on the local store."""

from __future__ import annotations

import os
import socket
from typing import Annotated

import typer

from tuner.cli.app import app
from tuner.cli.workspace import mlruns_dir
from tuner.errors import UsageError


@app.command()
def ui(
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="Local port.")] = 5000,
) -> None:
    """Serve MLflow's UI for ./mlruns on 127.0.0.1; stop it with Ctrl-C."""
    from tuner.tracking import check_store, ui_command, ui_environment

    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"--port {port}: {error.strerror}. Choose another port.") from error
    folder = mlruns_dir()
    check_store(folder)
    command = ui_command(folder, port=port)
    typer.echo(f"MLflow: http://127.0.0.1:{port}  (Ctrl-C stops it)")
    # Replaced, not started: Ctrl-C, signals and the exit status are the server's own.
    os.execve(command[0], command, {**os.environ, **ui_environment()})  # noqa: S606 - no shell
