import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.parameters import Choices
from tuner.config.build import build_study
from tuner.config.template import study_template


def read_back(model, n_gpus):
    return build_study(study_template(model, n_gpus, "mine"), name="mine", file="mine.yaml")


@pytest.mark.parametrize(
    ("n_gpus", "sizes"),
    [(0, None), (1, None), (2, (1, 2)), (3, (1, 2)), (4, (1, 2, 4)), (8, (1, 2, 4, 8))],
)
def test_tensor_parallel_sizes_are_the_powers_of_two_up_to_the_gpus(n_gpus, sizes):
    study = read_back("org/model", n_gpus)
    wanted = None if sizes is None else Choices(sizes)
    assert study.space.parameters.get("tensor_parallel_size") == wanted
    assert study.n_gpus == n_gpus


@pytest.mark.parametrize("n_gpus", [0, 1, 2, 4, 8])
def test_the_file_is_a_study_that_can_start(n_gpus):
    study = read_back("org/model", n_gpus)
    assert study.model == "org/model"
    assert study.violations(study.default_configuration()) == []
    assert [load.batch_size for load in study.ladder] == [1, 2, 4, 8, 16, 32, 64]
    assert {slo.metric for slo in study.slos} == {"p99_ttft_ms", "p99_tpot_ms", "error_frac"}


def test_objectives_are_per_gpu_where_there_are_gpus():
    assert [o.metric for o in read_back("m", 2).objectives] == [
        "output_tok_per_s_per_gpu",
        "p99_tpot_ms",
    ]
    assert read_back("m", 0).objectives[0].metric == "output_tok_per_s"


def test_precisions_fit_the_hardware():
    assert read_back("m", 1).space.parameters["precision"] == Choices(("bf16", "fp8", "fp8-kv8"))
    assert read_back("m", 0).space.parameters["precision"] == Choices(("bf16", "fp32"))


def test_the_commands_name_the_study_and_every_part_has_a_comment():
    text = study_template("org/model", 4, "chat")
    assert text.startswith(
        "# Run it with: tune start --study chat   Check it with: tune check chat"
    )
    assert sum(line.lstrip().startswith("#") for line in text.splitlines()) >= 10


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), min_size=1))
def test_any_printable_model_name_comes_back_as_it_was(model):
    assert read_back(model, 0).model == model
