"""What is sent: requests ready to go, and sessions of them.

Owns no traffic of its own; a workload builds sessions, a level decides when they are sent.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class PreparedRequest:
    """One request, ready to be sent.

    Attributes:
        path: Of the endpoint.
        body: JSON.
        n_prompt_tok: Prompt tokens by our tokenizer, special tokens included; in a chat, those of
            the message alone, without what the server's template adds.
        n_output_tok: Output tokens asked for.
    """

    path: str
    body: bytes
    n_prompt_tok: int
    n_output_tok: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Session:
    """One user's turns: each is sent when the answer to the one before has ended.

    Attributes:
        turns: At least one request, in order.
        think_s: Seconds between the end of an answer and the next turn.
        arrival_s: When a recorded trace had the first turn arrive, in seconds from the trace's
            start; ``None`` where the workload says nothing of arrivals.
    """

    turns: tuple[PreparedRequest, ...]
    think_s: float = 0.0
    arrival_s: float | None = None
