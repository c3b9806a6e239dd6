"""Where a study's data is, seen from the working folder, and how commands read it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.errors import UsageError
from tuner.logs import STDERR

if TYPE_CHECKING:
    from tuner.config import Study
    from tuner.report import Standing
    from tuner.study.ledger import Ledger

StudyOption = Annotated[
    str,
    typer.Option("--study", "-s", help="NAME of ./search_spaces/NAME.yaml, a path, or a preset."),
]
StorageOption = Annotated[
    str | None,
    typer.Option("--storage", help="Database URL of the studies; SQLite in ./mlruns without it."),
]


def mlruns_dir() -> Path:
    """``./mlruns``, made if missing.

    Raises:
        UsageError: It cannot be written.
    """
    folder = Path("mlruns").resolve()
    try:
        folder.mkdir(exist_ok=True)
        probe = folder / ".writable"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be written ({error.strerror}): run tune in a folder of your own."
        ) from error
    return folder


@dataclass(frozen=True, kw_only=True)
class StoredStudy:
    """A study file and what is stored of it."""

    study: Study
    ledger: Ledger

    def standing(self, *, only_proven: bool = False) -> Standing:
        """All its points compared."""
        from tuner.report import standing_of

        return standing_of(
            self.ledger.launches(),
            {number: runs.point_run_ids for number, runs in self.ledger.logged_runs().items()},
            objectives=self.study.objectives,
            slos=self.study.slos,
            confidence=self.study.confidence,
            only_proven=only_proven,
        )


def open_stored(name: str, storage: str | None) -> StoredStudy:
    """Read a study file and open what is stored of it.

    Raises:
        UsageError: No such file, or nothing stored yet.
    """
    from tuner.config import read_study
    from tuner.study.ledger import Ledger
    from tuner.study.storage import load, open_storage, storage_url

    study = read_study(name, folder=Path.cwd())
    if storage is None and not Path("mlruns").is_dir():
        raise UsageError(
            f"there is no ./mlruns here, so no study {study.name!r}: go to the folder where it "
            f"was started, or run `tune start --study {name}`."
        )
    ledger = Ledger(load(open_storage(storage_url(storage, mlruns_dir())), study.name))
    changes = study.changes_since(ledger.canonical or study.to_canonical())
    if changes:
        STDERR.print(
            f"Note: {study.file} has changed since the study began, and what is shown follows the "
            f"file of now: {'; '.join(changes)}.",
            markup=False,
        )
    return StoredStudy(study=study, ledger=ledger)
