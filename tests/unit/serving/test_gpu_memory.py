"""Whether GPUs give back what a launch used."""

from collections.abc import Callable

import pytest

from tuner.serving import gpu_memory
from tuner.serving.gpu_memory import GpuMemoryWatch
from tuner.serving.hardware import Gpu


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


class Driver:
    """Answers with the next state, and with the last one for ever."""

    def __init__(self, *states: list[int | None]) -> None:
        self._states = list(states)

    def __call__(self) -> list[Gpu]:
        state = self._states.pop(0) if len(self._states) > 1 else self._states[0]
        return [
            Gpu(index=index, name="H100", memory_mib=81559, used_mib=used, driver="1")
            for index, used in enumerate(state)
        ]


@pytest.fixture
def watch_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[GpuMemoryWatch, Clock]]:
    def build(*states: list[int | None]) -> tuple[GpuMemoryWatch, Clock]:
        clock = Clock()
        monkeypatch.setattr(gpu_memory, "query_gpus", Driver(*states))
        monkeypatch.setattr(gpu_memory, "time", clock)
        watch = GpuMemoryWatch()
        watch.remember()
        return watch, clock

    return build


Build = Callable[..., tuple[GpuMemoryWatch, Clock]]


def test_memory_that_is_back_at_once_costs_no_wait(watch_with: Build) -> None:
    watch, clock = watch_with([10, 20], [10, 20])
    assert watch.wait_until_back() == []
    assert clock.now_s == 100.0


def test_memory_that_comes_back_late_is_waited_for(watch_with: Build) -> None:
    watch, clock = watch_with([10], [70000], [70000], [300])
    assert watch.wait_until_back() == []
    assert clock.now_s == 101.0


def test_memory_that_stays_is_reported_for_its_gpu(watch_with: Build) -> None:
    watch, clock = watch_with([10, 20], [10, 70020])
    assert watch.wait_until_back() == ["GPU 1 holds 70000 MiB more than before the launch"]
    assert clock.now_s == pytest.approx(130.0)


@pytest.mark.parametrize(("used", "n_stuck"), [(10 + 512, 0), (10 + 513, 1)])
def test_half_a_gib_may_come_and_go(watch_with: Build, used: int, n_stuck: int) -> None:
    watch, _ = watch_with([10], [used])
    assert len(watch.wait_until_back()) == n_stuck


def test_a_gpu_that_does_not_say_is_not_waited_for(watch_with: Build) -> None:
    watch, clock = watch_with([None, 10], [5000, None])
    assert watch.wait_until_back() == []
    assert clock.now_s == 100.0


def test_a_machine_without_gpus_waits_for_nothing(watch_with: Build) -> None:
    watch, clock = watch_with([])
    assert watch.wait_until_back() == []
    assert clock.now_s == 100.0
