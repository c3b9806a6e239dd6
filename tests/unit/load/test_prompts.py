"""Prompts have exactly the tokens asked for, are repeatable, and give a prefix cache nothing."""

import itertools
import json

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

from tuner.config.workload import Lengths, SyntheticWorkload
from tuner.errors import UsageError
from tuner.load.prompts import PromptFactory, draw_lengths
from tuner.load.requests import PreparedRequest

N = 300  # More than one batch of the tokenizer.


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """A byte-level BPE tokenizer with a start token, as Llama's has."""
    letters = np.random.default_rng(0).choice(list("abcdefgh"), (400, 4))
    words = ["".join(word) for word in letters]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=["<s>"], show_progress=False)
    trained.train_from_iterator([" ".join(words)] * 3, trainer)
    trained.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", trained.token_to_id("<s>"))]
    )
    return trained


def workload(**changes: object) -> SyntheticWorkload:
    values = {"kind": "synthetic", "input_tokens": 20, "output_tokens": 5} | changes
    return SyntheticWorkload.model_validate(values)


def prompts(requests: list[PreparedRequest]) -> list[str]:
    return [json.loads(request.body)["prompt"] for request in requests]


def test_a_prompt_has_as_many_tokens_as_asked_for_the_start_token_included(
    tokenizer: Tokenizer,
) -> None:
    lengths = {"uniform": [3, 60]}
    requests = PromptFactory(tokenizer, workload(input_tokens=lengths)).build(
        N, level=1, model="m"
    )
    n_tok = [len(tokenizer.encode(prompt).ids) for prompt in prompts(requests)]
    assert n_tok == [request.n_prompt_tok for request in requests]
    assert len(requests) == N
    assert min(n_tok) == 3
    assert max(n_tok) == 60


def test_a_chat_message_is_counted_without_the_start_token(tokenizer: Tokenizer) -> None:
    (request,) = PromptFactory(tokenizer, workload(api="chat")).build(1, level=1, model="m")
    (message,) = json.loads(request.body)["messages"]
    n_tok = len(tokenizer.encode(message["content"], add_special_tokens=False).ids)
    assert (request.path, message["role"], n_tok) == ("/v1/chat/completions", "user", 20)


def test_a_request_asks_for_exactly_its_tokens_as_a_stream_with_usage(
    tokenizer: Tokenizer,
) -> None:
    (request,) = PromptFactory(tokenizer, workload()).build(1, level=1, model="served")
    body = json.loads(request.body)
    assert request.path == "/v1/completions"
    assert request.n_output_tok == 5
    assert len(body.pop("prompt")) > 20
    assert body == {
        "model": "served",
        "max_tokens": 5,
        "min_tokens": 5,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_the_same_seed_and_level_give_the_same_bytes(tokenizer: Tokenizer) -> None:
    first, second = (
        PromptFactory(tokenizer, workload()).build(N, level=4, model="m") for _ in range(2)
    )
    assert first == second


def test_no_prompt_begins_like_another_whatever_its_level_or_seed(tokenizer: Tokenizer) -> None:
    # 16 tokens are a block of vLLM's prefix cache.
    starts = [
        tuple(tokenizer.encode(prompt).ids[:16])
        for level, seed in itertools.product((1, 2), (0, 1))
        for prompt in prompts(
            PromptFactory(tokenizer, workload(seed=seed)).build(N, level=level, model="m")
        )
    ]
    assert len(set(starts)) == 4 * N


def test_a_shared_prefix_is_the_same_in_every_request_and_level(tokenizer: Tokenizer) -> None:
    factory = PromptFactory(tokenizer, workload(shared_prefix_tokens=32))
    ids = [
        tokenizer.encode(prompt).ids
        for level in (1, 2)
        for prompt in prompts(factory.build(20, level=level, model="m"))
    ]
    assert {len(tokens) for tokens in ids} == {32 + 20}
    assert len({tuple(tokens[: 1 + 32]) for tokens in ids}) == 1
    assert len({tuple(tokens[1 + 32 :]) for tokens in ids}) == 40


def test_a_tokenizer_without_plain_words_is_refused() -> None:
    bare = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))  # noqa: S106 - no secret
    with pytest.raises(UsageError, match="plain words of one token"):
        PromptFactory(bare, workload())


def test_lognormal_lengths_have_their_median_and_stay_in_their_bounds() -> None:
    lengths = Lengths(lognormal=[100, 0.5], min=40, max=300)
    drawn = draw_lengths(lengths, 20_000, np.random.default_rng(7))
    # The median's standard error is 100 * 0.5 * 1.25 / sqrt(20000) = 0.44.
    assert np.median(drawn) == pytest.approx(100, abs=2)
    # P(ln(300/100) / 0.5 < z) = 1.4 % is clipped to the maximum, 3.3 % to the minimum.
    assert np.mean(drawn == 300) == pytest.approx(0.014, abs=0.003)
    assert np.mean(drawn == 40) == pytest.approx(0.033, abs=0.005)
