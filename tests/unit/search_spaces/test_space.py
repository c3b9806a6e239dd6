import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.parameters import Choices, FloatRange, IntRange, Log2Range
from search_spaces.space import SearchSpace, When

SPACE = SearchSpace(
    {
        "draft_length": IntRange(1, 8),
        "speculation": Choices(("off", "ngram")),
        "max_num_seqs": Log2Range(2, 16),
    },
    {"draft_length": When("speculation", ("ngram",))},
)


def test_parents_are_asked_for_before_their_children_whatever_the_file_says():
    assert SPACE.order.index("speculation") < SPACE.order.index("draft_length")
    assert sorted(SPACE.order) == ["draft_length", "max_num_seqs", "speculation"]


def test_parameters_without_conditions_keep_the_order_of_the_file():
    names = ["z", "a", "m", "b"]
    assert SearchSpace({name: IntRange(0, 1) for name in names}).order == tuple(names)


def test_a_chain_of_conditions_is_ordered_from_the_root():
    space = SearchSpace(
        {name: IntRange(0, 1) for name in "cba"},
        {"c": When("b", (1,)), "b": When("a", (1,))},
    )
    assert space.order == ("a", "b", "c")


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"a": When("b", (1,)), "b": When("a", (1,))}, "conditions in a circle"),
        ({"a": When("a", (1,))}, "conditions in a circle: a -> a"),
        ({"a": When("zz", (1,))}, "'a' depends on 'zz', which is no parameter"),
        ({"zz": When("a", (1,))}, "a condition names 'zz', which is no parameter"),
        ({"a": When("b", (7,))}, "'a' depends on b = 7, a value it cannot have"),
        ({"a": When("b", (True,))}, "'a' depends on b = True, a value it cannot have"),
        ({"a": When("b", ())}, "'a' depends on no value of 'b'"),
    ],
)
def test_a_condition_that_cannot_be_is_refused(conditions, message):
    with pytest.raises(ValueError, match=message):
        SearchSpace({"a": IntRange(0, 1), "b": IntRange(0, 1)}, conditions)


def test_a_grandchild_is_off_when_its_parent_is_off():
    space = SearchSpace(
        {name: IntRange(0, 1) for name in "abc"},
        {"c": When("b", (0,)), "b": When("a", (1,))},
    )
    assert space.nearest({"a": 0}) == {"a": 0}
    assert space.nearest({"a": 1}) == {"a": 1, "b": 0, "c": 0}
    assert space.problems({"a": 0, "c": 0}) == ["'c' is set although its condition does not hold"]


@pytest.mark.parametrize(
    ("configuration", "problems"),
    [
        ({"speculation": "off", "max_num_seqs": 4}, []),
        ({"speculation": "ngram", "draft_length": 8, "max_num_seqs": 4}, []),
        ({"speculation": "off"}, ["'max_num_seqs' is missing"]),
        ({"speculation": "ngram", "max_num_seqs": 4}, ["'draft_length' is missing"]),
        (
            {"speculation": "off", "draft_length": 3, "max_num_seqs": 4},
            ["'draft_length' is set although its condition does not hold"],
        ),
        ({"speculation": "off", "max_num_seqs": 5}, ["max_num_seqs = 5 lies outside the space"]),
        (
            {"speculation": "off", "max_num_seqs": 4, "max_num_seq": 4},
            ["'max_num_seq' is no parameter"],
        ),
    ],
)
def test_what_is_wrong_with_a_configuration(configuration, problems):
    assert SPACE.problems(configuration) == problems


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "speculation": st.sampled_from(["off", "ngram", "medusa"]),
            "draft_length": st.integers(-5, 50),
            "max_num_seqs": st.integers(-5, 5000),
            "unknown": st.text(),
        },
    )
)
def test_the_nearest_configuration_always_belongs_to_the_space(wanted):
    nearest = SPACE.nearest(wanted)
    assert SPACE.problems(nearest) == []
    assert SPACE.nearest(nearest) == nearest
    assert ("draft_length" in nearest) == (nearest["speculation"] == "ngram")


def test_a_description_is_plain_and_tells_kinds_ends_and_conditions():
    assert SPACE.describe() == {
        "draft_length": {
            "kind": "IntRange",
            "low": 1,
            "high": 8,
            "step": 1,
            "when": {"speculation": ["ngram"]},
        },
        "max_num_seqs": {"kind": "Log2Range", "low": 2, "high": 16},
        "speculation": {"kind": "Choices", "values": ["off", "ngram"]},
    }
    assert SearchSpace({"f": FloatRange(0.1, 0.9)}).describe() == {
        "f": {"kind": "FloatRange", "low": 0.1, "high": 0.9}
    }
