"""What hardware is here, asked of the driver, without importing torch."""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from dataclasses import dataclass

import psutil

_QUERY = "index,name,memory.total,memory.used,driver_version"
_N_FIELDS = 5


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU as the driver sees it; ``None`` where the driver does not say."""

    index: int
    name: str
    memory_mib: int | None
    used_mib: int | None
    driver: str


@dataclass(frozen=True, kw_only=True)
class Hardware:
    """The machine.

    Attributes:
        gpus: NVIDIA GPUs; empty where there is no driver.
        n_cpus: Logical CPUs that this process may use.
        memory_gib: Main memory.
        cpu_name: As the kernel names it.
    """

    gpus: tuple[Gpu, ...]
    n_cpus: int
    memory_gib: float
    cpu_name: str

    def describe(self) -> str:
        """The machine in one line."""
        cpu = f"{self.n_cpus} CPUs ({self.cpu_name}), {self.memory_gib:.0f} GiB"
        if not self.gpus:
            return f"no NVIDIA GPU, {cpu}"
        return f"{len(self.gpus)} x {self.gpus[0].name}, {cpu}"


def detect_hardware() -> Hardware:
    """Look at this machine."""
    return Hardware(
        gpus=tuple(query_gpus()),
        n_cpus=len(os.sched_getaffinity(0)),
        memory_gib=psutil.virtual_memory().total / 2**30,
        cpu_name=_cpu_name(),
    )


def query_gpus() -> list[Gpu]:
    """GPUs by ``nvidia-smi``; empty where it is missing or finds none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    try:
        answer = subprocess.run(
            [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"],
            check=False,
            capture_output=True,
            text=True,
            timeout=30,
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return parse_gpus(answer.stdout) if answer.returncode == 0 else []


def parse_gpus(text: str) -> list[Gpu]:
    """GPUs from the CSV of ``nvidia-smi``; lines of another form are passed over."""
    gpus = []
    for row in csv.reader(text.splitlines(), skipinitialspace=True):
        if len(row) != _N_FIELDS or not row[0].isdigit():
            continue
        index, name, total, used, driver = row
        gpus.append(
            Gpu(
                index=int(index),
                name=name,
                memory_mib=int(total) if total.isdigit() else None,
                used_mib=int(used) if used.isdigit() else None,
                driver=driver,
            )
        )
    return gpus


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123 - streamed
            for line in lines:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return "unknown CPU"
