"""How busy the GPUs were during a level, asked of the driver through NVML.

Owns the samples and what is made of them. Works without a GPU, a driver or a right to ask: then
every metric is ``None``.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import numpy as np
import pynvml  # type: ignore[import-untyped]

from tuner.serving.scrape import Looks


@dataclass(frozen=True, kw_only=True)
class GpuReading:
    """One GPU at one moment; ``None`` for what the driver does not say, as of a MIG instance.

    Attributes:
        at_s: When, by the clock that windows are given in.
        util_frac: Share of the last sampling period in which any kernel ran.
        memory_frac: Share of its memory in use, by whomever.
        power_w: Power now, or over the last second on newer GPUs.
        energy_j: Energy since the driver was loaded.
    """

    at_s: float
    util_frac: float | None
    memory_frac: float | None
    power_w: float | None
    energy_j: float | None


def gpu_metrics(
    gpus: Sequence[Sequence[GpuReading]], start_s: float, end_s: float
) -> dict[str, float | None]:
    """The GPUs' metrics of a window.

    Args:
        gpus: For each GPU of the launch its readings, in order of time.
        start_s: When the window opened.
        end_s: When it closed.

    Returns:
        ``gpu_util_mean_frac``, the mean over GPUs; ``gpu_memory_max_frac``, of the fullest one at
        its fullest; ``gpu_power_mean_w`` and ``gpu_energy_j`` of all GPUs together. Each ``None``
        unless every GPU says it. The first three are of the readings inside the window. Energy is
        interpolated at its edges, since a second more or less would be a large share of a short
        window; it is ``None`` without readings on both sides or if a counter fell.
    """
    inside = [[r for r in readings if start_s <= r.at_s <= end_s] for readings in gpus]
    utils = _of_every([_mean([r.util_frac for r in readings]) for readings in inside])
    memories = _of_every([_largest([r.memory_frac for r in readings]) for readings in inside])
    powers = _of_every([_mean([r.power_w for r in readings]) for readings in inside])
    energies = _of_every([_energy_j(readings, start_s, end_s) for readings in gpus])
    return {
        "gpu_util_mean_frac": sum(utils) / len(utils) if utils else None,
        "gpu_memory_max_frac": max(memories, default=None),
        "gpu_power_mean_w": sum(powers) if powers else None,
        "gpu_energy_j": sum(energies) if energies else None,
    }


class GpuWatch:
    """Samples GPUs from its beginning to its end, in a thread.

    Args:
        gpus: NVML indices (``0`` or ``"0"``) or whole UUIDs (``"GPU-..."``, ``"MIG-..."``) of the
            launch's GPUs. NVML counts in the order of the PCI bus. CUDA does so only with
            ``CUDA_DEVICE_ORDER=PCI_BUS_ID``: without it, where the GPUs differ, entries of
            ``CUDA_VISIBLE_DEVICES`` may mean others, so give UUIDs there.
        interval_s: Between samples.
        nvml: The module ``pynvml``, or one like it.
    """

    def __init__(
        self,
        gpus: Sequence[int | str],
        *,
        interval_s: float = 1.0,
        nvml: Any = pynvml,  # noqa: ANN401 - a module is its own type
    ) -> None:
        self._gpus = tuple(gpus)
        self._nvml = nvml
        self._handles: list[Any] = []
        self._readings: list[list[GpuReading]] = []
        self._looks = Looks(self._look, interval_s)

    def __enter__(self) -> Self:
        """Find the GPUs and take the first sample."""
        self._handles = self._open()
        self._readings = [[] for _ in self._handles]
        if self._handles:
            self._looks.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take the last sample and let the driver go."""
        if self._handles:
            self._looks.stop()
            self._shut()

    def metrics(self, start_s: float, end_s: float) -> dict[str, float | None]:
        """The metrics of a window; call it after the end.

        Args:
            start_s: When the window opened, by ``time.perf_counter()``.
            end_s: When it closed.

        Returns:
            As ``gpu_metrics``; all ``None`` if a GPU could not be found.
        """
        return gpu_metrics(self._readings, start_s, end_s)

    def _open(self) -> list[Any]:
        """Handles of all GPUs, or none at all: figures of some would pass for those of all."""
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError:
            return []
        try:
            handles = [self._handle(gpu) for gpu in self._gpus]
        except self._nvml.NVMLError:
            handles = []
        if not handles:
            self._shut()
        return handles

    def _handle(self, gpu: int | str) -> Any:  # noqa: ANN401 - NVML's own pointer
        if isinstance(gpu, int) or gpu.isdecimal():
            return self._nvml.nvmlDeviceGetHandleByIndex(int(gpu))
        return self._nvml.nvmlDeviceGetHandleByUUID(gpu)

    def _shut(self) -> None:
        with contextlib.suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _look(self) -> None:
        for handle, readings in zip(self._handles, self._readings, strict=True):
            readings.append(self._read(handle))

    def _read(self, handle: Any) -> GpuReading:  # noqa: ANN401 - NVML's own pointer
        nvml = self._nvml
        memory = self._ask(lambda: nvml.nvmlDeviceGetMemoryInfo(handle))
        milliwatts = self._ask(lambda: nvml.nvmlDeviceGetPowerUsage(handle))
        millijoules = self._ask(lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(handle))
        utilisation = self._ask(lambda: nvml.nvmlDeviceGetUtilizationRates(handle))
        return GpuReading(
            at_s=time.perf_counter(),
            util_frac=None if utilisation is None else utilisation.gpu / 100,
            memory_frac=memory.used / memory.total if memory and memory.total else None,
            power_w=None if milliwatts is None else milliwatts / 1000,
            energy_j=None if millijoules is None else millijoules / 1000,
        )

    def _ask(self, question: Callable[[], Any]) -> Any | None:  # noqa: ANN401 - as NVML answers
        try:
            return question()
        except self._nvml.NVMLError:
            return None


def _of_every(values: Sequence[float | None]) -> list[float]:
    """The values, or none of them if one is missing."""
    known = [value for value in values if value is not None]
    return known if len(known) == len(values) else []


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def _largest(values: Sequence[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _energy_j(readings: Sequence[GpuReading], start_s: float, end_s: float) -> float | None:
    known = [(r.at_s, r.energy_j) for r in readings if r.energy_j is not None]
    if not known or known[0][0] > start_s or known[-1][0] < end_s:
        return None
    moments_s, energies_j = zip(*known, strict=True)
    if np.any(np.diff(energies_j) < 0):
        return None
    first_j, last_j = np.interp([start_s, end_s], moments_s, energies_j)
    return float(last_j - first_j)


def visible_gpus(env: Mapping[str, str], n_gpus: int) -> list[str]:
    """The GPUs that a launch takes: the first of those that its environment shows it.

    Args:
        env: What the study sets for the server, before what it inherits.
        n_gpus: How many it takes; 0 on a CPU.

    Returns:
        Indices or UUIDs as ``CUDA_VISIBLE_DEVICES`` names them. Indices count in NVML's order,
        which is CUDA's where all GPUs are alike.
    """
    shown = env.get("CUDA_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    names = [str(index) for index in range(n_gpus)]
    if shown is not None:
        names = [name.strip() for name in shown.split(",") if name.strip()]
    return names[:n_gpus]
