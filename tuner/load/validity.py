"""Why a measured level must not be used.

Owns the gate between a level and an operating point: an invalid point says why and never enters a
front, whatever its figures.
"""

from __future__ import annotations

from collections.abc import Sequence

from objectives import RequestRecord
from tuner.load.client_stats import ClientStats
from tuner.load.level import LevelResult, StopReason

# A single-threaded client that uses a core this much adds its own queue to every latency.
MAX_CLIENT_CPU_FRAC = 0.9
# Requests later than this are the client's delay in the server's figures.
MAX_LATE_SEND_P99_MS = 50.0
# A client that wakes so late sees many tokens arrive at once: its TTFT is too long and its TPOT
# too short. A level of under two seconds has no P99 of it, so a limit holds at P90 as well.
MAX_LAG_P99_MS = 25.0
MAX_LAG_P90_MS = 10.0
# Prompts that share nothing may still share a start token and a chat template.
MAX_STALE_HIT_FRAC = 0.1


def invalid_reasons(
    result: LevelResult, *, expected_model_is_serving: bool, stale_hit_frac: float | None = None
) -> tuple[str, ...]:
    """Everything that speaks against a level.

    Args:
        result: The level.
        expected_model_is_serving: Whether, after the level, the port still belonged to the
            server that was launched and it still generated a token.
        stale_hit_frac: Share of the prompt tokens that a prefix cache had, of a workload whose
            prompts share nothing; ``None`` if that is not known or prompts do share.

    Returns:
        Reasons in words; empty for a valid level. Errors of requests are none: they count in
        ``error_frac`` and in every latency.
    """
    reasons = []
    if result.stopped_because is StopReason.SERVER_GONE:
        reasons.append("the server was gone before the level ended")
    if result.stopped_because is StopReason.CANCELLED:
        reasons.append("the level was interrupted")
    if not result.measured:
        reasons.append("no request was measured")
    if not expected_model_is_serving:
        reasons.append("after the level, the server launched did not answer any more")
    if stale_hit_frac is not None and stale_hit_frac > MAX_STALE_HIT_FRAC:
        reasons.append(
            f"{stale_hit_frac:.0%} of the prompt tokens came from the prefix cache, although no "
            "prompt is like another"
        )
    return (*reasons, *_wrong_lengths(result.measured), *client_limits(result.client))


def _wrong_lengths(measured: Sequence[RequestRecord]) -> list[str]:
    counted = [r for r in measured if r.is_success]
    unknown = sum(r.n_output_tok is None for r in counted)
    wrong = sum(r.n_output_tok not in {None, r.n_output_tok_asked} for r in counted)
    reasons = []
    if unknown:
        reasons.append(f"{unknown} of {len(counted)} answers had no usage field")
    if wrong:
        reasons.append(f"{wrong} of {len(counted)} answers had another length than asked for")
    return reasons


def client_limits(client: ClientStats) -> list[str]:
    """In what way the client was too slow to be believed; empty if it was not."""
    reasons = []
    if client.cpu_frac > MAX_CLIENT_CPU_FRAC:
        reasons.append(
            f"the client was the bottleneck: it used {client.cpu_frac:.0%} of a core "
            f"(limit {MAX_CLIENT_CPU_FRAC:.0%})"
        )
    for label, lag_ms, limit_ms in (
        ("P99", client.lag_p99_ms, MAX_LAG_P99_MS),
        ("P90", client.lag_p90_ms, MAX_LAG_P90_MS),
    ):
        if lag_ms is not None and lag_ms > limit_ms:
            reasons.append(
                f"the client was starved: {label} of its lag was {lag_ms:.0f} ms (limit "
                f"{limit_ms:.0f} ms), so that tokens were seen late and together"
            )
            break
    if client.late_send_p99_ms is not None and client.late_send_p99_ms > MAX_LATE_SEND_P99_MS:
        reasons.append(
            f"the client was late: P99 of sending was {client.late_send_p99_ms:.0f} ms after due "
            f"(limit {MAX_LATE_SEND_P99_MS:.0f} ms)"
        )
    return reasons
