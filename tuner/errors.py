"""The error tree, and the exit status of each branch.

```
TuneError                      1  (never raised itself)
|-- UsageError                 2  a wrong option, an unknown study, an unwritable folder
|   `-- MissingDependencyError 2  vLLM or another package is not installed
|-- StudyFileError             3  unknown key, wrong type, unknown metric, changed space
|-- NothingFeasibleError       4  no measured point meets the SLOs
|-- ServerNeverStartedError    5  no launch of the study ever answered
`-- UnreachableError           6  tracking server or study storage
InterruptedStudyError        130  Ctrl-C, after a clean finish
```

An expected failure of one launch is not here: it is a ``tuner.trial.Failed`` value.
A message says what, which value, where, and what to do.
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar


class ExitStatus(IntEnum):
    """Exit codes of ``tune``."""

    DONE = 0
    BUG = 1
    USAGE = 2
    STUDY_FILE = 3
    NOTHING_FEASIBLE = 4
    SERVER_NEVER_STARTED = 5
    UNREACHABLE = 6
    REGRESSION = 7
    INTERRUPTED = 130


class TuneError(Exception):
    """Base of everything that a user can mend; carries the exit status of its branch."""

    exit_status: ClassVar[ExitStatus] = ExitStatus.BUG


class UsageError(TuneError):
    """A wrong option or argument, or a place that cannot be used."""

    exit_status = ExitStatus.USAGE


class MissingDependencyError(UsageError):
    """A package or program that the command needs is not installed."""


class StudyFileError(TuneError):
    """A study file that cannot be used.

    Attributes:
        file: The file, as the user named it.
        key: Dotted path of the offending key, ``""`` for the whole file.
        line: Line of the key in the file, from 1; ``None`` where unknown.
    """

    exit_status = ExitStatus.STUDY_FILE

    def __init__(self, message: str, *, file: str, key: str = "", line: int | None = None) -> None:
        """Build the message ``file:line: key: message``."""
        self.file, self.key, self.line = file, key, line
        where = file if line is None else f"{file}:{line}"
        super().__init__(": ".join(part for part in (where, key, message) if part))


class NothingFeasibleError(TuneError):
    """No measured operating point meets every SLO."""

    exit_status = ExitStatus.NOTHING_FEASIBLE


class ServerNeverStartedError(TuneError):
    """Every launch of the study failed before it answered a request."""

    exit_status = ExitStatus.SERVER_NEVER_STARTED


class UnreachableError(TuneError):
    """The tracking server or the study storage cannot be reached."""

    exit_status = ExitStatus.UNREACHABLE


class InterruptedStudyError(TuneError):
    """The user stopped the study; everything measured so far is kept."""

    exit_status = ExitStatus.INTERRUPTED
