"""What the server's counters say of a window, and the word for what limited it."""

import pytest

from objectives import CATALOGUE
from objectives.server_evidence import Scrape, evidence_of, limited_by

NAMES = {
    "mean_running",
    "max_running",
    "mean_waiting",
    "max_waiting",
    "max_kv_cache_usage_frac",
    "n_preemptions",
    "prefix_cache_hit_frac",
    "draft_acceptance_frac",
    "mean_draft_accepted_tok",
    "mean_iteration_tok",
    "mean_queue_ms",
    "mean_prefill_ms",
}


def look(at_s: float, **values: float) -> Scrape:
    return Scrape(at_s=at_s, values=values)


def counted(name: str, *values: float) -> list[Scrape]:
    """A counter at 0, 1, 2, ... seconds."""
    return [look(float(at_s), **{name: value}) for at_s, value in enumerate(values)]


# A level from 0 to 5 s. Of its window [1.5, 3.5] the looks at 2 and 3 s are inside, and those
# from 1 to 4 s around it.
LEVEL = [
    look(
        float(at_s),
        running=running,
        waiting=waiting,
        kv_cache_usage_frac=usage,
        n_preemptions=n_preemptions,
        n_prefix_query_tok=query_tok,
        n_prefix_hit_tok=hit_tok,
        n_drafts=n_drafts,
        n_draft_tok=n_drafts * 3,
        n_accepted_tok=accepted_tok,
        n_iterations=n_iterations,
        n_iteration_tok=iteration_tok,
        n_queue_times=n_ended,
        queue_time_s=queue_s,
        n_prefill_times=n_ended,
        prefill_time_s=prefill_s,
    )
    for at_s, (
        (running, waiting, usage, n_preemptions),
        (query_tok, hit_tok, n_drafts, accepted_tok),
        (n_iterations, iteration_tok, n_ended, queue_s, prefill_s),
    ) in enumerate(
        [
            ((0, 0, 0.0, 7), (100, 50, 0, 0), (0, 0, 0, 0.0, 0.0)),
            ((16, 9, 0.9, 7), (200, 50, 10, 15), (10, 200, 1, 0.5, 0.1)),
            ((12, 4, 0.5, 8), (300, 75, 20, 35), (20, 500, 2, 0.6, 0.2)),
            ((14, 1, 0.7, 9), (400, 100, 30, 55), (30, 800, 4, 0.8, 0.4)),
            ((15, 8, 0.8, 10), (600, 150, 40, 63), (50, 1400, 11, 1.0, 0.6)),
            ((0, 0, 0.0, 12), (900, 450, 50, 90), (90, 1500, 20, 9.0, 9.0)),
        ]
    )
]


def test_gauges_are_of_the_window_and_counters_of_the_looks_around_it() -> None:
    assert evidence_of(LEVEL, 1.5, 3.5) == pytest.approx(
        {
            "mean_running": (12 + 14) / 2,
            "max_running": 14.0,
            "mean_waiting": (4 + 1) / 2,
            "max_waiting": 4.0,
            "max_kv_cache_usage_frac": 0.7,
            "n_preemptions": 10 - 7.0,
            "prefix_cache_hit_frac": (150 - 50) / (600 - 200),
            "draft_acceptance_frac": (63 - 15) / (120 - 30),
            "mean_draft_accepted_tok": (63 - 15) / (40 - 10),
            "mean_iteration_tok": (1400 - 200) / (50 - 10),
            "mean_queue_ms": (1.0 - 0.5) / (11 - 1) * 1000,
            "mean_prefill_ms": (0.6 - 0.1) / (11 - 1) * 1000,
        }
    )


def test_the_order_of_the_looks_does_not_matter() -> None:
    assert evidence_of(LEVEL[::-1], 1.5, 3.5) == evidence_of(LEVEL, 1.5, 3.5)


def test_looks_at_the_very_edges_are_inside() -> None:
    evidence = evidence_of(LEVEL, 2.0, 3.0)
    assert evidence["mean_running"] == 13.0
    assert evidence["n_preemptions"] == 9.0 - 8.0


def test_without_a_look_everything_is_absent() -> None:
    assert evidence_of([], 0.0, 1.0) == dict.fromkeys(NAMES)


def test_one_look_has_gauges_but_no_difference() -> None:
    evidence = evidence_of([LEVEL[2]], 1.5, 3.5)
    known = {name: value for name, value in evidence.items() if value is not None}
    assert known == {
        "mean_running": 12.0,
        "max_running": 12.0,
        "mean_waiting": 4.0,
        "max_waiting": 4.0,
        "max_kv_cache_usage_frac": 0.5,
    }


def test_a_window_between_two_looks_has_differences_but_no_gauge() -> None:
    evidence = evidence_of(LEVEL, 2.2, 2.8)
    assert evidence["n_preemptions"] == 9.0 - 8.0
    assert evidence["mean_running"] is None
    assert evidence["max_waiting"] is None
    assert evidence["max_kv_cache_usage_frac"] is None


@pytest.mark.parametrize(("start_s", "end_s"), [(-3.0, -2.0), (7.0, 9.0)])
def test_looks_that_are_all_before_or_all_after_say_nothing(start_s: float, end_s: float) -> None:
    assert evidence_of(LEVEL, start_s, end_s) == dict.fromkeys(NAMES)


