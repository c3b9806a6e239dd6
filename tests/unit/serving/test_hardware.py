"""GPUs as the driver names them."""

import os
import stat
from pathlib import Path

import pytest

from tuner.serving import hardware
from tuner.serving.hardware import Gpu, Hardware, detect_hardware, parse_gpus, query_gpus

TWO_H100 = """\
0, NVIDIA H100 80GB HBM3, 81559, 1, 550.54.15
1, NVIDIA H100 80GB HBM3, 81559, 70123, 550.54.15
"""


def fake_nvidia_smi(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def test_each_line_of_the_driver_is_a_gpu() -> None:
    first, second = parse_gpus(TWO_H100)
    assert first == Gpu(
        index=0, name="NVIDIA H100 80GB HBM3", memory_mib=81559, used_mib=1, driver="550.54.15"
    )
    assert (second.index, second.used_mib) == (1, 70123)


def test_memory_that_the_driver_does_not_say_is_absent_not_zero() -> None:
    (gpu,) = parse_gpus("0, NVIDIA GB10, [N/A], [N/A], 580.95.05\n")
    assert (gpu.memory_mib, gpu.used_mib) == (None, None)
    assert (gpu.name, gpu.driver) == ("NVIDIA GB10", "580.95.05")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "No devices were found\n",
        "Failed to initialize NVML: Driver/library version mismatch\n",
        "0, NVIDIA H100 80GB HBM3, 81559\n",
    ],
)
def test_lines_of_another_form_are_no_gpus(text: str) -> None:
    assert parse_gpus(text) == []


def test_the_driver_is_asked_through_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvidia_smi(tmp_path, f"printf '{TWO_H100}'", monkeypatch)
    assert [gpu.index for gpu in query_gpus()] == [0, 1]


def test_a_driver_that_fails_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, f"printf '{TWO_H100}'; exit 9", monkeypatch)
    assert query_gpus() == []


def test_no_driver_means_no_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert query_gpus() == []


def test_the_machine_is_described_in_one_line() -> None:
    machine = Hardware(
        gpus=tuple(parse_gpus(TWO_H100)), n_cpus=64, memory_gib=503.6, cpu_name="AMD EPYC 9354"
    )
    assert machine.describe() == "2 x NVIDIA H100 80GB HBM3, 64 CPUs (AMD EPYC 9354), 504 GiB"


def test_a_machine_without_a_gpu_says_so() -> None:
    machine = Hardware(gpus=(), n_cpus=2, memory_gib=24.0, cpu_name="x")
    assert machine.describe() == "no NVIDIA GPU, 2 CPUs (x), 24 GiB"


def test_cpus_are_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "query_gpus", list)
    assert detect_hardware().n_cpus == len(os.sched_getaffinity(0))
