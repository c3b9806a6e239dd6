"""Every kind of load and workload from the command line, against the fake vLLM."""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from tests.integration.study.conftest import FAKE, all_points, servers, tune

pytestmark = pytest.mark.timeout(180)
STUDY = """
version: 1
model: ./model
hardware: {{gpus: 0}}
env: {{FAKE_VLLM_TPOT_MS: "1", FAKE_VLLM_TTFT_MS: "5"}}
parameters:
  {load}
  dtype: {{choices: [bfloat16]}}
workload: {workload}
objectives: [{{maximize: output_tok_per_s}}, {{minimize: p99_tpot_ms}}]
slo: {{p99_ttft_ms: 5000, error_frac: 0.01}}
level: {{min_requests: 100, max_requests: 120, max_s: 1{level}}}
launch: {{ready_deadline_s: 60, command: [{python}, {fake}, serve]}}
budget: {{launches: 1}}
"""


def start(folder: Path, *, load: str, workload: str, level: str = "") -> list[dict[str, Any]]:
    text = STUDY.format(
        load=load,
        workload=workload,
        level=level,
        python=json.dumps(sys.executable),
        fake=json.dumps(str(FAKE)),
    )
    (folder / "search_spaces" / "s.yaml").write_text(text, encoding="utf-8")
    done = tune(folder, "start", "-s", "s")
    assert done.returncode == 0, done.stderr
    assert servers(folder) == []
    points: list[dict[str, Any]] = all_points(folder)
    assert all(point["invalid_reasons"] == [] for point in points), points
    return points


def records(folder: Path, slug: str) -> pd.DataFrame:
    (file,) = (folder / "mlruns" / "logs" / "s").glob(f"*/requests-{slug}.csv.gz")
    with gzip.open(file) as lines:
        return pd.read_csv(lines)


def metric(point: Mapping[str, Any], name: str) -> float:
    value: float = point["metrics"][name]
    return value


def test_a_ladder_of_request_rates_is_climbed_and_each_rate_is_kept(folder: Path) -> None:
    points = start(
        folder,
        load="request_rate_per_s: {ladder: [20, 100.5]}",
        workload="{input_tokens: 8, output_tokens: 4}",
    )
    assert [point["request_rate_per_s"] for point in points] == [20, 100.5]
    for point in points:
        # 120 Poisson arrivals: their rate has a standard deviation of 9 %.
        assert metric(point, "request_per_s") == pytest.approx(
            point["request_rate_per_s"], rel=0.35
        )
    table = tune(folder, "pareto", "-s", "s", "--all").stdout.splitlines()
    assert "req/s" in table[0]
    assert "100.5" in table[2]
    csv = tune(folder, "pareto", "-s", "s", "--all", "--csv").stdout.splitlines()
    assert csv[0].startswith("launch,request_rate_per_s,feasible,verdict,limited_by")
    sent = records(folder, "rate-100.500")
    assert (sent.n_prompt_tok == 8).all()


def test_a_trace_is_replayed_at_its_moments_and_lengths(folder: Path) -> None:
    rows = [(0.02 * k, 3 + k % 5, 2 + k % 3) for k in range(150)]
    trace = "arrival_s,input_tokens,output_tokens\n" + "".join(
        f"{at_s:.2f},{n_in},{n_out}\n" for at_s, n_in, n_out in rows
    )
    (folder / "trace.csv").write_text(trace, encoding="utf-8")
    (point,) = start(
        folder,
        load="trace_speed: {ladder: [2]}",
        workload="{kind: trace, file: trace.csv}",
    )
    assert point["trace_speed"] == 2
    sent = records(folder, "speed-002.000")
    for row in sent.itertuples():
        at_s, n_in, n_out = rows[row.index % len(rows)]
        assert (row.n_prompt_tok, row.n_output_tok) == (n_in, n_out)
        if row.index < len(rows):
            assert row.due_s == pytest.approx(at_s / 2)


def test_prompts_of_a_file_are_sent_with_their_lengths(folder: Path) -> None:
    lines = [json.dumps({"prompt": f"bal ben {k}", "output_tokens": 2 + k % 4}) for k in range(50)]
    (folder / "prompts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    (point,) = start(
        folder,
        load="batch_size: {ladder: [4]}",
        workload="{kind: jsonl, file: prompts.jsonl}",
    )
    assert metric(point, "n_requests") >= 100
    assert set(records(folder, "batch-004").n_output_tok_asked) == {2, 3, 4, 5}


def test_the_servers_own_figures_come_with_a_point(folder: Path) -> None:
    (point,) = start(
        folder,
        load="batch_size: {ladder: [4]}",
        workload="{input_tokens: 8, output_tokens: 50}",
        level=", max_concurrency: null",
    )
    assert 0 < metric(point, "mean_running") <= 4
    assert point["metrics"]["gpu_power_mean_w"] is None


@pytest.mark.parametrize(
    ("workload", "said"),
    [
        ("{kind: trace, file: none.csv}", "none.csv"),
        ("{kind: jsonl, file: bad.jsonl}", "bad.jsonl"),
    ],
)
def test_a_workload_that_cannot_be_read_is_told_before_anything_starts(
    folder: Path, workload: str, said: str
) -> None:
    (folder / "bad.jsonl").write_text('{"prompt": "bal"}\nno json\n', encoding="utf-8")
    with pytest.raises(AssertionError) as caught:
        start(folder, load="batch_size: {ladder: [1]}", workload=workload)
    assert said in str(caught.value)
    assert not (folder / "mlruns" / "logs" / "s").exists()
