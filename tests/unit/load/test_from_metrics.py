"""Lengths from a scrape: recorded and made-up histograms, draws, and texts that are no scrape."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tuner.config.workload import Histogram as Drawable
from tuner.errors import UsageError
from tuner.load.from_metrics import (
    Histogram,
    MeasuredLengths,
    lengths_from_metrics,
)

# vLLM 0.32 after one request of 7 prompt and 16 generated tokens; shortened to a few buckets.
RECORDED = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="./tiny"} 0.0
# HELP vllm:request_prompt_tokens Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens histogram
vllm:request_prompt_tokens_bucket{engine="0",le="5.0",model_name="./tiny"} 0.0
vllm:request_prompt_tokens_bucket{engine="0",le="10.0",model_name="./tiny"} 1.0
vllm:request_prompt_tokens_bucket{engine="0",le="1000.0",model_name="./tiny"} 1.0
vllm:request_prompt_tokens_bucket{engine="0",le="+Inf",model_name="./tiny"} 1.0
vllm:request_prompt_tokens_count{engine="0",model_name="./tiny"} 1.0
vllm:request_prompt_tokens_sum{engine="0",model_name="./tiny"} 7.0
# HELP vllm:request_prompt_tokens_created Number of prefill tokens processed.
# TYPE vllm:request_prompt_tokens_created gauge
vllm:request_prompt_tokens_created{engine="0",model_name="./tiny"} 1.7960747133280377e+09
# HELP vllm:request_generation_tokens Number of generation tokens processed.
# TYPE vllm:request_generation_tokens histogram
vllm:request_generation_tokens_bucket{engine="0",le="10.0",model_name="./tiny"} 0.0
vllm:request_generation_tokens_bucket{engine="0",le="20.0",model_name="./tiny"} 1.0
vllm:request_generation_tokens_bucket{engine="0",le="+Inf",model_name="./tiny"} 1.0
vllm:request_generation_tokens_count{engine="0",model_name="./tiny"} 1.0
vllm:request_generation_tokens_sum{engine="0",model_name="./tiny"} 16.0
"""


def lines(name: str, buckets: dict[str, object], total: object, engine: int = 0) -> str:
    """One engine's histogram: cumulative counts by bound, and the sum."""
    samples = [
        f'vllm:request_{name}_tokens_bucket{{engine="{engine}",le="{le}"}} {count}\n'
        for le, count in buckets.items()
    ]
    return "".join(samples) + f'vllm:request_{name}_tokens_sum{{engine="{engine}"}} {total}\n'


PROMPT = lines("prompt", {"1.0": 0, "2.0": 3, "+Inf": 3}, 6)
OUTPUT = lines("generation", {"1.0": 1, "2.0": 1, "+Inf": 1}, 1)


def test_the_recorded_scrape_has_one_request_in_one_bucket() -> None:
    assert lengths_from_metrics(RECORDED) == MeasuredLengths(
        prompt=Histogram(upper=(5, 10, 1000), counts=(0, 1, 0)),
        output=Histogram(upper=(10, 20), counts=(0, 1)),
        n_requests=1,
        mean_prompt_tok=7.0,
        mean_output_tok=16.0,
    )


def test_engines_are_summed_and_what_is_beyond_the_last_bucket_is_told() -> None:
    # Their order in the text says nothing.
    text = (
        lines("prompt", {"+Inf": 10, "100.0": 4, "200.0": 7}, 1500)
        + lines("prompt", {"100.0": 1, "200.0": 1, "+Inf": 2}, 420, engine=1)
        + OUTPUT
    )
    measured = lengths_from_metrics(text)
    assert measured.prompt == Histogram(
        upper=(100, 200), counts=(4 + 1, 3 + 0 + 3 + 1), n_beyond=4
    )
    assert measured.n_requests == 12
    assert measured.mean_prompt_tok == 1920 / 12


