"""How hard a server is loaded at an operating point.

Owns the kinds of load and how one reads; which levels are measured is the study's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Self


class LoadKind(StrEnum):
    """What is held fixed during a level; the value is also its name in study files and tables."""

    BATCH_SIZE = "batch_size"
    """Requests in flight (closed loop, the client's ``max_concurrency``)."""
    REQUEST_RATE = "request_rate_per_s"
    """Requests that arrive per second, however long earlier ones take (open loop)."""
    TRACE_SPEED = "trace_speed"
    """A recorded trace's arrivals, so many times as fast as they were recorded."""


_FORMS = {
    LoadKind.BATCH_SIZE: "batch {}",
    LoadKind.REQUEST_RATE: "{} req/s",
    LoadKind.TRACE_SPEED: "trace x{}",
}


@dataclass(frozen=True, kw_only=True, order=True)
class Load:
    """One level of load.

    Attributes:
        kind: What is held fixed.
        value: How much of it, above 0; a whole number for a batch size.
    """

    kind: LoadKind
    value: float

    @classmethod
    def batch(cls, batch_size: int) -> Self:
        """So many requests in flight."""
        return cls(kind=LoadKind.BATCH_SIZE, value=batch_size)

    @property
    def batch_size(self) -> int | None:
        """Requests in flight; ``None`` where arrivals decide how many there are."""
        return int(self.value) if self.kind is LoadKind.BATCH_SIZE else None

    @property
    def number(self) -> int | float:
        """The value, a whole number where it is one."""
        return int(self.value) if self.value == int(self.value) else self.value

    @property
    def step(self) -> int:
        """A whole number that rises with the value: the batch size, or thousandths of a rate."""
        return self.batch_size or round(self.value * 1000)

    @property
    def slug(self) -> str:
        """For file names; sorts as it rises while below a thousand."""
        if self.batch_size is not None:
            return f"batch-{self.batch_size:03d}"
        return f"{self.kind.split('_')[1]}-{self.value:07.3f}"

    def __str__(self) -> str:
        """In words: ``batch 8``, ``2.5 req/s``, ``trace x2``."""
        return _FORMS[self.kind].format(f"{self.value:g}")
