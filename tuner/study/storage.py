"""Opening the Optuna storage of a study, and the lock that keeps two tuners off one study.

Owns URLs, file locations and the conversion of database errors; knows nothing of what is stored.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.study import StudyDirection
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from objectives import Direction, Objective
from tuner.errors import UnreachableError, UsageError

optuna.logging.set_verbosity(optuna.logging.WARNING)


def storage_url(url: str | None, mlruns_dir: Path) -> str:
    """The storage to use: the one named, else SQLite under ``mlruns_dir``."""
    return url or f"sqlite:///{(mlruns_dir / 'optuna.db').resolve()}"


def open_storage(url: str) -> optuna.storages.RDBStorage:
    """Open or create an Optuna storage.

    Raises:
        UsageError: The URL is not one of a database, or its driver is not installed.
        UnreachableError: The database does not answer or is damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return optuna.storages.RDBStorage(url, engine_kwargs={"pool_pre_ping": True})
    except (ArgumentError, NoSuchModuleError, ImportError) as error:
        raise UsageError(
            f"--storage {url!r} is no database URL that can be used here ({error}): "
            "give one such as sqlite:///study.db or postgresql://host/database."
        ) from error
    except (SQLAlchemyError, RuntimeError, OSError) as error:
        first_line = str(error).splitlines()[0]
        raise UnreachableError(
            f"the study storage {url} cannot be opened: {first_line}. "
            "Check the database or name another one with --storage."
        ) from error


def create_or_load(
    storage: optuna.storages.RDBStorage,
    name: str,
    objectives: Sequence[Objective],
    sampler: optuna.samplers.BaseSampler,
) -> optuna.Study:
    """The Optuna study of this name, made if it is new.

    Raises:
        UsageError: A study of this name exists with other objectives.
    """
    directions = [
        StudyDirection.MAXIMIZE
        if objective.direction is Direction.MAXIMIZE
        else StudyDirection.MINIMIZE
        for objective in objectives
    ]
    study = optuna.create_study(
        storage=storage,
        study_name=name,
        directions=directions,
        sampler=sampler,
        load_if_exists=True,
    )
    if study.directions != directions:
        raise UsageError(
            f"the stored study {name!r} has other objectives than its file: "
            "restore the file, or rename it to start a new study."
        )
    return study


def load(storage: optuna.storages.RDBStorage, name: str) -> optuna.Study:
    """A study that exists.

    Raises:
        UsageError: There is none of this name.
    """
    try:
        # It is only read: a sampler that fits nothing is made in no time.
        sampler = optuna.samplers.RandomSampler()
        return optuna.load_study(storage=storage, study_name=name, sampler=sampler)
    except KeyError as error:
        names = sorted(optuna.get_all_study_names(storage))
        known = ", ".join(names) if names else "none yet"
        raise UsageError(
            f"there is no study {name!r} in the storage (studies: {known}): "
            f"run `tune start --study {name}` first."
        ) from error


@contextmanager
def study_lock(url: str, name: str, mlruns_dir: Path) -> Iterator[None]:
    """Hold the study for this tuner; the kernel frees it however the tuner ends.

    Raises:
        UsageError: Another tuner on this machine holds it.
    """
    digest = hashlib.sha256(f"{url}\n{name}".encode()).hexdigest()[:12]
    file = mlruns_dir / f".{digest}.lock"
    with file.open("a+", encoding="utf-8") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            handle.seek(0)
            holder = handle.read().strip() or "unknown"
            raise UsageError(
                f"study {name!r} is being run by another tune (pid {holder}): "
                "wait for it, or stop it with Ctrl-C there."
            ) from error
        handle.truncate(0)
        handle.write(str(os.getpid()))
        handle.flush()
        yield
