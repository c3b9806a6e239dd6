"""Short ways to write the values that these tests are about."""

from __future__ import annotations

from objectives import Direction, Exceedance, Load, Objective, OperatingPoint, RequestRecord

FASTEST = Objective(metric="p99_tpot_ms", direction=Direction.MINIMIZE)
MOST = Objective(metric="output_tok_per_s", direction=Direction.MAXIMIZE)


def point(
    *,
    batch_size: int = 1,
    over: dict[str, tuple[int, int]] | None = None,
    invalid: tuple[str, ...] = (),
    **metrics: float | None,
) -> OperatingPoint:
    """A point; ``over`` has (over the limit, in total) by metric."""
    counts = {name: Exceedance(n_over=n, n_total=of) for name, (n, of) in (over or {}).items()}
    return OperatingPoint(
        load=Load.batch(batch_size), metrics=metrics, exceedances=counts, invalid_reasons=invalid
    )


def answer(
    *chunk_s: float,
    due_s: float = 0.0,
    n_output_tok: int | None = None,
    n_prompt_tok: int | None = None,
    is_warmup: bool = False,
) -> RequestRecord:
    """A request that ended well, with text at these moments, one token each unless said."""
    return RequestRecord(
        index=0,
        due_s=due_s,
        sent_s=due_s,
        chunk_s=chunk_s,
        end_s=chunk_s[-1] if chunk_s else due_s,
        n_prompt_tok=n_prompt_tok,
        n_output_tok=len(chunk_s) if n_output_tok is None else n_output_tok,
        n_output_tok_asked=len(chunk_s),
        is_warmup=is_warmup,
    )


def failure(*chunk_s: float, due_s: float = 0.0, is_warmup: bool = False) -> RequestRecord:
    """A request that broke off after these chunks, hence without a usage field."""
    return RequestRecord(
        index=0,
        due_s=due_s,
        sent_s=due_s,
        chunk_s=chunk_s,
        end_s=chunk_s[-1] if chunk_s else due_s,
        n_prompt_tok=None,
        n_output_tok=None,
        n_output_tok_asked=8,
        error="the connection was closed",
        is_warmup=is_warmup,
    )
