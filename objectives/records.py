"""One request as the client saw it, and the latencies that follow from it.

Owns the per-request definitions; knows nothing of percentiles, SLOs or servers.
All times are seconds on one monotonic clock whose zero is the start of the level.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class RequestRecord:
    """What happened to one request.

    Attributes:
        index: Position in the level's request sequence, from 0.
        due_s: When the request was due; every latency counts from here, so that a
            late client is not hidden.
        sent_s: When its bytes were written; ``None`` if it never was sent.
        chunk_s: Arrival times of the chunks that carried text, ascending. Role chunks, empty
            chunks and usage chunks are not in it.
        end_s: When the answer ended, well or badly.
        n_prompt_tok: Prompt tokens by the server's usage field; ``None`` without one.
        n_output_tok: Output tokens by the server's usage field; ``None`` without one.
        n_output_tok_asked: Output tokens that were asked for.
        error: ``None`` for success, else what went wrong in one line.
        is_warmup: Sent before the measured window; never part of a metric.
    """

    index: int
    due_s: float
    sent_s: float | None
    chunk_s: tuple[float, ...]
    end_s: float
    n_prompt_tok: int | None
    n_output_tok: int | None
    n_output_tok_asked: int
    error: str | None = None
    is_warmup: bool = False

    @property
    def is_success(self) -> bool:
        """Whether the whole answer arrived without an error."""
        return self.error is None

    @property
    def ttft_s(self) -> float | None:
        """Time to first token, from due to the first chunk with text; ``None`` without one."""
        return self.chunk_s[0] - self.due_s if self.chunk_s else None

    @property
    def e2el_s(self) -> float | None:
        """End-to-end latency, from due to the last chunk with text; ``None`` without one.

        The usage chunk and the end marker that follow are not the user's latency.
        """
        return self.chunk_s[-1] - self.due_s if self.chunk_s else None

    @property
    def tpot_s(self) -> float | None:
        """Time per output token after the first: ``(E2EL - TTFT) / (n_output_tok - 1)``.

        vLLM's definition. ``None`` for an answer of one token or of unknown length.
        """
        if not self.chunk_s or self.n_output_tok is None or self.n_output_tok <= 1:
            return None
        return (self.chunk_s[-1] - self.chunk_s[0]) / (self.n_output_tok - 1)

    @property
    def itl_s(self) -> tuple[float, ...]:
        """Inter-token latencies: gaps between successive text chunks; empty for one chunk."""
        return tuple(b - a for a, b in zip(self.chunk_s, self.chunk_s[1:], strict=False))
