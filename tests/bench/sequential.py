"""Requests spent and wrong decisions of the sequential share test, against fixed sample sizes.

Run it: ``python tests/bench/sequential.py [--levels N]``. Requests of one batch can share one
fate (``--batch``), which the test's guarantee does not cover: the last table shows the cost.
"""

from __future__ import annotations

import argparse

import numpy as np
from numpy.typing import NDArray

from objectives import Exceedance, RequestRecord, ShareWatch, Slo, Verdict, decide_share
from tuner.config.schema import LevelSpec
from tuner.trial_runner import MIN_INFEASIBLE

SLO = Slo(metric="p99_ttft_ms", limit=100.0)
P0 = 0.01
SHARES = (0.001, 0.003, 0.01, 0.011, 0.02, 0.05, 0.1, 0.2)
FIXED = (100, 300, 1000)
MAX_REQUESTS = 1000


def request(ttft_s: float) -> RequestRecord:
    return RequestRecord(
        index=0,
        due_s=0.0,
        sent_s=0.0,
        chunk_s=(ttft_s,),
        end_s=ttft_s,
        n_prompt_tok=1,
        n_output_tok=1,
        n_output_tok_asked=1,
    )


IN_TIME, LATE = request(0.05), request(0.2)


def sequential(over: NDArray[np.bool_], batch: int) -> tuple[Verdict, int]:
    """The verdict of a level that stops when its watch says so, and the requests it took."""
    watch = ShareWatch(
        [SLO],
        confidence=0.95,
        min_feasible=LevelSpec().min_requests,
        min_infeasible=MIN_INFEASIBLE + 2 * batch,
    )
    for n_total, is_late in enumerate(over, start=1):
        if watch.add(LATE if is_late else IN_TIME):
            seen = Exceedance(n_over=int(over[:n_total].sum()), n_total=n_total)
            return decide_share(seen, P0, 0.95), n_total
    return Verdict.UNDECIDED, len(over)


def fixed(over: NDArray[np.bool_], n_total: int) -> Verdict:
    """What tools do: the P99 of a fixed number of requests is over the limit, or it is not."""
    is_met = over[:n_total].mean() <= P0
    return Verdict.FEASIBLE if is_met else Verdict.INFEASIBLE


def wrong_frac(verdicts: list[Verdict], share: float) -> float:
    wrong = Verdict.INFEASIBLE if share <= P0 else Verdict.FEASIBLE
    return verdicts.count(wrong) / len(verdicts)


def draw(share: float, batch: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    n_batches = -(-MAX_REQUESTS // batch)
    return np.repeat(rng.random(n_batches) < share, batch)[:MAX_REQUESTS]


def table(n_levels: int, batch: int) -> None:
    print(f"\n{n_levels} levels per share, requests in groups of {batch} with one fate")
    heads = "".join(f"  wrong n={n:<5}" for n in FIXED)
    print(f"{'share':>6}  {'requests':>8}  {'wrong':>6}  {'undecided':>9}{heads}")
    rng = np.random.default_rng(batch)
    for share in SHARES:
        levels = [draw(share, batch, rng) for _ in range(n_levels)]
        outcomes = [sequential(level, batch) for level in levels]
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
