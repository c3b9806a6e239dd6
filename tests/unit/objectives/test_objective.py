import math

import numpy as np
import pytest

from objectives import CATALOGUE, Direction, Objective, to_losses
from tests.unit.objectives.builders import FASTEST, MOST, point


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(ValueError, match="'tpot' is not a metric of the catalogue"):
        Objective(metric="tpot", direction=Direction.MINIMIZE)


def test_a_metric_that_merely_describes_is_no_objective() -> None:
    with pytest.raises(ValueError, match="'n_requests' has no better direction"):
        Objective(metric="n_requests", direction=Direction.MAXIMIZE)


@pytest.mark.parametrize(
    ("metric", "wrong", "message"),
    [
        ("p99_tpot_ms", Direction.MAXIMIZE, "is to minimize, not to maximize"),
        ("output_tok_per_s", Direction.MINIMIZE, "is to maximize, not to minimize"),
    ],
)
def test_the_worse_direction_is_refused(metric: str, wrong: Direction, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Objective(metric=metric, direction=wrong)


def test_exactly_the_metrics_with_a_direction_can_be_wanted() -> None:
    wanted = set()
    for name in CATALOGUE:
        for direction in Direction:
            try:
                Objective(metric=name, direction=direction)
            except ValueError:
                continue
            wanted.add((name, direction))
    assert wanted == {(name, m.direction) for name, m in CATALOGUE.items() if m.direction}


def test_only_what_is_to_maximize_changes_its_sign() -> None:
    points = [
        point(p99_tpot_ms=20.0, output_tok_per_s=900.0),
        point(p99_tpot_ms=30.0, output_tok_per_s=0.0),
    ]
    losses = to_losses(points, [FASTEST, MOST])
    np.testing.assert_array_equal(losses, [[20.0, -900.0], [30.0, 0.0]])


def test_a_missing_value_is_nan_and_never_zero() -> None:
    losses = to_losses([point(p99_tpot_ms=None), point()], [FASTEST, MOST])
    assert np.isnan(losses).all()


def test_an_infinite_latency_is_an_infinite_loss() -> None:
    assert to_losses([point(p99_tpot_ms=math.inf)], [FASTEST])[0, 0] == math.inf


def test_no_points_still_have_a_column_per_objective() -> None:
    assert to_losses([], [FASTEST, MOST]).shape == (0, 2)
