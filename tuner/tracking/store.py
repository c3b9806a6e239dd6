"""Where MLflow keeps its data, and how its UI is started on it.

Owns locations and settings; imports nothing of MLflow.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

# MLflow waits 120 s and tries eight times by default: a dead server would block every call for
# minutes. The study's own storage keeps everything, so that what is missed is logged later.
_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "5",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}


def tracking_uri(uri: str | None, mlruns_dir: Path) -> str:
    """The tracking server to use: the one named, else SQLite under ``mlruns_dir``."""
    return uri or f"sqlite:///{mlruns_dir.resolve() / 'mlflow.db'}"


def artifact_location(uri: str | None, mlruns_dir: Path, study: str) -> str | None:
    """Where a study's artifacts go; ``None`` lets a remote server decide."""
    return None if uri else (mlruns_dir.resolve() / "artifacts" / study).as_uri()


def apply_settings() -> None:
    """Set MLflow's environment before it is imported; what the user has set stays."""
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


def ui_command(mlruns_dir: Path, *, port: int) -> list[str]:
    """The command that serves MLflow's UI for the local store, on loopback only."""
    return [
        sys.executable,
        "-m",
        "mlflow",
        "server",
        "--backend-store-uri",
        tracking_uri(None, mlruns_dir),
        "--default-artifact-root",
        (mlruns_dir.resolve() / "artifacts").as_uri(),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--workers",
        "1",
    ]
