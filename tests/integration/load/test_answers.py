"""Every form of a good answer and every fault, with its exact effect on the record."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from objectives import RequestRecord
from tests.fakes.mock_openai import N_PROMPT_TOK, Step, running_mock
from tests.integration.load.asking import (
    STALL_S,
    STEP_MS,
    TOLERANCE_S,
    asked,
    closing,
    send,
)
from tuner.load.client import Endpoint, StreamingClient


@dataclass(frozen=True)
class Form:
    """A good answer and what is to be made of it.

    Attributes:
        steps: The plan; times in steps of ``STEP_MS``.
        n_chunks: With text.
        first: Index of the step that is the first token.
        last: Index of the step that is the last token.
        n_tok: By the usage field; ``None`` without one.
        api: Of the endpoint.
        options: Other fields of the plan.
    """

    steps: Sequence[Step]
    n_chunks: int
    first: int
    last: int
    n_tok: int | None
    api: str = "completions"
    options: tuple[tuple[str, object], ...] = ()


TOOL_CALL = {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0}]}}]}
LONE_USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 9}}
SPACED = 'data: {"choices": [{"index": 0, "text": " a", "finish_reason": null}]}\n\n'
FORMS = {
    "a_role_chunk_is_no_token": Form(
        [(0, "role", None), (1, "text", 1), (2, "text", 1), *closing(3, 2)], 2, 1, 2, 2, "chat"
    ),
    "empty_chunks_are_no_tokens_wherever_they_are": Form(
        [
            *[(0, "empty", None), (1, "text", 1), (2, "empty", None), (3, "text", 2)],
            *[(4, "empty", None), *closing(5, 3)],
        ],
        *(2, 1, 3, 3),
    ),
    "reasoning_content_is_text": Form(
        [
            *[(0, "role", None), (1, "reasoning_content", 2), (2, "reasoning_content", 1)],
            *[(3, "text", 1), *closing(4, 4)],
        ],
        *(3, 1, 3, 4, "chat"),
    ),
    "reasoning_under_its_other_name_is_text": Form(
        [(0, "role", None), (1, "reasoning", 2), (2, "text", 1), *closing(3, 3)],
        *(2, 1, 2, 3, "chat"),
    ),
    "an_answer_of_reasoning_alone_has_latencies": Form(
        [(1, "reasoning_content", 2), (2, "reasoning_content", 2), *closing(3, 4)],
        *(2, 0, 1, 4, "chat"),
    ),
    "a_tool_call_is_text": Form(
        [(0, "role", None), (1, "event", TOOL_CALL), (2, "event", TOOL_CALL), *closing(3, 5)],
        *(2, 1, 2, 5, "chat"),
    ),
    "usage_and_end_are_not_part_of_a_latency": Form(
        [
            *[(1, "text", 1), (2, "text", 1), (3, "finish", "stop"), (4, "event", LONE_USAGE)],
            *[(5, "done", None), (6, "end", None)],
        ],
        *(2, 0, 1, 9),
    ),
    "tpot_counts_tokens_and_not_chunks": Form(
        [(1, "text", 3), (2, "text", 5), (3, "text", 2), *closing(4, 10)], 3, 0, 2, 10
    ),
    "one_token_has_no_tpot": Form([(1, "text", 1), *closing(2, 1)], 1, 0, 0, 1),
    "without_usage_the_length_is_unknown": Form(
        [
            *[(1, "text", 1), (2, "text", 1), (2, "finish", "length"), (2, "done", None)],
            (3, "end", None),
        ],
        *(2, 0, 1, None),
    ),
    "a_reason_to_finish_ends_an_answer_without_done": Form(
        [(1, "text", 1), (2, "text", 1), (2, "finish", "stop"), (3, "end", None)], 2, 0, 1, None
    ),
    "done_ends_an_answer_without_a_reason": Form(
        [(1, "text", 1), (2, "text", 1), (2, "done", None), (3, "end", None)], 2, 0, 1, None
    ),
    "comments_are_passed_over": Form(
        [
            *[(0, "raw", ": ping\n\n"), (1, "text", 1), (2, "raw", ": ping\n"), (3, "text", 1)],
            *closing(4, 2),
        ],
        *(2, 1, 3, 2),
    ),
    "event_and_id_fields_are_passed_over": Form(
        [(0, "raw", "event: message\nid: 1\nretry: 5\n"), (1, "text", 1), *closing(2, 1)],
        *(1, 1, 1, 1),
    ),
    "spaces_in_the_json_change_nothing": Form(
        [(1, "raw", SPACED), (2, "raw", SPACED), *closing(3, 2)], 2, 0, 1, 2
    ),
    "lines_may_end_in_crlf": Form(
        [(1, "text", 1), (2, "text", 2), *closing(3, 3)],
        *(2, 0, 1, 3, "completions", (("newline", "\r\n"),)),
    ),
    "a_chunk_cut_in_two_counts_when_its_second_half_came": Form(
        [(0, "role", None), (1, "text", 1), (2, "text", 1), *closing(3, 2)],
        *(2, 1, 2, 2, "chat", (("split_ms", STEP_MS / 2),)),
    ),
    "crlf_cut_in_two_is_still_one_line": Form(
        [
            (1, "text", 1),
            (2, "raw", ": a\r"),
            (3, "raw", "\n\r"),
            (4, "raw", "\n"),
            *closing(5, 1),
        ],
        *(1, 0, 0, 1, "completions", (("newline", "\r\n"),)),
    ),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())
def test_every_form_of_a_good_answer(port: int, form: Form) -> None:
    steps = [(at * STEP_MS, kind, value) for at, kind, value in form.steps]
    (outcome,), _ = send(port, [asked(steps, api=form.api, **dict(form.options))])
    record = outcome.record
    first_s, last_s = outcome.written[form.first][2], outcome.written[form.last][2]
    assert record.error is None
    assert len(record.chunk_s) == form.n_chunks
    assert record.n_output_tok == form.n_tok
    assert record.n_prompt_tok == (None if form.n_tok is None else N_PROMPT_TOK)
    assert record.ttft_s == pytest.approx(first_s - outcome.due_s, abs=TOLERANCE_S)
    assert record.e2el_s == pytest.approx(last_s - outcome.due_s, abs=TOLERANCE_S)
    if form.n_tok is None or form.n_tok == 1:
        assert record.tpot_s is None
    else:
        true_s = (last_s - first_s) / (form.n_tok - 1)
        assert record.tpot_s == pytest.approx(true_s, abs=TOLERANCE_S / (form.n_tok - 1))


@dataclass(frozen=True)
class Fault:
    """A bad answer and what is to be made of it: the error's exact text."""

    steps: Sequence[Step]
    error: str
    n_chunks: int = 0
    n_tok: int | None = None