def test_without_looks_around_the_outermost_inside_serve() -> None:
    assert evidence_of(LEVEL, -10.0, 10.0)["n_preemptions"] == 12.0 - 7.0


def test_a_counter_that_fell_gives_nothing_even_if_it_ends_higher() -> None:
    assert evidence_of(counted("n_preemptions", 5, 1, 9), 0.0, 2.0)["n_preemptions"] is None


def test_a_counter_that_fell_outside_the_window_does_not_matter() -> None:
    assert evidence_of(counted("n_preemptions", 5, 1, 4, 0), 1.0, 2.0)["n_preemptions"] == 3.0


def test_a_counter_that_a_look_lacks_gives_nothing() -> None:
    looks = [*counted("n_preemptions", 5, 6), look(2.0, running=1.0)]
    assert evidence_of(looks, 0.0, 2.0)["n_preemptions"] is None


@pytest.mark.parametrize(
    ("metric", "parts"),
    [
        ("prefix_cache_hit_frac", ("n_prefix_hit_tok", "n_prefix_query_tok")),
        ("draft_acceptance_frac", ("n_accepted_tok", "n_draft_tok")),
        ("mean_draft_accepted_tok", ("n_accepted_tok", "n_drafts")),
        ("mean_iteration_tok", ("n_iteration_tok", "n_iterations")),
        ("mean_queue_ms", ("queue_time_s", "n_queue_times")),
        ("mean_prefill_ms", ("prefill_time_s", "n_prefill_times")),
    ],
)
def test_a_share_or_mean_of_nothing_is_absent_and_of_something_may_be_zero(
    metric: str, parts: tuple[str, str]
) -> None:
    value, count = parts
    idle = [look(at_s, **{value: 4.0, count: 8.0}) for at_s in (0.0, 1.0)]
    assert evidence_of(idle, 0.0, 1.0)[metric] is None
    missed = [idle[0], look(1.0, **{value: 4.0, count: 9.0})]
    assert evidence_of(missed, 0.0, 1.0)[metric] == 0.0


def seen(
    running: float | None,
    waiting: float | None,
    *,
    usage: float | None = 0.4,
    n_preemptions: float | None = 0.0,
) -> dict[str, float | None]:
    return {
        "mean_running": running,
        "max_running": running,
        "mean_waiting": waiting,
        "max_kv_cache_usage_frac": usage,
        "n_preemptions": n_preemptions,
    }


@pytest.mark.parametrize(
    ("evidence", "limit"),
    [
        # Nothing waited, or a twentieth of the 40 in flight did not.
        (seen(40, 0), "load"),
        (seen(38.1, 1.9), "load"),
        (seen(20, 0), "load"),
        # More than half of those in flight never were in the engine.
        (seen(19.9, 0), None),
        # Requests waited, and the cache was full or was not.
        (seen(38, 2), "max_num_seqs"),
        (seen(16, 24, usage=0.94), "max_num_seqs"),
        (seen(16, 24, usage=0.95), "kv_cache"),
        # A full cache that nobody waits for limits nothing.
        (seen(40, 0, usage=1.0), "load"),
        # One preemption tells, whatever the gauges say or do not say.
        (seen(40, 0, n_preemptions=1.0), "kv_cache"),
        (seen(None, None, usage=None, n_preemptions=1.0), "kv_cache"),
        # Too little is known.
        (seen(None, 0), None),
        (seen(40, None), None),
        (seen(16, 24, usage=None), None),
        (seen(40, 0, n_preemptions=None), None),
        (seen(16, 24, n_preemptions=None), None),
        (seen(16, 24, usage=0.99, n_preemptions=None), "kv_cache"),
        ({}, None),
    ],
)
def test_a_limit_is_named_by_what_waited_and_why(
    evidence: dict[str, float | None], limit: str | None
) -> None:
    assert limited_by(evidence, max_concurrency=40, client_is_limited=False) == limit


def test_a_limited_client_hides_every_other_limit() -> None:
    for evidence in ({}, seen(16, 24, n_preemptions=3.0)):
        assert limited_by(evidence, max_concurrency=40, client_is_limited=True) == "client"


@pytest.mark.parametrize(
    ("running", "waiting", "limit"),
    [(1, 0, "load"), (0, 0, "load"), (19.1, 0.9, "load"), (19, 1, "max_num_seqs")],
)
def test_without_a_fixed_concurrency_the_load_is_what_was_in_the_engine(
    running: float, waiting: float, limit: str
) -> None:
    evidence = seen(running, waiting)
    assert limited_by(evidence, max_concurrency=None, client_is_limited=False) == limit


@pytest.mark.parametrize(
    ("max_num_seqs", "limit"),
    [(16, "max_num_seqs"), (17, "max_num_seqs"), (18, None), (256, None)],
)
def test_seats_that_were_never_taken_are_no_limit(max_num_seqs: int, limit: str | None) -> None:
    evidence = seen(16, 24)
    assert (
        limited_by(
            evidence, max_concurrency=40, client_is_limited=False, max_num_seqs=max_num_seqs
        )
        == limit
    )


def test_every_metric_of_the_server_is_in_the_catalogue() -> None:
    assert evidence_of([], 0.0, 1.0).keys() <= CATALOGUE.keys()
