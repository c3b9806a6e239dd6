from dataclasses import replace

import pytest

from objectives import RequestRecord, ShareWatch, Slo
from tests.unit.objectives.builders import answer, failure

TTFT = Slo(metric="p99_ttft_ms", limit=1000)
TPOT = Slo(metric="p99_tpot_ms", limit=100)
GOOD = answer(0.5, 0.55)  # TTFT 500 ms, TPOT 50 ms
LATE = answer(1.5, 1.55)  # TTFT 1500 ms, TPOT 50 ms
ONE_TOKEN = answer(0.5)


def after(record: RequestRecord, n: int) -> RequestRecord:
    """The same request, 2 s later than the one before: one is in flight at a time."""
    return replace(
        record,
        index=n,
        due_s=record.due_s + 2 * n,
        chunk_s=tuple(moment + 2 * n for moment in record.chunk_s),
        end_s=record.end_s + 2 * n,
    )


def n_until_decided(
    watch: ShareWatch, record: RequestRecord, *, at_most: int = 1200, start: int = 1
) -> int | None:
    numbers = range(start, start + at_most)
    return next((n for n in numbers if watch.add(after(record, n))), None)


def watch(*slos: Slo, min_feasible: int = 0) -> ShareWatch:
    return ShareWatch(slos, confidence=0.95, min_feasible=min_feasible)


def test_a_clean_level_is_decided_at_329_requests() -> None:
    assert n_until_decided(watch(TTFT), GOOD) == 329
    assert n_until_decided(watch(TTFT, TPOT), GOOD) == 329


def test_a_level_that_is_late_throughout_is_decided_at_two_requests() -> None:
    assert n_until_decided(watch(TTFT), LATE) == 2
    assert n_until_decided(watch(TTFT), failure()) == 2


def test_one_broken_limit_decides_although_the_other_is_met() -> None:
    assert n_until_decided(watch(TPOT, TTFT), LATE) == 2


def test_one_late_request_makes_a_clean_level_take_682() -> None:
    late_once = watch(TTFT)
    assert not late_once.add(LATE)
    assert n_until_decided(late_once, GOOD, start=2) == 682


def test_a_feasible_level_goes_on_until_its_percentiles_can_be_stated() -> None:
    assert n_until_decided(watch(TTFT, min_feasible=500), GOOD) == 500


def test_a_broken_level_does_not_wait_for_its_percentiles() -> None:
    assert n_until_decided(watch(TTFT, min_feasible=500), LATE) == 2


def test_answers_of_one_token_say_nothing_of_tpot() -> None:
    assert n_until_decided(watch(TPOT), ONE_TOKEN) is None
    assert n_until_decided(watch(TTFT), ONE_TOKEN) == 329


def test_both_limits_must_be_decided_before_a_level_is_met() -> None:
    # 100 answers of one token count for TTFT only, so TPOT is met 100 requests later.
    both = watch(TTFT, TPOT)
    assert not any(both.add(after(ONE_TOKEN, n)) for n in range(100))
    assert n_until_decided(both, GOOD, start=100) == 100 + 328


@pytest.mark.parametrize(
    "metric", ["error_frac", "p99_itl_ms", "output_tok_per_s", "mean_ttft_ms"]
)
def test_without_a_limit_on_single_requests_nothing_is_ever_decided(metric: str) -> None:
    assert n_until_decided(watch(Slo(metric=metric, limit=1)), failure()) is None
    assert n_until_decided(watch(), GOOD) is None


def test_more_confidence_decides_later() -> None:
    sure = ShareWatch([TTFT], confidence=0.99, min_feasible=0)
    n = n_until_decided(sure, GOOD)
    # The weight on "none over" alone suffices at 528: 0.5 x 0.99^-528 >= 100.
    assert n is not None
    assert 329 < n <= 528


def n_until_decided_in(watch: ShareWatch, records: list[RequestRecord]) -> int | None:
    return next((n for n, record in enumerate(records, start=1) if watch.add(record)), None)


def test_requests_that_are_slow_together_stay_open_where_as_many_that_are_not_decide() -> None:
    # All within the limit and one in twenty slower: spread evenly, or whole batches of 16.
    slow = answer(0.875, 0.925)
    spread = [after(slow if n % 20 == 0 else GOOD, n) for n in range(1200)]
    clumped = [
        replace(after(slow if n // 16 % 20 == 0 else GOOD, n // 16), index=n) for n in range(1200)
    ]
    assert n_until_decided_in(watch(TTFT), spread) == 329
    assert n_until_decided_in(watch(TTFT), clumped) is None
