"""What recorded logs say about why a launch failed; the expected causes were read in the logs."""

import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from tuner.serving.failures import classify
from tuner.trial import Failed, FailureKind, Phase

LOGS = Path(__file__).parent / "logs"
REFUSED = FailureKind.CONFIG_REFUSED
UNSUPPORTED = FailureKind.UNSUPPORTED
MEMORY = FailureKind.OUT_OF_MEMORY
MODEL = FailureKind.MODEL_UNAVAILABLE


@dataclass(frozen=True)
class Expected:
    kind: FailureKind
    parameter: str | None
    exit_code: int
    # The words of the log that are the root cause.
    evidence: str


CAUSES = {
    "attn-bogus": Expected(REFUSED, "attention_backend", 1, "Unknown attention backend: 'BOGUS'"),
    "badchoice": Expected(REFUSED, "dtype", 2, "argument --dtype: invalid choice: 'int4'"),
    "badint": Expected(REFUSED, "max_num_seqs", 2, "invalid int value: 'abc'"),
    "block-size-16": Expected(REFUSED, "block_size", 1, "No common block size for 16"),
    "kvoffload": Expected(UNSUPPORTED, None, 1, "only supported on CUDA-alike"),
    "kvspace-huge": Expected(
        MEMORY, "kv_cache_memory_bytes", 1, "less than requested memory for kv (64.0 GiB)"
    ),
    "mbt512-nochunk": Expected(
        REFUSED, "max_num_batched_tokens", 1, "(512) is smaller than max_model_len (1024)"
    ),
    "mbt8-seqs16": Expected(
        REFUSED, "max_num_batched_tokens", 1, "(8) must be greater than or equal to max_num_seqs"
    ),
    "mml-big": Expected(REFUSED, "max_model_len", 1, "User-specified max_model_len (4096)"),
    "model-corrupt": Expected(MODEL, None, 1, "invalid header length"),
    "nomodel": Expected(MODEL, None, 1, "'models/does-not-exist'"),
    "partial-prefill": Expected(
        REFUSED, "max_num_partial_prefills", 2, "unrecognized arguments: --max-num-partial"
    ),
    "q-awq": Expected(REFUSED, "quantization", 1, "Cannot find the config file for awq"),
    "q-bogus": Expected(REFUSED, "quantization", 1, "Unknown quantization method: bogus"),
    "q-fp8pt": Expected(UNSUPPORTED, "quantization", 1, "static_scaled_fp8_quant() expected"),
    "spec-ngram0": Expected(
        REFUSED, "speculative_config", 1, "1 validation error for SpeculativeConfig"
    ),
    "spec-suffix": Expected(
        UNSUPPORTED, "speculative_config", 1, "Arctic Inference is required for suffix decoding"
    ),
    "tp4": Expected(REFUSED, "tensor_parallel_size", 1, "attention heads (2) must be divisible"),
}
HEALTHY = ("base", "spec-draft-self")


def written(folder: Path, *lines: str) -> Path:
    file = folder / "server.log"
    file.write_text("\n".join(lines) + "\n")
    return file


def at_start(log_file: Path, exit_code: int | None = 1) -> Failed:
    return classify(log_file, phase=Phase.START, exit_code=exit_code)


def test_every_recorded_log_has_an_expected_cause() -> None:
    assert {file.stem for file in LOGS.glob("*.log")} == {*CAUSES, *HEALTHY}


@pytest.mark.parametrize("name", CAUSES)
def test_the_cause_of_a_recorded_failure_is_found(name: str) -> None:
    expected = CAUSES[name]
    failed = at_start(LOGS / f"{name}.log", expected.exit_code)
    assert (failed.kind, failed.parameter) == (expected.kind, expected.parameter)
    # Started again with the same arguments, each of these would fail again.
    assert failed.is_deterministic
    assert failed.exit_code == expected.exit_code
    assert failed.phase is Phase.START


