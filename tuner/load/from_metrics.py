"""Lengths of a running server's traffic, taken from one scrape of its metrics.

Owns which of vLLM's histograms are read. Knows nothing of how
the text was fetched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

from tuner.errors import UsageError
from tuner.load.text_lines import MAX_TOK, shown

_PROMPT = "vllm:request_prompt_tokens"
_OUTPUT = "vllm:request_generation_tokens"
_LINE = re.compile(rf"({_PROMPT}|{_OUTPUT})_(bucket|sum)(?=[ \t{{])")
_AGAIN = "scrape /metrics of one vLLM server again."
# Above this a float is not every whole number.
_MAX_COUNT = 2**53

_Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Histogram:
    """How many requests had how many tokens.

    Attributes:
        upper: Largest token count of each bucket, ascending, at least 1; a bucket begins above
            the one before, the first at 0.
        counts: Requests in each bucket, not cumulative; at least one in all.
        n_beyond: Requests longer than the last bucket, which are counted in it all the same: how
            long they were, the server does not tell.
    """

    upper: tuple[int, ...]
    counts: tuple[int, ...]
    n_beyond: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredLengths:
    """The traffic that a server has seen since it started.

    Attributes:
        prompt: Prompt tokens of its finished requests.
        output: Generated tokens of its finished requests.
        n_requests: Finished requests, by the prompts' histogram.
        mean_prompt_tok: Exact mean, not one of buckets.
        mean_output_tok: Exact mean, not one of buckets.
    """

    prompt: Histogram
    output: Histogram
    n_requests: int
    mean_prompt_tok: float
    mean_output_tok: float


@dataclass(slots=True)
class _Series:
    """The samples of one histogram: cumulative counts by label set and bound, and the sums."""

    buckets: dict[_Labels, dict[float, int]] = field(default_factory=dict)
    sums: dict[_Labels, float] = field(default_factory=dict)


def lengths_from_metrics(text: str, *, file: str = "the metrics") -> MeasuredLengths:
    """Read the prompt and output lengths in a scrape of vLLM's ``/metrics``.

    Label sets (engines, models) are summed. Lines of other metrics are not looked at.

    Args:
        text: The scrape, in Prometheus' text format.
        file: What messages call it.

    Returns:
        Both histograms and their means.

    Raises:
        UsageError: A histogram is missing, holds no request or is not consistent; the message
            names the line where one is at fault.
    """
    series = {_PROMPT: _Series(), _OUTPUT: _Series()}
    for n_line, line in enumerate(text.split("\n"), start=1):
        found = _LINE.match(line.strip())
        if found:
            _add(series[found[1]], found[2], f"{file}:{n_line}", line.strip())
    prompt, output = (_histogram(file, name, series[name]) for name in (_PROMPT, _OUTPUT))
    return MeasuredLengths(
        prompt=prompt,
        output=output,
        n_requests=sum(prompt.counts),
        mean_prompt_tok=sum(series[_PROMPT].sums.values()) / sum(prompt.counts),
        mean_output_tok=sum(series[_OUTPUT].sums.values()) / sum(output.counts),
    )


def _add(series: _Series, kind: str, where: str, line: str) -> None:
    value, labels = _sample(where, line)
    bound = labels.pop("le", None)
    key = tuple(sorted(labels.items()))
    if kind == "sum":
        if key in series.sums:
            raise UsageError(f"{where}: {shown(line)} is there twice: {_AGAIN}")
        if not 0 <= value <= float(_MAX_COUNT) * MAX_TOK:
            raise UsageError(f"{where}: the sum is {shown(value)}, no sum of tokens: {_AGAIN}")
        series.sums[key] = float(value)
        return
    if not 0 <= value <= _MAX_COUNT or value != int(value):
        raise UsageError(f"{where}: the count is {shown(value)}, no count: {_AGAIN}")
    buckets = series.buckets.setdefault(key, {})
    upper = _bound(where, bound)
    if upper in buckets:
        raise UsageError(f"{where}: {shown(line)} is there twice: {_AGAIN}")
    buckets[upper] = int(value)


def _sample(where: str, line: str) -> tuple[float, dict[str, str]]:
    """Value and labels of one line; by itself, so that a message can name it."""
    try:
        (family,) = text_string_to_metric_families(line)
        (sample,) = family.samples
        # The parser gives integers of any size, and its errors are of no common kind.
        return sample.value, dict(sample.labels)
    except (ValueError, IndexError, OverflowError) as error:
        raise UsageError(
            f"{where}: {shown(line)} is no sample of Prometheus' text format: {_AGAIN}"
        ) from error


def _bound(where: str, le: str | None) -> float:
    try:
        upper = float(le or "")
    except ValueError:
        upper = math.nan
    if upper != math.inf and not (1 <= upper <= MAX_TOK and upper == int(upper)):
        raise UsageError(
            f"{where}: the bucket's bound le is {shown(le)}, neither a whole number from 1 to "
            f"{MAX_TOK} nor +Inf: {_AGAIN}"
        )
    return upper


def _histogram(file: str, name: str, series: _Series) -> Histogram:
    if not series.buckets:
        raise UsageError(
            f"{file}: there is no histogram {name}: give what a vLLM server answers at /metrics."
        )
    bounds = {tuple(sorted(buckets)) for buckets in series.buckets.values()}
    if len(bounds) > 1:
        raise UsageError(
            f"{file}: {name} has {len(bounds)} different lists of buckets, so that they cannot be "
            f"added up: {_AGAIN}"
        )
    (uppers,) = bounds
    if uppers[-1] != math.inf or uppers[0] == math.inf:
        raise UsageError(
            f"{file}: {name} has the buckets {shown(_joined(uppers))}, without a bound or without "
            f"+Inf: {_AGAIN}"
        )
    if series.sums.keys() != series.buckets.keys():
        raise UsageError(f"{file}: {name}_sum is missing for some of its buckets: {_AGAIN}")
    columns = zip(*(_counts(file, name, b) for b in series.buckets.values()), strict=True)
    counts = [sum(column) for column in columns]
    n_beyond = counts.pop()
    if sum(counts) + n_beyond == 0:
        raise UsageError(
            f"{file}: {name} has counted 0 requests: scrape the server after it has served some."
        )
    counts[-1] += n_beyond
    return Histogram(
        upper=tuple(int(bound) for bound in uppers[:-1]),
        counts=tuple(counts),
        n_beyond=n_beyond,
    )


def _counts(file: str, name: str, buckets: dict[float, int]) -> Iterator[int]:
    before = 0
    for upper, cumulative in sorted(buckets.items()):
        if cumulative < before:
            raise UsageError(
                f"{file}: {name} has {cumulative} requests up to {upper:g} tokens, fewer than the "
                f"{before} of the bucket below: {_AGAIN}"
            )
        yield cumulative - before
        before = cumulative


def _joined(bounds: tuple[float, ...]) -> str:
    return ", ".join(f"{bound:g}" for bound in bounds)
