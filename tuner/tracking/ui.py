"""How MLflow's UI is started on the local store.

Owns the command and its environment; starts nothing and imports nothing of MLflow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from tuner.errors import UnreachableError
from tuner.tracking.reach import check_database
from tuner.tracking.store import SETTINGS, tracking_uri

# The job runner keeps eight more processes for features that a study does not use.
_SETTINGS = SETTINGS | {
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "PYTHONWARNINGS": "ignore",
}


def ui_command(mlruns_dir: Path, *, port: int) -> list[str]:
    """The command that serves MLflow's UI for the local store, on loopback only.

    Run it in ``ui_environment`` and in its own session: the server has a child.

    Args:
        mlruns_dir: Holds the store; both database and artifacts are named by absolute paths.
        port: Free port.
    """
    return [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        tracking_uri(None, mlruns_dir),
        "--default-artifact-root",
        (mlruns_dir.resolve() / "artifacts").as_uri(),
        # Runs name their artifacts by path, which the server reads itself; the upload proxy would
        # only add a folder below wherever the command was started.
        "--no-serve-artifacts",
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]


def check_store(mlruns_dir: Path) -> None:
    """See that the local store is a database, which MLflow would tell by a traceback.

    Raises:
        UnreachableError: It is none, or cannot be read.
    """
    from sqlalchemy.exc import SQLAlchemyError

    uri = tracking_uri(None, mlruns_dir)
    try:
        check_database(uri)
    except (SQLAlchemyError, OSError) as error:
        reason = str(error).partition("\n")[0]
        raise UnreachableError(
            f"{uri} cannot be used ({reason}): move the file away to begin a new store."
        ) from error


def ui_environment() -> dict[str, str]:
    """The environment of ``ui_command``: ours, with settings that the user has not set."""
    return _SETTINGS | dict(os.environ)
