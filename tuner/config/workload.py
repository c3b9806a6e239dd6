"""The workload part of a study file: what traffic a configuration is tuned for.

Owns the schema; the requests themselves are built in ``tuner.load``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Positive = Annotated[int, Field(ge=1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# One length in forty would be e^6 = 400 times the median: no traffic is wider.
_MAX_SIGMA = 3


class Strict(BaseModel):
    """Base of everything read from a file: no unknown key, no conversion, no change afterwards."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Histogram(Strict):
    """How often lengths fell between limits.

    Attributes:
        upper: The largest length of each bucket, rising.
        counts: How many there were in each bucket.
    """

    upper: Annotated[list[Positive], Field(min_length=1)]
    counts: Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]

    @model_validator(mode="after")
    def _check(self) -> Histogram:
        if len(self.upper) != len(self.counts):
            raise ValueError(
                f"has {len(self.upper)} upper limits and {len(self.counts)} counts: give as many"
            )
        if self.upper != sorted(set(self.upper)):
            raise ValueError("upper must rise from bucket to bucket")
        if not any(self.counts):
            raise ValueError("every count is 0: there is nothing to draw from")
        return self


class Lengths(Strict):
    """A distribution of token counts; exactly one of its kinds.

    Attributes:
        uniform: ``[low, high]``, both included.
        lognormal: ``[median, sigma]``, sigma that of the logarithm.
        histogram: Measured counts, as ``tune workload from-metrics`` gives them.
        min: Smallest length drawn; shorter ones are raised to it.
        max: Largest length drawn; longer ones are cut to it.
    """

    uniform: Annotated[list[Positive], Field(min_length=2, max_length=2)] | None = None
    lognormal: Annotated[list[Finite], Field(min_length=2, max_length=2)] | None = None
    histogram: Histogram | None = None
    min: Positive = 1
    max: Positive | None = None

    @model_validator(mode="after")
    def _check(self) -> Lengths:
        if sum(kind is not None for kind in (self.uniform, self.lognormal, self.histogram)) != 1:
            raise ValueError(
                "give exactly one of uniform: [low, high], lognormal: [median, sigma] and "
                "histogram: {upper: [...], counts: [...]}"
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


class Workload(Strict):
    """What every workload has.

    Attributes:
        seed: Two runs with one seed send the same bytes.
        api: Which endpoint is asked.
        burstiness: Of the arrivals at a request rate: the shape of the gamma distribution of
            their gaps. 1 is a Poisson process, below 1 they come in bursts.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    api: Literal["completions", "chat"] = "completions"
    burstiness: Annotated[Finite, Field(gt=0)] = 1.0

    @property
    def has_fresh_prompts(self) -> bool:
        """Whether no prompt shares a beginning with another, so that a prefix cache must miss."""
        return False


class SyntheticWorkload(Workload):
    """Made-up prompts of stated lengths.

    Attributes:
        kind: Always ``synthetic``.
        input_tokens: Length of what a user writes in one turn, a number or a distribution.
        output_tokens: Answer length, a number or a distribution; the server is told to ignore
            its end-of-text token, so that the length is exact.
        shared_prefix_tokens: Length of a prefix before the first turn, as a system prompt would
            be; 0 for none. It is in addition to ``input_tokens``.
        shared_prefix_frac: Share of the sessions that begin with it.
        n_shared_prefixes: Different prefixes, among which sessions choose evenly.
        turns: Requests per session, each with all that was said before.
        think_s: Seconds between an answer and the session's next turn.
    """

    kind: Literal["synthetic"] = "synthetic"
    input_tokens: Positive | Lengths = 512
    output_tokens: Positive | Lengths = 128
    shared_prefix_tokens: Annotated[int, Field(ge=0)] = 0
    shared_prefix_frac: Annotated[Finite, Field(gt=0, le=1)] = 1.0
    n_shared_prefixes: Positive = 1
    turns: Annotated[int, Field(ge=1, le=100)] = 1
    think_s: Annotated[Finite, Field(ge=0)] = 0.0

    @property
    def has_fresh_prompts(self) -> bool:
        """Whether no prompt shares a beginning with another."""
        return not self.shared_prefix_tokens and self.turns == 1


class TraceWorkload(Workload):
    """Made-up prompts of a recorded trace's lengths, at its moments where it has any.

    Attributes:
        kind: Always ``trace``.
        file: Its path, relative to the working folder. ``docs/study-file.md`` lists the forms.
    """

    kind: Literal["trace"]
    file: str


class ConversationsWorkload(Workload):
    """Prompts from a file.

    Attributes:
        kind: The file's form.
        file: Its path, relative to the working folder.
        output_tokens: Answer length where the file does not give it; without it, the length of
            the file's own answer.
        max_input_tokens: Longer prompts are left out; ``None`` for no limit.
        turns: Turns of a conversation that are used, at most.
    """

    kind: Literal["sharegpt", "jsonl"]
    file: str
    output_tokens: Positive | Lengths | None = None
    max_input_tokens: Positive | None = None
    turns: Annotated[int, Field(ge=1, le=100)] = 1


AnyWorkload = SyntheticWorkload | TraceWorkload | ConversationsWorkload
WORKLOADS: dict[str, type[AnyWorkload]] = {
    "synthetic": SyntheticWorkload,
    "trace": TraceWorkload,
    "sharegpt": ConversationsWorkload,
    "jsonl": ConversationsWorkload,
}


def longest(lengths: int | Lengths) -> int | None:
    """The longest that can be drawn; ``None`` for an open end."""
    if isinstance(lengths, int):
        return lengths
    if lengths.max is not None:
        return lengths.max
    if lengths.histogram is not None:
        return lengths.histogram.upper[-1]
    return lengths.uniform[1] if lengths.uniform else None
