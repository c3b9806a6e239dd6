import json
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from objectives import CATALOGUE, Exceedance, Load, OperatingPoint
from tuner.study.codec import (
    decode_failure,
    decode_number,
    decode_point,
    encode_failure,
    encode_number,
    encode_point,
)
from tuner.trial import Failed, FailureKind, Phase

POINT = OperatingPoint(
    load=Load.batch(16),
    metrics={"p99_tpot_ms": 34.5, "p99_ttft_ms": math.inf, "p99_e2el_ms": None, "n_failed": 0.0},
    exceedances={
        "p99_tpot_ms": Exceedance(n_over=2, n_total=889, design_effect=2.5, is_long_enough=False)
    },
    bounds={"p99_tpot_ms": (30.5, math.inf), "p50_tpot_ms": (None, 20.0)},
    invalid_reasons=("the client was saturated", "the prefix cache was warm"),
    limited_by="kv_cache",
    is_partial=True,
)


def through_json(value: object) -> object:
    """As the storage does it; a bare Infinity or NaN is no JSON."""
    return json.loads(json.dumps(value, allow_nan=False))


def test_a_point_is_stored_in_this_form() -> None:
    assert through_json(encode_point(POINT)) == {
        "load": ["batch_size", 16],
        "metrics": {
            "p99_tpot_ms": 34.5,
            "p99_ttft_ms": "inf",
            "p99_e2el_ms": None,
            "n_failed": 0.0,
        },
        "exceedances": {"p99_tpot_ms": [2, 889, 2.5, False]},
        "bounds": {"p99_tpot_ms": [30.5, "inf"], "p50_tpot_ms": [None, 20.0]},
        "invalid_reasons": ["the client was saturated", "the prefix cache was warm"],
        "limited_by": "kv_cache",
        "is_partial": True,
    }


numbers = st.none() | st.floats(allow_nan=False)
points = st.builds(
    OperatingPoint,
    load=st.builds(Load.batch, st.integers(1, 4096)),
    metrics=st.dictionaries(st.sampled_from(sorted(CATALOGUE)), numbers),
    exceedances=st.dictionaries(
        st.sampled_from(["p99_ttft_ms", "p99_tpot_ms"]),
        st.builds(Exceedance, n_over=st.integers(0, 10), n_total=st.integers(10, 10**6)),
    ),
    bounds=st.dictionaries(st.sampled_from(["p99_ttft_ms"]), st.tuples(numbers, numbers)),
    invalid_reasons=st.lists(st.text()).map(tuple),
    is_partial=st.booleans(),
)
failures = st.builds(
    Failed,
    kind=st.sampled_from(FailureKind),
    phase=st.sampled_from(Phase),
    message=st.text(),
    evidence=st.none() | st.text(),
    is_deterministic=st.booleans(),
    parameter=st.none() | st.text(),
    exit_code=st.none() | st.integers(-64, 255),
)


@given(points)
def test_a_point_comes_back_as_it_was(point: OperatingPoint) -> None:
    assert decode_point(through_json(encode_point(point))) == point


def test_a_point_of_a_study_from_before_bounds_were_kept_has_none() -> None:
    stored = encode_point(POINT)
    del stored["bounds"]
    assert decode_point(stored) == replace(POINT, bounds={})


@given(failures)
def test_a_failure_comes_back_as_it_was(failed: Failed) -> None:
    assert decode_failure(through_json(encode_failure(failed))) == failed


def test_the_points_of_a_failure_are_stored_elsewhere() -> None:
    failed = Failed(kind=FailureKind.ENGINE_DIED, phase=Phase.MEASURE, message="died")
    assert decode_failure(encode_failure(replace(failed, points=(POINT,)))) == failed


def test_decoding_leaves_the_stored_value_as_it_was() -> None:
    stored = encode_failure(Failed(kind=FailureKind.PORT, phase=Phase.START, message="taken"))
    before = dict(stored)
    decode_failure(stored)
    assert stored == before


@pytest.mark.parametrize(
    ("value", "stored"), [(None, None), (0.0, 0.0), (math.inf, "inf"), (-math.inf, "-inf")]
)
def test_infinity_is_text_and_nothing_is_null(value: float | None, stored: object) -> None:
    assert encode_number(value) == stored
    assert decode_number(stored) == value


def test_nan_is_refused() -> None:
    with pytest.raises(ValueError, match="a metric without data is None"):
        encode_number(math.nan)


def test_an_unknown_kind_of_failure_is_refused() -> None:
    stored = encode_failure(Failed(kind=FailureKind.PORT, phase=Phase.START, message="taken"))
    with pytest.raises(ValueError, match="gremlins"):
        decode_failure(stored | {"kind": "gremlins"})
