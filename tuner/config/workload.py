"""The workload part of a study file: what traffic a configuration is tuned for.

Owns the schema and its hash; the requests themselves are built in ``tuner.load``.
"""

from __future__ import annotations

import hashlib
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# One length in forty would be e^6 = 400 times the median: no traffic is wider.
_MAX_SIGMA = 3


class Strict(BaseModel):
    """Base of everything read from a file: no unknown key, no conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Lengths(Strict):
    """A distribution of token counts; exactly one of ``uniform`` and ``lognormal``.

    Attributes:
        uniform: ``[low, high]``, both included.
        lognormal: ``[median, sigma]``, sigma that of the logarithm.
        min: Smallest length drawn; shorter ones are raised to it.
        max: Largest length drawn; longer ones are cut to it.
    """

    uniform: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = None
    lognormal: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    min: Positive = 1
    max: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Lengths:
        if (self.uniform is None) == (self.lognormal is None):
            raise ValueError(
                "give exactly one of uniform: [low, high] and lognormal: [median, sigma]"
            )
        if self.uniform and self.uniform[0] > self.uniform[1]:
            raise ValueError(f"uniform {self.uniform} is empty: low is above high")
        if self.lognormal and not (self.lognormal[0] >= 1 and 0 < self.lognormal[1] <= _MAX_SIGMA):
            raise ValueError(
                f"lognormal needs a median of at least 1 and a sigma above 0, at most {_MAX_SIGMA}"
            )
        if self.max is not None and self.max < self.min:
            raise ValueError(f"max ({self.max}) is below min ({self.min})")
        return self


class SyntheticWorkload(Strict):
    """Made-up prompts of stated lengths.

    Attributes:
        kind: Always ``synthetic``.
        input_tokens: Prompt length, a number or a distribution.
        output_tokens: Answer length, a number or a distribution; the server is told to ignore
            its end-of-text token, so that the length is exact.
        shared_prefix_tokens: Length of a prefix that all prompts share, as a system prompt would
            be; 0 for none. It is in addition to ``input_tokens``.
        seed: Two runs with one seed send the same bytes.
        api: Which endpoint is asked.
    """

    kind: Literal["synthetic"] = "synthetic"
    input_tokens: Positive | Lengths = 512
    output_tokens: Positive | Lengths = 128
    shared_prefix_tokens: Annotated[int, Field(ge=0)] = 0
    seed: Annotated[int, Field(ge=0)] = 0
    api: Literal["completions", "chat"] = "completions"


def longest(lengths: int | Lengths) -> int | None:
    """The longest that can be drawn; ``None`` for an open end."""
    if isinstance(lengths, int):
        return lengths
    if lengths.max is not None:
        return lengths.max
    return lengths.uniform[1] if lengths.uniform else None


def workload_hash(workload: SyntheticWorkload) -> str:
    """Twelve hex digits that are equal for equal workloads."""
    return hashlib.sha256(workload.model_dump_json().encode()).hexdigest()[:12]
