import argparse
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.precision import PRECISIONS
from search_spaces.serve_args import to_arguments, to_flags

NGRAM = {"ngram": {"method": "ngram", "prompt_lookup_max": 4}}

NAMES = st.from_regex(r"[a-z]{1,6}(_[a-z]{1,6}){0,2}", fullmatch=True).filter(
    lambda name: not name.startswith("no_") and name not in {"no", "help"}
)
# A command line has words only: what does not begin with a dash comes back as it was.
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(
    lambda word: not word.startswith("-")
)
JSON = st.dictionaries(
    WORDS,
    st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists),
    max_size=3,
)
VALUES = st.one_of(
    st.booleans(),
    st.integers(min_value=0),
    st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    WORDS,
    JSON,
    st.lists(WORDS, min_size=1, max_size=3),
)


def parse_back(flags, words):
    """An argparse parser like vLLM's: booleans by ``--x`` and ``--no-x``, mappings as JSON."""
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    for name, value in flags.items():
        option = "--" + name.replace("_", "-")
        if isinstance(value, bool):
            parser.add_argument(option, action=argparse.BooleanOptionalAction)
        elif isinstance(value, dict):
            parser.add_argument(option, type=json.loads)
        elif isinstance(value, list):
            parser.add_argument(option, nargs="+")
        else:
            parser.add_argument(option, type=type(value))
    return vars(parser.parse_args(words))


@given(st.dictionaries(NAMES, VALUES, max_size=6))
def test_flags_become_words_that_parse_back_to_the_same_flags(flags):
    words = to_arguments(flags)
    assert parse_back(flags, words) == flags


@given(st.dictionaries(NAMES, VALUES.filter(lambda v: not isinstance(v, list | str)), max_size=6))
def test_no_flag_stands_twice_and_the_order_is_canonical(flags):
    words = to_arguments(flags)
    options = [word for word in words if word.startswith("--")]
    assert len(options) == len(set(options)) == len(flags)
    assert words == to_arguments(dict(reversed(flags.items())))


def test_booleans_are_a_flag_or_its_negation_and_never_a_value():
    flags = {"enforce_eager": True, "enable_prefix_caching": False}
    assert to_arguments(flags) == ("--no-enable-prefix-caching", "--enforce-eager")


def test_nothing_leaves_the_flag_out():
    assert to_arguments({"max_num_seqs": None, "dtype": "auto"}) == ("--dtype", "auto")


def test_the_whole_command_line_of_a_configuration():
    flags = to_flags(
        {
            "max_num_seqs": 16,
            "precision": "fp8-kv8",
            "speculation": "ngram",
            "num_speculative_tokens": 3,
            "batch_size": 8,
        },
        fixed={"max_model_len": 512, "enforce_eager": True},
        methods=NGRAM,
    )
    assert to_arguments(flags) == (
        "--dtype",
        "bfloat16",
        "--enforce-eager",
        "--kv-cache-dtype",
        "fp8",
        "--max-model-len",
        "512",
        "--max-num-seqs",
        "16",
        "--quantization",
        "fp8",
        "--speculative-config",
        '{"method":"ngram","num_speculative_tokens":3,"prompt_lookup_max":4}',
    )


def test_speculation_that_is_off_leaves_no_argument():
    assert to_flags({"speculation": "off"}, fixed={}, methods=NGRAM) == {}
    assert to_flags({}, fixed={}, methods=NGRAM) == {}


def test_the_methods_of_a_study_are_not_changed_by_a_configuration():
    methods = {"ngram": {"method": "ngram"}}
    to_flags({"speculation": "ngram", "num_speculative_tokens": 2}, fixed={}, methods=methods)
    assert methods == {"ngram": {"method": "ngram"}}


@pytest.mark.parametrize(
    ("configuration", "fixed", "message"),
    [
        ({"max_num_seqs": 4}, {"max_num_seqs": 8}, "max_num_seqs is set by serve and again by"),
        ({"precision": "bf16"}, {"dtype": "auto"}, "dtype is set by serve and again by precision"),
        ({"precision": "bf16", "dtype": "auto"}, {}, "dtype is set by precision bf16 and again"),
        ({"precision": "fp9"}, {}, "precision 'fp9' is unknown: choose from bf16, "),
        ({"speculation": "eagle"}, {}, "speculation 'eagle' has no method of that name"),
    ],
)
def test_one_argument_set_twice_or_unknown_is_refused(configuration, fixed, message):
    with pytest.raises(ValueError, match=message):
        to_flags(configuration, fixed=fixed, methods=NGRAM)


# vLLM's own words for the choices of --dtype, recorded in badchoice.log.
VLLM_DTYPES = {"auto", "bfloat16", "float", "float16", "float32", "half"}


def test_every_precision_names_a_dtype_that_vllm_has_and_its_bits():
    for name, precision in PRECISIONS.items():
        assert precision.serve_args.get("dtype", "auto") in VLLM_DTYPES, name
    bits = {name: precision.weight_bits for name, precision in PRECISIONS.items()}
    assert bits == {"bf16": 16, "fp16": 16, "fp32": 32, "fp8": 8, "fp8-kv8": 8, "int8": 8}
