"""How a launch's start reads in a shell."""

import shlex
import subprocess
from pathlib import Path

import pytest

from tuner.trial import Launch

OWN = ("--host", "127.0.0.1", "--port", "0", "--served-model-name", "tune-1234")


def launch(*words: str, folder: str = "/srv/my models", **env: str) -> Launch:
    return Launch(
        number=0, configuration={}, command=("vllm", "serve", *words), env=env, folder=folder
    )


def test_as_run_every_word_is_there() -> None:
    line = launch("org/model", *OWN).shell_line()
    assert shlex.split(line) == ["vllm", "serve", "org/model", *OWN]


def test_for_a_deployment_what_the_measurement_needs_is_left_out() -> None:
    line = launch("org/model", "--max-num-seqs", "8", *OWN).shell_line(is_as_run=False)
    assert line == "vllm serve org/model --max-num-seqs 8"


@pytest.mark.parametrize("words", [("./m",), ("../m",), ("org/m", "-sc", '{"model": "./draft"}')])
def test_relative_paths_are_told_with_their_folder(words: tuple[str, ...]) -> None:
    line = launch(*words).shell_line()
    assert shlex.split(line) == ["cd", "/srv/my models", "&&", "vllm", "serve", *words]


@pytest.mark.parametrize("words", [("/abs/m",), ("org/m.v1./x",), ("org/m", "--seed", "1")])
def test_other_commands_run_anywhere(words: tuple[str, ...]) -> None:
    assert shlex.split(launch(*words).shell_line()) == ["vllm", "serve", *words]


def test_a_shell_gives_the_command_its_environment_and_folder(tmp_path: Path) -> None:
    shown = Launch(
        number=0,
        configuration={},
        command=("sh", "-c", 'echo "$A|$PWD|$0"', "./m"),
        env={"A": "it's $HOME"},
        folder=str(tmp_path),
    ).shell_line()
    done = subprocess.run(["/bin/sh", "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout == f"it's $HOME|{tmp_path}|./m\n"
