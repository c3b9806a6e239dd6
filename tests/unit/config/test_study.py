"""What follows from a study: levels, the first configuration, arguments, changes."""

import json

import pytest

from tests.unit.config.studies import GOOD, build, good


def batch_sizes(levels):
    return tuple(load.batch_size for load in levels)


def with_parameters(text):
    return build(good(max_num_seqs=text))


@pytest.mark.parametrize(
    ("max_num_seqs", "levels"),
    [(1, (1,)), (2, (1, 2)), (3, (1, 2)), (4, (1, 2, 4)), (512, (1, 2, 4))],
)
def test_levels_above_the_servers_cap_are_left_out(max_num_seqs, levels):
    study = with_parameters("  max_num_seqs: {range: [1, 512]}")
    assert batch_sizes(study.levels({"max_num_seqs": max_num_seqs, "precision": "bf16"})) == levels


def test_the_lowest_level_always_stays():
    study = build(good(batch_size="  batch_size: {ladder: [8, 16]}"))
    assert batch_sizes(study.levels({"max_num_seqs": 2, "precision": "bf16"})) == (8,)


def test_a_fixed_cap_counts_as_well_as_a_varied_one():
    text = good(serve="serve: {max_num_seqs: 2}", max_num_seqs="  block_size: {choices: [16]}")
    assert batch_sizes(build(text).levels({"block_size": 16, "precision": "bf16"})) == (1, 2)


@pytest.mark.parametrize("cap", ["null", "many", "2.5"])
def test_a_cap_that_is_no_whole_number_leaves_all_levels(cap):
    serve = f"serve: {{max_num_seqs: {cap}}}"
    study = build(good(serve=serve, max_num_seqs="  block_size: {choices: [16]}"))
    assert batch_sizes(study.levels({"block_size": 16, "precision": "bf16"})) == (1, 2, 4)


def test_a_proposed_batch_size_is_the_only_level():
    study = build(good(batch_size="  batch_size: {log2: [1, 64]}"))
    configuration = {"batch_size": 32, "max_num_seqs": 16, "precision": "bf16"}
    assert study.ladder == ()
    assert batch_sizes(study.levels(configuration)) == (32,)
    assert "--batch-size" not in study.arguments(configuration)


def test_the_first_configuration_is_nearest_to_vllms_defaults_on_a_cpu():
    study = with_parameters(
        "  max_num_seqs: {log2: [2, 512]}\n"
        "  max_num_batched_tokens: {choices: [64, 2048, 8192]}\n"
        "  enable_prefix_caching: {choices: [false, true]}\n"
        "  enforce_eager: {choices: [true, false]}\n"
        "  gpu_memory_utilization: {float: [0.3, 0.95]}\n"
        "  block_size: {choices: [32, 64]}\n"
        "  unknown_flag: {choices: [b, a]}\n"
        "  num_speculative_tokens: {range: [0, 4], method: {method: ngram}}"
    )
    # vLLM 0.32 for a CPU: 128 sequences, 2048 tokens.
    assert study.default_configuration() == {
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": True,
        "enforce_eager": False,
        "gpu_memory_utilization": 0.92,
        "block_size": 32,
        "unknown_flag": "b",
        "precision": "bf16",
        "speculation": "off",
    }


def test_the_first_configuration_on_a_gpu_has_a_gpus_defaults():
    text = good(
        hardware="hardware: {gpus: 8}",
        max_num_seqs="  max_num_seqs: {log2: [2, 4096]}\n"
        "  max_num_batched_tokens: {choices: [64, 2048, 8192]}\n"
        "  tensor_parallel_size: {choices: [8, 4, 2]}",
    )
    assert build(text).default_configuration() == {
        "max_num_seqs": 1024,
        "max_num_batched_tokens": 8192,
        "tensor_parallel_size": 2,
        "precision": "bf16",
    }


def test_speculation_that_cannot_be_off_starts_with_its_shortest_draft():
    study = with_parameters(
        "  num_speculative_tokens: {range: [2, 4], methods: {n: {method: ngram}}}"
    )
    assert study.default_configuration() == {
        "precision": "bf16",
        "speculation": "n",
        "num_speculative_tokens": 2,
    }


def test_off_in_a_study_file_is_the_word():
    study = with_parameters("  attention: {choices: [off, on]}")
    assert study.default_configuration()["attention"] == "off"


def test_the_arguments_of_a_configuration():
    study = build(GOOD)
    assert study.arguments({"max_num_seqs": 4, "precision": "fp32"}) == (
        "--dtype",
        "float32",
        "--max-model-len",
        "512",
        "--max-num-seqs",
        "4",
    )


