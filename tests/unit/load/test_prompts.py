"""Prompts have exactly the tokens asked for, are repeatable, and give a prefix cache nothing."""

import itertools
import json
from collections import Counter

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from tuner.config.workload import Histogram, Lengths, SyntheticWorkload
from tuner.errors import UsageError
from tuner.load.prompts import PromptWriter, draw_lengths
from tuner.load.requests import PreparedRequest
from tuner.load.synthetic import SyntheticSource

N = 300  # More than one batch of the tokenizer.


def workload(**changes: object) -> SyntheticWorkload:
    values = {"kind": "synthetic", "input_tokens": 20, "output_tokens": 5} | changes
    return SyntheticWorkload.model_validate(values)


def build(
    tokenizer: Tokenizer, n: int = N, *, level: int = 1, model: str = "m", **changes: object
) -> list[PreparedRequest]:
    """All requests of a level, session by session."""
    spec = workload(**changes)
    source = SyntheticSource(spec, PromptWriter(tokenizer, api=spec.api))
    return [
        turn for session in source.build(n, level=level, model=model) for turn in session.turns
    ]


def prompts(requests: list[PreparedRequest]) -> list[str]:
    return [json.loads(request.body)["prompt"] for request in requests]


def test_a_prompt_has_as_many_tokens_as_asked_for_the_start_token_included(
    tokenizer: Tokenizer,
) -> None:
    lengths = {"uniform": [3, 60]}
    requests = build(tokenizer, input_tokens=lengths)
    n_tok = [len(tokenizer.encode(prompt).ids) for prompt in prompts(requests)]
    assert n_tok == [request.n_prompt_tok for request in requests]
    assert len(requests) == N
    assert min(n_tok) == 3
    assert max(n_tok) == 60


def test_a_chat_message_is_counted_without_the_start_token(tokenizer: Tokenizer) -> None:
    (request,) = build(tokenizer, 1, api="chat")
    (message,) = json.loads(request.body)["messages"]
    n_tok = len(tokenizer.encode(message["content"], add_special_tokens=False).ids)
    assert (request.path, message["role"], n_tok) == ("/v1/chat/completions", "user", 20)


def test_a_request_asks_for_exactly_its_tokens_as_a_stream_with_usage(
    tokenizer: Tokenizer,
) -> None:
    (request,) = build(tokenizer, 1, model="served")
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
    assert build(tokenizer, level=4) == build(tokenizer, level=4)


def test_no_prompt_begins_like_another_whatever_its_level_or_seed(tokenizer: Tokenizer) -> None:
    # 16 tokens are a block of vLLM's prefix cache.
    starts = [
        tuple(tokenizer.encode(prompt).ids[:16])
        for level, seed in itertools.product((1, 2), (0, 1))
        for prompt in prompts(build(tokenizer, level=level, seed=seed))
    ]
    assert len(set(starts)) == 4 * N


def test_a_shared_prefix_is_the_same_in_every_request_and_level(tokenizer: Tokenizer) -> None:
    ids = [
        tokenizer.encode(prompt).ids
        for level in (1, 2)
        for prompt in prompts(build(tokenizer, 20, level=level, shared_prefix_tokens=32))
    ]
    assert {len(tokens) for tokens in ids} == {32 + 20}
    assert len({tuple(tokens[: 1 + 32]) for tokens in ids}) == 1
    assert len({tuple(tokens[1 + 32 :]) for tokens in ids}) == 40


def test_a_tokenizer_without_plain_words_is_refused() -> None:
    bare = Tokenizer(models.WordLevel({"a": 0, "[UNK]": 1}, unk_token="[UNK]"))  # noqa: S106 - no secret
    with pytest.raises(UsageError, match="plain words of one token"):
        PromptWriter(bare, api="completions")


def test_lognormal_lengths_have_their_median_and_stay_in_their_bounds() -> None:
    lengths = Lengths(lognormal=[100, 0.5], min=40, max=300)
    drawn = draw_lengths(lengths, 20_000, np.random.default_rng(7))
    # The median's standard error is 100 * 0.5 * 1.25 / sqrt(20000) = 0.44.
    assert np.median(drawn) == pytest.approx(100, abs=2)
    # P(ln(300/100) / 0.5 < z) = 1.4 % is clipped to the maximum, 3.3 % to the minimum.
    assert np.mean(drawn == 300) == pytest.approx(0.014, abs=0.003)
    assert np.mean(drawn == 40) == pytest.approx(0.033, abs=0.005)


def test_some_of_the_sessions_share_one_of_several_prefixes(tokenizer: Tokenizer) -> None:
    requests = build(
        tokenizer, 400, shared_prefix_tokens=32, shared_prefix_frac=0.5, n_shared_prefixes=2
    )
    starts = Counter(tuple(tokenizer.encode(prompt).ids[:33]) for prompt in prompts(requests))
    shared = [n for n in starts.values() if n > 1]
    assert len(shared) == 2
    # Binomial with standard deviation 10, twice.
    assert sum(shared) == pytest.approx(200, abs=40)
    assert all(n == pytest.approx(100, abs=40) for n in shared)
    assert {request.n_prompt_tok for request in requests} == {32 + 20}


@pytest.mark.parametrize("api", ["completions", "chat"])
def test_a_further_turn_has_all_that_was_said_before_it(tokenizer: Tokenizer, api: str) -> None:
    spec = workload(turns=3, think_s=1.5, api=api)
    source = SyntheticSource(spec, PromptWriter(tokenizer, api=api))
    sessions = source.build(10, level=1, model="m")
    # Users think meanwhile, so that as many sessions as requests may be needed.
    assert len(sessions) == 10
    assert {session.think_s for session in sessions} == {1.5}
    bodies = [json.loads(request.body) for request in sessions[0].turns]
    # 20 tokens asked, 5 answered, by turns.
    assert [request.n_prompt_tok for request in sessions[0].turns] == [20, 45, 70]
    if api == "chat":
        messages = bodies[2]["messages"]
        assert [message["role"] for message in messages] == ["user", "assistant"] * 2 + ["user"]
        assert bodies[1]["messages"] == messages[:3]
        assert bodies[0]["messages"] == messages[:1]
        return
    first, second, third = (body["prompt"] for body in bodies)
    assert third.startswith(second)
    assert second.startswith(first)
    assert [len(tokenizer.encode(prompt).ids) for prompt in (first, second, third)] == [20, 45, 70]


def test_drawn_lengths_fall_into_buckets_in_proportion_and_evenly_within_each() -> None:
    histogram = Histogram(upper=[1, 2, 5, 10], counts=[1, 0, 6, 3])
    drawn = draw_lengths(Lengths(histogram=histogram), 30_000, np.random.default_rng(3))
    # One request in ten has 1 token, none 2, two in ten each of 3 to 5, 6 in a hundred each of
    # 6 to 10. The largest standard error is sqrt(0.2 * 0.8 / 30000) = 0.0023.
    expected = [0, 0.1, 0, 0.2, 0.2, 0.2, 0.06, 0.06, 0.06, 0.06, 0.06]
    assert np.bincount(drawn) / 30_000 == pytest.approx(expected, abs=0.01)
