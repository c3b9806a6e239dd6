"""A study against vLLM's parser: a small stand-in for vLLM, and once vLLM itself."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.unit.config.studies import build, good
from tuner.config import read_study
from tuner.errors import MissingDependencyError
from tuner.serving import find_vllm, vllm_check
from tuner.serving.vllm_check import Problem, check_study

PARSER = """
import argparse, json, pathlib, sys
print("noise on stdout")
with open({log!r}, "a") as out:
    out.write("asked\\n")

def make_arg_parser(parser):
    parser.add_argument("--dtype", choices=["auto", "bfloat16", "float32"])
    parser.add_argument("--max-num-seqs", type=int)
    parser.add_argument("--max-num-batched-tokens", type=int)
    parser.add_argument("--max-model-len", type=int)
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--speculative-config", type=json.loads)
    parser.add_argument("--compilation-config", type=config)
    parser.add_argument("--enforce-eager", action=argparse.BooleanOptionalAction)
    parser.add_argument("--tensor-parallel-size", "-tp", type=size)
    return parser

def config(text):
    raise argparse.ArgumentTypeError(
        "1 validation error\\nzz\\n  Unexpected argument\\n    For further information visit x"
    )

def size(text):
    if int(text) > 4:
        raise RuntimeError("error: no such size")
    return int(text)
"""


def stand_in(folder: Path, *, parser_at: str, words_at: str) -> Path:
    """A package called vllm, whose parser lies where a version of vLLM has it."""
    log = folder / "asked"
    modules = {
        words_at: "import argparse\nFlexibleArgumentParser = argparse.ArgumentParser\n",
        parser_at: PARSER.format(log=str(log)),
    }
    for name, text in modules.items():
        file = folder / f"{name}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        for parent in file.relative_to(folder).parents[:-1]:
            (folder / parent / "__init__.py").touch()
        if name == "vllm/utils":
            (folder / "vllm/utils").mkdir(exist_ok=True)
            file = folder / "vllm/utils/__init__.py"
        file.write_text(text, encoding="utf-8")
    return log


@pytest.fixture(
    params=[
        ("vllm/entrypoints/launchers/cli_args", "vllm/utils/argparse_utils"),
        ("vllm/entrypoints/openai/cli_args", "vllm/utils"),
    ],
    ids=["vllm-0.32", "older"],
)
def asked(request, tmp_path, monkeypatch):
    parser_at, words_at = request.param
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return stand_in(tmp_path, parser_at=parser_at, words_at=words_at)


PYTHON = Path(sys.executable)


def check(**replaced: str) -> list[tuple[str, str]]:
    return [(p.key, p.message) for p in check_study(build(good(**replaced)), PYTHON)]


def test_a_good_study_has_no_problem_and_one_child_is_asked(asked):
    assert check() == []
    assert asked.read_text(encoding="utf-8") == "asked\n"


def test_an_unknown_argument_gets_the_nearest_known_one(asked):
    assert check(serve="serve: {max_model_lenn: 512}") == [
        (
            "serve.max_model_lenn",
            "this vLLM has no argument --max-model-lenn: did you mean 'max_model_len'?",
        )
    ]
    assert check(serve="serve: {xyzzy: 512}") == [
        ("serve.xyzzy", "this vLLM has no argument --xyzzy")
    ]


def test_the_beginning_of_an_argument_is_not_taken_for_it(asked):
    assert check(serve="serve: {max_model: 512}")[0][1].startswith("this vLLM has no argument")


def test_each_refusal_is_told_once_under_its_own_key(asked):
    problems = check(
        serve="serve: {max_model_len: long, enforce_eager: true}",
        max_num_seqs="  max_num_seqs: {choices: [abc, 4, 4.5]}\n"
        "  max_num_batched_tokens: {choices: [256]}",
    )
    assert problems == [
        ("serve.max_model_len", "argument --max-model-len: invalid int value: 'long'"),
        ("parameters.max_num_seqs", "argument --max-num-seqs: invalid int value: 'abc'"),
        ("parameters.max_num_seqs", "argument --max-num-seqs: invalid int value: '4.5'"),
    ]


def test_precision_names_are_expanded(asked):
    ((key, message),) = check(precision="  precision: {choices: [bf16, fp16]}")
    assert key == "parameters.precision"
    assert message.startswith("argument --dtype: invalid choice: 'float16' (choose from")
    assert [key for key, _ in check(precision="  precision: {choices: [fp8]}")] == [
        "parameters.precision"
    ]


def test_both_ends_of_every_range_are_checked(asked):
    study = good(
        max_num_seqs="  max_num_seqs: {range: [3, 9]}\n"
        "  max_num_batched_tokens: {log2: [16, 64]}\n"
        "  gpu_memory_utilization: {float: [0.5, 0.9]}"
    )
    words = [" ".join(words) for _, words in vllm_check._cases(build(study))]
    assert words == [
        "--max-model-len 512",
        "--max-num-seqs 3",
        "--max-num-seqs 9",
        "--max-num-batched-tokens 16",
        "--max-num-batched-tokens 64",
        "--gpu-memory-utilization 0.5",
        "--gpu-memory-utilization 0.9",
        "--dtype bfloat16",
        "--dtype float32",
    ]


def test_every_method_goes_with_both_ends_of_the_draft_length(asked):
    text = good(
        max_num_seqs="  num_speculative_tokens: {range: [0, 4], methods: "
        "{n: {method: ngram}, d: {method: draft_model, model: m}}}"
    )
    words = [words for key, words in vllm_check._cases(build(text)) if "speculative" in key]
    draft = '"method":"draft_model","model":"m"'
    assert words == [
        ("--speculative-config", '{"method":"ngram","num_speculative_tokens":1}'),
        ("--speculative-config", f'{{{draft},"num_speculative_tokens":1}}'),
        ("--speculative-config", '{"method":"ngram","num_speculative_tokens":4}'),
        ("--speculative-config", f'{{{draft},"num_speculative_tokens":4}}'),
    ]
    assert check_study(build(text), PYTHON) == []


def test_a_proposed_batch_size_is_no_argument(asked):
    assert check(batch_size="  batch_size: {log2: [1, 64]}") == []


def test_a_parameter_under_a_condition_is_checked_too(asked):
    assert [
        key
        for key, _ in check(
            max_num_seqs="  max_num_seqs: {choices: [x], when: {precision: fp32}}",
        )
    ] == ["parameters.max_num_seqs"]


def test_a_long_refusal_is_one_line_without_its_web_address(asked):
    assert check(serve="serve: {compilation_config: {zz: 1}}") == [
        (
            "serve.compilation_config",
            "argument --compilation-config: 1 validation error zz Unexpected argument",
        )
    ]


def test_an_argument_of_a_mapping_by_dots_is_known_by_its_first_part(asked):
    (problem,) = check(serve="serve: {compilation_config.zz: 1}")
    assert "unrecognized arguments: --compilation-config.zz" in problem[1]


def test_what_ends_vllm_without_a_word_is_told(asked):
    assert check(serve="serve: {help: true}") == [
        ("serve.help", "vLLM prints a text and ends instead of serving: remove it")
    ]


def test_a_parser_that_fails_is_a_refusal(asked):
    assert check(serve="serve: {tensor_parallel_size: 8}") == [
        ("serve.tensor_parallel_size", "RuntimeError: error: no such size")
    ]


def test_an_argument_that_is_left_out_is_not_asked_about(asked):
    assert check(serve="serve: {max_model_len: null}") == []


def script(folder: Path, body: str) -> Path:
    file = folder / "python"
    file.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
    file.chmod(0o755)
    return file


def test_a_vllm_that_cannot_be_imported_is_told_with_its_last_words(tmp_path):
    python = script(tmp_path, "echo first >&2; echo 'ImportError: no torch' >&2; exit 1")
    with pytest.raises(MissingDependencyError, match=r"cannot be asked: ImportError: no torch$"):
        check_study(build(good()), python)


def test_an_interpreter_that_says_nothing_or_is_not_there_is_told(tmp_path):
    with pytest.raises(MissingDependencyError, match="cannot be asked: no message"):
        check_study(build(good()), script(tmp_path, "exit 3"))
    with pytest.raises(MissingDependencyError, match="cannot be asked"):
        check_study(build(good()), tmp_path / "no-python")


def test_an_interpreter_that_hangs_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(vllm_check, "_TIMEOUT_S", 0.2)
    with pytest.raises(MissingDependencyError, match="timed out"):
        check_study(build(good()), script(tmp_path, "exec sleep 20"))


def test_the_child_is_asked_quietly_and_told_the_cases(tmp_path):
    seen = shlex.quote(str(tmp_path / "seen"))
    python = script(
        tmp_path,
        f'{{ echo "$1 $VLLM_NO_USAGE_STATS"; cat; }} > {seen}\n'
        """echo '{"answers": [null, null, null, null, null], "options": """
        """["--max-model-len", "--max-num-seqs", "--dtype"]}'""",
    )
    assert check_study(build(good()), python) == []
    assert (tmp_path / "seen").read_text(encoding="utf-8") == (
        '-c 1\n[["--max-model-len", "512"], ["--max-num-seqs", "2"], ["--max-num-seqs", "16"], '
        '["--dtype", "bfloat16"], ["--dtype", "float32"]]'
    )


