"""Reaching MLflow's store: its errors as ours, its noise silenced, a dead database found at once.

Only used where MLflow is imported already or about to be.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from tuner.errors import MissingDependencyError, UnreachableError, UsageError
from tuner.tracking.store import without_password

_MAX_REASON_CHARS = 300


@contextmanager
def reach(uri: str) -> Iterator[None]:
    """Turn MLflow's, its database's and the file system's errors into ours.

    Args:
        uri: The tracking store, for the message.
    """
    from mlflow.exceptions import MlflowException
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (MlflowException, SQLAlchemyError, OSError) as error:
        raise UnreachableError(
            f"MLflow's store {without_password(uri)} cannot be used: {_reason(error, uri)}. "
            "Check that it runs, may be written to and has space; --tracking-uri names another."
        ) from error


@contextmanager
def artifact_store() -> Iterator[None]:
    """Turn the errors of an artifact store into ``OSError``, for ``reach`` to report.

    A server may send artifacts to any cloud, whose library raises exceptions of its own.
    """
    from mlflow.exceptions import MlflowException

    try:
        yield
    except MlflowException:
        raise
    except Exception as error:
        raise OSError(str(error)) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Keep warnings between MLflow and the libraries below it from the user."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def check_database(uri: str) -> None:
    """See that a database answers.

    MLflow itself tries ten times, for 101 s, before it says that one does not.

    Args:
        uri: Of a database.

    Raises:
        UsageError: The URL cannot be read.
        MissingDependencyError: Its driver is not installed.
        sqlalchemy.exc.SQLAlchemyError: It does not answer, or is none.
    """
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        engine = sqlalchemy.create_engine(uri)
    except (ArgumentError, NoSuchModuleError, ValueError) as error:
        raise UsageError(
            f"--tracking-uri {without_password(uri)!r} is no database URL ({error}): "
            "give one such as sqlite:////folder/mlflow.db."
        ) from error
    except ImportError as error:
        raise MissingDependencyError(
            f"the database {without_password(uri)} needs a driver that is not installed "
            f"({error}): install it, or name an MLflow server with --tracking-uri."
        ) from error
    try:
        # A file that is no database is noticed only when its tables are read.
        sqlalchemy.inspect(engine).get_table_names()
    finally:
        engine.dispose()


def _reason(error: BaseException, uri: str) -> str:
    """The first line of the root cause: the rest only repeats it in longer words."""
    while (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    first_line = (str(error).splitlines() or [""])[0].strip() or type(error).__name__
    return first_line.replace(uri, without_password(uri))[:_MAX_REASON_CHARS].rstrip(".")
