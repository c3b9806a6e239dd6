"""Why a launch failed, read from its phase, exit status and log.

The only place where text is matched. A cause is one row of ``PATTERNS``; each was seen in a
recorded log under ``tests/unit/serving/logs/``, or, where no GPU was at hand, read in the source
of vLLM 0.32 and marked so. What matches nothing is UNKNOWN, never a guess.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tuner.trial import Failed, FailureKind, Phase

# vLLM's argument parser, like any argparse, exits with 2; everything else exits with 1.
PARSER_EXIT_CODE = 2
# Long enough for a chain of three tracebacks, short enough to read after every failure.
_TAIL_BYTES = 400_000
_MAX_EVIDENCE_CHARS = 500


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """A line of a log that proves a cause.

    Attributes:
        kind: The cause.
        text: Regular expression; a group called ``parameter`` names the argument to blame.
        parameter: The argument to blame where the text does not name it.
        is_deterministic: The same configuration would fail again.
        advice: What to do, for people.
    """

    kind: FailureKind
    text: re.Pattern[str]
    parameter: str | None = None
    is_deterministic: bool = True
    advice: str


def _pattern(
    kind: FailureKind,
    text: str,
    advice: str,
    *,
    parameter: str | None = None,
    is_deterministic: bool = True,
) -> Pattern:
    return Pattern(
        kind=kind,
        text=re.compile(text),
        parameter=parameter,
        is_deterministic=is_deterministic,
        advice=advice,
    )


_REFUSED = FailureKind.CONFIG_REFUSED
_UNSUPPORTED = FailureKind.UNSUPPORTED
_MEMORY = FailureKind.OUT_OF_MEMORY
_MODEL = FailureKind.MODEL_UNAVAILABLE

# In order: a cause stands before what follows from it.
PATTERNS: tuple[Pattern, ...] = (
    _pattern(
        _REFUSED,
        r"vllm-?\w*: error: (?:argument --(?P<parameter>[\w-]+).*|unrecognized arguments: "
        r"--(?P<unknown>[\w-]+).*|.*)",
        "this vLLM does not take the argument or its value",
    ),
    _pattern(
        _MEMORY,
        # kvspace-huge.log
        r"Available memory on node .* is less than requested memory for kv",
        "lower the KV cache space or free memory",
        parameter="kv_cache_memory_bytes",
    ),
    _pattern(
        _MEMORY,
        # vllm/v1/worker/utils.py: another process holds the memory, which is not this
        # configuration's fault.
        r"Free memory on device .* is less than (?:desired|the engine's)",
        "another process holds GPU memory: free it",
        parameter="gpu_memory_utilization",
        is_deterministic=False,
    ),
    _pattern(
        _MEMORY,
        # vllm/v1/core/kv_cache_utils.py
        r"No available memory for the cache blocks|KV cache is needed, which is larger than",
        "use more GPUs, a smaller precision or a shorter max_model_len",
        parameter="max_model_len",
    ),
    _pattern(
        _MEMORY,
        # torch's message, and what the kernel writes where memory runs out on a CPU.
        r"OutOfMemoryError|CUDA out of memory|DefaultCPUAllocator: can't allocate memory",
        "use more GPUs, a smaller precision, or fewer max_num_seqs or max_num_batched_tokens",
    ),
    _pattern(
        _MODEL,
        # nomodel.log, and a hub id that cannot be had
        r"HFValidationError: .*|RepositoryNotFoundError.*|GatedRepoError.*|"
        r"OSError: .* is not a local folder and is not a valid model.*|"
        r"LocalEntryNotFoundError.*|OfflineModeIsEnabled.*",
        "check the model's name or path and the access to it",
    ),
    _pattern(
        _MODEL,
        # model-corrupt.log
        r"SafetensorError: .*",
        "a weights file is damaged: fetch or write it again",
    ),
    _pattern(
        _UNSUPPORTED,
        # q-fp8pt.log
        r"RuntimeError: _C::static_scaled_fp8_quant\(\) .*",
        "this hardware has no fp8",
        parameter="quantization",
    ),
    _pattern(
        _UNSUPPORTED,
        # kvoffload.log
        r".*is currently only supported on CUDA-alike.*",
        "this hardware does not have the feature",
    ),
    _pattern(
        _UNSUPPORTED,
        # spec-suffix.log
        r"ImportError: .* is required for (?:suffix decoding).*",
        "install the package, or leave the method out",
        parameter="speculative_config",
    ),
    _pattern(
        _REFUSED,
        # block-size-16.log
        r"ValueError: No common block size for .*",
        "choose a block_size that the attention backend has",
        parameter="block_size",
    ),
    _pattern(
        _REFUSED,
        # attn-bogus.log
        r"ValueError: Unknown attention backend: .*",
        "choose a backend that this vLLM has",
        parameter="attention_backend",
    ),
    _pattern(
        _REFUSED,
        # mbt8-seqs16.log, mbt512-nochunk.log
        r"Value error, max_num_batched_tokens \(\d+\) (?:must be|is smaller).*",
        "raise max_num_batched_tokens or lower what it must cover",
        parameter="max_num_batched_tokens",
    ),
    _pattern(
        _REFUSED,
        # mml-big.log
        r"Value error, User-specified max_model_len .*",
        "lower max_model_len",
        parameter="max_model_len",
    ),
    _pattern(
        _REFUSED,
        # q-awq.log, q-bogus.log
        r"Value error, (?:Unknown quantization method: .*|Cannot find the config file for .*)",
        "choose a quantization that fits the checkpoint",
        parameter="quantization",
    ),
    _pattern(
        _REFUSED,
        # tp4.log
        r"Value error, Total number of attention heads .* tensor parallel size .*",
        "choose a size that divides the heads",
        parameter="tensor_parallel_size",
    ),
    _pattern(
        _REFUSED,
        # spec-ngram0.log
        r"\d+ validation errors? for SpeculativeConfig",
        "check the speculative method and its arguments",
        parameter="speculative_config",
    ),
    _pattern(
        FailureKind.PORT,
        r"OSError: \[Errno 98\].*",
        "the address is in use",
        is_deterministic=False,
    ),
    _pattern(
        _REFUSED,
        # Any other refusal of vLLM's configuration check.
        r"\d+ validation errors? for \w+Config",
        "vLLM's configuration check refuses it",
    ),
)

# Lines that only say that something failed elsewhere, in the order in which they are weakest.
_CONSEQUENCES = re.compile(
    r"Engine core initialization failed|WorkerProc initialization failed|"
    r"EngineDeadError|Failed core proc"
)
_ERROR_LINE = re.compile(r"^(?:\([^)]*\) )?(?:ERROR [^\]]*\] )?(?:[\w.]+(?:Error|Exception)): \S")
_PREFIX = re.compile(
    r"^\((?:APIServer|EngineCore\w*|Worker\w*)[^)]*\) (?:[A-Z]+ [\d: -]+\[[^\]]*\] ?)?"
)


def classify(
    log_file: Path, *, phase: Phase, exit_code: int | None, timed_out_s: float | None = None
) -> Failed:
    """Say why a launch failed.

    Args:
        log_file: The server's whole output; may be missing.
        phase: When it happened.
        exit_code: The leader's exit status, negative for a signal; ``None`` while it lives.
        timed_out_s: The deadline that passed, for a server that never got ready.

    Returns:
        The failure, with the line of the log that proves it. UNKNOWN where nothing does.
    """
    lines = _tail(log_file)
    for pattern in PATTERNS:
        for line in lines:
            match = pattern.text.search(line)
            if match:
                return _failed(pattern, match, line, phase=phase, exit_code=exit_code)
    evidence = _last_error(lines)
    said = f": {evidence[:200]}" if evidence else ""
    if timed_out_s is not None:
        return Failed(
            kind=FailureKind.START_TIMEOUT,
            phase=phase,
            message=f"no token within {timed_out_s:.0f} s: raise launch.ready_deadline_s if it "
            "was still loading",
            evidence=evidence,
            exit_code=exit_code,
        )
    if phase is Phase.MEASURE:
        return Failed(
            kind=FailureKind.ENGINE_DIED,
            phase=phase,
            message=f"the server died while it was measured ({_ended(exit_code)}){said}. "
            f"Its log is {log_file}",
            evidence=evidence,
            exit_code=exit_code,
        )
    return Failed(
        kind=_REFUSED if exit_code == PARSER_EXIT_CODE else FailureKind.UNKNOWN,
        phase=phase,
        message=f"the server ended before it was ready ({_ended(exit_code)}){said}. "
        f"Its log is {log_file}",
        evidence=evidence,
        # A signal comes from outside; an exit of its own would come again.
        is_deterministic=exit_code is not None and exit_code > 0,
        exit_code=exit_code,
    )


def _failed(
    pattern: Pattern, match: re.Match[str], line: str, *, phase: Phase, exit_code: int | None
) -> Failed:
    groups = match.groupdict()
    named = groups.get("parameter") or groups.get("unknown")
    evidence = _PREFIX.sub("", line).strip()
    return Failed(
        kind=pattern.kind,
        phase=phase,
        message=f"{pattern.advice}: {evidence[:200]}",
        evidence=evidence[:_MAX_EVIDENCE_CHARS],
        is_deterministic=pattern.is_deterministic,
        parameter=named.replace("-", "_") if named else pattern.parameter,
        exit_code=exit_code,
    )


def _tail(log_file: Path) -> list[str]:
    try:
        with log_file.open("rb") as log:
            size = log.seek(0, 2)
            log.seek(max(0, size - _TAIL_BYTES))
            return log.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _last_error(lines: list[str]) -> str | None:
    """The last line that names an error and is not a mere consequence; else the last line."""
    for line in reversed(lines):
        bare = _PREFIX.sub("", line).strip()
        if _ERROR_LINE.search(bare) and not _CONSEQUENCES.search(bare):
            return bare[:_MAX_EVIDENCE_CHARS]
    said = [line.strip() for line in lines if line.strip()]
    return said[-1][:_MAX_EVIDENCE_CHARS] if said else None


def _ended(exit_code: int | None) -> str:
    if exit_code is None:
        return "it still runs"
    return f"signal {-exit_code}" if exit_code < 0 else f"exit status {exit_code}"
