import math
import warnings

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from objectives import OperatingPoint, Slo, is_on_front, pareto_front
from tests.unit.objectives.builders import FASTEST, MOST, point

TPOT = Slo(metric="p99_tpot_ms", limit=40)


def losses_of(m: int, *, max_rows: int = 25) -> st.SearchStrategy[np.ndarray]:
    """Few distinct values, so that ties, duplicates, infinity and NaN are common."""
    value = st.sampled_from([-1.0, 0.0, -0.0, 1.0, 2.0, 3.0, math.inf, math.nan])
    return st.integers(0, max_rows).flatmap(lambda n: arrays(float, (n, m), elements=value))


def by_definition(losses: np.ndarray) -> list[bool]:
    """O(n^2): no row is at most as large everywhere and smaller somewhere; first of equals."""
    on_front = []
    for i, row in enumerate(losses):
        beaten = any(
            (other <= row).all() and ((other < row).any() or j < i)
            for j, other in enumerate(losses)
            if j != i and not np.isnan(other).any()
        )
        on_front.append(not np.isnan(row).any() and not beaten)
    return on_front


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@given(data=st.data())
def test_the_front_is_the_one_of_the_definition(m: int, data: st.DataObject) -> None:
    losses = data.draw(losses_of(m))
    assert is_on_front(losses).tolist() == by_definition(losses)


def test_a_tie_in_one_objective_leaves_only_the_better_in_the_other() -> None:
    losses = np.array([[1.0, 5.0], [1.0, 4.0], [2.0, 4.0], [3.0, 3.0], [3.0, 3.5]])
    assert is_on_front(losses).tolist() == [False, True, False, True, False]


def test_of_equal_rows_the_first_stays() -> None:
    assert is_on_front(np.array([[1.0, 2.0]] * 3)).tolist() == [True, False, False]
    assert is_on_front(np.array([[1.0, 2.0, 3.0]] * 3)).tolist() == [True, False, False]


def test_a_row_with_nan_neither_enters_nor_beats() -> None:
    losses = np.array([[math.nan, 0.0], [5.0, 5.0], [0.0, math.nan]])
    assert is_on_front(losses).tolist() == [False, True, False]


def test_no_rows_have_no_front() -> None:
    assert is_on_front(np.empty((0, 2))).tolist() == []
    assert is_on_front(np.full((2, 3), math.nan)).tolist() == [False, False]


@pytest.mark.parametrize("m", [2, 3])
def test_a_large_random_front_is_the_one_of_the_definition(m: int) -> None:
    losses = np.random.default_rng(m).integers(0, 60, size=(300, m)).astype(float)
    assert is_on_front(losses).tolist() == by_definition(losses)


def test_the_front_is_best_first_in_the_first_objective() -> None:
    points = [
        point(p99_tpot_ms=30.0, output_tok_per_s=300.0),
        point(p99_tpot_ms=10.0, output_tok_per_s=100.0),
        point(p99_tpot_ms=20.0, output_tok_per_s=200.0),
        point(p99_tpot_ms=20.0, output_tok_per_s=150.0),
    ]
    assert pareto_front(points, [MOST, FASTEST]) == [0, 2, 1]
    assert pareto_front(points, [FASTEST, MOST]) == [1, 2, 0]


def test_what_is_off_limits_invalid_or_unmeasured_beats_nothing() -> None:
    points = [
        point(p99_tpot_ms=41.0, output_tok_per_s=900.0),
        point(p99_tpot_ms=1.0, output_tok_per_s=900.0, invalid=("the prefix cache was warm",)),
        point(p99_tpot_ms=1.0, output_tok_per_s=None),
        point(p99_tpot_ms=1.0, output_tok_per_s=900.0, over={"p99_tpot_ms": (20, 200)}),
        point(p99_tpot_ms=30.0, output_tok_per_s=100.0),
    ]
    assert pareto_front(points, [MOST, FASTEST], [TPOT]) == [4]


def test_an_unproven_point_within_its_limit_is_on_the_front() -> None:
    points = [point(p99_tpot_ms=30.0, output_tok_per_s=1.0, over={"p99_tpot_ms": (0, 100)})]
    assert pareto_front(points, [MOST, FASTEST], [TPOT]) == [0]


def test_one_objective_has_a_front_of_one() -> None:
    points = [point(output_tok_per_s=value) for value in (1.0, 3.0, 3.0, 2.0)]
    assert pareto_front(points, [MOST]) == [1]


def optuna_front(points: list[OperatingPoint]) -> set[tuple[float, ...]]:
    """Optuna's own front of the same values, its constraint being the slack."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        study = optuna.create_study(
            directions=["maximize", "minimize"], sampler=optuna.samplers.RandomSampler(seed=0)
        )
        for measured in points:
            trial = study.ask()
            tpot_ms = measured.metrics["p99_tpot_ms"]
            trial.set_constraint("tpot", tpot_ms / 40 - 1)
            study.tell(trial, [measured.metrics["output_tok_per_s"], tpot_ms])
        return {tuple(trial.values) for trial in study.best_trials}


@pytest.mark.parametrize("seed", range(4))
def test_the_front_within_the_limits_is_optunas(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = [
        point(p99_tpot_ms=float(tpot), output_tok_per_s=float(rate))
        for tpot, rate in rng.integers(20, 60, size=(40, 2))
    ]
    front = pareto_front(points, [MOST, FASTEST], [TPOT])
    values = {
        (points[i].metrics["output_tok_per_s"], points[i].metrics["p99_tpot_ms"]) for i in front
    }
    assert values == optuna_front(points)
    assert len(values) == len(front) > 1
