"""GPU figures of a window, with a driver that is made up."""

import time
from types import SimpleNamespace

import pynvml
import pytest

from tuner.serving.gpu_stats import GpuReading, GpuWatch, gpu_metrics, visible_gpus

ABSENT = {
    "gpu_util_mean_frac": None,
    "gpu_memory_max_frac": None,
    "gpu_power_mean_w": None,
    "gpu_energy_j": None,
}


def reading(
    at_s: float,
    util_frac: float | None = None,
    memory_frac: float | None = None,
    power_w: float | None = None,
    energy_j: float | None = None,
) -> GpuReading:
    return GpuReading(
        at_s=at_s,
        util_frac=util_frac,
        memory_frac=memory_frac,
        power_w=power_w,
        energy_j=energy_j,
    )


# Of the window [1, 3], the readings at 1.5 and 2.5 s.
FIRST = [
    reading(0.5, 0.0, 0.99, 100.0, 1000.0),
    reading(1.5, 0.5, 0.5, 300.0, 1200.0),
    reading(2.5, 1.0, 0.6, 500.0, 1600.0),
    reading(3.5, 0.0, 0.1, 100.0, 2000.0),
]
SECOND = [
    reading(0.5, 0.0, 0.0, 50.0, 0.0),
    reading(1.5, 0.25, 0.7, 100.0, 80.0),
    reading(2.5, 0.25, 0.7, 200.0, 280.0),
    reading(3.5, 0.0, 0.0, 50.0, 300.0),
]


def test_one_gpu_is_averaged_over_the_window() -> None:
    assert gpu_metrics([FIRST], 1.0, 3.0) == pytest.approx(
        {
            "gpu_util_mean_frac": (0.5 + 1.0) / 2,
            "gpu_memory_max_frac": 0.6,
            "gpu_power_mean_w": (300 + 500) / 2,
            # At 1 s between 1000 and 1200 J, at 3 s between 1600 and 2000 J.
            "gpu_energy_j": 1800.0 - 1100.0,
        }
    )


def test_gpus_share_the_utilisation_and_add_up_their_power() -> None:
    assert gpu_metrics([FIRST, SECOND], 1.0, 3.0) == pytest.approx(
        {
            "gpu_util_mean_frac": (0.75 + 0.25) / 2,
            "gpu_memory_max_frac": 0.7,
            "gpu_power_mean_w": 400.0 + 150.0,
            # The second GPU: at 1 s 40 J, at 3 s 290 J.
            "gpu_energy_j": 700.0 + 250.0,
        }
    )


def test_energy_at_a_constant_power_is_power_times_time_wherever_the_window_lies() -> None:
    readings = [reading(float(at_s), energy_j=250.0 * at_s) for at_s in range(10)]
    for start_s, end_s in ((0.0, 9.0), (3.3, 4.1), (2.2, 2.7), (5.0, 5.0)):
        energy_j = gpu_metrics([readings], start_s, end_s)["gpu_energy_j"]
        assert energy_j == pytest.approx(250.0 * (end_s - start_s))


@pytest.mark.parametrize(("start_s", "end_s"), [(0.4, 3.0), (1.0, 3.6)])
def test_energy_is_absent_without_readings_on_both_sides(start_s: float, end_s: float) -> None:
    metrics = gpu_metrics([FIRST], start_s, end_s)
    assert metrics["gpu_energy_j"] is None
    assert metrics["gpu_power_mean_w"] is not None


def test_energy_is_absent_if_its_counter_fell() -> None:
    readings = [reading(at_s, energy_j=j) for at_s, j in ((0.0, 9.0), (1.0, 1.0), (2.0, 99.0))]
    assert gpu_metrics([readings], 0.5, 1.5) == ABSENT


def test_what_one_gpu_never_says_is_absent_for_all() -> None:
    silent = [reading(r.at_s, memory_frac=r.memory_frac) for r in SECOND]
    assert gpu_metrics([FIRST, silent], 1.0, 3.0) == ABSENT | {"gpu_memory_max_frac": 0.7}


def test_a_single_missing_answer_is_left_out_of_the_mean() -> None:
    readings = [reading(1.0, 0.2), reading(2.0), reading(3.0, 0.6)]
    assert gpu_metrics([readings], 0.0, 4.0) == ABSENT | {"gpu_util_mean_frac": 0.4}


@pytest.mark.parametrize("gpus", [[], [[]], [FIRST, []]])
def test_without_readings_everything_is_absent(gpus: list[list[GpuReading]]) -> None:
    assert gpu_metrics(gpus, 1.0, 3.0) == ABSENT


def test_no_reading_in_the_window_is_not_zero() -> None:
    metrics = gpu_metrics([FIRST], 1.6, 2.4)
    energy_j = metrics.pop("gpu_energy_j")
    assert set(metrics.values()) == {None}
    assert energy_j == pytest.approx(0.8 * 400)


