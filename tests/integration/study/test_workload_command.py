"""`tune workload`: what a study sends, and a workload like a server's traffic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

from tests.integration.study.conftest import tune
from tuner.config.workload import SyntheticWorkload

STUDY = """
version: 1
model: ./model
hardware: {gpus: 0}
parameters:
  batch_size: {ladder: [1, 4]}
  dtype: {choices: [bfloat16]}
workload: {input_tokens: {uniform: [4, 12]}, output_tokens: 3}
objectives: [{maximize: output_tok_per_s}]
level: {max_requests: 200}
"""
METRICS = "".join(
    f'vllm:request_{name}_tokens_bucket{{engine="0",le="{le}"}} {count}\n'
    for name in ("prompt", "generation")
    for le, count in (("10.0", 3), ("20.0", 5), ("50.0", 5), ("+Inf", 5))
) + (
    'vllm:request_prompt_tokens_sum{engine="0"} 60\n'
    'vllm:request_generation_tokens_sum{engine="0"} 40\n'
)


def write(folder: Path, text: str = STUDY) -> None:
    (folder / "search_spaces" / "s.yaml").write_text(text, encoding="utf-8")


def show(folder: Path, *words: str) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(
        tune(folder, "workload", "show", "-s", "s", *words, "--json").stdout
    )
    return shown


def test_a_level_is_shown_with_its_lengths_and_the_same_hash_every_time(folder: Path) -> None:
    write(folder)
    shown = json.loads(
        tune(folder, "workload", "show", "-s", "s", "--level", "2", "--json").stdout
    )
    assert shown["load"] == "batch 4"
    # 4 of warm-up, 200 measured, twice 4 while they are awaited.
    assert shown["n_requests"] == shown["n_sessions"] == 4 + 200 + 8
    assert (shown["n_prompt_tok"]["min"], shown["n_prompt_tok"]["max"]) == (4, 12)
    assert set(shown["n_output_tok"].values()) == {3}
    again = json.loads(
        tune(folder, "workload", "show", "-s", "s", "--level", "2", "--json").stdout
    )
    assert again == shown
    other = json.loads(tune(folder, "workload", "show", "-s", "s", "--json").stdout)
    assert other["sha256"] != shown["sha256"]
    text = tune(folder, "workload", "show", "-s", "s").stdout
    assert text.startswith("s, batch 1: 203 requests prepared in 203 sessions, sha256 ")
    assert '"max_tokens": 3' in text


def test_a_level_that_is_not_there_is_a_usage_error(folder: Path) -> None:
    write(folder)
    refused = tune(folder, "workload", "show", "-s", "s", "--level", "3")
    assert refused.returncode == 2
    assert "the ladder has steps 1 to 2" in refused.stderr


def test_a_servers_lengths_become_a_workload_that_a_study_takes(folder: Path) -> None:
    (folder / "metrics.txt").write_text(METRICS, encoding="utf-8")
    printed = tune(folder, "workload", "from-metrics", "metrics.txt")
    assert printed.returncode == 0, printed.stderr
    assert "# 5 requests of metrics.txt: mean 12 tokens in, 8 out." in printed.stdout
    workload = yaml.safe_load(printed.stdout)["workload"]
    assert workload["input_tokens"] == {"histogram": {"upper": [10, 20], "counts": [3, 2]}}
    SyntheticWorkload.model_validate(workload)
    study = STUDY.replace("workload: {input_tokens: {uniform: [4, 12]}, output_tokens: 3}\n", "")
    write(folder, study + printed.stdout)
    shown = show(folder)
    assert 1 <= shown["n_prompt_tok"]["min"] <= 10 < shown["n_prompt_tok"]["max"] <= 20


def test_metrics_that_cannot_be_had_are_told(folder: Path) -> None:
    assert "none.txt cannot be read" in tune(folder, "workload", "from-metrics", "none.txt").stderr
    refused = tune(folder, "workload", "from-metrics", "http://127.0.0.1:9/metrics")
    assert refused.returncode == 2
    assert "http://127.0.0.1:9/metrics cannot be read" in refused.stderr
