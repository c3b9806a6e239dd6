"""Requests spent and wrong decisions of the sequential share test, against fixed sample sizes.

Run it: ``python tests/bench/sequential.py [--levels N]``. Requests of one batch can share one
fate (``--batch``), which the test's guarantee does not cover: the last table shows the cost.
"""

from __future__ import annotations

import argparse
from functools import cache

import numpy as np

from objectives import Exceedance, Verdict
from objectives.share_test import decide_share

P0 = 0.01
SHARES = (0.001, 0.003, 0.01, 0.011, 0.02, 0.05, 0.1, 0.2)
FIXED = (100, 300, 1000)
MAX_REQUESTS = 1000
MIN_REQUESTS = 20


@cache
def decide(n_over: int, n_total: int) -> Verdict:
    return decide_share(Exceedance(n_over=n_over, n_total=n_total), P0)


def sequential(over: np.ndarray) -> tuple[Verdict, int]:
    """Look after every request, as a level does; the verdict and the requests it took."""
    counts = np.cumsum(over)
    for n_total in range(MIN_REQUESTS, len(over) + 1):
        verdict = decide(int(counts[n_total - 1]), n_total)
        if verdict is not Verdict.UNDECIDED:
            return verdict, n_total
    return Verdict.UNDECIDED, len(over)


def fixed(over: np.ndarray, n_total: int) -> Verdict:
    """What tools do: the P99 of a fixed number of requests is over the limit, or it is not."""
    is_met = over[:n_total].mean() <= P0
    return Verdict.FEASIBLE if is_met else Verdict.INFEASIBLE


def wrong_frac(verdicts: list[Verdict], share: float) -> float:
    wrong = Verdict.INFEASIBLE if share <= P0 else Verdict.FEASIBLE
    return verdicts.count(wrong) / len(verdicts)


def draw(share: float, batch: int, rng: np.random.Generator) -> np.ndarray:
    n_batches = -(-MAX_REQUESTS // batch)
    return np.repeat(rng.random(n_batches) < share, batch)[:MAX_REQUESTS]


def table(n_levels: int, batch: int) -> None:
    print(f"\n{n_levels} levels per share, requests in groups of {batch} with one fate")
    heads = "".join(f"  wrong n={n:<5}" for n in FIXED)
    print(f"{'share':>6}  {'requests':>8}  {'wrong':>6}  {'undecided':>9}{heads}")
    rng = np.random.default_rng(batch)
    for share in SHARES:
        levels = [draw(share, batch, rng) for _ in range(n_levels)]
        outcomes = [sequential(level) for level in levels]
        verdicts = [verdict for verdict, _ in outcomes]
        spent = float(np.mean([n_total for _, n_total in outcomes]))
        undecided = verdicts.count(Verdict.UNDECIDED) / n_levels
        others = "".join(
            f"  {wrong_frac([fixed(level, n) for level in levels], share):>12.1%}" for n in FIXED
        )
        wrong = wrong_frac(verdicts, share)
        print(f"{share:>6.1%}  {spent:>8.0f}  {wrong:>6.1%}  {undecided:>9.1%}{others}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--levels", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    table(arguments.levels, 1)
    table(arguments.levels, arguments.batch)


if __name__ == "__main__":
    main()
