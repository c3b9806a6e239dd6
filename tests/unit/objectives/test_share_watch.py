import pytest

from objectives import ShareWatch, Slo
from tests.unit.objectives.builders import answer, failure

TTFT = Slo(metric="p99_ttft_ms", limit=1000)
TPOT = Slo(metric="p99_tpot_ms", limit=100)
GOOD = answer(0.5, 0.55)  # TTFT 500 ms, TPOT 50 ms
LATE = answer(1.5, 1.55)  # TTFT 1500 ms, TPOT 50 ms
ONE_TOKEN = answer(0.5)


def n_until_decided(watch: ShareWatch, record: object, *, at_most: int = 1200) -> int | None:
    return next((n for n in range(1, at_most + 1) if watch.add(record)), None)


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
    assert n_until_decided(late_once, GOOD) == 681


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
    assert not any(both.add(ONE_TOKEN) for _ in range(100))
    assert n_until_decided(both, GOOD) == 329


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
