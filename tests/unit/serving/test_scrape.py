"""Reading /metrics, without a server."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.serving.scrape import ScrapeWatch, read_scrape, reset_prefix_cache

# Lines of a scrape of vLLM 0.32 after one completion of 7 prompt and 16 output tokens.
RECORDED = """\
# HELP python_info Python platform information
# TYPE python_info gauge
python_info{implementation="CPython",major="3",minor="11",patchlevel="7",version="3.11.7"} 1.0
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="./tiny"} 0.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="./tiny"} 0.0
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="./tiny",reason="capacity"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="./tiny",reason="deferred"} 0.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="./tiny"} 0.0
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="./tiny"} 7.0
# TYPE vllm:prefix_cache_queries_created gauge
vllm:prefix_cache_queries_created{engine="0",model_name="./tiny"} 1.7960747133275204e+09
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="./tiny"} 0.0
# TYPE vllm:external_prefix_cache_queries_total counter
vllm:external_prefix_cache_queries_total{engine="0",model_name="./tiny"} 0.0
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="./tiny"} 0.0
# HELP vllm:iteration_tokens_total Histogram of number of tokens per engine_step.
# TYPE vllm:iteration_tokens_total histogram
vllm:iteration_tokens_total_bucket{engine="0",le="1.0",model_name="./tiny"} 15.0
vllm:iteration_tokens_total_bucket{engine="0",le="8.0",model_name="./tiny"} 16.0
vllm:iteration_tokens_total_bucket{engine="0",le="+Inf",model_name="./tiny"} 16.0
vllm:iteration_tokens_total_count{engine="0",model_name="./tiny"} 16.0
vllm:iteration_tokens_total_sum{engine="0",model_name="./tiny"} 23.0
# TYPE vllm:iteration_tokens_total_created gauge
vllm:iteration_tokens_total_created{engine="0",model_name="./tiny"} 1.7960747133281698e+09
# TYPE vllm:request_queue_time_seconds histogram
vllm:request_queue_time_seconds_bucket{engine="0",le="+Inf",model_name="./tiny"} 1.0
vllm:request_queue_time_seconds_count{engine="0",model_name="./tiny"} 1.0
vllm:request_queue_time_seconds_sum{engine="0",model_name="./tiny"} 6.235699993339949e-05
# TYPE vllm:request_prefill_time_seconds histogram
vllm:request_prefill_time_seconds_count{engine="0",model_name="./tiny"} 1.0
vllm:request_prefill_time_seconds_sum{engine="0",model_name="./tiny"} 0.021193766999886066
# TYPE http_requests_total counter
http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 1.0
"""


def values_of(text: str) -> dict[str, float]:
    scrape = read_scrape(text, 1.0)
    assert scrape is not None
    return dict(scrape.values)


def test_a_recorded_scrape_is_read() -> None:
    scrape = read_scrape(RECORDED, 12.5)
    assert scrape is not None
    assert scrape.at_s == 12.5
    assert scrape.values == {
        "running": 0.0,
        "waiting": 0.0,
        "kv_cache_usage_frac": 0.0,
        "n_preemptions": 0.0,
        "n_prefix_query_tok": 7.0,
        "n_prefix_hit_tok": 0.0,
        # One step for the 7 tokens of the prompt and the first token, and 15 for the others.
        "n_iterations": 16.0,
        "n_iteration_tok": 23.0,
        "n_queue_times": 1.0,
        "queue_time_s": 6.235699993339949e-05,
        "n_prefill_times": 1.0,
        "prefill_time_s": 0.021193766999886066,
    }


def test_engines_are_added_up_and_the_fullest_cache_is_taken() -> None:
    text = """\
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3.0
vllm:num_requests_running{engine="1",model_name="m"} 4.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75
# TYPE vllm:num_preemptions_total counter
vllm:num_preemptions_total{engine="0",model_name="m"} 1.0
vllm:num_preemptions_total{engine="1",model_name="m"} 2.0
"""
    assert values_of(text) == {"running": 7.0, "kv_cache_usage_frac": 0.75, "n_preemptions": 3.0}


def test_the_counters_of_speculation_are_read_and_those_per_position_are_not() -> None:
    # The names of v1/spec_decode/metrics.py; a server without speculation lacks them.
    text = """\
