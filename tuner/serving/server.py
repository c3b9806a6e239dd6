"""One vLLM server: started, proven to be ours and ready, and ended whole.

Owns the life of a launch's processes. What is asked of the server in between is not its business.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tuner.serving.failures import classify
from tuner.serving.gpu_memory import GpuMemoryWatch
from tuner.serving.http import generates_a_token, served_model
from tuner.serving.ownership import OwnershipRecord
from tuner.serving.process import ProcessGroup, identify, members, spawn, stop_group
from tuner.serving.shared_memory import remove_segments, segments_of
from tuner.serving.sockets import is_listened_on, listening_ports
from tuner.serving.stages import LAST_STAGE, StageReader
from tuner.trial import MEASURING_FLAGS, Failed, FailureKind, Phase

_POLL_S = 0.25
# vLLM 0.32 ends in 0.3 to 1.4 s on a CPU; on a GPU it also frees its memory.
_GRACE_S = 20.0


@dataclass(frozen=True, kw_only=True)
class ServerSpec:
    """What to start.

    Attributes:
        launch_id: Unique; becomes the served model name, so that no other server can answer for
            this one.
        command: The words before the model, e.g. ``(".../vllm", "serve")``.
        model: Model id or path.
        arguments: Words after the model, without host, port and served name.
        env: Set on top of this process's environment.
        log_file: Gets all output; its folder must exist.
        owned_dir: Where the ownership record is kept meanwhile.
        ready_deadline_s: Seconds to the first generated token.
    """

    launch_id: str
    command: tuple[str, ...]
    model: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    log_file: Path
    owned_dir: Path
    ready_deadline_s: float

    @property
    def full_command(self) -> tuple[str, ...]:
        """Every word, as it is run. Port 0 lets the kernel choose: see ``sockets``."""
        host, port, name = MEASURING_FLAGS
        own = (host, "127.0.0.1", port, "0", name, self.launch_id)
        return (*self.command, self.model, *self.arguments, *own)


class VllmServer:
    """A server as a context manager: on leaving it, nothing of it is left.

    Args:
        spec: What to start.
        is_cancelled: Asked a few times a second while starting.

    Attributes:
        start_s: Seconds from start to the first token; ``None`` before.
        teardown_problem: What could not be freed; ``None`` if all was. Set on leaving.
    """

    def __init__(self, spec: ServerSpec, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        self.spec = spec
        self.start_s: float | None = None
        self.teardown_problem: str | None = None
        self._is_cancelled = is_cancelled
        self._child: subprocess.Popen[bytes] | None = None
        self._group: ProcessGroup | None = None
        self._port: int | None = None
        self._record = OwnershipRecord(spec.owned_dir, spec.launch_id, spec.log_file)
        self._segments: set[str] = set()
        self._gpu_memory = GpuMemoryWatch()

    @property
    def base_url(self) -> str:
        """Where the server answers; only once it is ready."""
        if self._port is None:
            raise RuntimeError("the server has no port yet: start() did not succeed")
        return f"http://127.0.0.1:{self._port}"

    @property
    def log_file(self) -> Path:
        """The server's log."""
        return self.spec.log_file

    def __enter__(self) -> Self:
        """Nothing is started yet: see ``start``."""
        return self

    def start(self, on_stage: Callable[[str, float], None] | None = None) -> Failed | None:
        """Start the server and wait for its first token.

        Args:
            on_stage: Told the stage and the seconds so far whenever the stage changes.

        Returns:
            ``None`` once it is ready, else why it is not.
        """
        started_s = time.perf_counter()
        self._gpu_memory.remember()
        self._record.write(None)
        try:
            self._child = spawn(
                self.spec.full_command,
                launch_id=self.spec.launch_id,
                env={**os.environ, **self.spec.env},
                log_file=self.spec.log_file,
            )
        except OSError as error:
            return Failed(
                kind=FailureKind.UNKNOWN,
                phase=Phase.START,
                message=f"cannot run {shlex.join(self.spec.command)}: {error}",
                is_deterministic=True,
            )
        self._group = identify(self._child, self.spec.launch_id)
        self._record.write(self._group)
        stages = StageReader(self.spec.log_file)
        if on_stage:
            on_stage(stages.stage, 0.0)
        while True:
            elapsed_s = time.perf_counter() - started_s
            if stages.update() and on_stage:
                on_stage(stages.stage, elapsed_s)
            failed = self._trouble_at_start(elapsed_s)
            if failed is not None:
                return failed
            if self._is_ready(self._group, self.spec.ready_deadline_s - elapsed_s):
                self.start_s = time.perf_counter() - started_s
                self._segments = segments_of(members(self._group))
                # It may answer before the line that says so is read.
                if on_stage and stages.stage != LAST_STAGE:
                    on_stage(LAST_STAGE, self.start_s)
                return None
            time.sleep(_POLL_S)

    def _trouble_at_start(self, elapsed_s: float) -> Failed | None:
        if self._is_cancelled():
            return Failed(
                kind=FailureKind.INTERRUPTED, phase=Phase.START, message="stopped by the operator"
            )
        exit_code = self._exit_code()
        if exit_code is not None:
            return classify(self.spec.log_file, phase=Phase.START, exit_code=exit_code)
        if elapsed_s > self.spec.ready_deadline_s:
            return classify(
                self.spec.log_file,
                phase=Phase.START,
                exit_code=None,
                timed_out_s=self.spec.ready_deadline_s,
            )
        return None

    def _is_ready(self, group: ProcessGroup, left_s: float) -> bool:
        if self._port is None:
            self._port = self._find_port(group)
        if self._port is None:
            return False
        # A first token may wait for a compilation, but Ctrl-C must not wait for it.
        timeout_s = max(0.1, min(5.0, left_s))
        return generates_a_token(self._port, self.spec.launch_id, timeout_s=timeout_s)

    def _find_port(self, group: ProcessGroup) -> int | None:
        """The port on which a process of ours answers with our name."""
        alive = sorted(members(group), key=lambda p: p.pid != group.leader_pid)
        # The leader binds the API's port; workers listen on ports of their own, which do not
        # speak HTTP. They are asked only where the leader has none.
        for some in (alive[:1], alive[1:]):
            for port in listening_ports(some):
                if served_model(port) == self.spec.launch_id:
                    return port
        return None

    def _exit_code(self) -> int | None:
        return None if self._child is None else self._child.poll()

    def is_alive(self) -> bool:
        """Whether the leader runs. An engine that died is noticed by requests, not here."""
        return self._child is not None and self._exit_code() is None

    def answers(self, *, timeout_s: float) -> bool:
        """Whether a real request still gets a token, which /health would not tell."""
        return (
            self.is_alive()
            and self._port is not None
            and generates_a_token(self._port, self.spec.launch_id, timeout_s=timeout_s)
        )

    def diagnose(self) -> Failed:
        """Why the server does not answer any more, for a launch that is being measured."""
        return classify(self.spec.log_file, phase=Phase.MEASURE, exit_code=self._exit_code())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End everything and verify it: processes, port, shared memory, GPU memory."""
        if self._group is None or self._child is None:
            self._record.remove()
            return
        # An interrupt that is not ours to swallow (a second Ctrl-C) leaves no time for grace.
        grace_s = 0.0 if kind is not None and not issubclass(kind, Exception) else _GRACE_S
        self._segments |= segments_of(members(self._group))
        left = stop_group(self._group, grace_s=grace_s, reap=self._child.poll)
        remove_segments(self._segments)
        problems = [f"processes {left} cannot be killed"] if left else []
        if self._port is not None and is_listened_on(self._port):
            problems.append(f"port {self._port} is still in use")
        problems += self._gpu_memory.wait_until_back()
        if not left:
            self._record.remove()
        self.teardown_problem = "; ".join(problems) or None
