"""The presets hold what their issue asks for."""

from pathlib import Path

import pytest

from objectives import Direction
from search_spaces.parameters import Choices, IntRange, Log2Range
from search_spaces.space import When
from tuner.config import check_models_exist, preset_names, read_study
from tuner.errors import StudyFileError, UsageError


def preset(name, tmp_path):
    return read_study(name, folder=tmp_path)


def limits(study):
    return {slo.metric: slo.limit for slo in study.slos}


def test_there_are_two_presets():
    assert preset_names() == ["chat-70b", "demo"]


def test_the_demo_is_for_two_cores_and_a_small_model(tmp_path):
    study = preset("demo", tmp_path)
    assert (study.name, study.n_gpus) == ("demo", 0)
    # The file can be opened and copied by the name that messages give it.
    assert Path(study.file).name == "demo.yaml"
    assert Path(study.file).is_file()
    assert study.model == "./mlruns/demo-model/target"
    assert study.is_model_local
    assert [load.batch_size for load in study.ladder] == [1, 2, 4, 8, 16]
    parameters = study.space.parameters
    assert parameters["precision"] == Choices(("bf16", "fp16", "fp32", "int8"))
    assert isinstance(parameters["max_num_seqs"], Log2Range)
    assert "max_num_batched_tokens" in parameters
    # 0 to 4: off, or 1 to 4 with the draft.
    assert parameters["speculation"] == Choices(("off", "draft_model"))
    assert parameters["num_speculative_tokens"] == IntRange(1, 4)
    assert study.methods == {
        "draft_model": {"method": "draft_model", "model": "./mlruns/demo-model/draft"}
    }
    assert {"p99_ttft_ms", "p99_tpot_ms"} <= limits(study).keys()


def test_chat_70b_is_for_eight_gpus(tmp_path):
    study = preset("chat-70b", tmp_path)
    assert study.n_gpus == 8
    assert study.model == "meta-llama/Llama-3.1-70B-Instruct"
    assert not study.is_model_local
    assert [load.batch_size for load in study.ladder] == [1, 2, 4, 8, 16, 32, 64, 128]
    parameters = study.space.parameters
    assert parameters["tensor_parallel_size"] == Choices((2, 4, 8))
    assert parameters["precision"] == Choices(("bf16", "fp8", "fp8-kv8"))
    assert parameters["max_num_seqs"] == Log2Range(8, 512)
    assert parameters["speculation"] == Choices(("off", "ngram"))
    assert parameters["num_speculative_tokens"] == IntRange(1, 8)
    assert study.space.conditions == {"num_speculative_tokens": When("speculation", ("ngram",))}
    assert limits(study)["p99_ttft_ms"] == 2000
    assert limits(study)["p99_tpot_ms"] == 40


@pytest.mark.parametrize("name", ["demo", "chat-70b"])
def test_each_preset_weighs_throughput_against_latency(name, tmp_path):
    directions = {o.metric: o.direction for o in preset(name, tmp_path).objectives}
    assert directions.pop("p99_tpot_ms") is Direction.MINIMIZE
    assert list(directions.values()) == [Direction.MAXIMIZE]


@pytest.mark.parametrize("name", ["demo", "chat-70b"])
def test_each_preset_has_something_to_launch(name, tmp_path):
    study = preset(name, tmp_path)
    configuration = study.default_configuration()
    assert study.space.problems(configuration) == []
    assert study.violations(configuration) == []
    assert configuration["speculation"] == "off"


def test_a_missing_demo_model_is_told_with_the_command_that_writes_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(StudyFileError, match=r"tune demo-model mlruns/demo-model") as caught:
        check_models_exist(preset("demo", tmp_path))
    assert caught.value.key == "model"


def test_a_missing_draft_is_told_by_its_method(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for part in ("target", "draft"):
        folder = Path("mlruns/demo-model") / part
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}", encoding="utf-8")
    study = preset("demo", tmp_path)
    check_models_exist(study)
    Path("mlruns/demo-model/draft/config.json").unlink()
    with pytest.raises(StudyFileError) as caught:
        check_models_exist(study)
    assert caught.value.key == "parameters.num_speculative_tokens (draft_model)"


def test_a_hub_id_is_left_to_vllm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check_models_exist(preset("chat-70b", tmp_path))


def own_study(tmp_path, text, name="demo"):
    folder = tmp_path / "search_spaces"
    folder.mkdir()
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def test_a_file_of_the_working_folder_comes_before_a_preset(tmp_path):
    own_study(tmp_path, "version: 1\n")
    with pytest.raises(StudyFileError) as caught:
        preset("demo", tmp_path)
    assert caught.value.file == "search_spaces/demo.yaml"


def test_an_unknown_name_gets_the_nearest_one(tmp_path):
    with pytest.raises(UsageError, match="there is no study 'demmo': did you mean 'demo'"):
        preset("demmo", tmp_path)
    own_study(tmp_path, "", name="night-chat")
    with pytest.raises(UsageError, match="did you mean 'night-chat'"):
        preset("nigth-chat", tmp_path)


@pytest.mark.parametrize("name", ["./none.yaml", "a/b", "/" + "x" * 300, "~nobody-there/x.yaml"])
def test_a_path_that_is_not_there_is_a_usage_error(name, tmp_path):
    with pytest.raises(UsageError, match="check the path"):
        read_study(name, folder=tmp_path)


@pytest.mark.parametrize("name", ["../demo", "..", "", "a b", "\0"])
def test_an_odd_name_reads_nothing_outside_the_folder(name, tmp_path):
    with pytest.raises(UsageError, match="there is no study"):
        read_study(name, folder=tmp_path)


def test_bytes_that_are_no_utf8_are_told(tmp_path):
    (tmp_path / "x.yaml").write_bytes(b"model: \xff\xfe")
    with pytest.raises(StudyFileError, match=r"x\.yaml: cannot be read"):
        read_study("./x.yaml", folder=tmp_path)


def test_a_study_is_named_after_its_file(tmp_path):
    from tests.unit.config.studies import GOOD

    (tmp_path / "night.yaml").write_text(GOOD, encoding="utf-8")
    study = read_study("night.yaml", folder=tmp_path)
    assert (study.name, study.file) == ("night", "night.yaml")
