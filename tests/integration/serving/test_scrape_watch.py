"""Looking at a server's /metrics while it serves, over the loopback."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from threading import enumerate as threads

import pytest

from tests.integration.serving.conftest import MakeSpec, post
from tuner.serving import VllmServer
from tuner.serving.scrape import ScrapeWatch, reset_prefix_cache

Answer = tuple[int, str]


@contextmanager
def serving(answer: Callable[[str, str], Answer]) -> Iterator[str]:
    """A server that answers each method and path as told; gives its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self._answer()

        def _answer(self) -> None:
            status, text = answer(self.command, self.path)
            # Whoever asked may have gone.
            with suppress(BrokenPipeError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def wait_until(is_met: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not is_met():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def has_looks_thread() -> bool:
    return any(thread.name == "looks" for thread in threads())


class Counting:
    """Its running requests are the number of times it was asked; it can be told to fail."""

    def __init__(self, *fails_at: int) -> None:
        self.n_asked = 0
        self._fails_at = fails_at

    def __call__(self, method: str, path: str) -> Answer:
        assert (method, path) == ("GET", "/metrics")
        self.n_asked += 1
        if self.n_asked in self._fails_at:
            return 503, "vllm:num_requests_running 99"
        return 200, f"vllm:num_requests_running {self.n_asked}\n"


def test_it_looks_at_the_start_now_and_then_and_at_the_end() -> None:
    counting = Counting()
    with serving(counting) as url:
        began_s = time.perf_counter()
        with ScrapeWatch(url, interval_s=0.01) as watch:
            assert counting.n_asked >= 1
            wait_until(lambda: counting.n_asked >= 4)
            n_before_end = counting.n_asked
        n_asked = counting.n_asked
        ended_s = time.perf_counter()
        assert n_asked > n_before_end
        assert not has_looks_thread()
        time.sleep(0.05)
        assert counting.n_asked == n_asked
    scrapes = watch.scrapes()
    assert [scrape.values["running"] for scrape in scrapes] == list(range(1, n_asked + 1))
    moments_s = [scrape.at_s for scrape in scrapes]
    assert moments_s == sorted(moments_s)
    assert began_s <= moments_s[0]
    assert moments_s[-1] <= ended_s


def test_a_level_shorter_than_the_interval_has_the_first_and_the_last_look() -> None:
    with serving(Counting()) as url, ScrapeWatch(url, interval_s=60.0) as watch:
        pass
    assert [scrape.values["running"] for scrape in watch.scrapes()] == [1, 2]


def test_a_failing_look_is_left_out() -> None:
    counting = Counting(1, 3)
    with serving(counting) as url, ScrapeWatch(url, interval_s=0.01) as watch:
        wait_until(lambda: counting.n_asked >= 4)
    assert [scrape.values["running"] for scrape in watch.scrapes()][:2] == [2, 4]


def test_a_server_that_is_gone_gives_nothing_and_raises_nothing() -> None:
    with serving(Counting()) as url:
        pass
    with ScrapeWatch(url, interval_s=0.01) as watch:
        time.sleep(0.05)
    assert watch.scrapes() == ()


def test_a_server_that_hangs_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.serving.scrape._TIMEOUT_S", 0.1)

    def hang(method: str, path: str) -> Answer:
        time.sleep(0.4)
        return 200, "vllm:num_requests_running 1\n"

    with serving(hang) as url:
        began_s = time.perf_counter()
        with ScrapeWatch(url, interval_s=0.01) as watch:
            pass
        assert time.perf_counter() - began_s < 5
    assert watch.scrapes() == ()


def test_the_thread_ends_also_after_an_error() -> None:
    def fail() -> None:
        raise KeyError("ours")

    with serving(Counting()) as url, pytest.raises(KeyError), ScrapeWatch(url):
        fail()
    assert not has_looks_thread()


@pytest.mark.parametrize(
    ("answer", "is_reset"),
    [
        ((200, ""), True),
        ((200, '{"success": true}'), True),
        ((200, '{"success": false}'), False),
        ((404, '{"detail": "Not Found"}'), False),
        ((500, ""), False),
    ],
)
def test_a_prefix_cache_is_reset_if_the_server_says_so(answer: Answer, is_reset: bool) -> None:
    asked = []

    def take(method: str, path: str) -> Answer:
        asked.append((method, path))
        return answer

    with serving(take) as url:
        assert reset_prefix_cache(url) is is_reset
    assert asked == [("POST", "/reset_prefix_cache")]


def test_a_server_that_is_gone_resets_nothing() -> None:
    with serving(Counting()) as url:
        pass
    assert reset_prefix_cache(url) is False


def test_a_server_as_vllms_is_seen_to_count(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        with ScrapeWatch(server.base_url, interval_s=60.0) as watch:
            body: dict[str, object] = {
                "model": server.spec.launch_id,
                "prompt": "one two three",
                "max_tokens": 2,
            }
            post(f"{server.base_url}/v1/completions", body)
        assert reset_prefix_cache(server.base_url)
    first, last = watch.scrapes()
    assert last.values["n_prefix_query_tok"] - first.values["n_prefix_query_tok"] == 3
    assert last.values["running"] == 0
