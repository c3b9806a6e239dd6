"""A small good study file, and ways to break it."""

from __future__ import annotations

from tuner.config.build import build_study
from tuner.config.study import Study
from tuner.errors import StudyFileError

GOOD = """\
version: 1
model: org/model
hardware: {gpus: 0}
serve: {max_model_len: 512}
parameters:
  batch_size: {ladder: [1, 2, 4]}
  max_num_seqs: {log2: [2, 16]}
  precision: {choices: [bf16, fp32]}
workload: {input_tokens: 32, output_tokens: 12}
objectives:
  - {maximize: output_tok_per_s}
  - {minimize: p99_tpot_ms}
slo: {p99_ttft_ms: 100, error_frac: 0.01}
level: {max_requests: 400}
"""


def good(**replaced: str) -> str:
    """The good study with some of its lines replaced, by their key."""
    lines = GOOD.splitlines()
    for key, line in replaced.items():
        (at,) = [index for index, old in enumerate(lines) if old.strip().startswith(f"{key}:")]
        lines[at] = line
    return "\n".join(lines) + "\n"


def build(text: str) -> Study:
    """A study of a text, under a fixed name."""
    return build_study(text, name="mine", file="search_spaces/mine.yaml")


def refusal(text: str) -> list[str]:
    """The lines of the error that a study file earns, without the file's name."""
    try:
        build(text)
    except StudyFileError as error:
        return [line.removeprefix("search_spaces/mine.yaml") for line in str(error).splitlines()]
    raise AssertionError("it was accepted")
