"""Every figure here is worked out by hand from a few records."""

import math
from dataclasses import replace

import pytest

from objectives import CATALOGUE, Exceedance, RequestRecord, Slo, Window, count_exceedances
from objectives.summary import is_good, summarise
from tests.unit.objectives.builders import answer, failure

WINDOW = Window(start_s=10.0, end_s=20.0)
TTFT = Slo(metric="p99_ttft_ms", limit=1000)
TPOT = Slo(metric="p99_tpot_ms", limit=100)


def metrics_of(
    *records: RequestRecord, slos: tuple[Slo, ...] = (), n_gpus: int = 1, window: Window = WINDOW
) -> dict[str, float | None]:
    return dict(summarise(records, window=window, n_gpus=n_gpus, slos=slos).metrics)


def test_a_window_holds_its_start_and_not_its_end() -> None:
    assert [moment in WINDOW for moment in (9.999, 10.0, 19.999, 20.0)] == [
        False,
        True,
        True,
        False,
    ]
    assert WINDOW.length_s == 10.0


def test_only_requests_due_in_the_window_are_measured() -> None:
    due = [9.999, 10.0, 19.999, 20.0]
    metrics = metrics_of(*(answer(moment + 0.25, due_s=moment) for moment in due))
    assert metrics["n_requests"] == 2.0


def test_a_slow_request_is_awaited_beyond_the_window() -> None:
    metrics = metrics_of(answer(60.0, 61.0, due_s=19.0))
    assert metrics["mean_ttft_ms"] == 41_000.0
    assert metrics["mean_e2el_ms"] == 42_000.0
    # Its tokens and its end are outside, though.
    assert metrics["output_tok_per_s"] == 0.0
    assert metrics["request_per_s"] == 0.0


def test_bounds_of_a_median_are_those_of_order_statistics() -> None:
    # Ten requests one after the other, TTFT 100 to 1000 ms in a mixed order: the second and ninth.
    ttft_s = [0.3, 0.8, 0.1, 1.0, 0.5, 0.7, 0.2, 0.9, 0.4, 0.6]
    records = [
        answer(10.0 + n * 0.5 + ttft, due_s=10.0 + n * 0.5) for n, ttft in enumerate(ttft_s)
    ]
    bounds = summarise(records, window=WINDOW, n_gpus=1, slos=()).bounds
    assert bounds["p50_ttft_ms"] == pytest.approx((200.0, 900.0))
    assert bounds["p99_ttft_ms"][1] is None
    assert bounds["p50_tpot_ms"] == (None, None)


def test_warm_up_requests_are_in_no_latency_and_no_count() -> None:
    metrics = metrics_of(
        answer(19.0, due_s=11.0, is_warmup=True),
        failure(due_s=11.0, is_warmup=True),
        answer(12.5, due_s=12.0),
    )
    assert metrics["n_requests"] == 1.0
    assert metrics["n_failed"] == 0.0
    assert metrics["error_frac"] == 0.0
    assert metrics["mean_ttft_ms"] == 500.0


def test_tokens_in_the_window_count_whichever_request_they_are_of() -> None:
    metrics = metrics_of(
        answer(9.0, 10.0, 11.0, due_s=8.0, is_warmup=True),  # two in the window
        answer(9.5, 12.0, due_s=9.0),  # due before it: one in the window
        answer(15.0, 16.0, due_s=14.0),  # two
        answer(19.5, 20.0, 21.0, due_s=19.0),  # one: 20.0 is outside
    )
    assert metrics["output_tok_per_s"] == (2 + 1 + 2 + 1) / 10


def test_a_request_counts_where_it_ended() -> None:
    metrics = metrics_of(
        answer(9.0, 10.0, due_s=8.0, is_warmup=True),  # ends at the start: in
        answer(15.0, due_s=14.0),  # in
        answer(19.5, 20.0, due_s=19.0),  # ends at the end: out
        failure(15.0, 16.0, due_s=14.0),  # ended, but not well
    )
    assert metrics["request_per_s"] == 2 / 10


def test_a_request_ends_with_its_last_text_and_not_with_the_usage_chunk_after_it() -> None:
    record = replace(answer(19.5, 19.9, due_s=19.0), end_s=20.5)
    metrics = metrics_of(record)
    assert metrics["request_per_s"] == 1 / 10
    assert metrics["mean_e2el_ms"] == pytest.approx(900.0)


def test_a_chunk_of_several_tokens_counts_for_all_of_them() -> None:
    # Four chunks of 12 tokens, two of the chunks in the window: 6 tokens.
    metrics = metrics_of(answer(8.0, 9.0, 10.0, 11.0, due_s=7.0, n_output_tok=12))
    assert metrics["output_tok_per_s"] == pytest.approx(0.6)


