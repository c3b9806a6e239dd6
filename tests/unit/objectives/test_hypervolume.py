import itertools
import math
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from optuna._hypervolume import compute_hypervolume

from objectives import hypervolume

ONES = {m: np.ones(m) for m in (1, 2, 3, 4)}


def boxes(m: int, *, max_size: int = 12) -> st.SearchStrategy[np.ndarray]:
    """Rows of eighths, some of them outside the unit box: exact in floating point, many ties."""
    rows = st.integers(0, max_size)
    eighths = st.integers(0, 9).map(lambda n: n / 8)
    return rows.flatmap(lambda n: arrays(float, (n, m), elements=eighths))


def test_one_point_dominates_its_box() -> None:
    assert hypervolume(np.array([[0.25]]), ONES[1]) == 0.75
    assert hypervolume(np.array([[0.5, 0.25]]), ONES[2]) == 0.375
    assert hypervolume(np.array([[0.5, 0.5, 0.25]]), ONES[3]) == 0.1875
    assert hypervolume(np.array([[0.5, 0.5, 0.5, 0.5]]), ONES[4]) == 0.0625


def test_no_point_dominates_nothing() -> None:
    assert hypervolume(np.empty((0, 2)), ONES[2]) == 0.0
    assert hypervolume(np.empty((0, 3)), ONES[3]) == 0.0


def test_a_point_on_or_beyond_the_reference_adds_nothing() -> None:
    assert hypervolume(np.array([[0.0, 1.0], [1.0, 0.0], [2.0, -5.0]]), ONES[2]) == 0.0
    assert hypervolume(np.array([[0.5, 0.5], [0.0, 1.0]]), ONES[2]) == 0.25


@pytest.mark.parametrize("n", [1, 2, 5, 50])
def test_a_staircase_of_n_steps_has_a_closed_form(n: int) -> None:
    # Corners (i/n, (n-1-i)/n): below the staircase n (n + 1) / 2 cells of 1/n^2 are dominated.
    steps = np.arange(n)
    corners = np.stack([steps / n, (n - 1 - steps) / n], axis=1)
    assert hypervolume(corners, ONES[2]) == pytest.approx((n + 1) / (2 * n))


def test_three_unit_bars_along_the_axes_overlap_in_one_corner() -> None:
    # Each dominates 1 x 1/2 x 1/2; every pair and all three share the 1/8 at the corner.
    bars = np.array([[0.0, 0.5, 0.5], [0.5, 0.0, 0.5], [0.5, 0.5, 0.0]])
    assert hypervolume(bars, ONES[3]) == 3 / 4 - 3 / 8 + 1 / 8


def test_throughput_and_latency_are_measured_from_their_reference() -> None:
    # 100 tok/s at 20 ms and 300 tok/s at 40 ms, from 0 tok/s and 50 ms:
    # 300 x 10 ms, and 100 x 20 ms more to the left of it.
    losses = np.array([[-100.0, 20.0], [-300.0, 40.0]])
    assert hypervolume(losses, np.array([0.0, 50.0])) == 300 * 10 + 100 * 20


def test_an_infinite_or_missing_loss_adds_nothing() -> None:
    rows = np.array([[0.5, 0.5], [math.inf, 0.0], [math.nan, 0.0], [0.0, math.nan]])
    assert hypervolume(rows, ONES[2]) == 0.25


def by_inclusion_exclusion(losses: np.ndarray, reference: np.ndarray) -> float:
    total = 0.0
    for size in range(1, len(losses) + 1):
        for chosen in itertools.combinations(losses, size):
            sides = np.maximum(reference - np.max(chosen, axis=0), 0)
            total -= (-1) ** size * float(np.prod(sides))
    return total


@pytest.mark.parametrize("m", [1, 2, 3, 4])
@given(data=st.data())
def test_the_volume_is_that_of_inclusion_and_exclusion(m: int, data: st.DataObject) -> None:
    losses = data.draw(boxes(m, max_size=6))
    expected = by_inclusion_exclusion(losses, ONES[m])
    assert hypervolume(losses, ONES[m]) == pytest.approx(expected, abs=1e-12)


@given(boxes(3), boxes(3))
def test_the_union_is_the_sum_less_the_intersection(a: np.ndarray, b: np.ndarray) -> None:
    # The part that both dominate is what the pairwise maxima dominate.
    pairs = np.array([np.maximum(x, y) for x in a for y in b]).reshape(-1, 3)
    both = hypervolume(np.concatenate([a, b]), ONES[3])
    expected = hypervolume(a, ONES[3]) + hypervolume(b, ONES[3]) - hypervolume(pairs, ONES[3])
    assert both == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("m", [2, 3, 4])
def test_the_volume_is_optunas(m: int) -> None:
    rng = np.random.default_rng(m)
    for n in (1, 3, 10, 40):
        losses = rng.random((n, m)).round(2)
        expected = compute_hypervolume(losses, ONES[m])
        assert hypervolume(losses, ONES[m]) == pytest.approx(expected)


@given(boxes(3), st.permutations(range(3)), st.randoms(use_true_random=False))
def test_neither_the_order_of_rows_nor_of_objectives_matters(
    losses: np.ndarray, columns: list[int], random: Random
) -> None:
    rows = list(range(len(losses)))
    random.shuffle(rows)
    same = losses[rows][:, columns] if rows else losses
    assert hypervolume(same, ONES[3]) == pytest.approx(hypervolume(losses, ONES[3]), abs=1e-12)


@given(boxes(3), boxes(3, max_size=1))
def test_a_further_point_never_lessens_the_volume(a: np.ndarray, extra: np.ndarray) -> None:
    grown = hypervolume(np.concatenate([a, extra]), ONES[3])
    assert grown >= hypervolume(a, ONES[3]) - 1e-12


@pytest.mark.parametrize("reference", [[1.0, math.inf], [math.nan, 1.0]])
def test_an_infinite_reference_is_refused(reference: list[float]) -> None:
    with pytest.raises(ValueError, match="the reference must be finite"):
        hypervolume(np.zeros((1, 2)), np.array(reference))


def test_a_reference_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a reference of shape \(3,\) for losses \(1, 2\)"):
        hypervolume(np.zeros((1, 2)), np.ones(3))