@pytest.mark.live
@pytest.mark.timeout(180)
def test_vllms_own_parser_takes_the_demo(tmp_path):
    python = find_vllm().python
    assert check_study(read_study("demo", folder=tmp_path), python) == []


@pytest.mark.live
@pytest.mark.timeout(180)
def test_vllms_own_parser_refuses_what_it_refused_in_the_recorded_logs(tmp_path):
    python = find_vllm().python
    study = build(
        good(
            serve="serve: {max_num_partial_prefills: 2}",
            precision="  dtype: {choices: [auto, int4]}",
            max_num_seqs="  max_num_seqs: {choices: [8, abc]}\n"
            "  max_num_batched_tokens: {log2: [64, 8192]}\n"
            "  gpu_memory_utilization: {float: [0.2, 0.9]}\n"
            "  enable_prefix_caching: {choices: [true, false]}\n"
            "  num_speculative_tokens: {range: [0, 4], method: {method: ngram}}",
        )
    )
    logs = Path(__file__).parents[1] / "serving" / "logs"
    said = {
        log: (logs / log).read_text(encoding="utf-8").rpartition("error: ")[2].strip()
        for log in ("badchoice.log", "badint.log", "partial-prefill.log")
    }
    unknown, *refused = check_study(study, python)
    assert unknown.key == "serve.max_num_partial_prefills"
    assert said["partial-prefill.log"] == "unrecognized arguments: --max-num-partial-prefills"
    assert unknown.message.startswith("this vLLM has no argument --max-num-partial-prefills")
    assert refused == [
        Problem(key="parameters.max_num_seqs", message=said["badint.log"]),
        Problem(key="parameters.dtype", message=said["badchoice.log"]),
    ]