def test_tokens_of_a_failed_request_did_arrive() -> None:
    metrics = metrics_of(failure(11.0, 12.0, 13.0, due_s=10.5))
    assert metrics["output_tok_per_s"] == pytest.approx(0.3)
    assert metrics["request_per_s"] == 0.0


def test_prompt_tokens_count_where_the_first_token_arrived() -> None:
    metrics = metrics_of(
        answer(11.0, 12.0, due_s=9.0, n_prompt_tok=100),
        answer(9.5, 12.0, due_s=9.0, n_prompt_tok=1000),  # answered before the window
        answer(13.0, due_s=12.5, n_prompt_tok=7),
        answer(14.0, due_s=13.5, n_prompt_tok=None),
    )
    assert metrics["output_tok_per_s"] == pytest.approx((2 + 1 + 1 + 1) / 10)
    assert metrics["total_tok_per_s"] == pytest.approx((5 + 107) / 10)


@pytest.mark.parametrize(("n_gpus", "expected"), [(8, 0.05), (1, 0.4), (0, 0.4)])
def test_throughput_is_shared_by_the_gpus_and_a_cpu_counts_as_one(
    n_gpus: int, expected: float
) -> None:
    metrics = metrics_of(answer(11.0, 12.0, 13.0, 14.0, due_s=10.5), n_gpus=n_gpus)
    assert metrics["output_tok_per_s"] == pytest.approx(0.4)
    assert metrics["output_tok_per_s_per_gpu"] == pytest.approx(expected)


def test_percentiles_and_means_of_two_requests() -> None:
    # TTFT 500 and 1000 ms, TPOT 1000 and 250 ms, E2EL 2500 and 1500 ms, one gap each but the
    # second's, whose three tokens came in two chunks.
    metrics = metrics_of(
        answer(11.5, 12.5, 13.5, due_s=11.0), answer(14.0, 14.5, due_s=13.0, n_output_tok=3)
    )
    assert metrics["p50_ttft_ms"] == metrics["mean_ttft_ms"] == 750.0
    assert metrics["p50_tpot_ms"] == metrics["mean_tpot_ms"] == 625.0
    assert metrics["p50_e2el_ms"] == metrics["mean_e2el_ms"] == 2000.0
    # Gaps 1000, 1000 and 500 ms.
    assert metrics["p50_itl_ms"] == 1000.0
    assert metrics["mean_itl_ms"] == pytest.approx(2500 / 3)
    assert metrics["p90_ttft_ms"] is None
    assert metrics["p99_ttft_ms"] is None


def test_p99_is_refused_below_a_hundred_requests() -> None:
    records = [answer(11.0 + i / 64, due_s=10.5) for i in range(100)]
    assert metrics_of(*records[:99])["p99_ttft_ms"] is None
    # Rank 98.01 of 500 ms + i / 64 s.
    assert metrics_of(*records)["p99_ttft_ms"] == pytest.approx(500 + 98.01 * 1000 / 64)


def test_failed_requests_are_infinitely_slow() -> None:
    metrics = metrics_of(answer(11.5, 12.0, due_s=11.0), failure(11.1, 11.2, due_s=11.0))
    assert metrics["n_failed"] == 1.0
    assert metrics["error_frac"] == 0.5
    for quantity in ("ttft", "tpot", "itl", "e2el"):
        assert metrics[f"mean_{quantity}_ms"] == math.inf
        assert metrics[f"p50_{quantity}_ms"] == math.inf


def test_when_all_failed_p99_is_infinite_and_not_zero() -> None:
    metrics = metrics_of(*[failure(due_s=11.0)] * 100)
    assert metrics["p99_ttft_ms"] == math.inf
    assert metrics["error_frac"] == 1.0
    assert metrics["output_tok_per_s"] == 0.0


def test_up_to_one_failure_in_101_leaves_p99_finite() -> None:
    records = [answer(11.5, 12.0, due_s=11.0)] * 100
    assert metrics_of(*records, failure(due_s=11.0))["p99_ttft_ms"] == 500.0
    assert metrics_of(*records, *[failure(due_s=11.0)] * 2)["p99_ttft_ms"] == math.inf


def test_answers_of_one_token_have_a_ttft_and_no_tpot() -> None:
    metrics = metrics_of(*[answer(11.5, due_s=11.0)] * 100, slos=(TTFT, TPOT))
    assert metrics["p99_ttft_ms"] == metrics["p99_e2el_ms"] == 500.0
    assert metrics["mean_tpot_ms"] is None
    assert metrics["p99_tpot_ms"] is None
    assert metrics["mean_itl_ms"] is None


