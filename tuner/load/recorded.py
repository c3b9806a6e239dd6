"""Sessions of recorded traffic: a trace's lengths and moments, or a file's prompts.

Owns what becomes of a recording that is shorter than a level, of lengths that it does not have,
and of prompts that are too long.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.config.workload import ConversationsWorkload, TraceWorkload
from tuner.errors import UsageError
from tuner.load.conversations import Conversation, Conversations, Turn
from tuner.load.prompts import PromptWriter, Text, draw_lengths
from tuner.load.requests import PreparedRequest, Session
from tuner.load.synthetic import write_turns
from tuner.load.traces import Trace

_DEFAULT_OUTPUT_TOK = 128


class TraceSource:
    """Made-up prompts of a trace's lengths.

    A trace that is too short is taken again, after its end and with new prompts. Leading tokens
    that the trace's prompts shared are the beginning of one text that all of them share.

    Args:
        workload: Seed and endpoint.
        trace: The recording.
        writer: Of the model that is served.
    """

    def __init__(self, workload: TraceWorkload, trace: Trace, writer: PromptWriter) -> None:
        self.workload = workload
        self._rows = trace.rows
        self._writer = writer
        last_s = trace.rows[-1].arrival_s
        # From the last request to the first of the next round: as long as between two, on average.
        n_gaps = max(1, len(trace.rows) - 1)
        self._round_s = None if last_s is None else last_s * (1 + 1 / n_gaps)
        self._shared = self._shared_words(max(row.n_shared_tok for row in trace.rows))

    @property
    def has_arrivals(self) -> bool:
        """Whether the trace says when requests came."""
        return self._round_s is not None

    def build(self, n_requests: int, *, level: int, model: str) -> list[Session]:
        """Sessions of one request each; see ``SessionSource``."""
        rng = np.random.default_rng([self.workload.seed, level])
        rows = [self._rows[i % len(self._rows)] for i in range(n_requests)]
        own = [max(1, r.n_input_tok - r.n_shared_tok - self._writer.n_special) for r in rows]
        sessions = []
        for i, (row, text) in enumerate(zip(rows, self._writer.texts(own, rng), strict=True)):
            shared = "".join(self._shared[: row.n_shared_tok])
            whole = Text(shared + text.text, row.n_shared_tok + text.n_tok)
            (request,) = write_turns(self._writer, [whole], [row.n_output_tok], model=model)
            arrival_s = None
            if row.arrival_s is not None and self._round_s is not None:
                arrival_s = row.arrival_s + (i // len(self._rows)) * self._round_s
            sessions.append(Session(turns=(request,), arrival_s=arrival_s))
        return sessions

    def _shared_words(self, n_tok: int) -> list[str]:
        """The shared text, one token per item."""
        rng = np.random.default_rng([self.workload.seed])
        return self._writer.words(n_tok, rng)


class ConversationSource:
    """Prompts of a file, in an order of each level's own.

    Args:
        workload: Which of them, and how long answers are.
        conversations: The file's.
        writer: Of the model that is served.

    Raises:
        UsageError: No prompt is short enough, or the file's form does not fit the endpoint.
    """

    def __init__(
        self,
        workload: ConversationsWorkload,
        conversations: Conversations,
        writer: PromptWriter,
    ) -> None:
        self.workload = workload
        self._writer = writer
        limit = workload.max_input_tokens or math.inf
        counted = zip(conversations.items, self._count(conversations.items), strict=True)
        self._items = [(item, n_tok) for item, n_tok in counted if n_tok[0] <= limit]
        if not self._items:
            raise UsageError(
                f"{workload.file}: every prompt is longer than workload.max_input_tokens "
                f"({workload.max_input_tokens}): raise it."
            )

    def build(self, n_requests: int, *, level: int, model: str) -> list[Session]:
        """Conversations of the file, each once before any comes again; see ``SessionSource``."""
        rng = np.random.default_rng([self.workload.seed, level])
        sessions: list[Session] = []
        n_built = 0
        while n_built < n_requests:
            for index in rng.permutation(len(self._items)).tolist():
                conversation, n_tok = self._items[index]
                session = self._session(conversation, n_tok, rng, model)
                sessions.append(session)
                n_built += len(session.turns)
                if n_built >= n_requests:
                    break
        return sessions

    def _count(self, items: Sequence[Conversation]) -> list[list[int]]:
        """Tokens of what each conversation says, its prompts and answers by turns."""
        texts: list[str] = []
        for item in items:
            for turn in item.turns[: self.workload.turns]:
                texts += [prompt_text(turn), turn.answer or ""]
        counts = iter(self._writer.count(texts))
        return [
            [next(counts) for _ in range(2 * len(item.turns[: self.workload.turns]))]
            for item in items
        ]

    def _session(
        self, conversation: Conversation, n_tok: list[int], rng: np.random.Generator, model: str
    ) -> Session:
        limit = self.workload.max_input_tokens or math.inf
        said: list[dict[str, str]] = []
        n_prompt = self._writer.n_special
        requests: list[PreparedRequest] = []
        for position, turn in enumerate(conversation.turns[: self.workload.turns]):
            n_asked, n_answer = n_tok[2 * position : 2 * position + 2]
            n_prompt += n_asked
            if requests and n_prompt > limit:
                break
            said += messages_of(turn)
            requests.append(
                self._writer.request(
                    list(said)
                    if self._writer.is_chat
                    else "\n\n".join(message["content"] for message in said),
                    n_prompt_tok=n_prompt,
                    n_output_tok=self._n_output(turn, n_answer, rng),
                    model=model,
                )
            )
            if turn.answer is None:
                break
            said.append({"role": "assistant", "content": turn.answer})
            n_prompt += n_answer
        return Session(turns=tuple(requests))

    def _n_output(self, turn: Turn, n_answer: int, rng: np.random.Generator) -> int:
        if turn.n_output_tok is not None:
            return turn.n_output_tok
        if self.workload.output_tokens is not None:
            return int(draw_lengths(self.workload.output_tokens, 1, rng)[0])
        return n_answer or _DEFAULT_OUTPUT_TOK


def prompt_text(turn: Turn) -> str:
    """What a turn asks, as one text."""
    return "\n\n".join(message["content"] for message in messages_of(turn))


def messages_of(turn: Turn) -> list[dict[str, str]]:
    """What a turn asks, as messages of a chat."""
    if turn.messages is not None:
        return [dict(message) for message in turn.messages]
    return [{"role": "user", "content": turn.text or ""}]
