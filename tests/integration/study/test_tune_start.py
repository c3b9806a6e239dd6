"""`tune` from the command line against the fake vLLM: the loop, its failures and its ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import psutil
import pytest

from tests.integration.study.conftest import FAKE, all_points, command, servers, tune

pytestmark = pytest.mark.timeout(180)
STUDY = """
version: 1
model: ./model
hardware: {{gpus: 0}}
env: {{FAKE_VLLM_TPOT_MS: "{tpot_ms}", {env}}}
parameters:
  batch_size: {{ladder: [1, 4]}}
  dtype: {{choices: [bfloat16, float16]}}
  max_num_seqs: {{choices: [2, 8]}}
workload: {{input_tokens: 8, output_tokens: 4}}
objectives: [{{maximize: output_tok_per_s}}, {{minimize: p99_tpot_ms}}]
slo: {{p99_ttft_ms: 5000, p99_tpot_ms: {tpot_limit_ms}, error_frac: 0.01}}
level: {{min_requests: 100, max_requests: 110, max_s: 1}}
launch: {{ready_deadline_s: 60, command: [{python}, {fake}, serve]}}
budget: {{launches: 4}}
"""


def write_study(
    folder: Path, *, tpot_ms: float = 0.5, tpot_limit_ms: float = 5000, env: str = ""
) -> None:
    text = STUDY.format(
        tpot_ms=tpot_ms,
        tpot_limit_ms=tpot_limit_ms,
        env=env,
        python=json.dumps(sys.executable),
        fake=json.dumps(str(FAKE)),
    )
    (folder / "search_spaces" / "s.yaml").write_text(text, encoding="utf-8")


def status(folder: Path) -> dict[str, object]:
    answer: dict[str, object] = json.loads(tune(folder, "status", "-s", "s", "--json").stdout)
    return answer


def stored_states(folder: Path) -> list[str]:
    study = optuna.load_study(study_name="s", storage=f"sqlite:///{folder}/mlruns/optuna.db")
    return [trial.state.name for trial in study.trials if "command" in trial.user_attrs]


def test_a_study_measures_every_configuration_once_and_a_second_run_repeats_nothing(
    folder: Path,
) -> None:
    write_study(folder)
    first = tune(folder, "start", "-s", "s")
    assert first.returncode == 0, first.stderr
    assert "Pareto set of s" in first.stdout
    points = json.loads(tune(folder, "pareto", "-s", "s", "--all", "--json").stdout)["points"]
    keys = {(json.dumps(p["configuration"], sort_keys=True), p["batch_size"]) for p in points}
    # dtype x max_num_seqs; batch 4 does not fit where the server runs two requests at once.
    assert len(keys) == len(points) == 6
    assert points[0]["configuration"] == {"dtype": "bfloat16", "max_num_seqs": 8}
    assert all(point["metrics"]["n_requests"] >= 100 for point in points)
    second = tune(folder, "start", "-s", "s")
    assert second.returncode == 0, second.stderr
    assert status(folder)["n_launches"] == 4
    assert len(stored_states(folder)) == 4
    assert servers(folder) == []


@pytest.mark.filterwarnings("ignore")  # of importing MLflow, which is not ours to mend
def test_the_runs_tagged_pareto_are_those_of_the_pareto_set(folder: Path) -> None:
    from mlflow.tracking import MlflowClient

    write_study(folder)
    # Two runs of tune: the second goes on from the front that the first has tagged.
    assert tune(folder, "start", "-s", "s", "--launches", "2").returncode == 0
    assert tune(folder, "start", "-s", "s").returncode == 0
    points = json.loads(tune(folder, "pareto", "-s", "s", "--all", "--json").stdout)["points"]
    client = MlflowClient(tracking_uri=f"sqlite:///{folder}/mlruns/mlflow.db")
    tagged = {
        point["mlflow_run_id"]
        for point in points
        if client.get_run(point["mlflow_run_id"]).data.tags["pareto"] == "true"
    }
    assert tagged == {point["mlflow_run_id"] for point in points if point["pareto"]}
    assert tagged


def test_a_command_of_a_row_is_printed_as_it_was_run(folder: Path) -> None:
    write_study(folder)
    assert tune(folder, "start", "-s", "s", "--launches", "1").returncode == 0
    shown = tune(folder, "pareto", "-s", "s", "--command", "1")
    assert shown.stdout.startswith(f"cd {folder} && env ")
    assert "FAKE_VLLM_TPOT_MS=0.5" in shown.stdout
    assert "serve ./model" in shown.stdout
    assert "--max-num-seqs 8" in shown.stdout
    assert "--port" not in shown.stdout
    assert "VLLM_SERVER_DEV_MODE" not in shown.stdout
    assert "--served-model-name" not in shown.stdout
    assert tune(folder, "pareto", "-s", "s", "--command", "9").returncode == 2
    table = tune(folder, "pareto", "-s", "s", "--csv").stdout.splitlines()
    assert table[0].startswith("launch,batch_size,feasible,verdict,limited_by,pareto")


def test_status_tells_the_verdicts_the_best_point_and_what_failed(folder: Path) -> None:
    write_study(folder, env='FAKE_VLLM_FAULT: oom, FAKE_VLLM_FAULT_IF: "--dtype float16"')
    assert tune(folder, "start", "-s", "s").returncode == 0
    points = json.loads(tune(folder, "pareto", "-s", "s", "--all", "--json").stdout)["points"]
    fastest = max(points, key=lambda point: point["metrics"]["output_tok_per_s"])
    head, counts, best, *failures = tune(folder, "status", "-s", "s").stdout.splitlines()
    assert head.startswith("s: 4 launches (the file's budget is 4) in ")
    # 110 requests cannot prove a P99 limit met, which takes 329.
    n, n_front = len(points), sum(point["pareto"] for point in points)
    assert counts == (f"{n} operating points ({n} undecided), {n_front} on the Pareto front")
    assert best == (
        f"best output_tok_per_s: {fastest['metrics']['output_tok_per_s']:.1f} at batch "
        f"{fastest['batch_size']} with dtype=bfloat16 "
        f"max_num_seqs={fastest['configuration']['max_num_seqs']} (undecided)"
    )
    assert len(failures) == 2
    assert all("failed (out_of_memory): dtype=float16 max_num_seqs=" in x for x in failures)


def test_a_deterministic_crash_is_pruned_and_not_repeated(folder: Path) -> None:
    write_study(folder, env='FAKE_VLLM_FAULT: oom, FAKE_VLLM_FAULT_IF: "--dtype float16"')
    done = tune(folder, "start", "-s", "s")
    assert done.returncode == 0, done.stderr
    assert status(folder)["failures"] == {"out_of_memory": 2}
    assert sorted(stored_states(folder)) == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]


def test_an_engine_that_dies_is_a_failure_that_keeps_its_points(folder: Path) -> None:
    write_study(folder, env='FAKE_VLLM_FAULT: "die_after:150"')
    tune(folder, "start", "-s", "s", "--launches", "1")
    seen = status(folder)
    assert seen["failures"] == {"engine_died": 1}
    assert seen["n_points"] == 1
    assert servers(folder) == []


def test_nothing_feasible_prints_the_nearest_points_and_exits_with_4(folder: Path) -> None:
    write_study(folder, tpot_ms=3, tpot_limit_ms=0.5)
    done = tune(folder, "start", "-s", "s", "--launches", "1")
    assert done.returncode == 4, done.stderr
    assert "Nearest" in done.stdout
    assert "p99_tpot_ms" in done.stdout
    shown = json.loads(tune(folder, "pareto", "-s", "s", "--json").stdout)
    assert shown["points"] == []
    assert shown["nearest"]


def test_a_lower_limit_that_a_small_batch_misses_does_not_end_the_climb(folder: Path) -> None:
    write_study(folder)
    file = folder / "search_spaces" / "s.yaml"
    text = file.read_text().replace("slo: {", "slo: {output_tok_per_s: 1000000000, ")
    file.write_text(text, encoding="utf-8")
    assert tune(folder, "start", "-s", "s", "--launches", "1").returncode == 4
    points = all_points(folder)
    assert [(p["batch_size"], p["verdict"]) for p in points] == [
        (1, "infeasible"),
        (4, "infeasible"),
    ]


def test_a_server_that_never_starts_exits_with_5(folder: Path) -> None:
    write_study(folder, env="FAKE_VLLM_FAULT: refuse")
    done = tune(folder, "start", "-s", "s", "--launches", "2")
    assert done.returncode == 5
    assert "mlruns/logs/s" in done.stderr


def test_a_changed_limit_is_told_where_results_are_shown(folder: Path) -> None:
    write_study(folder)
    assert tune(folder, "start", "-s", "s", "--launches", "1").returncode == 0
    assert tune(folder, "pareto", "-s", "s").stderr == ""
    write_study(folder, tpot_limit_ms=0.01)
    shown = tune(folder, "pareto", "-s", "s")
    assert shown.returncode == 4
    assert "has changed since the study began" in shown.stderr
    assert "p99_tpot_ms" in shown.stderr


def test_a_changed_search_space_is_refused_by_name(folder: Path) -> None:
    write_study(folder)
    assert tune(folder, "start", "-s", "s", "--launches", "1").returncode == 0
    file = folder / "search_spaces" / "s.yaml"
    file.write_text(file.read_text().replace("[2, 8]", "[2, 16]"), encoding="utf-8")
    refused = tune(folder, "start", "-s", "s")
    assert refused.returncode == 3
    assert "parameters.max_num_seqs was" in refused.stderr
    assert "search_spaces/s.yaml" in refused.stderr


def wait_for_server(folder: Path, tuner: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not servers(folder):
        assert tuner.poll() is None, "tune ended before it started a server"
        assert time.monotonic() < deadline
        time.sleep(0.1)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_a_kill_or_a_closed_terminal_ends_the_server_and_a_second_run_goes_on(
    folder: Path, number: signal.Signals
) -> None:
    write_study(folder, tpot_ms=20)
    tuner = subprocess.Popen(command("start", "-s", "s"), cwd=folder, stderr=subprocess.DEVNULL)
    wait_for_server(folder, tuner)
    tuner.send_signal(number)
    assert tuner.wait(timeout=60) == 130
    assert servers(folder) == []
    interrupted = status(folder)
    assert (interrupted["n_launches"], interrupted["failures"]) == (0, {"interrupted": 1})
    resumed = tune(folder, "start", "-s", "s", "--launches", "1")
    assert resumed.returncode == 0, resumed.stderr
    # What the resume has made good is no trouble any more.
    seen = status(folder)
    assert (seen["n_launches"], seen["failures"]) == (1, {})


def test_what_a_killed_tuner_left_is_reaped_by_the_next(folder: Path) -> None:
    write_study(folder, tpot_ms=20)
    tuner = subprocess.Popen(command("start", "-s", "s"), cwd=folder, stderr=subprocess.DEVNULL)
    wait_for_server(folder, tuner)
    time.sleep(1)
    os.kill(tuner.pid, signal.SIGKILL)
    tuner.wait()
    orphans = servers(folder)
    assert orphans
    resumed = tune(folder, "start", "-s", "s", "--launches", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert "left by a tune that was killed" in resumed.stderr
    assert servers(folder) == []
    assert not any(psutil.pid_exists(pid) for pid in orphans)


def test_a_second_tuner_on_one_study_is_refused(folder: Path) -> None:
    write_study(folder, tpot_ms=20)
    tuner = subprocess.Popen(command("start", "-s", "s"), cwd=folder, stderr=subprocess.DEVNULL)
    try:
        wait_for_server(folder, tuner)
        second = tune(folder, "start", "-s", "s")
        assert second.returncode == 2
        assert f"pid {tuner.pid}" in second.stderr
    finally:
        tuner.send_signal(signal.SIGINT)
        tuner.wait(timeout=60)


def test_a_dead_tracking_server_exits_with_6_before_anything_starts(folder: Path) -> None:
    write_study(folder)
    dead = tune(folder, "start", "-s", "s", "--tracking-uri", "http://127.0.0.1:9")
    assert dead.returncode == 6
    assert servers(folder) == []


def test_a_bad_storage_url_is_a_usage_error(folder: Path) -> None:
    write_study(folder)
    assert tune(folder, "start", "-s", "s", "--storage", "nonsense").returncode == 2


def test_a_store_that_is_no_database_is_told_before_the_ui_starts(folder: Path) -> None:
    (folder / "mlruns").mkdir()
    (folder / "mlruns" / "mlflow.db").write_bytes(b"no database at all" * 100)
    shown = tune(folder, "ui", "--port", "5987")
    assert shown.returncode == 6
    assert "mlflow.db cannot be used" in shown.stderr
    assert "Traceback" not in shown.stderr