def test_without_a_measured_request_every_latency_is_missing_and_not_zero() -> None:
    metrics = metrics_of()
    assert metrics["n_requests"] == 0.0
    assert metrics["error_frac"] is None
    latencies = {name for name, metric in CATALOGUE.items() if metric.quantity}
    assert {metrics[name] for name in latencies} == {None}


def test_a_window_without_length_has_no_rates() -> None:
    metrics = metrics_of(answer(11.0, due_s=10.0), window=Window(start_s=10.0, end_s=10.0))
    assert metrics["duration_s"] == 0.0
    for name in ("output_tok_per_s", "output_tok_per_s_per_gpu", "total_tok_per_s"):
        assert metrics[name] is None
    assert metrics["request_per_s"] is None
    assert (
        metrics_of(slos=(TTFT,), window=Window(start_s=1.0, end_s=1.0))["goodput_request_per_s"]
        is None
    )


def test_every_name_is_in_the_catalogue_and_seen_by_the_client() -> None:
    metrics = metrics_of(answer(11.0, due_s=10.5), slos=(TTFT,))
    client = {name for name, metric in CATALOGUE.items() if metric.source == "client"}
    # The client's own lag and load are measured elsewhere.
    assert client - set(metrics) == {"client_lag_p99_ms", "client_cpu_frac", "late_send_p99_ms"}
    assert set(metrics) <= client


def test_goodput_counts_requests_that_met_every_limit() -> None:
    metrics = metrics_of(
        answer(11.5, 11.55, due_s=11.0),  # TTFT 500, TPOT 50: good
        answer(12.5, 12.55, due_s=11.0),  # TTFT 1500: late
        answer(11.5, 11.75, due_s=11.0),  # TPOT 250: slow
        answer(11.5, due_s=11.0),  # no TPOT: not shown to be good
        failure(11.5, 11.55, due_s=11.0),
        slos=(TTFT, TPOT),
    )
    assert metrics["request_per_s"] == pytest.approx(0.4)
    assert metrics["goodput_request_per_s"] == pytest.approx(0.1)


def test_a_one_token_answer_is_good_under_a_ttft_limit_alone() -> None:
    assert is_good(answer(0.5), [TTFT])
    assert not is_good(answer(0.5), [TTFT, TPOT])
    assert not is_good(failure(0.5), [])


def test_goodput_needs_a_limit_on_single_requests() -> None:
    record = answer(11.5, due_s=11.0)
    assert metrics_of(record)["goodput_request_per_s"] is None
    errors = Slo(metric="error_frac", limit=0.01)
    assert metrics_of(record, slos=(errors,))["goodput_request_per_s"] is None


def test_the_exceedances_of_a_summary_are_those_of_the_measured_requests() -> None:
    records = [
        answer(13.0, 13.05, due_s=11.0),  # late
        answer(11.5, 11.55, due_s=11.0),
        answer(11.5, due_s=11.0),  # no TPOT
        failure(due_s=12.0),
        answer(13.0, 14.0, due_s=11.0, is_warmup=True),  # late and slow, not measured
        answer(13.0, 14.0, due_s=9.0),  # due before the window
        answer(25.0, 26.0, due_s=20.0),  # due after it
    ]
    errors = Slo(metric="error_frac", limit=0.01)
    summary = summarise(records, window=WINDOW, n_gpus=1, slos=[TTFT, TPOT, errors])
    assert summary.exceedances == {
        "p99_ttft_ms": Exceedance(n_over=2, n_total=4, is_long_enough=False),
        "p99_tpot_ms": Exceedance(n_over=1, n_total=3, is_long_enough=False),
    }


def test_no_requests_exceed_nothing() -> None:
    assert count_exceedances([], [TTFT]) == {
        "p99_ttft_ms": Exceedance(n_over=0, n_total=0, is_long_enough=False)
    }


def test_a_steady_closed_loop_has_its_true_rate_wherever_the_window_lies() -> None:
    # One request in flight, back to back: text every 0.25 s, four tokens and thus one request
    # per second. Requests cut by either edge must not bias the rates.
    records = [
        answer(*(start + 0.25 * (i + 1) for i in range(4)), due_s=float(start))
        for start in range(30)
    ]
    for start_s in (10.0, 10.125, 10.5, 10.875):
        window = Window(start_s=start_s, end_s=start_s + 10)
        metrics = metrics_of(*records, window=window)
        assert metrics["output_tok_per_s"] == pytest.approx(4.0)
        assert metrics["request_per_s"] == pytest.approx(1.0)
        assert metrics["n_requests"] == 10.0
