"""A server's life, with a fake vLLM over a real socket."""

import json
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.serving.conftest import MakeSpec, get, listens, marked, port_of, post
from tuner.serving import ServerSpec, VllmServer
from tuner.trial import FailureKind, Phase


def assert_nothing_left(server: VllmServer) -> None:
    assert marked(server.spec.launch_id) == []
    assert list(server.spec.owned_dir.glob("*")) == []
    assert server.teardown_problem is None


def leader_pid(server: VllmServer) -> int:
    (record,) = server.spec.owned_dir.glob(f"{server.spec.launch_id}.json")
    pid: int = json.loads(record.read_text())["leader_pid"]
    return pid


def wait_until(is_so: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 20
    while not is_so():
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_ready_server_answers_with_our_name(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec("--max-num-seqs", "4")) as server:
        assert server.start() is None
        assert server.start_s is not None
        assert server.start_s > 0
        assert server.is_alive()
        assert server.answers(timeout_s=20.0)
        _, models = get(f"{server.base_url}/v1/models")
        assert json.loads(models)["data"][0]["id"] == server.spec.launch_id
        # The API server and its engine.
        assert len(marked(server.spec.launch_id)) == 2


def test_nothing_is_left_of_a_server_that_was_ready(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        port = port_of(server.base_url)
        assert listens(port)
    assert not listens(port)
    assert_nothing_left(server)
    assert not server.is_alive()
    assert not server.answers(timeout_s=1.0)


def test_two_servers_at_once_have_ports_of_their_own(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as first, VllmServer(make_spec()) as second:
        assert first.start() is None
        assert second.start() is None
        assert first.base_url != second.base_url
        for server in (first, second):
            _, models = get(f"{server.base_url}/v1/models")
            assert json.loads(models)["data"][0]["id"] == server.spec.launch_id
    assert_nothing_left(second)


def test_ending_one_server_leaves_the_other_serving(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as stays:
        assert stays.start() is None
        with VllmServer(make_spec()) as ends:
            assert ends.start() is None
        assert marked(ends.spec.launch_id) == []
        assert stays.answers(timeout_s=20.0)
        assert len(marked(stays.spec.launch_id)) == 2


def test_stages_are_told_from_import_to_serving(make_spec: MakeSpec) -> None:
    told: list[tuple[str, float]] = []
    with VllmServer(make_spec(FAKE_VLLM_START_MS="400")) as server:
        assert server.start(lambda stage, elapsed_s: told.append((stage, elapsed_s))) is None
    assert told[0] == ("importing vLLM", 0.0)
    assert told[-1][0] == "serving"
    times = [elapsed_s for _, elapsed_s in told]
    assert times == sorted(times)


def test_a_server_that_was_not_started_has_no_address(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        with pytest.raises(RuntimeError, match="no port yet"):
            _ = server.base_url
        assert not server.is_alive()
    assert_nothing_left(server)


@pytest.mark.parametrize(
    ("fault", "kind", "exit_code", "parameter"),
    [
        ("refuse", FailureKind.CONFIG_REFUSED, 2, "dtype"),
        ("oom", FailureKind.OUT_OF_MEMORY, 1, None),
    ],
)
def test_a_start_that_cannot_work_is_told_with_its_cause(
    make_spec: MakeSpec, fault: str, kind: FailureKind, exit_code: int, parameter: str | None
) -> None:
    with VllmServer(make_spec(fault=fault)) as server:
        failed = server.start()
    assert failed is not None
    assert (failed.kind, failed.phase) == (kind, Phase.START)
    assert (failed.exit_code, failed.parameter) == (exit_code, parameter)
    assert failed.is_deterministic
    assert_nothing_left(server)


def test_too_few_batched_tokens_are_refused_as_by_vllm(make_spec: MakeSpec) -> None:
    spec = make_spec("--max-num-batched-tokens", "8", "--max-num-seqs", "16")
    with VllmServer(spec) as server:
        failed = server.start()
    assert failed is not None
    assert failed.kind is FailureKind.CONFIG_REFUSED
    assert failed.parameter == "max_num_batched_tokens"


def test_a_server_that_exits_at_its_first_request_is_unknown(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec(fault="exit_after:0")) as server:
        failed = server.start()
    assert failed is not None
    assert (failed.kind, failed.exit_code) == (FailureKind.UNKNOWN, 1)
    assert_nothing_left(server)


@pytest.mark.parametrize("fault", ["hang", "hang_first_token", "http500"])
def test_a_server_that_gives_no_token_in_time_is_a_time_out(
    make_spec: MakeSpec, fault: str
) -> None:
    with VllmServer(make_spec(fault=fault, ready_deadline_s=1.0)) as server:
        failed = server.start()
    assert failed is not None
    assert (failed.kind, failed.phase) == (FailureKind.START_TIMEOUT, Phase.START)
    assert not failed.is_deterministic
    assert_nothing_left(server)


def test_the_operator_can_stop_a_start_that_hangs(make_spec: MakeSpec) -> None:
    asked: list[None] = []

    def is_cancelled() -> bool:
        asked.append(None)
        return len(asked) > 3

    with VllmServer(make_spec(fault="hang"), is_cancelled) as server:
        failed = server.start()
    assert failed is not None
    assert failed.kind is FailureKind.INTERRUPTED
    assert_nothing_left(server)


def test_a_program_that_is_not_there_is_named(make_spec: MakeSpec) -> None:
    spec = replace(make_spec(), command=("/nonexistent/vllm", "serve"))
    with VllmServer(spec) as server:
        failed = server.start()
    assert failed is not None
    assert "/nonexistent/vllm serve" in failed.message
    assert failed.is_deterministic
    assert_nothing_left(server)


@pytest.mark.usefixtures("short_grace")
@pytest.mark.parametrize("fault", ["ignore_sigterm", "leave_grandchild"])
def test_processes_that_ignore_sigterm_are_ended_all_the_same(
    make_spec: MakeSpec, fault: str
) -> None:
    with VllmServer(make_spec(fault=fault)) as server:
        assert server.start() is None
        port = port_of(server.base_url)
        n_processes = {"ignore_sigterm": 2, "leave_grandchild": 3}[fault]
        assert len(marked(server.spec.launch_id)) == n_processes
    assert not listens(port)
    assert_nothing_left(server)


def test_a_second_interrupt_waits_for_no_grace(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Were the grace given, this test would run into its own time limit.
    monkeypatch.setattr("tuner.serving.server._GRACE_S", 1000.0)
    server = VllmServer(make_spec(fault="ignore_sigterm"))

    def serve_until_interrupted() -> None:
        with server:
            assert server.start() is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        serve_until_interrupted()
    assert_nothing_left(server)


@pytest.mark.usefixtures("short_grace")
def test_a_leader_that_is_killed_takes_its_engine_with_it(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        os.kill(leader_pid(server), signal.SIGKILL)
        wait_until(lambda: not server.is_alive())
        assert not server.answers(timeout_s=1.0)
        failed = server.diagnose()
        assert (failed.kind, failed.phase) == (FailureKind.ENGINE_DIED, Phase.MEASURE)
        assert failed.exit_code == -signal.SIGKILL
        # As vLLM's workers do, the fake's engine outlives its leader.
        assert len(marked(server.spec.launch_id)) == 1
    assert_nothing_left(server)


@pytest.mark.usefixtures("short_grace")
def test_a_stopped_leader_lives_but_does_not_answer(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        os.kill(leader_pid(server), signal.SIGSTOP)
        assert not server.answers(timeout_s=0.3)
        assert server.is_alive()
    assert_nothing_left(server)


@pytest.mark.usefixtures("short_grace")
def test_a_dead_engine_is_noticed_although_health_is_good(make_spec: MakeSpec) -> None:
    # The first completion is the readiness probe.
    with VllmServer(make_spec(fault="die_after:1")) as server:
        assert server.start() is None
        assert not server.answers(timeout_s=20.0)
        assert get(f"{server.base_url}/health")[0] == 200
        assert server.is_alive()
        failed = server.diagnose()
        assert failed.kind is FailureKind.ENGINE_DIED
        assert failed.exit_code is None
    assert_nothing_left(server)


def test_a_hung_engine_is_noticed_although_health_is_good(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec(fault="hang_after:1")) as server:
        assert server.start() is None
        assert not server.answers(timeout_s=0.3)
        assert get(f"{server.base_url}/health")[0] == 200


def test_a_server_that_exits_while_measured_says_with_what(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec(fault="exit_after:1")) as server:
        assert server.start() is None
        assert not server.answers(timeout_s=20.0)
        wait_until(lambda: not server.is_alive())
        assert (server.diagnose().kind, server.diagnose().exit_code) == (
            FailureKind.ENGINE_DIED,
            1,
        )
    assert_nothing_left(server)


def test_a_fault_can_be_one_of_a_configuration(make_spec: MakeSpec) -> None:
    def started(dtype: str) -> bool:
        spec = make_spec("--dtype", dtype, fault="oom", FAKE_VLLM_FAULT_IF="--dtype float16")
        with VllmServer(spec) as server:
            return server.start() is None

    assert started("bfloat16")
    assert not started("float16")


def test_our_segment_is_removed_and_others_stay(make_spec: MakeSpec) -> None:
    spec = make_spec()
    ours, others, shared = (
        Path("/dev/shm") / f"{spec.launch_id}-{name}"  # noqa: S108 - where segments are
        for name in ("ours", "others", "shared")
    )
    others.write_bytes(b"x")
    try:
        with VllmServer(replace(spec, env={**spec.env, "FAKE_VLLM_SHM": ours.name})) as server:
            assert server.start() is None
            assert ours.exists()
        assert not ours.exists()
        assert others.exists()
        with VllmServer(replace(spec, env={**spec.env, "FAKE_VLLM_SHM": shared.name})) as server:
            assert server.start() is None
            opened = shared.open("rb")
        with opened:
            # A living process, this one, still has it.
            assert shared.exists()
    finally:
        for segment in (ours, others, shared):
            segment.unlink(missing_ok=True)


def test_the_fixed_words_come_last_so_that_no_study_can_change_them(
    make_spec: MakeSpec,
) -> None:
    spec: ServerSpec = make_spec("--dtype", "auto")
    assert spec.full_command[-8:] == (
        *("--dtype", "auto", "--host", "127.0.0.1", "--port", "0"),
        *("--served-model-name", spec.launch_id),
    )


def test_the_log_has_all_output_from_the_first_line(make_spec: MakeSpec) -> None:
    with VllmServer(make_spec()) as server:
        assert server.start() is None
        body = {"model": server.spec.launch_id, "prompt": "a b", "max_tokens": 2}
        assert '"completion_tokens":2' in post(f"{server.base_url}/v1/completions", body)
    text = server.log_file.read_text()
    assert "version 0.32.0" in text.splitlines()[0]
    assert "shutdown triggered" in text
