"""How far a starting server has come."""

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.serving.stages import FIRST_STAGE, StageReader

BASE = (Path(__file__).parent / "logs" / "base.log").read_bytes()
# Read in base.log: an eager start on the CPU compiles nothing and captures no graph.
STAGES_OF_BASE = [
    "importing vLLM",
    "starting the engine",
    "loading weights",
    "weights loaded",
    "KV cache allocated",
    "serving",
]


def stages_seen(log_file: Path, pieces: list[bytes]) -> list[str]:
    reader = StageReader(log_file)
    seen = [reader.stage]
    with log_file.open("wb", buffering=0) as log:
        for piece in pieces:
            log.write(piece)
            if reader.update():
                seen.append(reader.stage)
    return seen


def test_a_healthy_log_passes_through_its_stages_line_by_line(tmp_path: Path) -> None:
    assert stages_seen(tmp_path / "log", BASE.splitlines(keepends=True)) == STAGES_OF_BASE


def test_marks_that_come_in_many_pieces_are_found(tmp_path: Path) -> None:
    pieces = [BASE[at : at + 3] for at in range(0, len(BASE), 3)]
    assert stages_seen(tmp_path / "log", pieces) == STAGES_OF_BASE


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(0, len(BASE)), max_size=12).map(sorted))
def test_however_the_log_is_cut_the_stages_come_in_order_and_the_last_is_seen(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("log")
    ends = [0, *cuts, len(BASE)]
    pieces = [BASE[a:b] for a, b in pairwise(ends)]
    seen = stages_seen(folder / "log", pieces)
    assert seen == [stage for stage in STAGES_OF_BASE if stage in seen]
    assert seen[-1] == "serving"


def test_a_gpu_captures_its_graphs_after_the_kv_cache(tmp_path: Path) -> None:
    pieces = [
        b"(EngineCore pid=1) INFO [kv_cache_utils.py:2327] GPU KV cache size: 1,024 tokens\n",
        b"Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):   0%|  | 0/35\n",
    ]
    assert stages_seen(tmp_path / "one", pieces)[1:] == ["KV cache allocated", "capturing graphs"]
    assert stages_seen(tmp_path / "two", [b"".join(pieces)])[1:] == ["capturing graphs"]


def test_a_log_that_is_not_there_yet_is_the_first_stage(tmp_path: Path) -> None:
    reader = StageReader(tmp_path / "none.log")
    assert not reader.update()
    assert reader.stage == FIRST_STAGE


def test_nothing_new_is_no_change(tmp_path: Path) -> None:
    log_file = tmp_path / "log"
    log_file.write_bytes(b"Starting to load model ./tiny...\n")
    reader = StageReader(log_file)
    assert reader.update()
    assert not reader.update()
    assert reader.stage == "loading weights"
