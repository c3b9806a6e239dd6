"""Every latency that the client reports against the moments at which a server wrote its bytes.

The server is a process of its own (``tests/fakes/mock_openai.py``) that is told with each request
what to write and when, and that tells afterwards when it did. The true latencies are computed
here from those moments alone, by numpy.
"""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from objectives import percentile
from tests.fakes.mock_openai import Step
from tests.integration.load.asking import (
    Asked,
    Outcome,
    asked,
    closing,
    send,
)


def load(n_requests: int, *, api: str, max_tok: int, seed: int) -> list[Asked]:
    """Answers of 21 chunks with 1 to ``max_tok`` tokens each, at random moments."""
    rng = random.Random(seed)  # noqa: S311 - timings, no secrets
    requests = []
    for _ in range(n_requests):
        at_ms = rng.uniform(20, 60)
        steps: list[Step] = [(at_ms / 2, "role", None)] if api == "chat" else []
        n_tok = 0
        for _ in range(21):
            tokens = rng.randint(1, max_tok)
            n_tok += tokens
            steps.append((at_ms, "text", tokens))
            # With speculation or a busy server chunks also come in pairs.
            at_ms += 0.0 if rng.random() < 0.1 else rng.uniform(2, 12)
        requests.append(asked([*steps, *closing(at_ms, n_tok)], api=api))
    return requests


@pytest.mark.parametrize("max_tok", [1, 5], ids=["one_token_a_chunk", "many_tokens_a_chunk"])
@pytest.mark.parametrize("api", ["completions", "chat"])
def test_percentiles_are_within_a_percent_or_a_millisecond_of_the_truth(
    port: int, api: str, max_tok: int
) -> None:
    outcomes: list[Outcome] = []
    # Two cores are shared with whatever else runs. A run in which the client's own loop was over
    # a millisecond late at P99 says more of the machine than of the client, and is repeated, three
    # runs at most; the last one is judged whatever its lag was, so nothing is ever skipped.
    lag_ms = float("inf")
    for _ in range(3):
        requests = load(120, api=api, max_tok=max_tok, seed=max_tok)
        outcomes, lags_s = send(port, requests, n_slots=8)
        lag_ms = float(np.quantile(lags_s, 0.99)) * 1000
        if lag_ms <= 1.0:
            break
    assert [o.record.error for o in outcomes] == [None] * 120
    for outcome in outcomes:
        assert len(outcome.record.chunk_s) == 21
        assert outcome.record.n_output_tok == outcome.asked.request.n_output_tok
        came_s = [moment_s + outcome.origin_s for moment_s in outcome.record.chunk_s]
        assert all(
            came >= wrote for came, wrote in zip(came_s, outcome.text_moments_s, strict=True)
        )
    for quantity, q in itertools.product(("ttft", "tpot", "e2el"), (0.5, 0.99)):
        ours_s = percentile([getattr(o.record, f"{quantity}_s") for o in outcomes], q)
        true_s = float(np.quantile([o.true_s(quantity) for o in outcomes], q))
        assert ours_s is not None
        print(
            f"{api} {max_tok} P{q * 100:.0f} {quantity}: {ours_s * 1000:.3f} ms, "
            f"true {true_s * 1000:.3f} ms; loop lag P99 {lag_ms:.3f} ms"
        )
        assert abs(ours_s - true_s) <= max(0.001, 0.01 * true_s), (quantity, q, lag_ms)
