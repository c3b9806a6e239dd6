"""Prompts of exact token counts, and the requests that carry them.

Owns how a text of an exact token count is built and what a request's body says; which lengths are
wanted, and in which sessions, is the workload's business.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from tuner.config.workload import Histogram, Lengths
from tuner.errors import UsageError
from tuner.load.requests import PreparedRequest

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_MIN_WORDS = 100
_MAX_ROUNDS = 8
# Texts per call of the tokenizer, whose answers are many times as large as the texts.
_BATCH = 256


class Text(NamedTuple):
    """A text and its tokens, special tokens not counted."""

    text: str
    n_tok: int


class PromptWriter:
    """Writes texts and requests for one model.

    Args:
        tokenizer: The model's.
        api: ``completions`` or ``chat``.

    Raises:
        UsageError: The tokenizer has too few plain words to build prompts from.
    """

    def __init__(self, tokenizer: Tokenizer, *, api: str) -> None:
        self._tokenizer = tokenizer
        self._path = PATHS[api]
        self.is_chat = api == "chat"
        self._words = _plain_words(tokenizer)
        self.n_special = 0 if self.is_chat else len(tokenizer.encode("").ids)
        """Tokens that the server adds to a prompt by itself, such as a start token."""

    def texts(self, counts: Sequence[int], rng: np.random.Generator) -> list[Text]:
        """Texts of so many tokens each, special tokens not counted; at least one.

        Texts that follow each other in one prompt keep their counts, since each begins a word.
        """
        written: list[Text] = []
        for start in range(0, len(counts), _BATCH):
            written += self._batch([max(1, n) for n in counts[start : start + _BATCH]], rng)
        return written

    def words(self, n: int, rng: np.random.Generator) -> list[str]:
        """So many texts of one token each, which keep their counts when they are joined."""
        return [self._words[i] for i in rng.integers(len(self._words), size=n).tolist()]

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens not counted."""
        counts: list[int] = []
        for start in range(0, len(texts), _BATCH):
            part = list(texts[start : start + _BATCH])
            encoded = self._tokenizer.encode_batch_fast(part, add_special_tokens=False)
            counts += [len(item.ids) for item in encoded]
        return counts

    def request(
        self,
        prompt: str | Sequence[Mapping[str, str]],
        *,
        n_prompt_tok: int,
        n_output_tok: int,
        model: str,
    ) -> PreparedRequest:
        """A request that streams exactly so many tokens.

        Args:
            prompt: A text, or the messages of a chat.
            n_prompt_tok: Its tokens, see ``PreparedRequest``.
            n_output_tok: Tokens to generate, whatever the model would like.
            model: The served model's name.
        """
        body: dict[str, object] = {
            "model": model,
            "max_tokens": n_output_tok,
            "min_tokens": n_output_tok,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        body["messages" if self.is_chat else "prompt"] = prompt
        return PreparedRequest(
            path=self._path,
            body=json.dumps(body).encode(),
            n_prompt_tok=n_prompt_tok,
            n_output_tok=n_output_tok,
        )

    def _batch(self, wanted: list[int], rng: np.random.Generator) -> list[Text]:
        """Texts of the wanted counts, corrected until the tokenizer agrees."""
        picks = [self.words(count, rng) for count in wanted]
        counts: list[int] = []
        for _ in range(_MAX_ROUNDS):
            counts = self.count(["".join(words) for words in picks])
            off = [have - want for have, want in zip(counts, wanted, strict=True)]
            if not any(off):
                break
            for words, surplus in zip(picks, off, strict=True):
                if surplus > 0:
                    del words[max(1, len(words) - surplus) :]
                elif surplus < 0:
                    words.extend(self.words(-surplus, rng))
        return [Text("".join(words), n) for words, n in zip(picks, counts, strict=True)]


def load_tokenizer(model: str) -> Tokenizer:
    """The tokenizer of a model, from its folder or from the hub.

    Raises:
        UsageError: It cannot be had.
    """
    file = Path(model).expanduser() / "tokenizer.json"
    try:
        if file.exists():
            return Tokenizer.from_file(str(file))
        return Tokenizer.from_pretrained(model)
    except Exception as error:
        raise UsageError(
            f"the tokenizer of {model} cannot be loaded ({error}): prompts of exact lengths need "
            "its tokenizer.json. Check the model's name or path and the access to it."
        ) from error


def draw_lengths(
    lengths: int | Lengths, n: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Token counts of ``n`` requests.

    Args:
        lengths: A number or a distribution.
        n: How many.
        rng: Where they are drawn from.

    Returns:
        Shape ``(n,)``, each at least 1.
    """
    if isinstance(lengths, int):
        return np.full(n, lengths, dtype=np.int64)
    if lengths.uniform is not None:
        drawn = rng.integers(lengths.uniform[0], lengths.uniform[1] + 1, n).astype(np.float64)
    elif lengths.histogram is not None:
        drawn = _draw_histogram(lengths.histogram, n, rng)
    else:
        median, sigma = lengths.lognormal or (1.0, 1.0)
        drawn = rng.lognormal(math.log(median), sigma, n)
    clipped = np.clip(np.rint(drawn), lengths.min, lengths.max or np.inf)
    return clipped.astype(np.int64)


def _draw_histogram(
    histogram: Histogram, n: int, rng: np.random.Generator
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Evenly within each bucket, which is all that a histogram knows."""
    upper = np.asarray(histogram.upper)
    lower = np.concatenate(([0], upper[:-1])) + 1
    share = np.asarray(histogram.counts) / sum(histogram.counts)
    bucket = rng.choice(len(upper), size=n, p=share)
    return rng.integers(lower[bucket], upper[bucket] + 1).astype(np.float64)


def _plain_words(tokenizer: Tokenizer) -> list[str]:
    """Texts that are one token each, begin with a space and are plain letters.

    Tokenizers split before a space, so any sequence of them is encoded word by word.
    """
    n_vocab = tokenizer.get_vocab_size()
    texts = tokenizer.decode_batch([[index] for index in range(n_vocab)])
    candidates = []
    for text in texts:
        bare = text.strip()
        if bare.isascii() and bare.isalpha():
            candidates.append(f" {bare}")
    unique = sorted(set(candidates))
    encoded = tokenizer.encode_batch(unique, add_special_tokens=False)
    words = [text for text, item in zip(unique, encoded, strict=True) if len(item.ids) == 1]
    if len(words) < _MIN_WORDS:
        raise UsageError(
            f"the tokenizer has only {len(words)} plain words of one token, too few to build "
            "prompts of exact lengths from."
        )
    return words
