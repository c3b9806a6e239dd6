"""Requests spent and wrong decisions of the sequential share test, against fixed sample sizes.

Run it: ``python tests/bench/sequential.py [--levels N]``. Levels of independent requests, and of
batches whose requests are correlated or share one fate. The test is asked as a level asks it: at
every request, with what was in flight worked out from the records.
"""

from __future__ import annotations

import argparse
import math
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from objectives import RequestRecord, ShareWatch, Slo, Verdict, count_exceedances, decide_share
from tuner.config.schema import LevelSpec
from tuner.trial_runner import MIN_INFEASIBLE

SLO = Slo(metric="p99_ttft_ms", limit=1000.0)
P0 = 0.01
SHARES = (0.001, 0.003, 0.01, 0.011, 0.02, 0.05, 0.1, 0.2)
FIXED = (100, 300, 1000)
MAX_REQUESTS = 1000


def record(index: int, due_s: float, ttft_s: float) -> RequestRecord:
    return RequestRecord(
        index=index,
        due_s=due_s,
        sent_s=due_s,
        chunk_s=(due_s + ttft_s,),
        end_s=due_s + 1.0,
        n_prompt_tok=1,
        n_output_tok=1,
        n_output_tok_asked=1,
    )


def sequential(ttft_s: NDArray[np.float64], batch: int) -> tuple[Verdict, int]:
    """The verdict of a level that stops when its watch says so, and the requests it took."""
    watch = ShareWatch(
        [SLO],
        confidence=0.95,
        min_feasible=LevelSpec().min_requests,
        min_infeasible=MIN_INFEASIBLE + 2 * batch,
    )
    records = [record(n, float(n // batch), float(late)) for n, late in enumerate(ttft_s)]
    for n_total, each in enumerate(records, start=1):
        if watch.add(each):
            seen = count_exceedances(records[:n_total], [SLO])[SLO.metric]
            return decide_share(seen, P0, 0.95), n_total
    return Verdict.UNDECIDED, len(records)


def fixed(ttft_s: NDArray[np.float64], n_total: int) -> Verdict:
    """What tools do: the P99 of a fixed number of requests is over the limit, or it is not."""
    is_met = (ttft_s[:n_total] > 1.0).mean() <= P0
    return Verdict.FEASIBLE if is_met else Verdict.INFEASIBLE


def wrong_frac(verdicts: list[Verdict], share: float) -> float:
    wrong = Verdict.INFEASIBLE if share <= P0 else Verdict.FEASIBLE
    return verdicts.count(wrong) / len(verdicts)


def draw(
    share: float, batch: int, correlation: float, rng: np.random.Generator
) -> NDArray[np.float64]:
    """TTFTs in seconds, a share of them over one second, normal copulas within batches."""
    n_batches = -(-MAX_REQUESTS // batch)
    shared = np.repeat(rng.standard_normal(n_batches), batch)
    own = rng.standard_normal(n_batches * batch)
    normal = math.sqrt(correlation) * shared + math.sqrt(1 - correlation) * own
    return np.exp(0.1 * (normal[:MAX_REQUESTS] - NormalDist().inv_cdf(1 - share)))


def table(n_levels: int, batch: int, correlation: float) -> None:
    print(
        f"\n{n_levels} levels per share, batches of {batch}, correlation {correlation:g} in them"
    )
    heads = "".join(f"  wrong n={n:<5}" for n in FIXED)
    print(f"{'share':>6}  {'requests':>8}  {'wrong':>6}  {'undecided':>9}{heads}")
    rng = np.random.default_rng(batch)
    for share in SHARES:
        levels = [draw(share, batch, correlation, rng) for _ in range(n_levels)]
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
    parser.add_argument("--levels", type=int, default=500)
    parser.add_argument("--batch", type=int, default=8)
    arguments = parser.parse_args()
    table(arguments.levels, 1, 0.0)
    for correlation in (0.3, 0.6, 1.0):
        table(arguments.levels, arguments.batch, correlation)


if __name__ == "__main__":
    main()