class FakeNvml:
    """A driver with two GPUs; each look costs 2 J. Functions named in ``unsupported`` fail."""

    class NVMLError(Exception):
        pass

    def __init__(self, *unsupported: str) -> None:
        self._unsupported = unsupported
        self._millijoules = {"GPU-a": 5_000, "GPU-b": 9_000}
        self.n_open = 0
        self.n_looks = 0

    def _check(self, name: str) -> None:
        if name in self._unsupported:
            raise self.NVMLError(name)

    def nvmlInit(self) -> None:  # noqa: N802 - NVML's name
        self._check("nvmlInit")
        self.n_open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802 - NVML's name
        self.n_open -= 1
        self._check("nvmlShutdown")

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802 - NVML's name
        assert type(index) is int
        return self.nvmlDeviceGetHandleByUUID(("GPU-a", "GPU-b", "none")[index])

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - NVML's name
        if uuid not in self._millijoules:
            raise self.NVMLError(uuid)
        return uuid

    def nvmlDeviceGetUtilizationRates(self, handle: str) -> SimpleNamespace:  # noqa: N802
        self._check("utilisation")
        self.n_looks += 1
        return SimpleNamespace(gpu={"GPU-a": 80, "GPU-b": 40}[handle], memory=7)

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        self._check("memory")
        return SimpleNamespace(used={"GPU-a": 20, "GPU-b": 60}[handle] << 30, total=80 << 30)

    def nvmlDeviceGetPowerUsage(self, handle: str) -> int:  # noqa: N802 - NVML's name
        self._check("power")
        return {"GPU-a": 350_500, "GPU-b": 120_000}[handle]

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: str) -> int:  # noqa: N802
        self._check("energy")
        self._millijoules[handle] += 2_000
        return self._millijoules[handle]


def watched(nvml: object, *gpus: int | str) -> dict[str, float | None]:
    """All that was seen in a watch with a look at the start and one at the end."""
    start_s = time.perf_counter()
    with GpuWatch(gpus, interval_s=60.0, nvml=nvml) as watch:
        inside_s = time.perf_counter()
    end_s = time.perf_counter()
    # Energy needs looks around the window, the others looks inside it.
    energy_j = watch.metrics(inside_s, inside_s)["gpu_energy_j"]
    return watch.metrics(start_s, end_s) | {"gpu_energy_j": energy_j}


@pytest.mark.parametrize("gpus", [(0, 1), ("0", "1"), ("GPU-a", "GPU-b"), ("GPU-b", 0)])
def test_gpus_are_found_by_index_or_uuid(gpus: tuple[int | str, ...]) -> None:
    nvml = FakeNvml()
    assert watched(nvml, *gpus) == pytest.approx(
        {
            "gpu_util_mean_frac": 0.6,
            "gpu_memory_max_frac": 0.75,
            "gpu_power_mean_w": 470.5,
            "gpu_energy_j": 0.0,
        }
    )
    assert nvml.n_open == 0


def test_energy_is_counted_from_look_to_look() -> None:
    with GpuWatch([1], interval_s=60.0, nvml=FakeNvml()) as watch:
        pass
    first, last = watch._readings[0]
    assert first.at_s < last.at_s
    assert watch.metrics(first.at_s, last.at_s)["gpu_energy_j"] == pytest.approx(2.0)


def test_it_goes_on_looking_and_stops() -> None:
    nvml = FakeNvml()
    with GpuWatch([0], interval_s=0.001, nvml=nvml):
        deadline_s = time.monotonic() + 20
        while nvml.n_looks < 4:
            assert time.monotonic() < deadline_s
            time.sleep(0.001)
    n_looks = nvml.n_looks
    time.sleep(0.02)
    assert nvml.n_looks == n_looks


@pytest.mark.parametrize(
    ("unsupported", "missing"),
    [
        ("utilisation", "gpu_util_mean_frac"),
        ("memory", "gpu_memory_max_frac"),
        ("power", "gpu_power_mean_w"),
        ("energy", "gpu_energy_j"),
    ],
)
def test_what_the_driver_does_not_support_is_absent_and_the_rest_is_not(
    unsupported: str, missing: str
) -> None:
    metrics = watched(FakeNvml(unsupported), 0)
    assert {name for name, value in metrics.items() if value is None} == {missing}


def test_without_a_driver_everything_is_absent() -> None:
    assert watched(FakeNvml("nvmlInit"), 0) == ABSENT


@pytest.mark.parametrize("gpus", [(), (2,), ("GPU-c",), ("GPU-a", "MIG-c")])
def test_if_one_gpu_is_not_found_everything_is_absent(gpus: tuple[int | str, ...]) -> None:
    nvml = FakeNvml()
    assert watched(nvml, *gpus) == ABSENT
    assert nvml.n_open == 0
    assert nvml.n_looks == 0


def test_a_driver_that_does_not_shut_down_raises_nothing() -> None:
    assert watched(FakeNvml("nvmlShutdown"), 0)["gpu_util_mean_frac"] == 0.8


def test_the_driver_is_let_go_after_an_error() -> None:
    nvml = FakeNvml()

    def fail() -> None:
        raise KeyError("ours")

    with pytest.raises(KeyError), GpuWatch([0], nvml=nvml):
        fail()
    assert nvml.n_open == 0


def test_the_real_module_has_every_name_that_the_fake_has() -> None:
    names = [name for name in vars(FakeNvml) if name.lower().startswith("nvml")]
    assert names
    assert all(callable(getattr(pynvml, name)) for name in names)


def test_the_real_module_raises_nothing_on_a_machine_without_a_driver(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", refuse)
    assert watched(pynvml, 0, 1) == ABSENT


@pytest.mark.parametrize(
    ("shown", "n_gpus", "expected"),
    [
        (None, 2, ["0", "1"]),
        ("3,1,0", 2, ["3", "1"]),
        ("GPU-aa, GPU-bb", 1, ["GPU-aa"]),
        ("", 1, []),
        ("2", 0, []),
    ],
)
def test_a_launch_takes_the_first_gpus_that_it_is_shown(
    monkeypatch: pytest.MonkeyPatch, shown: str | None, n_gpus: int, expected: list[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    env = {} if shown is None else {"CUDA_VISIBLE_DEVICES": shown}
    assert visible_gpus(env, n_gpus) == expected
