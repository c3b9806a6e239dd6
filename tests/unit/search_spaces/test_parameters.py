import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from search_spaces.configuration import configuration_key
from search_spaces.parameters import Choices, FloatRange, IntRange, Log2Range

VALUES = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Choices(()), "choices are empty"),
        (lambda: Choices((1, 2, 1)), "choice 1 stands there twice"),
        (lambda: Choices((1.0, math.nan)), "finite"),
        (lambda: Choices((1.0, math.inf)), "finite"),
        (lambda: IntRange(5, 4), r"range \[5, 4\] is empty"),
        (lambda: IntRange(0, 10, 3), "step 3 does not lead from 0 to 10"),
        (lambda: IntRange(0, 10, 0), "step 0"),
        (lambda: IntRange(0, 10, -5), "step -5"),
        (lambda: Log2Range(3, 8), "powers of two, not 3"),
        (lambda: Log2Range(2, 12), "powers of two, not 12"),
        (lambda: Log2Range(0, 8), "powers of two, not 0"),
        (lambda: Log2Range(-4, 8), "powers of two, not -4"),
        (lambda: Log2Range(16, 8), r"log2 range \[16, 8\] is empty"),
        (lambda: FloatRange(0.5, 0.5), "is empty"),
        (lambda: FloatRange(0.6, 0.5), "is empty"),
        (lambda: FloatRange(0.0, math.inf), "finite"),
        (lambda: FloatRange(math.nan, 1.0), "finite"),
    ],
)
def test_an_empty_or_endless_parameter_is_refused_with_its_values(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_true_one_and_one_point_zero_are_three_choices():
    choices = Choices((True, 1, 1.0, "1"))
    assert choices.size() == 4
    assert not Choices((1,)).contains(value=True)
    assert not Choices((True,)).contains(1)
    assert not Choices((1,)).contains(1.0)


@pytest.mark.parametrize(
    ("parameter", "values"),
    [
        (IntRange(2, 8, 3), [2, 5, 8]),
        (IntRange(7, 7), [7]),
        (Log2Range(2, 16), [2, 4, 8, 16]),
        (Log2Range(1, 1), [1]),
        (Choices((16, 64)), [16, 64]),
    ],
)
def test_a_finite_parameter_holds_exactly_its_values(parameter, values):
    assert [number for number in range(-20, 100) if parameter.contains(number)] == values
    assert parameter.size() == len(values)


@pytest.mark.parametrize("parameter", [IntRange(0, 4), Log2Range(1, 4), FloatRange(0.0, 4.0)])
@pytest.mark.parametrize("value", [True, False, "2", ""])
def test_truth_values_and_words_are_in_no_range(parameter, value):
    assert not parameter.contains(value)


def test_a_float_range_holds_its_ends_and_whole_numbers_and_no_count():
    parameter = FloatRange(0.5, 2.0)
    assert parameter.contains(0.5)
    assert parameter.contains(2.0)
    assert parameter.contains(1)
    assert not parameter.contains(2.0000001)
    assert not parameter.contains(math.nan)
    assert parameter.size() is None


def test_whole_numbers_of_a_range_are_not_floats():
    assert not IntRange(0, 4).contains(2.0)
    assert not Log2Range(1, 4).contains(2.0)


@pytest.mark.parametrize(
    ("parameter", "wanted", "nearest"),
    [
        (Choices((2048, 4096, 8192)), 5000, 4096),
        (Choices((2048, 4096, 8192)), 10**9, 8192),
        (Choices((2, 4, 8)), 1, 2),
        (Choices(("bf16", "fp8")), "fp8", "fp8"),
        (Choices(("fp8", "bf16")), "int8", "fp8"),
        (Choices(("auto", 4)), 5, "auto"),
        (Choices((False, True)), True, True),
        (IntRange(0, 9, 3), 5, 6),
        (IntRange(0, 9, 3), -50, 0),
        (IntRange(0, 9, 3), 50, 9),
        (IntRange(3, 9), None, 3),
        (IntRange(3, 9), "word", 3),
        (Log2Range(2, 16), 1024, 16),
        (Log2Range(2, 16), 1, 2),
        (Log2Range(2, 16), 5, 4),
        # On a log scale 6 lies nearer to 8: 8/6 = 1.33, 6/4 = 1.5.
        (Log2Range(2, 16), 6, 8),
        (Log2Range(2, 16), 0, 2),
        (FloatRange(0.5, 0.9), 0.92, 0.9),
        (FloatRange(0.5, 0.9), 0.7, 0.7),
        (FloatRange(0.5, 0.9), None, 0.5),
    ],
)
def test_the_nearest_value(parameter, wanted, nearest):
    assert parameter.nearest(wanted) == nearest


@given(
    parameter=st.one_of(
        st.lists(VALUES, min_size=1, max_size=6)
        .filter(lambda values: len({(type(v), v) for v in values}) == len(values))
        .filter(lambda values: all(not isinstance(v, float) or math.isfinite(v) for v in values))
        .map(lambda values: Choices(tuple(values))),
        st.builds(
            lambda low, n, step: IntRange(low, low + n * step, step),
            st.integers(-1000, 1000),
            st.integers(0, 50),
            st.integers(1, 9),
        ),
        st.builds(
            lambda a, b: Log2Range(2**a, 2 ** (a + b)), st.integers(0, 9), st.integers(0, 9)
        ),
        st.builds(
            lambda low, width: FloatRange(low, low + width),
            st.floats(-1e3, 1e3),
            st.floats(1e-3, 1e3),
        ),
    ),
    wanted=st.one_of(
        st.none(), st.booleans(), st.integers(-(10**9), 10**9), st.floats(-1e9, 1e9), st.text()
    ),
)
def test_the_nearest_value_is_always_in_the_parameter_and_a_member_is_its_own(parameter, wanted):
    nearest = parameter.nearest(wanted)
    assert parameter.contains(nearest)
    assert parameter.nearest(nearest) == nearest
    if wanted is not None and parameter.contains(wanted):
        assert nearest == wanted


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=5))
def test_equal_configurations_share_a_key_in_any_order(configuration):
    backwards = dict(reversed(configuration.items()))
    assert configuration_key(configuration) == configuration_key(backwards)


def test_true_and_one_have_different_keys():
    assert configuration_key({"a": True}) != configuration_key({"a": 1})
    assert configuration_key({"a": 1}) != configuration_key({"a": 1.0})
    assert configuration_key({"a": 1}) != configuration_key({"a": "1"})
    assert configuration_key({"b": 1, "a": "x"}) == '{"a":"x","b":1}'
