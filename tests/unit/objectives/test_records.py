import pytest

from objectives import RequestRecord
from tests.unit.objectives.builders import answer, failure


def test_latencies_count_from_when_the_request_was_due() -> None:
    # Due at 1 s, sent half a second late, text at 2, 2.5 and 4 s, the usage chunk at 4.25 s.
    record = RequestRecord(
        index=0,
        due_s=1.0,
        sent_s=1.5,
        chunk_s=(2.0, 2.5, 4.0),
        end_s=4.25,
        n_prompt_tok=10,
        n_output_tok=5,
        n_output_tok_asked=5,
    )
    assert record.ttft_s == 1.0
    assert record.e2el_s == 3.0
    assert record.tpot_s == (3.0 - 1.0) / (5 - 1)
    assert record.itl_s == (0.5, 1.5)


def test_tpot_divides_by_tokens_and_not_by_chunks() -> None:
    # Two chunks a second apart that held 11 tokens, as with speculation.
    assert answer(1.0, 2.0, n_output_tok=11).tpot_s == pytest.approx(0.1)


def test_an_answer_of_one_token_has_no_tpot_and_no_itl() -> None:
    record = answer(1.0)
    assert record.tpot_s is None
    assert record.itl_s == ()
    assert record.ttft_s == record.e2el_s == 1.0


def test_tokens_that_came_in_one_chunk_took_no_time() -> None:
    assert answer(1.0, n_output_tok=4).tpot_s == 0.0


def test_an_answer_of_unknown_length_has_no_tpot() -> None:
    assert failure(1.0, 2.0).tpot_s is None


def test_a_request_without_text_has_no_latency() -> None:
    record = failure()
    assert (record.ttft_s, record.tpot_s, record.e2el_s, record.itl_s) == (None, None, None, ())
    assert not record.is_success
    assert answer(1.0).is_success
