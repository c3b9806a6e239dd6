"""Any text whatever is a study or a ``StudyFileError``, and a study's methods never fail."""

import contextlib
import json

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.config.studies import GOOD, build
from tuner.config.study import Study
from tuner.config.yaml_lines import read_yaml
from tuner.errors import StudyFileError


def study_or_refusal(text: str) -> Study | None:
    try:
        study = build(text)
    except StudyFileError:
        return None
    use(study)
    return study


def use(study: Study) -> None:
    """Everything that the service asks a study before it starts anything."""
    configuration = study.default_configuration()
    assert study.space.problems(configuration) == []
    assert all(isinstance(word, str) for word in study.arguments(configuration))
    levels = study.levels(configuration)
    assert levels
    assert list(levels) == sorted(levels)
    study.violations(configuration)
    assert study.n_gpus_of(configuration) >= 0
    assert isinstance(study.is_model_local, bool)
    stored = json.loads(json.dumps(study.to_canonical()))
    assert study.changes_since(stored) == []


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(1, 600),
    st.floats(allow_nan=False),
    st.text(max_size=6),
    st.sampled_from(
        ["off", "ngram", "bf16", "fp8", "p99_ttft_ms", "output_tok_per_s", "~nobody/x", "/" * 300]
    ),
)
WORDS = """
version model hardware gpus serve env parameters workload objectives slo rules level launch budget
sampler confidence batch_size max_num_seqs precision num_speculative_tokens tensor_parallel_size
speculation dtype choices range log2 float ladder step when method methods kind input_tokens
output_tokens uniform lognormal min max maximize minimize at_least forbid name seed hours launches
command p99_ttft_ms error_frac off int str
"""
KEYS = st.sampled_from(WORDS.split())
TREES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4),
        st.lists(st.integers(0, 64), min_size=2, max_size=2),
    ),
    max_leaves=8,
)
PARAMETERS = st.one_of(
    st.builds(lambda values: {"choices": values}, st.lists(SCALARS, min_size=1, max_size=3)),
    st.builds(lambda a, b: {"range": [a, b]}, st.integers(-2, 9), st.integers(-2, 9)),
    st.builds(lambda a, b: {"log2": [2**a, 2**b]}, st.integers(0, 9), st.integers(0, 9)),
    st.builds(lambda a, b: {"float": [a, b]}, st.floats(-1, 2), st.floats(-1, 2)),
    st.fixed_dictionaries(
        {
            "range": st.just([0, 4]),
            "method": st.fixed_dictionaries({"method": SCALARS}, optional={"model": SCALARS}),
        }
    ),
    TREES,
)


@given(st.text())
@example("\ud800")
@example("a: \ud800")
@example("? ? ?")
@example("!!int")
@example("- &a - *a")
def test_any_text_is_yaml_or_a_study_file_error(text):
    with contextlib.suppress(StudyFileError):
        read_yaml(text, "x.yaml")
    study_or_refusal(text)


@given(st.text("[]{}:,-?!&*#|>'\"%@`~<= \n\t01aeo.x_", max_size=60))
def test_any_soup_of_yaml_signs_is_yaml_or_a_study_file_error(text):
    study_or_refusal(text)


@given(TREES)
def test_any_tree_is_a_study_or_a_refusal(tree):
    study_or_refusal(yaml.safe_dump(tree))


@settings(max_examples=300)
@given(
    path=st.sampled_from(
        [
            ("model",),
            ("hardware",),
            ("serve",),
            ("env",),
            ("workload",),
            ("objectives",),
            ("slo",),
            ("rules",),
            ("level",),
            ("launch",),
            ("budget",),
            ("sampler",),
            ("confidence",),
            ("parameters",),
            ("parameters", "precision"),
            ("parameters", "batch_size"),
            ("serve", "max_num_batched_tokens"),
            ("serve", "tensor_parallel_size"),
        ]
    ),
    value=TREES,
)
def test_a_good_study_with_one_part_replaced_is_a_study_or_a_refusal(path, value):
    tree = yaml.safe_load(GOOD)
    node = tree
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    study_or_refusal(yaml.safe_dump(tree))


@settings(max_examples=300)
@given(
    st.dictionaries(
        st.sampled_from(
            [
                "max_num_seqs",
                "precision",
                "num_speculative_tokens",
                "tensor_parallel_size",
                "dtype",
                "speculation",
                "enable_chunked_prefill",
                "max_num_batched_tokens",
                "batch_size",
            ]
        ),
        PARAMETERS,
        max_size=4,
    )
)
def test_any_parameters_are_a_study_or_a_refusal(parameters):
    tree = yaml.safe_load(GOOD)
    tree["parameters"] = {"batch_size": {"ladder": [1, 2]}} | parameters
    study_or_refusal(yaml.safe_dump(tree))


@given(st.integers(0, len(GOOD)), st.integers(0, 12), st.text(max_size=4))
def test_a_good_study_with_a_typing_slip_is_a_study_or_a_refusal(at, n_gone, typed):
    study_or_refusal(GOOD[:at] + typed + GOOD[at + n_gone :])


@pytest.mark.parametrize(
    "model",
    ["~nobody-of-that-name/x", "/" + "a" * 300, "./\\0", "/dev/null", "~", "./"],
)
def test_a_model_path_that_cannot_be_looked_at_is_no_bug(model):
    study = study_or_refusal(GOOD.replace("org/model", f'"{model}"'))
    assert study is not None
    assert study.n_attention_heads is None
