"""Sessions of made-up prompts.

Owns how random streams are derived and how turns build on each other: the same workload, level
and position always give the same bytes, and different levels never the same prompt, so that a
prefix cache has nothing to give away but what the workload shares on purpose.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tuner.config.workload import SyntheticWorkload
from tuner.load.prompts import PromptWriter, Text, draw_lengths
from tuner.load.requests import PreparedRequest, Session


class SyntheticSource:
    """Builds sessions of a synthetic workload.

    Args:
        workload: Lengths, sharing, turns and seed.
        writer: Of the model that is served.
    """

    def __init__(self, workload: SyntheticWorkload, writer: PromptWriter) -> None:
        self.workload = workload
        self._writer = writer
        # A stream of its own, so that every level has the same prefixes.
        rng = np.random.default_rng([workload.seed])
        n_tok = workload.shared_prefix_tokens
        self._prefixes = writer.texts([n_tok] * workload.n_shared_prefixes, rng) if n_tok else []

    def build(self, n_requests: int, *, level: int, model: str) -> list[Session]:
        """Sessions of one level; see ``SessionSource``."""
        workload, writer = self.workload, self._writer
        rng = np.random.default_rng([workload.seed, level])
        # While users think, new sessions begin: so many are needed if they think for long.
        n = n_requests if workload.think_s else math.ceil(n_requests / workload.turns)
        shape = (n, workload.turns)
        n_in = draw_lengths(workload.input_tokens, n * workload.turns, rng).reshape(shape)
        n_out = draw_lengths(workload.output_tokens, n * workload.turns, rng).reshape(shape)
        n_in[:, 0] -= writer.n_special
        prefixes = self._choose_prefixes(n, rng)
        asked = writer.texts(n_in.ravel().tolist(), rng)
        # The model's own answers are not known beforehand: texts of their lengths stand for them.
        said = writer.texts(n_out[:, :-1].ravel().tolist(), rng)
        sessions = []
        for i, (before, n_tok) in enumerate(prefixes):
            questions = asked[i * workload.turns : (i + 1) * workload.turns]
            first = Text(before + questions[0].text, n_tok + questions[0].n_tok)
            answers = said[i * (workload.turns - 1) : (i + 1) * (workload.turns - 1)]
            texts = [first]
            for answer, question in zip(answers, questions[1:], strict=True):
                texts += [answer, question]
            turns = write_turns(writer, texts, n_out[i].tolist(), model=model)
            sessions.append(Session(turns=turns, think_s=workload.think_s))
        return sessions

    def _choose_prefixes(self, n: int, rng: np.random.Generator) -> list[Text]:
        if not self._prefixes:
            return [Text("", 0)] * n
        is_shared = rng.random(n) < self.workload.shared_prefix_frac
        which = rng.integers(len(self._prefixes), size=n)
        # As long as the shared one, so that sharing alone makes the difference.
        n_fresh = int((~is_shared).sum())
        fresh = iter(self._writer.texts([self.workload.shared_prefix_tokens] * n_fresh, rng))
        return [
            self._prefixes[index] if shared else next(fresh)
            for shared, index in zip(is_shared.tolist(), which.tolist(), strict=True)
        ]


def write_turns(
    writer: PromptWriter, texts: Sequence[Text], n_output: Sequence[int], *, model: str
) -> tuple[PreparedRequest, ...]:
    """The requests of one conversation, each with all that was said before.

    Args:
        writer: Of the model.
        texts: What the user and the assistant say by turns, the user first and last.
        n_output: Tokens to generate in each turn.
        model: The served model's name.
    """
    requests = []
    for turn, n in enumerate(n_output):
        used = texts[: 2 * turn + 1]
        words = [text for text, _ in used]
        requests.append(
            writer.request(
                as_messages(words) if writer.is_chat else "".join(words),
                n_prompt_tok=sum(n_tok for _, n_tok in used) + writer.n_special,
                n_output_tok=n,
                model=model,
            )
        )
    return tuple(requests)


def as_messages(texts: Sequence[str]) -> list[dict[str, str]]:
    """A chat's messages, the user's and the assistant's by turns, the user's first."""
    return [
        {"role": "assistant" if position % 2 else "user", "content": text}
        for position, text in enumerate(texts)
    ]
