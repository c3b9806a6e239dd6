"""Rare ways in which servers end connections and answers, and what becomes of the request."""

from __future__ import annotations

import pytest

from tests.fakes.mock_openai import Step
from tests.integration.load.asking import (
    STALL_S,
    STEP_MS,
    TOLERANCE_S,
    asked,
    closing,
    send,
)

BODY = '{"error":{"message":"busy"}}'
GOOD: list[Step] = [(0, "text", 1), (STEP_MS, "text", 1), *closing(STEP_MS, 2)]


def test_a_stall_on_a_reused_connection_is_sent_once_and_fails_after_its_time(port: int) -> None:
    """The server has the request and is silent: this is no connection closed while idle."""
    (_, stalled), _ = send(port, [asked(GOOD), asked([])], stall_s=STALL_S)
    assert stalled.record.error == f"no byte for {STALL_S} s"
    assert len(stalled.exchanges) == 1
    assert stalled.record.end_s - stalled.record.due_s == pytest.approx(STALL_S, abs=TOLERANCE_S)


def test_a_request_that_the_server_held_and_dropped_has_failed(port: int) -> None:
    """Closed 0.3 s after it was sent, so not while idle; the retry hides one failure in two."""
    (_, dropped), _ = send(port, [asked(GOOD), asked([(5 * STEP_MS, "close", None)])])
    assert dropped.record.error == "connection lost"
    assert len(dropped.exchanges) == 1


def test_an_answer_may_end_with_its_connection(port: int) -> None:
    """RFC 9112, 6.3: without a length and not chunked, the body ends where the connection does."""
    steps: list[Step] = [*GOOD[:-1], (2 * STEP_MS, "close", None)]
    (outcome,), _ = send(port, [asked(steps, framing="close")])
    assert outcome.record.error is None
    assert outcome.record.n_output_tok == 2
    assert outcome.record.tpot_s == pytest.approx(outcome.true_s("tpot"), abs=TOLERANCE_S)


def test_an_error_status_is_told_even_if_its_body_ends_with_the_connection(port: int) -> None:
    answer = f"HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n{BODY}"
    (outcome,), _ = send(port, [asked([(0, "bare", answer), (STEP_MS, "close", None)])])
    assert outcome.record.error == f"HTTP 500: {BODY}"


def test_a_tool_call_beside_empty_content_is_text(port: int) -> None:
    """As ``DeltaMessage(content=content, tool_calls=...)`` of vLLM's tool parsers may write it."""
    delta = {"content": "", "tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
    call = {"choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}]}
    steps: list[Step] = [
        *[(0, "role", None), (STEP_MS, "event", call), (2 * STEP_MS, "event", call)],
        *closing(3 * STEP_MS, 2),
    ]
    (outcome,), _ = send(port, [asked(steps, api="chat")])
    assert outcome.record.error is None
    assert len(outcome.record.chunk_s) == 2


def test_an_aborted_answer_is_no_success(port: int) -> None:
    """vLLM's FinishReason ABORT: the engine gave the request up, what came is not the answer."""
    steps: list[Step] = [
        *[(0, "text", 1), (STEP_MS, "text", 1), (STEP_MS, "finish", "abort")],
        *[(STEP_MS, "usage", 2), (STEP_MS, "done", None), (STEP_MS, "end", None)],
    ]
    (outcome,), _ = send(port, [asked(steps)])
    assert not outcome.record.is_success


def test_an_interim_answer_is_passed_over(port: int) -> None:
    """RFC 9110, 15.2: a client must take 1xx answers before the final one, asked for or not."""
    interim = "HTTP/1.1 103 Early Hints\r\nlink: </>\r\n\r\n"
    (outcome,), _ = send(port, [asked([(0, "bare", interim), *GOOD])])
    assert outcome.record.error is None
    assert len(outcome.record.chunk_s) == 2
