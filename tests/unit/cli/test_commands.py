"""The commands that need no server."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tuner.cli.start import check_hardware
from tuner.config import read_study
from tuner.errors import UsageError
from tuner.serving import Hardware


def tune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tune")
    return subprocess.run(
        [str(program), *words], cwd=folder, capture_output=True, text=True, check=False
    )


def test_help_imports_no_heavy_library() -> None:
    code = (
        "import sys\nfrom tuner.cli import app\n"
        "try:\n    app(['--help'])\nexcept SystemExit:\n    pass\n"
        "heavy = {'torch', 'mlflow', 'optuna', 'vllm'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "start" in done.stdout


@pytest.mark.parametrize("n_gpus", [0, 1, 2, 8])
def test_init_writes_a_study_file_that_can_be_read(tmp_path: Path, n_gpus: int) -> None:
    words = ("init", "--model", "org/model", "--gpus", str(n_gpus), "--name", "mine")
    assert tune(tmp_path, *words).returncode == 0
    study = read_study("mine", folder=tmp_path)
    assert study.n_gpus == n_gpus
    assert study.model == "org/model"
    assert ("tensor_parallel_size" in study.space.parameters) is (n_gpus > 1)
    again = tune(tmp_path, *words)
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.parametrize("name", ["", "../escape", "a/b", ".hidden"])
def test_a_name_that_is_no_file_name_is_refused_and_nothing_is_written(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "here").mkdir()
    words = ("init", "--model", "org/model", "--gpus", "1", "--name", name)
    done = tune(tmp_path / "here", *words)
    assert done.returncode == 2
    assert repr(name) in done.stderr
    assert [path.name for path in tmp_path.rglob("*")] == ["here"]


def test_chat_70b_without_gpus_says_so_before_anything_is_started() -> None:
    study = read_study("chat-70b", folder=Path())
    here = Hardware(gpus=(), n_cpus=2, memory_gib=24.0, cpu_name="x")
    with pytest.raises(UsageError, match=r"needs 8 GPUs .* no NVIDIA GPU"):
        check_hardware(study, here)


def test_a_study_for_one_gpu_is_told_of_one_gpu_and_no_sizes(tmp_path: Path) -> None:
    tune(tmp_path, "init", "--model", "org/model", "--gpus", "1", "--name", "mine")
    here = Hardware(gpus=(), n_cpus=2, memory_gib=24.0, cpu_name="x")
    with pytest.raises(UsageError, match=r"needs 1 GPU \(.*lower hardware.gpus in a copy"):
        check_hardware(read_study("mine", folder=tmp_path), here)


def test_a_missing_demo_model_says_how_to_make_it(tmp_path: Path) -> None:
    done = tune(tmp_path, "start", "--study", "demo")
    assert done.returncode == 3
    assert "tune demo-model" in done.stderr
    assert not (tmp_path / "mlruns" / "optuna.db").exists()


@pytest.mark.parametrize("name", ["status", "pareto"])
def test_reading_in_a_folder_without_studies_makes_nothing(tmp_path: Path, name: str) -> None:
    done = tune(tmp_path, name, "--study", "chat-70b")
    assert done.returncode == 2
    assert "there is no ./mlruns here" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    file = Path(__file__).parents[3] / "pyproject.toml"
    version = tomllib.loads(file.read_text(encoding="utf-8"))["project"]["version"]
    assert tune(tmp_path, "--version").stdout == f"tune {version}\n"


def test_an_unknown_study_names_the_nearest(tmp_path: Path) -> None:
    done = tune(tmp_path, "start", "--study", "dmeo")
    assert done.returncode == 2
    assert "did you mean 'demo'?" in done.stderr
