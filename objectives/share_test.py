"""The sequential test behind "P99 <= limit": is the share of requests over the limit at most 1 %?

Owns the decision rule. It may be looked at after every request and stopped as soon as it decides:
its error rates hold at every sample size at once.

Two null hypotheses are tested side by side, "share >= p0" (rejected: feasible) and "share <= p0"
(rejected: infeasible). For each, the likelihood of the counts under a mixture of alternatives on
the far side of p0, divided by the likelihood under p0, is a non-negative supermartingale under
the null that starts at 1; by Ville's inequality it reaches 1 / alpha with probability at most
alpha. (Ville, Etude critique de la notion de collectif, 1939; Robbins, Ann. Math. Statist. 41,
1970, for the mixture.) That holds for independent requests. Those of one batch are not quite, so
the counts are divided by their design effect first (see ``clumping``): with it, the test is right
for them by simulation, not by theorem.
"""

from __future__ import annotations

import math

from objectives.operating_point import Exceedance, Verdict

# Alternatives as multiples of p0 with their prior weights. A clean server has a share near zero;
# with all weight there, "none over" would decide at n = 299 for p0 = 1 %, and a single request
# over would forbid a decision for ever. This mixture decides at 329, 682, 889 and 1090 requests
# with none, one, two and three over.
_BELOW = ((0.0, 0.50), (0.15, 0.30), (0.40, 0.20))
# A broken level is far over as a rule: from twice to fifty times the allowed share.
_ABOVE = ((2.0, 0.15), (4.0, 0.20), (10.0, 0.30), (30.0, 0.25), (50.0, 0.10))
# Shares above this are not alternatives for a large p0 (0.5 for P50 leaves no room for 50 times).
_LARGEST_SHARE = 0.99


def decide_share(seen: Exceedance, max_share_frac: float, confidence: float = 0.95) -> Verdict:
    """Decide whether the share of requests over a limit is at most ``max_share_frac``.

    Args:
        seen: Requests over the limit and in total, so far.
        max_share_frac: p0 in (0, 1), 0.01 for a P99.
        confidence: 1 - alpha, for each of the two wrong decisions.

    Returns:
        FEASIBLE or INFEASIBLE once decided, UNDECIDED before.
    """
    threshold = -math.log(1 - confidence)
    is_met = log_evidence(seen, max_share_frac, _BELOW) >= threshold
    if is_met and seen.is_long_enough:
        return Verdict.FEASIBLE
    if log_evidence(seen, max_share_frac, _ABOVE) >= threshold:
        return Verdict.INFEASIBLE
    return Verdict.UNDECIDED


def log_evidence(
    seen: Exceedance, p0: float, alternatives: tuple[tuple[float, float], ...]
) -> float:
    """Natural logarithm of the mixture likelihood ratio against ``p0``.

    Args:
        seen: The counts.
        p0: The share at the edge of the null hypothesis.
        alternatives: Multiples of ``p0`` with weights that sum to 1; those that are no share of
            their own are moved to the largest possible one.

    Returns:
        The log evidence; ``-inf`` if the counts are impossible under every alternative.
    """
    n_over = seen.n_over / seen.design_effect
    n_under = (seen.n_total - seen.n_over) / seen.design_effect
    terms = []
    for multiple, weight in alternatives:
        share = min(multiple * p0, max(_LARGEST_SHARE, p0))
        if share == 0.0:
            if n_over:
                continue
            terms.append(math.log(weight) - n_under * math.log1p(-p0))
            continue
        terms.append(
            math.log(weight)
            + n_over * math.log(share / p0)
            + n_under * (math.log1p(-share) - math.log1p(-p0))
        )
    if not terms:
        return -math.inf
    top = max(terms)
    return top + math.log(sum(math.exp(term - top) for term in terms))
