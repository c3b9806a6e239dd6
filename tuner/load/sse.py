"""Server-sent events of an OpenAI-compatible stream, as they come off the wire.

Owns the framing and what one event means for a latency: text, usage, an error, the end. Most
events are judged without decoding their JSON, which is what a client spends its time on; whatever
the cheap test does not settle is decoded.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

_DONE = b"[DONE]"
# As vLLM and OpenAI write them, without spaces. Inside a JSON string the quotes would be escaped,
# so none of these can be part of the text itself.
_TEXT_KEYS = (b'"text":"', b'"content":"')

# Reasons for which vLLM ends an answer that is not whole (v1/engine: FinishReason).
_GIVEN_UP = frozenset({"abort", "error"})


@dataclass(frozen=True, slots=True)
class Event:
    """What one event means.

    Attributes:
        has_text: It carries text: an answer's, a reasoning's or a tool call's.
        is_finish: The server says why it stopped, so that the answer is whole.
        is_done: The end marker.
        usage: ``(prompt, completion)`` tokens, where it carries a usage field.
        error: What went wrong, in one line.
    """

    has_text: bool = False
    is_finish: bool = False
    is_done: bool = False
    usage: tuple[int, int] | None = None
    error: str | None = None


TEXT = Event(has_text=True)
"""An event of text and nothing else; always this very object."""
_END = Event(is_done=True)


class SseParser:
    """Splits a stream of bytes into the payloads of its events, however it is cut."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; give the payloads of the events that they complete."""
        is_whole = data.endswith(b"\n\n") and data.find(b"\n") == len(data) - 2
        if is_whole and data.startswith(b"data: {") and not self._rest and not self._data:
            # One event in one piece, as most come: nothing to put together.
            return [data[6:-2]]
        *lines, self._rest = (self._rest + data).split(b"\n")
        payloads = []
        for line in lines:
            bare = line.rstrip(b"\r")
            if bare.startswith(b"data:"):
                self._data.append(bare[5:].removeprefix(b" "))
            elif not bare and self._data:
                payloads.append(b"\n".join(self._data))
                self._data = []
        return payloads


def read_event(payload: bytes) -> Event:
    """What one payload means; never fails.

    Args:
        payload: The joined ``data`` lines of one event.

    Returns:
        The event; one that is no JSON object is an error.
    """
    if payload == _DONE:
        return _END
    # Written out: a loop over the keys takes longer than the tests themselves.
    if not (
        b'"error"' in payload
        or b'"usage":{' in payload
        or b'"usage": {' in payload
        or b'"finish_reason":"' in payload
        or b'"reasoning' in payload
    ):
        for key in _TEXT_KEYS:
            at = payload.find(key)
            # A slice, since a cut-off payload may end right here. Beside an empty text may stand
            # another that is not, such as a tool call.
            if at >= 0 and payload[at + len(key) :][:1] not in {b'"', b""}:
                return TEXT
    try:
        decoded = json.loads(payload)
    except (ValueError, RecursionError):
        return Event(error=f"an event is no JSON: {payload[:80]!r}")
    if not isinstance(decoded, dict):
        return Event(error=f"an event is no JSON object: {payload[:80]!r}")
    return _decode(decoded)


def _decode(chunk: dict[str, Any]) -> Event:
    error = chunk.get("error")
    if error or chunk.get("object") == "error":
        message = error.get("message", error) if isinstance(error, dict) else error
        return Event(error=f"the server reports: {str(message or chunk.get('message'))[:200]}")
    choices = chunk.get("choices")
    choice = choices[0] if isinstance(choices, list) and choices else {}
    if not isinstance(choice, dict):
        choice = {}
    if choice.get("finish_reason") in _GIVEN_UP:
        return Event(error=f"the server gave the request up ({choice['finish_reason']})")
    return Event(
        has_text=_has_text(choice),
        is_finish=choice.get("finish_reason") is not None,
        usage=_usage(chunk.get("usage")),
    )


def _has_text(choice: dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta")
    if not isinstance(delta, dict):
        return False
    kinds = ("content", "reasoning_content", "reasoning", "tool_calls")
    return any(delta.get(kind) for kind in kinds)


def _usage(usage: object) -> tuple[int, int] | None:
    match usage:
        case {"prompt_tokens": int(n_prompt), "completion_tokens": int(n_output)}:
            return n_prompt, n_output
        case _:
            return None
