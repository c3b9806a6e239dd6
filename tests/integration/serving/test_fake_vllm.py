"""The fake keeps vLLM's manners, so that what is tested with it holds for vLLM."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from urllib.error import HTTPError

import pytest

from tests.fakes.fake_vllm import Arguments
from tests.integration.serving.conftest import MakeSpec, get, post
from tuner.serving import VllmServer


def events(text: str) -> list[str]:
    return [block.removeprefix("data: ") for block in text.split("\n\n") if block]


def test_a_stream_is_tokens_then_usage_then_done(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        body = {"prompt": "four words of text", "max_tokens": 3, "stream": True}
        body["stream_options"] = {"include_usage": True}
        *chunks, usage, done = events(post(f"{server.base_url}/v1/completions", body))
    choices = [json.loads(chunk)["choices"][0] for chunk in chunks]
    assert [choice["finish_reason"] for choice in choices] == [None, None, "length"]
    assert all(choice["text"] for choice in choices)
    assert json.loads(usage)["choices"] == []
    assert json.loads(usage)["usage"] == {
        "prompt_tokens": 4,
        "completion_tokens": 3,
        "total_tokens": 7,
    }
    assert done == "[DONE]"


def test_a_chat_stream_begins_with_a_role_and_no_text(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        messages = [{"role": "user", "content": "two words"}]
        body = {"messages": messages, "max_tokens": 2, "stream": True}
        role, *chunks, done = events(post(f"{server.base_url}/v1/chat/completions", body))
    assert json.loads(role)["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    # Without include_usage there is no usage chunk.
    assert len(chunks) == 2
    assert done == "[DONE]"


def test_half_the_tokens_come_with_the_fault_of_a_wrong_length(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec(fault="wrong_length")) as server:
        assert server.start() is None
        text = post(f"{server.base_url}/v1/completions", {"prompt": "a", "max_tokens": 8})
    answer = json.loads(text)
    assert answer["usage"]["completion_tokens"] == 4
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_another_model_is_not_found(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        with pytest.raises(HTTPError) as caught:
            post(f"{server.base_url}/v1/completions", {"model": "other", "prompt": "a"})
    with caught.value:
        assert caught.value.code == 404


def test_metrics_count_tokens_and_requests(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        post(f"{server.base_url}/v1/completions", {"prompt": "a b c", "max_tokens": 5})
        _, text = get(f"{server.base_url}/metrics")
    values = dict(line.rsplit(" ", 1) for line in text.splitlines() if line[0] != "#")
    labels = f'engine="0",model_name="{server.spec.launch_id}"'
    # The readiness probe asked for one token with a prompt of one word.
    assert float(values[f"vllm:prompt_tokens_total{{{labels}}}"]) == 4
    assert float(values[f"vllm:generation_tokens_total{{{labels}}}"]) == 6
    assert float(values[f"vllm:num_requests_running{{{labels}}}"]) == 0


def test_requests_beyond_max_num_seqs_wait(make_spec: MakeSpec) -> None:
    spec = make_spec(
        *("--max-num-seqs", "1"),
        FAKE_VLLM_TPOT_MS="10",
        FAKE_VLLM_SLOPE_MS="0",
        FAKE_VLLM_TTFT_MS="40",
    )
    with VllmServer(spec) as server, ThreadPoolExecutor(3) as pool:
        assert server.start() is None
        url = f"{server.base_url}/v1/completions"
        started_s = time.perf_counter()
        asked = [pool.submit(post, url, {"prompt": "a", "max_tokens": 5}) for _ in range(3)]
        for answer in asked:
            answer.result()
        # One after the other: three times 40 ms to the first token and 10 ms to each more. Only
        # the lower bound can be told on a machine with other work.
        assert time.perf_counter() - started_s >= 3 * (0.040 + 4 * 0.010)


@pytest.mark.parametrize(
    ("words", "factor"),
    [
        ([], 1.0),
        (["--dtype", "float32"], 1.5),
        (["--dtype=float16"], 0.9),
        # Two drafts at 0.6: 1 + 0.6 + 0.36 tokens for 1.2 times the work.
        (["--speculative-config", '{"num_speculative_tokens": 2}'], 1.2 / 1.96),
    ],
)
def test_the_speed_follows_the_configuration(words: list[str], factor: float) -> None:
    assert Arguments(["demo", *words]).speed_factor == pytest.approx(factor)


def test_flags_are_taken_as_vllm_writes_them() -> None:
    arguments = Arguments(["m", "--enforce-eager", "--max-num-seqs", "8", "--dtype=half"])
    assert arguments.model == "m"
    assert arguments.flags == {"enforce-eager": "true", "max-num-seqs": "8", "dtype": "half"}
