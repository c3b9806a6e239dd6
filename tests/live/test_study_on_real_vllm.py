"""`tune start` on real vLLM: three launches of the demo model, one of which vLLM refuses."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tuner.demo_model import make_demo_model

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]

# vLLM refuses to schedule fewer tokens per step than the longest request without chunked prefill,
# and its refusal is the second of the three configurations here.
STUDY = """
version: 1
model: ./model/target
hardware: {gpus: 0}
serve: {max_model_len: 256, enforce_eager: true}
parameters:
  batch_size: {ladder: [1, 4]}
  quantization: {choices: [int8_per_channel_weight_only, bogus]}
  max_num_seqs: {choices: [2, 4]}
workload: {input_tokens: 16, output_tokens: 4}
objectives: [{maximize: output_tok_per_s}, {minimize: p99_tpot_ms}]
slo: {p99_ttft_ms: 20000, p99_tpot_ms: 5000, error_frac: 0.01}
level: {min_requests: 100, max_requests: 120, max_s: 5}
launch: {ready_deadline_s: 400}
sampler: {name: qmc}
budget: {launches: 3}
"""


def tune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tune")
    return subprocess.run(
        [str(program), *words],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "200"},
    )


def marked_processes() -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if "TUNE_LAUNCH_ID" in process.environ():
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


@pytest.mark.filterwarnings("ignore")  # of importing MLflow, which is not ours to mend
def test_a_study_on_real_vllm_measures_logs_survives_a_refusal_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    import optuna
    from mlflow.tracking import MlflowClient

    make_demo_model(tmp_path / "model")
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "live.yaml").write_text(STUDY, encoding="utf-8")
    before = set(marked_processes())

    # 4 configurations, half of them refused: more launches are allowed than asked for first, so
    # that both kinds are surely among them.
    started = tune(tmp_path, "start", "--study", "live", "--launches", "4")
    assert started.returncode == 0, started.stderr

    shown = tune(tmp_path, "pareto", "--study", "live", "--all", "--json")
    assert shown.returncode == 0, shown.stderr
    points = json.loads(shown.stdout)["points"]
    status = json.loads(tune(tmp_path, "status", "--study", "live", "--json").stdout)
    assert status["n_launches"] == 4
    assert status["failures"] == {"config_refused": 2}
    assert {point["batch_size"] for point in points} == {1, 4}
    for point in points:
        metrics = point["metrics"]
        assert metrics["n_requests"] >= 100
        assert metrics["error_frac"] == 0
        assert 0 < metrics["p50_tpot_ms"] <= metrics["p99_tpot_ms"]
        assert point["invalid_reasons"] == []
    assert any(point["pareto"] for point in points)

    storage = f"sqlite:///{tmp_path}/mlruns/optuna.db"
    study = optuna.load_study(study_name="live", storage=storage)
    states = [trial.state.name for trial in study.trials if "command" in trial.user_attrs]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "PRUNED", "PRUNED"]

    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlruns/mlflow.db")
    experiment = client.get_experiment_by_name("live")
    assert experiment is not None
    runs = client.search_runs([experiment.experiment_id])
    launches = [run for run in runs if run.data.tags["kind"] == "launch"]
    nested = {run.info.run_id: run for run in runs if run.data.tags["kind"] != "launch"}
    assert sorted(run.info.status for run in launches) == [
        "FAILED",
        "FAILED",
        "FINISHED",
        "FINISHED",
    ]
    for run in launches:
        names = {item.path for item in client.list_artifacts(run.info.run_id)}
        assert {"server.log", "command.sh", "configuration.json"} <= names
        if run.info.status == "FAILED":
            assert run.data.tags["failure_kind"] == "config_refused"
            assert "bogus" in run.data.tags["failure_evidence"]
    assert {point["mlflow_run_id"] for point in points} == set(nested)
    for point in points:
        logged = nested[point["mlflow_run_id"]].data
        for name in ("output_tok_per_s", "p99_tpot_ms"):
            assert logged.metrics[name] == pytest.approx(point["metrics"][name])
        assert logged.tags["pareto"] == str(point["pareto"]).lower()
        names = {item.path for item in client.list_artifacts(point["mlflow_run_id"])}
        assert f"requests-batch-{point['batch_size']:03d}.csv.gz" in names

    again = tune(tmp_path, "start", "--study", "live", "--launches", "4")
    assert again.returncode == 0, again.stderr
    status_again = json.loads(tune(tmp_path, "status", "--study", "live", "--json").stdout)
    assert status_again["n_launches"] == 4
    assert set(marked_processes()) <= before
    assert not list((tmp_path / "mlruns" / "owned").glob("*"))
