"""A folder with a study of the fake vLLM, and `tune` from the command line in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

FAKE = Path(__file__).parents[2] / "fakes" / "fake_vllm.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "model").mkdir()
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}", encoding="utf-8")
    words = [a + b + c for a in "bdfgk" for b in "aeiou" for c in "lmnrst"]
    vocabulary = {word: index for index, word in enumerate(words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="bal"))  # noqa: S106 - a token
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(tmp_path / "model" / "tokenizer.json"))
    return tmp_path


def command(*words: str) -> list[str]:
    return [str(Path(sys.executable).with_name("tune")), *words]


def tune(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False)


def all_points(folder: Path) -> list[dict[str, object]]:
    shown = tune(folder, "pareto", "-s", "s", "--all", "--json")
    points: list[dict[str, object]] = json.loads(shown.stdout)["points"]
    return points


def servers(folder: Path) -> list[int]:
    """Processes of a fake server that was started for this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            if str(FAKE) in process.cmdline() and Path(process.cwd()) == folder:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found