@pytest.mark.parametrize("name", CAUSES)
def test_the_evidence_is_the_line_of_the_root_cause(name: str) -> None:
    expected = CAUSES[name]
    failed = at_start(LOGS / f"{name}.log", expected.exit_code)
    assert failed.evidence is not None
    assert expected.evidence in failed.evidence
    assert not failed.evidence.startswith("(")
    assert failed.evidence[:40] in failed.message


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_log_blames_no_argument(name: str) -> None:
    failed = at_start(LOGS / f"{name}.log", -signal.SIGKILL)
    assert failed.kind is FailureKind.UNKNOWN
    assert failed.parameter is None
    assert not failed.is_deterministic


# Rendered by hand from the messages in vLLM 0.32's source: no GPU made these.
NO_BLOCKS = (
    "ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine."
)
KV_TOO_LARGE = (
    "ValueError: To serve at least one request with the model's max seq len (131072), (40.0 GiB "
    "KV cache is needed, which is larger than the available KV cache memory (11.2 GiB)."
)
NOT_FREE = (
    "ValueError: Free memory on device cuda:0 (5.1/79.11 GiB) on startup is less than desired "
    "GPU memory utilization (0.9, 71.2 GiB). Decrease GPU memory utilization or reduce GPU "
    "memory used by other processes."
)
NOT_FREE_FOR_ENGINE = (
    "ValueError: Free memory on device cuda:0 (5.1/79.11 GiB) on startup is less than the "
    "engine's budget after excluding external process's weights (0.9, 61.2 GiB)."
)
CUDA_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.11 GiB of which 1.06 GiB is free."
)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        # What other processes hold is not the configuration's fault: it may fit the next time.
        (NO_BLOCKS, ("max_model_len", True)),
        (KV_TOO_LARGE, ("max_model_len", True)),
        (NOT_FREE, ("gpu_memory_utilization", False)),
        (NOT_FREE_FOR_ENGINE, ("gpu_memory_utilization", False)),
        (CUDA_MEMORY, (None, True)),
    ],
)
def test_gpu_memory_messages_are_out_of_memory(
    tmp_path: Path, line: str, expected: tuple[str | None, bool]
) -> None:
    log_file = written(
        tmp_path,
        "(APIServer pid=1) INFO 11-30 22:06:19 [model.py:733] Resolved architecture: Llama",
        f"(EngineCore_DP0 pid=2) ERROR 11-30 22:06:20 [core.py:1510] {line}",
        "RuntimeError: Engine core initialization failed. See root cause above. Failed core "
        "proc(s): {'EngineCore_DP0': 1}",
    )
    failed = at_start(log_file)
    assert failed.kind is MEMORY
    assert (failed.parameter, failed.is_deterministic) == expected
    assert failed.evidence == line


def test_the_memory_report_of_a_healthy_gpu_start_is_no_cause(tmp_path: Path) -> None:
    log_file = written(
        tmp_path,
        "(Worker pid=2) INFO 11-30 22:06:20 [gpu_worker.py:1012] Free memory on device "
        "(78.5/79.11 GiB) on startup. Desired GPU memory utilization is (0.9, 71.2 GiB).",
    )
    assert at_start(log_file, -signal.SIGTERM).kind is FailureKind.UNKNOWN


def test_an_argument_with_an_alias_is_blamed_by_its_long_name(tmp_path: Path) -> None:
    log_file = written(
        tmp_path,
        "vllm-serve: error: argument --tensor-parallel-size/-tp: invalid int value: 'x'",
    )
    assert at_start(log_file, 2).parameter == "tensor_parallel_size"


def test_exit_status_2_without_a_known_line_is_a_refusal(tmp_path: Path) -> None:
    failed = at_start(written(tmp_path, "usage: vllm serve"), 2)
    assert (failed.kind, failed.is_deterministic) == (REFUSED, True)


def test_an_address_in_use_may_pass(tmp_path: Path) -> None:
    log_file = written(tmp_path, "OSError: [Errno 98] Address already in use")
    failed = at_start(log_file)
    assert (failed.kind, failed.is_deterministic) == (FailureKind.PORT, False)