# TYPE vllm:spec_decode_num_drafts_total counter
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 10.0
# TYPE vllm:spec_decode_num_draft_tokens_total counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 30.0
# TYPE vllm:spec_decode_num_accepted_tokens_total counter
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 12.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos_total counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 8.0
"""
    assert values_of(text) == {"n_drafts": 10.0, "n_draft_tok": 30.0, "n_accepted_tok": 12.0}


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("vllm:num_preemptions 5", "n_preemptions"),
        ("vllm:num_preemptions_total 5", "n_preemptions"),
        ("vllm:gpu_cache_usage_perc 5", "kv_cache_usage_frac"),
        ("vllm:gpu_prefix_cache_queries_total 5", "n_prefix_query_tok"),
        ("vllm:gpu_prefix_cache_hits 5", "n_prefix_hit_tok"),
        ("vllm:iteration_tokens_sum 5", "n_iteration_tok"),
        ("vllm:iteration_tokens_count 5", "n_iterations"),
    ],
)
def test_other_spellings_of_a_name_are_read(line: str, name: str) -> None:
    assert values_of(line) == {name: 5.0}


def test_of_two_names_for_one_value_the_newer_is_taken_and_not_both_added() -> None:
    text = "vllm:gpu_cache_usage_perc 0.9\nvllm:kv_cache_usage_perc 0.4\n"
    assert values_of(text) == {"kv_cache_usage_frac": 0.4}
    text = "vllm:num_preemptions 2\nvllm:num_preemptions_total 2\n"
    assert values_of(text) == {"n_preemptions": 2.0}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "1e400"])
def test_a_value_that_is_not_finite_is_absent(value: str) -> None:
    text = f'vllm:num_requests_waiting{{engine="0"}} {value}\nvllm:num_requests_running 2\n'
    assert values_of(text) == {"running": 2.0}
    text += 'vllm:kv_cache_usage_perc{engine="0"} 0.5\n'
    assert values_of(text + f'vllm:kv_cache_usage_perc{{engine="1"}} {value}\n') == {
        "running": 2.0
    }


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "<html><body>vllm:num_requests_running 3</body></html>",
        '{"detail": "Not Found"}',
        "# TYPE python_info gauge\npython_info 1.0\n",
        "vllm:num_requests_running",
        "vllm:num_requests_running three",
        'vllm:num_requests_running{engine="0" 3.0',
        # What the parser answers with an IndexError.
        'vllm:num_requests_running{ ="0"} 3.0',
        # An integer too large for a float.
        "vllm:num_requests_running 1" + "0" * 400,
        RECORDED[: RECORDED.index(" 7.0\n# TYPE vllm:prefix_cache_queries_created")],
    ],
)
def test_a_text_that_is_no_scrape_of_vllm_gives_none(text: str) -> None:
    assert read_scrape(text, 1.0) is None


@given(text=st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    read_scrape(text, 1.0)


# Pieces of which the format is made, and ones that break it.
PIECES = st.sampled_from(
    [
        "vllm:num_requests_running",
        "vllm:kv_cache_usage_perc",
        "vllm:num_preemptions_total",
        *'{}=",# \n\t\\',
        *("engine", "0", "1.5", "NaN", "-", "_", "1e999", "# TYPE", "é"),
    ]
)


@given(pieces=st.lists(PIECES, max_size=40))
def test_any_text_of_the_formats_pieces_is_read_or_refused(pieces: list[str]) -> None:
    read_scrape("vllm:num_requests_running" + "".join(pieces), 1.0)


@given(at=st.integers(0, len(RECORDED)), junk=st.text(max_size=5))
def test_a_scrape_with_junk_in_it_is_read_or_refused(at: int, junk: str) -> None:
    read_scrape(RECORDED[:at] + junk + RECORDED[at:], 1.0)


@given(running=st.lists(st.integers(0, 10_000), min_size=1, max_size=8))
def test_a_sum_over_engines_is_the_sum(running: list[int]) -> None:
    text = "".join(
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} {float(value)}\n'
        for engine, value in enumerate(running)
    )
    assert values_of(text) == {"running": sum(running)}


def test_an_address_without_a_port_is_refused() -> None:
    with pytest.raises(ValueError, match="has no port: give it as"):
        ScrapeWatch("http://127.0.0.1")
    with pytest.raises(ValueError, match="has no port: give it as"):
        reset_prefix_cache("http://127.0.0.1")
