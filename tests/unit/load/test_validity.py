"""The gate between a level and an operating point."""

from dataclasses import replace

import pytest

from objectives import RequestRecord, Window
from tuner.load import LevelResult, StopReason, invalid_reasons
from tuner.load.client_stats import ClientStats

RECORD = RequestRecord(
    index=0,
    due_s=1.0,
    sent_s=1.0,
    chunk_s=(1.1, 1.2),
    end_s=1.2,
    n_prompt_tok=8,
    n_output_tok=2,
    n_output_tok_asked=2,
)
CLIENT = ClientStats(lag_p90_ms=1.0, lag_p99_ms=3.0, cpu_frac=0.2, late_send_p99_ms=0.1)
RESULT = LevelResult(
    records=(RECORD,),
    window=Window(start_s=0.0, end_s=2.0),
    origin_s=0.0,
    client=CLIENT,
    stopped_because=StopReason.REQUESTS,
)


def reasons(result: LevelResult, *, is_serving: bool = True) -> tuple[str, ...]:
    return invalid_reasons(result, expected_model_is_serving=is_serving)


def test_a_sound_level_is_valid() -> None:
    assert reasons(RESULT) == ()


def test_a_client_that_could_not_tell_its_lag_is_not_blamed_for_it() -> None:
    unknown = replace(CLIENT, lag_p90_ms=None, lag_p99_ms=None, late_send_p99_ms=None)
    assert reasons(replace(RESULT, client=unknown)) == ()


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        # As recorded in a study beside which other programs took both cores: all twelve tokens
        # of an answer were seen at one moment, so TPOT read as zero.
        ({"lag_p99_ms": 79.0}, "P99 of its lag was 79 ms (limit 25 ms)"),
        ({"lag_p99_ms": None, "lag_p90_ms": 40.0}, "P90 of its lag was 40 ms (limit 10 ms)"),
        ({"cpu_frac": 0.95}, "used 95% of a core (limit 90%)"),
        ({"late_send_p99_ms": 60.0}, "P99 of sending was 60 ms after due"),
    ],
)
def test_a_client_that_was_too_slow_makes_the_level_invalid(
    changed: dict[str, float | None], words: str
) -> None:
    (reason,) = reasons(replace(RESULT, client=replace(CLIENT, **changed)))
    assert words in reason


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(RECORD, n_output_tok=1), "1 of 1 answers had another length"),
        (replace(RECORD, n_output_tok=None), "1 of 1 answers had no usage field"),
        (replace(RECORD, is_warmup=True), "no request was measured"),
    ],
)
def test_answers_that_are_not_what_was_asked_for_make_the_level_invalid(
    record: RequestRecord, words: str
) -> None:
    (reason,) = reasons(replace(RESULT, records=(record,)))
    assert words in reason


def test_a_server_that_is_gone_or_another_makes_the_level_invalid() -> None:
    gone = replace(RESULT, stopped_because=StopReason.SERVER_GONE)
    assert "was gone" in reasons(gone)[0]
    assert "did not answer any more" in reasons(RESULT, is_serving=False)[0]
    cancelled = replace(RESULT, stopped_because=StopReason.CANCELLED)
    assert "interrupted" in reasons(cancelled)[0]


@pytest.mark.parametrize(("share", "is_valid"), [(None, True), (0.1, True), (0.11, False)])
def test_fresh_prompts_that_a_cache_knew_are_not_fresh(
    share: float | None, is_valid: bool
) -> None:
    reasons = invalid_reasons(RESULT, expected_model_is_serving=True, stale_hit_frac=share)
    assert (reasons == ()) is is_valid
    if not is_valid:
        assert "11% of the prompt tokens came from the prefix cache" in reasons[0]