BODY = '{"error":{"message":"busy"}}'
TWO: list[Step] = [(1, "text", 1), (2, "text", 3)]
FAULTS = {
    "an_error_event_after_two_chunks": Fault(
        [*TWO, (3, "error", "engine dead"), (3, "done", None), (3, "end", None)],
        *("the server reports: engine dead", 2),
    ),
    "an_error_event_before_any_text": Fault(
        [(1, "error", "too long"), (1, "done", None), (1, "end", None)],
        "the server reports: too long",
    ),
    "an_error_event_and_then_a_usage_chunk": Fault(
        [*TWO, (3, "error", "engine dead"), *closing(3, 4)],
        *("the server reports: engine dead", 2, 4),
    ),
    "an_error_event_and_then_a_closed_connection": Fault(
        [*TWO, (3, "error", "engine dead"), (4, "close", None)],
        *("the server reports: engine dead", 2),
    ),
    "a_connection_closed_after_two_chunks": Fault(
        [*TWO, (3, "close", None)], "connection lost", 2
    ),
    "a_connection_closed_in_the_middle_of_an_event": Fault(
        [*TWO, (2, "raw", 'data: {"choices":[{"index":0,"text":" a'), (3, "close", None)],
        *("connection lost", 2),
    ),
    "a_connection_reset_after_two_chunks": Fault(
        [*TWO, (3, "reset", None)],
        *("connection lost: [Errno 104] Connection reset by peer", 2),
    ),
    "a_connection_closed_before_any_byte": Fault([(1, "close", None)], "connection lost"),
    "a_stream_that_ends_without_saying_why": Fault(
        [*TWO, (3, "end", None)], "the stream was cut off before its end", 2
    ),
    "a_stream_without_any_text": Fault(
        [(1, "role", None), *closing(2, 0)], "the answer has no text", 0, 0
    ),
    "an_event_that_is_no_json": Fault(
        [*TWO, (3, "raw", "data: oops\n\n"), *closing(4, 4)],
        *("an event is no JSON: b'oops'", 2, 4),
    ),
    "http_500": Fault([(1, "http", [500, BODY])], f"HTTP 500: {BODY}"),
    "http_429": Fault([(1, "http", [429, BODY])], f"HTTP 429: {BODY}"),
    "http_404_without_a_body": Fault([(1, "http", [404, ""])], "HTTP 404: "),
    "what_is_no_http": Fault(
        [(1, "bare", "SSH-2.0-OpenSSH_9.6\r\n")],
        "the answer is no HTTP: Expected HTTP/, RTSP/ or ICE/",
    ),
    "a_stall_before_any_byte": Fault([], f"no byte for {STALL_S} s"),
    "a_stall_after_the_head": Fault([(1, "head", None)], f"no byte for {STALL_S} s"),
    "a_stall_after_two_chunks": Fault(TWO, f"no byte for {STALL_S} s", 2),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS.keys())
