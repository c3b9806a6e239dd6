"""Requests of a synthetic workload, made before a level begins.

Owns how a prompt of an exact token count is built and how the random streams are derived: the
same workload, level and position always give the same bytes, different levels never the same
prompt, so that a prefix cache has nothing to give away.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from tuner.config.workload import Lengths, SyntheticWorkload
from tuner.errors import UsageError
from tuner.load.requests import PreparedRequest

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
_MIN_WORDS = 100
_MAX_ROUNDS = 8
# Texts per call of the tokenizer, whose answers are many times as large as the texts.
_BATCH = 256


class PromptFactory:
    """Builds requests with one model's tokenizer.

    Args:
        tokenizer: The model's.
        workload: Lengths, seed and endpoint.

    Raises:
        UsageError: The tokenizer has too few plain words to build prompts from.
    """

    def __init__(self, tokenizer: Tokenizer, workload: SyntheticWorkload) -> None:
        self._tokenizer = tokenizer
        self._workload = workload
        self._words = _plain_words(tokenizer)
        self._is_chat = workload.api == "chat"
        self._n_special = 0 if self._is_chat else len(tokenizer.encode("").ids)

    def build(self, n: int, *, level: int, model: str) -> list[PreparedRequest]:
        """Requests of one level.

        Args:
            n: How many.
            level: Selects the random stream, e.g. the batch size.
            model: The served model's name.

        Returns:
            ``n`` requests in the order in which they are to be sent.
        """
        workload = self._workload
        rng = np.random.default_rng([workload.seed, level])
        n_in = draw_lengths(workload.input_tokens, n, rng)
        n_out = draw_lengths(workload.output_tokens, n, rng)
        prefix = self._shared_prefix()
        n_words = [max(1, int(length) - self._n_special) for length in n_in]
        texts: list[tuple[str, int]] = []
        for start in range(0, n, _BATCH):
            texts += self._texts(n_words[start : start + _BATCH], prefix, rng)
        return [
            self._request(text, n_tok, int(n_output), model)
            for (text, n_tok), n_output in zip(texts, n_out, strict=True)
        ]

    def _shared_prefix(self) -> str:
        n_words = self._workload.shared_prefix_tokens
        # A stream of its own, so that every level has the same prefix.
        rng = np.random.default_rng([self._workload.seed])
        return "".join(self._draw(n_words, rng))

    def _draw(self, n_words: int, rng: np.random.Generator) -> list[str]:
        return [self._words[i] for i in rng.integers(len(self._words), size=n_words).tolist()]

    def _texts(
        self, n_words: list[int], prefix: str, rng: np.random.Generator
    ) -> list[tuple[str, int]]:
        """Texts of the wanted token counts, corrected until the tokenizer agrees."""
        n_prefix = self._workload.shared_prefix_tokens
        picks = [self._draw(count, rng) for count in n_words]
        wanted = [count + n_prefix + self._n_special for count in n_words]
        counts: list[int] = []
        for _ in range(_MAX_ROUNDS):
            texts = [prefix + "".join(words) for words in picks]
            encoded = self._tokenizer.encode_batch_fast(
                texts, add_special_tokens=not self._is_chat
            )
            counts = [len(item.ids) for item in encoded]
            off = [have - want for have, want in zip(counts, wanted, strict=True)]
            if not any(off):
                break
            for words, surplus in zip(picks, off, strict=True):
                if surplus > 0:
                    del words[max(1, len(words) - surplus) :]
                elif surplus < 0:
                    words.extend(self._draw(-surplus, rng))
        return list(zip((prefix + "".join(words) for words in picks), counts, strict=True))

    def _request(self, text: str, n_tok: int, n_output: int, model: str) -> PreparedRequest:
        body: dict[str, object] = {
            "model": model,
            "max_tokens": n_output,
            "min_tokens": n_output,
            "ignore_eos": True,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if self._is_chat:
            body["messages"] = [{"role": "user", "content": text}]
        else:
            body["prompt"] = text
        return PreparedRequest(
            path=PATHS[self._workload.api],
            body=json.dumps(body).encode(),
            n_prompt_tok=n_tok,
            n_output_tok=n_output,
        )


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
    else:
        median, sigma = lengths.lognormal or (1.0, 1.0)
        drawn = rng.lognormal(math.log(median), sigma, n)
    clipped = np.clip(np.rint(drawn), lengths.min, lengths.max or np.inf)
    return clipped.astype(np.int64)


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