def test_lines_of_other_metrics_are_not_looked_at() -> None:
    other = 'vllm:request_prompt_tokens_created{engine="0"} x\n%$&/ {{{\nvllm:request_prompt 1\n'
    assert lengths_from_metrics(other + PROMPT + OUTPUT) == lengths_from_metrics(PROMPT + OUTPUT)


def test_windows_line_ends_and_timestamps_are_read() -> None:
    stamped = (PROMPT + OUTPUT).replace("\n", " 1395066363000\r\n")
    assert lengths_from_metrics(stamped) == lengths_from_metrics(PROMPT + OUTPUT)


def sample(rest: str) -> str:
    return f"vllm:request_prompt_tokens_bucket{rest}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "m.txt: there is no histogram vllm:request_prompt_tokens: give what a vLLM server"),
        ("<html>\n", "m.txt: there is no histogram vllm:request_prompt_tokens"),
        (PROMPT, "m.txt: there is no histogram vllm:request_generation_tokens"),
        (
            lines("prompt", {"1.0": 0, "+Inf": 0}, 0) + OUTPUT,
            "m.txt: vllm:request_prompt_tokens has counted 0 requests: scrape the server after",
        ),
        (
            PROMPT + lines("generation", {"1.0": "0.0", "+Inf": "0.0"}, 0),
            "m.txt: vllm:request_generation_tokens has counted 0 requests",
        ),
        (
            PROMPT + "\n" + PROMPT,
            'm.txt:6: \'vllm:request_prompt_tokens_bucket{engine="0",le="1.0',
        ),
        (
            "".join(PROMPT.splitlines(keepends=True)[-1:] * 2),
            "m.txt:2: 'vllm:request_prompt_tokens_sum{engine=\"0\"} 6' is there twice: scrape",
        ),
        (
            lines("prompt", {"1.0": 3, "2.0": 2, "+Inf": 3}, 5),
            "m.txt: vllm:request_prompt_tokens has 2 requests up to 2 tokens, fewer than the 3 of",
        ),
        (
            PROMPT + lines("prompt", {"1.0": 0, "+Inf": 3}, 6, engine=1) + OUTPUT,
            "m.txt: vllm:request_prompt_tokens has 2 different lists of buckets, so that they",
        ),
        (
            lines("prompt", {"1.0": 0, "2.0": 3}, 6),
            "m.txt: vllm:request_prompt_tokens has the buckets '1, 2', without a bound or",
        ),
        (
            lines("prompt", {"+Inf": 3}, 6),
            "m.txt: vllm:request_prompt_tokens has the buckets 'inf', without a bound or",
        ),
        (
            sample('{le="1"} 1') + sample('{le="+Inf"} 1'),
            "m.txt: vllm:request_prompt_tokens_sum is missing for some of its buckets: scrape",
        ),
        (sample(" 5"), "m.txt:1: the bucket's bound le is null, neither a whole number from 1"),
        ("\n" + sample('{le="x"} 5'), "m.txt:2: the bucket's bound le is 'x', neither"),
        (sample('{le="1.5"} 5'), "m.txt:1: the bucket's bound le is '1.5', neither a whole"),
        (sample('{le="0"} 5'), "m.txt:1: the bucket's bound le is '0', neither a whole number"),
        (sample('{le="NaN"} 5'), "m.txt:1: the bucket's bound le is 'NaN', neither"),
        (sample('{le="-Inf"} 5'), "m.txt:1: the bucket's bound le is '-Inf', neither"),
        (sample('{le="1e300"} 5'), "m.txt:1: the bucket's bound le is '1e300', neither"),
        (sample('{le="1"} 0.5'), "m.txt:1: the count is 0.5, no count: scrape /metrics of one"),
        (sample('{le="1"} -1'), "m.txt:1: the count is -1, no count"),
        (sample('{le="1"} NaN'), "m.txt:1: the count is nan, no count"),
        (sample('{le="1"} +Inf'), "m.txt:1: the count is inf, no count"),
        (sample('{le="1"} 1' + "0" * 400), "m.txt:1: the count is 1000000000"),
        (sample('{le="1"} 1 1' + "0" * 400), "m.txt:1: 'vllm:request_prompt_tokens_bucket{le="),
        (
            sample('{le="1"}'),
            "m.txt:1: 'vllm:request_prompt_tokens_bucket{le=\"1\"}' is no sample",
        ),
        (sample("{le=1} 3"), "m.txt:1: 'vllm:request_prompt_tokens_bucket{le=1} 3' is no sample"),
        (sample("{ ="), "m.txt:1: 'vllm:request_prompt_tokens_bucket{ =' is no sample of Prom"),
        (sample("\t"), "m.txt: there is no histogram"),
        ('vllm:request_prompt_tokens_sum{a="b"} NaN', "m.txt:1: the sum is nan, no sum of tokens"),
        ('vllm:request_prompt_tokens_sum{a="b"} -7', "m.txt:1: the sum is -7, no sum of tokens"),
    ],
)
def test_a_wrong_scrape_is_refused_with_place_value_and_remedy(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        lengths_from_metrics(text, file="m.txt")
    assert len(str(error.value)) < 300


def check(text: str) -> None:
    """Reads ``text``: either lengths that can be drawn from, or a ``UsageError``."""
    try:
        measured = lengths_from_metrics(text)
    except UsageError:
        return
    for histogram in (measured.prompt, measured.output):
        # What a study file may hold.
        Drawable(upper=list(histogram.upper), counts=list(histogram.counts))
        assert histogram.counts[-1] >= histogram.n_beyond
    assert measured.mean_prompt_tok >= 0
    assert measured.mean_output_tok >= 0


# What the format is made of, so that many lines nearly are samples.
pieces = st.sampled_from(
    [
        "{",
        "}",
        '"',
        "le=",
        'le="1"',
        'le="+Inf"',
        ",",
        "\\",
        " ",
        "\t",
        "1",
        "1e999",
        "_",
        "#",
        "=",
    ]
)
rests = st.lists(pieces | st.text(max_size=3), max_size=10).map("".join)


@settings(deadline=None, max_examples=300)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["prompt_tokens_bucket", "generation_tokens_sum", "prompt_tokens"]),
            st.sampled_from(["", "{", '{le="1"', '{le="+Inf"} ', " "]),
            rests,
        ),
        max_size=4,
    )
)
@example([("prompt_tokens_bucket", '{le="1"', ', ="x"} 1')])
def test_no_samples_raise_anything_but_a_usage_error(parts: list[tuple[str, str, str]]) -> None:
    check("\n".join(f"vllm:request_{name}{start}{rest}" for name, start, rest in parts))


