"""Where MLflow keeps a study's data, and the settings that MLflow runs under.

Owns locations and settings; imports nothing of MLflow.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from tuner.errors import UsageError

# MLflow waits 120 s and tries eight times by default: a dead server would block every call for
# minutes. The study's own storage keeps everything, so that what is missed is logged later; a
# request that is sent again might make a run twice. MLflow's log would repeat our own errors.
SETTINGS = {
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_RESPECT_RETRY_AFTER_HEADER": "false",
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "GIT_PYTHON_REFRESH": "quiet",
}
_SERVERS = ("http", "https")
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def apply_settings() -> None:
    """Set MLflow's environment before it is imported; what the user has set stays."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)


def tracking_uri(uri: str | None, mlruns_dir: Path) -> str:
    """The tracking store to use: the one named, else SQLite under ``mlruns_dir``.

    Raises:
        UsageError: The one named is neither a server nor a database.
    """
    if uri is None:
        return f"sqlite:///{mlruns_dir.resolve() / 'mlflow.db'}"
    if not is_server(uri) and not is_database(uri):
        raise UsageError(
            f"--tracking-uri {without_password(uri)!r} is no tracking store that can be used: "
            "give a server such as http://host:5000, or a database such as "
            "sqlite:////folder/mlflow.db."
        )
    return uri


def is_server(uri: str) -> bool:
    """Whether a tracking URI is one of an MLflow server."""
    scheme, colon, _ = uri.partition("://")
    return bool(colon) and scheme.lower() in _SERVERS


def is_database(uri: str) -> bool:
    """Whether a tracking URI is one of a database that MLflow can write to itself."""
    scheme, colon, _ = uri.partition("://")
    return bool(colon) and scheme.split("+")[0] in _DATABASES


def artifact_location(uri: str | None, mlruns_dir: Path, study: str) -> str | None:
    """Where a study's artifacts go: under ``mlruns_dir``; ``None`` lets a server decide.

    MLflow's own default for a database is a folder below wherever the command was started.
    """
    if uri is not None and is_server(uri):
        return None
    return (mlruns_dir.resolve() / "artifacts" / study).as_uri()


def without_password(uri: str) -> str:
    """A URI as it may be shown: the password is hidden."""
    return re.sub(r"(://[^/@:]*):[^/]*@", r"\1:***@", uri)
