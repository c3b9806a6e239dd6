"""Server-sent events: framing and meaning."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.load.sse import SseParser, read_event


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40)), st.data())
def test_payloads_do_not_depend_on_how_the_bytes_are_cut(pieces: list[bytes], data) -> None:
    stream = b"".join(b"data: " + piece.replace(b"\n", b"") + b"\n\n" for piece in pieces)
    whole = SseParser().feed(stream)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    parser = SseParser()
    parts = [
        payload
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)
        for payload in parser.feed(stream[start:end])
    ]
    assert parts == whole


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_no_payload_makes_the_reader_fail(payload: bytes) -> None:
    read_event(payload)


@settings(deadline=None)
@given(st.text(max_size=30), st.booleans(), st.booleans())
def test_a_chunk_has_text_exactly_if_its_text_is_not_empty(
    text: str, is_chat: bool, is_compact: bool
) -> None:
    choice = {"index": 0, "delta": {"content": text}} if is_chat else {"index": 0, "text": text}
    chunk = {"id": "x", "choices": [{**choice, "finish_reason": None}], "usage": None}
    separators = (",", ":") if is_compact else None
    event = read_event(json.dumps(chunk, separators=separators).encode())
    assert event.has_text is bool(text)
    assert event.error is None


@pytest.mark.parametrize(
    ("chunk", "has_text", "usage", "is_finish"),
    [
        ({"choices": [{"delta": {"role": "assistant", "content": ""}}]}, False, None, False),
        ({"choices": [{"delta": {"reasoning_content": "hm"}}]}, True, None, False),
        ({"choices": [{"text": "a", "finish_reason": "length"}]}, True, None, True),
        (
            {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3}},
            False,
            (7, 3),
            False,
        ),
    ],
)
def test_what_each_kind_of_chunk_means(
    chunk: dict[str, object], has_text: bool, usage: tuple[int, int] | None, is_finish: bool
) -> None:
    event = read_event(json.dumps(chunk, separators=(",", ":")).encode())
    assert (event.has_text, event.usage, event.is_finish) == (has_text, usage, is_finish)


def test_an_error_event_is_an_error_and_the_end_marker_the_end() -> None:
    assert "overloaded" in str(read_event(b'{"error":{"message":"overloaded"}}').error)
    assert read_event(b"[DONE]").is_done
    assert read_event(b"[1, 2]").error
    assert read_event(b"{cut").error