def test_every_fault_fails_its_request_and_no_other(port: int, fault: Fault) -> None:
    steps = [(at * STEP_MS, kind, value) for at, kind, value in fault.steps]
    good = [(STEP_MS, "text", 1), (2 * STEP_MS, "text", 1), *closing(2 * STEP_MS, 2)]
    outcomes, _ = send(port, [asked(steps), asked(good)], stall_s=STALL_S)
    bad, after = outcomes
    assert not bad.record.is_success
    assert bad.record.error == fault.error
    assert len(bad.record.chunk_s) == fault.n_chunks
    assert bad.record.n_output_tok == fault.n_tok
    if fault.n_chunks:
        assert bad.record.ttft_s == pytest.approx(bad.true_s("ttft"), abs=TOLERANCE_S)
        assert bad.record.e2el_s == pytest.approx(bad.true_s("e2el"), abs=TOLERANCE_S)
    else:
        assert bad.record.ttft_s is bad.record.e2el_s is None
    if fault.n_chunks and fault.n_tok:
        assert bad.record.tpot_s == pytest.approx(bad.true_s("tpot"), abs=TOLERANCE_S / 3)
    else:
        assert bad.record.tpot_s is None
    assert after.record.error is None
    assert after.record.ttft_s == pytest.approx(after.true_s("ttft"), abs=TOLERANCE_S)
    assert after.record.tpot_s == pytest.approx(after.true_s("tpot"), abs=TOLERANCE_S)


def test_a_stall_ends_after_its_time_from_the_last_byte(port: int) -> None:
    steps = [(STEP_MS, "text", 1), (3 * STEP_MS, "raw", ": ping\n\n")]
    (outcome,), _ = send(port, [asked(steps)], stall_s=STALL_S)
    last_byte_s = outcome.written[-1][2] - outcome.origin_s
    assert outcome.record.error == f"no byte for {STALL_S} s"
    assert outcome.record.end_s - last_byte_s == pytest.approx(STALL_S, abs=TOLERANCE_S)


def test_nobody_listens(unused_port: int) -> None:
    origin_s = time.perf_counter()

    async def run() -> RequestRecord:
        endpoint = Endpoint(base_url=f"http://127.0.0.1:{unused_port}", model="mock")
        client = StreamingClient(endpoint, stall_s=STALL_S, origin_s=origin_s)
        return await client.run(asked([]).request, index=0, due_s=client.now_s())

    record = asyncio.run(run())
    assert str(record.error).startswith("cannot connect: ")
    assert (record.sent_s, record.ttft_s, record.n_output_tok) == (None, None, None)


@pytest.fixture(name="unused_port")
def _unused_port() -> int:
    # A mock that has ended: nobody has had the time to take its port.
    with running_mock() as port:
        pass
    return port


def test_a_server_that_closes_an_idle_connection_costs_no_request(port: int) -> None:
    good = [(1, "text", 1), *closing(2, 1)]
    leaving = [*good[:-1], (2, "leave", None)]
    outcomes, _ = send(port, [asked(leaving), asked(leaving), asked(good)])
    assert [outcome.record.error for outcome in outcomes] == [None] * 3
    assert [len(outcome.exchanges) for outcome in outcomes] == [1] * 3