def test_the_warning_of_errno_24_in_every_log_is_no_port_failure() -> None:
    assert "OSError: [Errno 24]" in (LOGS / "base.log").read_text()
    assert at_start(LOGS / "base.log", -9).kind is FailureKind.UNKNOWN


def test_an_unknown_exit_is_unknown_and_would_come_again(tmp_path: Path) -> None:
    log_file = written(
        tmp_path,
        "(EngineCore pid=2) ERROR 11-30 22:06:20 [core.py:1510] KeyError: 'rope_theta'",
        "RuntimeError: Engine core initialization failed. See root cause above.",
    )
    failed = at_start(log_file)
    assert (failed.kind, failed.is_deterministic) == (FailureKind.UNKNOWN, True)
    assert failed.evidence == "KeyError: 'rope_theta'"
    assert "exit status 1" in failed.message


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_signal_at_start_is_not_the_configurations_fault(tmp_path: Path, number: int) -> None:
    failed = at_start(written(tmp_path, "loading"), -number)
    assert (failed.kind, failed.is_deterministic) == (FailureKind.UNKNOWN, False)
    assert f"signal {int(number)}" in failed.message


def test_a_server_that_is_not_ready_in_time_says_after_how_long(tmp_path: Path) -> None:
    failed = classify(
        written(tmp_path, "Loading weights", ""),
        phase=Phase.START,
        exit_code=None,
        timed_out_s=120.0,
    )
    assert (failed.kind, failed.is_deterministic) == (FailureKind.START_TIMEOUT, False)
    assert "120 s" in failed.message
    assert failed.evidence == "Loading weights"


def test_a_known_cause_stands_before_the_time_out(tmp_path: Path) -> None:
    failed = classify(
        written(tmp_path, CUDA_MEMORY), phase=Phase.START, exit_code=None, timed_out_s=1.0
    )
    assert failed.kind is MEMORY


def test_a_death_while_measuring_is_a_dead_engine(tmp_path: Path) -> None:
    failed = classify(written(tmp_path, "served"), phase=Phase.MEASURE, exit_code=-9)
    assert (failed.kind, failed.phase) == (FailureKind.ENGINE_DIED, Phase.MEASURE)
    assert "signal 9" in failed.message


def test_out_of_memory_while_measuring_is_out_of_memory(tmp_path: Path) -> None:
    failed = classify(written(tmp_path, CUDA_MEMORY), phase=Phase.MEASURE, exit_code=1)
    assert (failed.kind, failed.phase) == (MEMORY, Phase.MEASURE)


def test_a_missing_log_gives_no_evidence(tmp_path: Path) -> None:
    failed = at_start(tmp_path / "none.log")
    assert (failed.kind, failed.evidence) == (FailureKind.UNKNOWN, None)


def test_bytes_that_are_no_utf8_do_not_hide_the_cause(tmp_path: Path) -> None:
    log_file = tmp_path / "server.log"
    log_file.write_bytes(b"\xff\xfe\n" + CUDA_MEMORY.encode() + b"\n\xc3")
    assert at_start(log_file).kind is MEMORY


def test_the_cause_is_found_after_megabytes_of_log(tmp_path: Path) -> None:
    log_file = written(tmp_path, "x" * 3_000_000, CUDA_MEMORY)
    assert at_start(log_file).kind is MEMORY


def test_evidence_is_cut_to_what_a_person_reads(tmp_path: Path) -> None:
    failed = at_start(written(tmp_path, CUDA_MEMORY + "x" * 9000))
    assert failed.evidence is not None
    assert len(failed.evidence) == 500


def test_a_cause_that_is_not_known_is_told_with_its_line_and_where_the_log_is(
    tmp_path: Path,
) -> None:
    log = tmp_path / "server.log"
    log.write_text("(EngineCore pid=7) ERROR 12-06 04:16:12 [core.py:1] ValueError: odd sizes\n")
    failed = classify(log, phase=Phase.START, exit_code=1)
    assert failed.kind is FailureKind.UNKNOWN
    assert "ValueError: odd sizes" in failed.message
    assert str(log) in failed.message
