"""vLLM's own recorded refusals are the oracle: what it refused, our rules refuse, and no more."""

import ast
import re
from pathlib import Path

import pytest

from search_spaces.rules import AtLeast, Forbid, Machine, n_gpus_of, violations

LOGS = Path(__file__).parents[1] / "serving" / "logs"
CPU = Machine(n_gpus=0, n_attention_heads=None)


def recorded_flags(log: str) -> dict[str, object]:
    """The arguments that vLLM itself says it was started with."""
    found = re.search(r"non-default args: (\{.*\})", (LOGS / log).read_text(encoding="utf-8"))
    assert found, log
    return ast.literal_eval(found[1])


def messages(flags, *, rules=(), machine=CPU, configuration=None):
    found = violations(configuration or {}, flags, rules=rules, machine=machine)
    return [violation.message for violation in found]


@pytest.mark.parametrize(
    ("log", "said_by_vllm", "parameters"),
    [
        (
            "mbt8-seqs16.log",
            "max_num_batched_tokens (8) must be greater than or equal to max_num_seqs (16)",
            ("max_num_batched_tokens", "max_num_seqs"),
        ),
        (
            "mbt512-nochunk.log",
            "max_num_batched_tokens (512) is smaller than max_model_len (1024)",
            ("max_num_batched_tokens", "max_model_len"),
        ),
        (
            "tp4.log",
            "Total number of attention heads (2) must be divisible by tensor parallel size (4)",
            ("tensor_parallel_size",),
        ),
    ],
)
def test_what_vllm_refused_is_refused_without_a_launch(log, said_by_vllm, parameters):
    text = (LOGS / log).read_text(encoding="utf-8")
    assert said_by_vllm in text
    found = violations(
        {}, recorded_flags(log), rules=(), machine=Machine(n_gpus=0, n_attention_heads=2)
    )
    assert [violation.parameters for violation in found] == [parameters]
    # The numbers that vLLM named are in our words too.
    for number in re.findall(r"\((\d+)\)", said_by_vllm):
        assert f"{number}" in found[0].message


@pytest.mark.parametrize("log", ["base.log", "spec-draft-self.log"])
def test_what_vllm_served_is_not_refused(log):
    flags = recorded_flags(log)
    assert messages(flags, machine=Machine(n_gpus=0, n_attention_heads=2)) == []


def test_equal_limits_are_allowed():
    assert messages({"max_num_batched_tokens": 16, "max_num_seqs": 16}) == []
    assert len(messages({"max_num_batched_tokens": 15, "max_num_seqs": 16})) == 1


def test_chunked_prefill_lets_a_prompt_be_longer_than_a_step():
    flags = {"max_num_batched_tokens": 512, "max_model_len": 1024}
    assert messages(flags) == []
    assert messages({**flags, "enable_chunked_prefill": True}) == []
    assert len(messages({**flags, "enable_chunked_prefill": False})) == 1


def test_the_message_says_which_values_and_what_to_do():
    (message,) = messages({"max_num_batched_tokens": 256, "max_num_seqs": 512})
    assert message == (
        "max_num_batched_tokens (256) is below max_num_seqs (512), which vLLM refuses "
        "(vllm/config/scheduler.py): raise the first or lower the second"
    )


def test_a_rule_on_an_argument_that_is_not_set_breaks_nothing():
    assert messages({"max_num_seqs": 512}) == []
    assert messages({"max_num_batched_tokens": 1}) == []
    assert messages({"max_num_batched_tokens": None, "max_num_seqs": 4}) == []


def test_more_gpus_than_the_study_has_are_refused():
    machine = Machine(n_gpus=4, n_attention_heads=64)
    assert messages({"tensor_parallel_size": 4}, machine=machine) == []
    assert messages({"tensor_parallel_size": 8}, machine=machine) == [
        "it needs 8 GPUs, and the study has 4"
    ]
    flags = {"tensor_parallel_size": 2, "pipeline_parallel_size": 3}
    assert messages(flags, machine=machine) == ["it needs 6 GPUs, and the study has 4"]


def test_a_cpu_study_counts_no_gpus():
    assert messages({"tensor_parallel_size": 8}) == []


def test_heads_must_be_shared_out_evenly():
    machine = Machine(n_gpus=0, n_attention_heads=12)
    refused = [n for n in range(1, 13) if messages({"tensor_parallel_size": n}, machine=machine)]
    assert refused == [5, 7, 8, 9, 10, 11]


def test_gpus_multiply_over_the_three_kinds_of_parallelism():
    assert n_gpus_of({}) == 1
    sizes = {
        "tensor_parallel_size": 2,
        "pipeline_parallel_size": 3,
        "data_parallel_size": 5,
        "max_num_seqs": 7,
    }
    assert n_gpus_of(sizes) == 30


@pytest.mark.parametrize("value", [None, "abc", 0, -2, 1.5, True, [2]])
def test_a_parallel_size_that_vllm_would_refuse_is_no_bug_of_ours(value):
    flags = {"tensor_parallel_size": value}
    assert n_gpus_of(flags) == 1
    assert messages(flags, machine=Machine(n_gpus=4, n_attention_heads=2)) == []


def test_the_studys_own_rules_see_its_parameters():
    forbid = Forbid(values={"precision": "fp8", "max_num_seqs": 64})
    configuration = {"precision": "fp8", "max_num_seqs": 64}
    flags = {"quantization": "fp8", "max_num_seqs": 64}
    assert messages(flags, rules=[forbid], configuration=configuration) == [
        "the study file forbids precision=fp8, max_num_seqs=64"
    ]
    for other in ({"precision": "bf16"}, {"max_num_seqs": 32}):
        changed = configuration | other
        assert messages(flags, rules=[forbid], configuration=changed) == []


def test_forbidding_one_does_not_forbid_true():
    assert Forbid(values={"a": 1}).violation({"a": True}) is None
    assert Forbid(values={"a": 1}).violation({"a": 1}) is not None


def test_all_broken_rules_are_told():
    own = AtLeast(larger="a", smaller="b", unless={}, why="which the study forbids")
    flags = {"max_num_batched_tokens": 8, "max_num_seqs": 16, "a": 1, "b": 2}
    assert len(messages({**flags, "tensor_parallel_size": 3}, rules=[own])) == 2
    machine = Machine(n_gpus=2, n_attention_heads=4)
    assert len(messages({**flags, "tensor_parallel_size": 3}, rules=[own], machine=machine)) == 4
