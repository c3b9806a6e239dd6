"""What a launch can come to: ``Measured`` or ``Failed``, matched exhaustively.

Owns the values that serving, load, study and tracking hand to each other; does no I/O.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from objectives.operating_point import OperatingPoint
from search_spaces.configuration import Configuration

# Of every server, and of no use to whoever deploys what was measured.
MEASURING_FLAGS = ("--host", "--port", "--served-model-name")
# Lets the prefix cache be emptied between levels.
MEASURING_ENV = {"VLLM_SERVER_DEV_MODE": "1"}
# ./model and ../model, as a word or inside JSON.
_RELATIVE_PATH = re.compile(r"(?:^|[\"'=])\.{1,2}/")


class FailureKind(StrEnum):
    """Why a launch failed."""

    RULE_VIOLATION = "rule_violation"
    """A rule between parameters forbids it; nothing was launched."""
    CONFIG_REFUSED = "config_refused"
    """vLLM's argument parser or its configuration check refused it."""
    UNSUPPORTED = "unsupported"
    """A precision, backend or feature that this hardware or build does not have."""
    OUT_OF_MEMORY = "out_of_memory"
    """Weights, KV cache, graph capture or activations did not fit."""
    MODEL_UNAVAILABLE = "model_unavailable"
    """The model is missing, corrupt or not accessible."""
    PORT = "port"
    """The port could not be had, or another server answers on it."""
    START_TIMEOUT = "start_timeout"
    """No token within the readiness deadline."""
    ENGINE_DIED = "engine_died"
    """The server died or hung while it was measured."""
    WRONG_OUTPUT = "wrong_output"
    """The server answers, but not with what was asked for."""
    TEARDOWN = "teardown"
    """A process or port of the launch could not be freed."""
    INTERRUPTED = "interrupted"
    """The operator stopped the study."""
    UNKNOWN = "unknown"
    """None of the known causes; the evidence is the end of the log."""


class Phase(StrEnum):
    """Where in its life a launch failed."""

    PLAN = "plan"
    START = "start"
    MEASURE = "measure"
    TEARDOWN = "teardown"


@dataclass(frozen=True, kw_only=True)
class Failed:
    """A launch that gave no full answer.

    Attributes:
        kind: The cause.
        phase: When it happened.
        message: One line for people: what, and what to do if that is known.
        evidence: The log line that proves it; ``None`` where there is none.
        is_deterministic: The same configuration would fail again.
        parameter: The parameter to blame where vLLM says so.
        exit_code: The server's exit status; ``None`` if it had not exited. Negative: signal.
        points: Operating points that were finished before the failure.
    """

    kind: FailureKind
    phase: Phase
    message: str
    evidence: str | None = None
    is_deterministic: bool = False
    parameter: str | None = None
    exit_code: int | None = None
    points: tuple[OperatingPoint, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A launch that was measured as planned.

    Attributes:
        points: Operating points in the order measured; at least one.
        start_s: Seconds from start to the first real token.
    """

    points: tuple[OperatingPoint, ...]
    start_s: float


Outcome = Measured | Failed


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One server start of a study, as the study remembers it.

    Attributes:
        number: The trial's number in the study, from 0.
        configuration: The proposed parameter values, active ones only.
        command: The whole command, first word included, as it was run; empty if nothing was.
        env: What was set in its environment, secrets left out, beside what it inherited.
        folder: Where it was run; ``None`` if nothing was.
        points: Operating points in the order measured, those before a failure included.
        failure: Why it gave no full answer; ``None`` for a launch measured as planned, and for
            one that is still open.
        is_open: Neither measured to the end nor failed yet.
        origin: Who proposed it: ``default`` (vLLM's own values), ``sampler`` or ``retry``.
        duplicate_of: Number of the launch that had measured the same configuration before, so
            that nothing was started; ``None`` otherwise.
        start_s: Seconds from start to the first real token; ``None`` if it never came.
        duration_s: Seconds from proposal to verified teardown; ``None`` while open.
    """

    number: int
    configuration: Configuration
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
    points: tuple[OperatingPoint, ...] = ()
    failure: Failed | None = None
    is_open: bool = False
    origin: str = "sampler"
    duplicate_of: int | None = None
    start_s: float | None = None
    duration_s: float | None = None

    @property
    def was_started(self) -> bool:
        """Whether a server was started for it: it cost a launch."""
        return bool(self.command)

    @property
    def was_interrupted(self) -> bool:
        """Whether it ended because the operator or a kill ended it, which a resume makes good."""
        return self.failure is not None and self.failure.kind is FailureKind.INTERRUPTED

    def shell_line(self, *, is_as_run: bool = True) -> str:
        """The server's start as a line for a shell: folder, environment and command.

        Args:
            is_as_run: Every word as it was run; False leaves out what only the measurement
                needs: loopback, the port chosen by the kernel, the name of the launch and the
                developer mode in which the prefix cache can be emptied.

        Returns:
            The line; it changes the folder only if the command has relative paths.
        """
        words = list(self.command)
        if not is_as_run:
            for flag in MEASURING_FLAGS:
                if flag in words:
                    at = words.index(flag)
                    del words[at : at + 2]
        env = [
            f"{name}={value}"
            for name, value in sorted(self.env.items())
            if is_as_run or name not in MEASURING_ENV
        ]
        line = shlex.join(["env", *env, *words] if env else words)
        is_relative = any(_RELATIVE_PATH.search(word) for word in words)
        return f"cd {shlex.quote(self.folder)} && {line}" if self.folder and is_relative else line