def test_gpus_of_a_launch():
    text = "  tensor_parallel_size: {choices: [1, 2, 4]}"
    on_gpus = build(good(hardware="hardware: {gpus: 2}", max_num_seqs=text))
    four = {"tensor_parallel_size": 4, "precision": "bf16"}
    assert on_gpus.n_gpus_of(four) == 4
    assert [v.message for v in on_gpus.violations(four)] == [
        "it needs 4 GPUs, and the study has 2"
    ]
    assert with_parameters(text).n_gpus_of(four) == 0


def test_the_models_heads_are_read_where_it_is_local(tmp_path):
    (tmp_path / "config.json").write_text('{"num_attention_heads": 2}', encoding="utf-8")
    study = build(
        good(
            model=f"model: {tmp_path}",
            max_num_seqs="  tensor_parallel_size: {choices: [1, 2, 4]}",
        )
    )
    assert study.n_attention_heads == 2
    assert [
        tp
        for tp in (1, 2, 4)
        if study.violations({"tensor_parallel_size": tp, "precision": "bf16"})
    ] == [4]


@pytest.mark.parametrize("config", ["[]", "{", "3", '{"num_attention_heads": "two"}', "{}"])
def test_a_models_config_without_heads_leaves_them_unknown(config, tmp_path):
    (tmp_path / "config.json").write_text(config, encoding="utf-8")
    assert build(good(model=f"model: {tmp_path}")).n_attention_heads is None


def test_rules_of_the_file_are_kept():
    study = build(
        good(max_num_seqs="  max_num_seqs: {log2: [2, 16]}\n  block_size: {choices: [4, 16]}")
        + "rules:\n- {at_least: [block_size, max_num_seqs]}\n- {forbid: {precision: fp32}}\n"
    )
    configuration = {"max_num_seqs": 8, "block_size": 4, "precision": "fp32"}
    assert [v.message for v in study.violations(configuration)] == [
        (
            "block_size (4) is below max_num_seqs (8), which the study forbids: "
            "raise the first or lower the second"
        ),
        "the study file forbids precision=fp32",
    ]
    assert study.violations(configuration | {"block_size": 16, "precision": "bf16"}) == []


def changes(**replaced: str) -> list[str]:
    stored = json.loads(json.dumps(build(GOOD).to_canonical()))
    return build(good(**replaced)).changes_since(stored)


def test_the_same_file_has_not_changed():
    assert changes() == []


@pytest.mark.parametrize(
    "line",
    [
        "level: {max_requests: 500}",
        "budget: {launches: 3}",
        "sampler: {name: random, seed: 4}",
        "launch: {ready_deadline_s: 5}",
    ],
)
def test_budget_level_launch_and_sampler_may_change(line):
    assert changes(level=line) == []


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ({"model": "model: org/other"}, "model was 'org/model' and is now 'org/other'"),
        ({"hardware": "hardware: {gpus: 2}"}, "hardware.gpus was 0 and is now 2"),
        (
            {"serve": "serve: {max_model_len: 256}"},
            "serve.max_model_len was 512 and is now 256",
        ),
        ({"serve": "serve: {max_model_len: 512, seed: 1}"}, "serve.seed is new"),
        ({"serve": ""}, "serve.max_model_len is gone"),
        ({"level": "env: {A: b}"}, "env.A is new"),
        (
            {"max_num_seqs": "  max_num_seqs: {log2: [2, 32]}"},
            (
                "parameters.max_num_seqs was kind Log2Range, low 2, high 16 and is now "
                "kind Log2Range, low 2, high 32"
            ),
        ),
        (
            {"batch_size": "  batch_size: {ladder: [1, 2]}"},
            "parameters.ladder was batch_size 1, 2, 4 and is now batch_size 1, 2",
        ),
        (
            {"workload": "workload: {input_tokens: 33, output_tokens: 12}"},
            "workload.input_tokens was 32 and is now 33",
        ),
        ({"slo": "slo: {p99_ttft_ms: 100}"}, "slo.error_frac is gone"),
        ({"level": "confidence: 0.9"}, "confidence was 0.95 and is now 0.9"),
    ],
)
def test_a_change_is_told_by_part_with_old_and_new(replaced, said):
    assert changes(**replaced) == [said]


def test_a_method_that_changes_is_told():
    def text(n):
        method = f"{{method: ngram, prompt_lookup_max: {n}}}"
        return good(max_num_seqs=f"  num_speculative_tokens: {{range: [0, 4], method: {method}}}")

    stored = json.loads(json.dumps(build(text(4)).to_canonical()))
    assert build(text(5)).changes_since(stored) == [
        (
            "methods.ngram was method ngram, prompt_lookup_max 4 and is now "
            "method ngram, prompt_lookup_max 5"
        )
    ]