@settings(deadline=None)
@given(st.text(max_size=300) | st.binary(max_size=300).map(lambda data: data.decode("latin-1")))
def test_no_text_raises_anything_but_a_usage_error(text: str) -> None:
    check(text)
    check(RECORDED + text)
    check(text + RECORDED)


bounds = st.sampled_from(["1.0", "2.0", "1e6", "+Inf"]) | st.floats().map(str)
counts = st.integers(0, 5) | st.integers() | st.floats()
histograms = st.dictionaries(bounds, counts, max_size=5).map(
    lambda buckets: {"1.0": 0, **buckets, "+Inf": buckets.get("+Inf", 9)}
)
totals = st.integers(0, 99) | st.floats()


@settings(deadline=None)
@given(histograms, histograms, totals, totals)
@example({"1.0": 1, "+Inf": 2**53}, {"1e7": 10**400, "+Inf": 2}, 10**400, 1e308)
def test_no_histogram_raises_anything_but_a_usage_error(
    prompt: dict[str, object], output: dict[str, object], total: object, other: object
) -> None:
    check(lines("prompt", prompt, total) + lines("generation", output, other))
    check(
        lines("prompt", prompt, total)
        + lines("prompt", prompt, other, engine=1)
        + lines("generation", prompt, total)
    )
