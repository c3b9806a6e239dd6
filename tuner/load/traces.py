"""Recorded traffic: when requests came and how long they were, read from a trace file.

Owns the forms of trace files. Knows nothing of prompts: traces hold no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain, takewhile
from pathlib import Path

from tuner.errors import UsageError
from tuner.load.text_lines import MEND, read_count, read_lines, read_object, shown

# An arrival later than a year is a date or a slip, not a time from the trace's start.
_MAX_ARRIVAL_S = 366 * 24 * 3600
_BLOCK_TOK = 512

_OWN = ("arrival_s", "input_tokens", "output_tokens")
_OWN_SHARED = (*_OWN, "prefix_hit_tokens_inf_cache")
_LENGTHS = ("num_prefill_tokens", "num_decode_tokens")
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOONCAKE = ("timestamp", "input_length", "output_length", "hash_ids")
_HELP = (
    "give a CSV file whose first line is "
    + ", ".join(f"'{','.join(columns)}'" for columns in (_OWN, _OWN_SHARED, _LENGTHS))
    + f" or '{','.join(_AZURE)}', or a JSONL file of objects with {', '.join(_MOONCAKE)}."
)
_STAMP = re.compile(
    r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:\d\d)?", flags=re.ASCII
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceRow:
    """One recorded request.

    Attributes:
        arrival_s: Seconds from the trace's start, at least 0; ``None`` where the file has lengths
            only.
        n_input_tok: Prompt tokens, at least 1.
        n_output_tok: Answer tokens, at least 1.
        n_shared_tok: Leading prompt tokens that an earlier prompt of the trace had too, at most
            ``n_input_tok - 1``, since an engine computes at least one; 0 where the file says
            nothing of them.
    """

    arrival_s: float | None
    n_input_tok: int
    n_output_tok: int
    n_shared_tok: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Trace:
    """A trace file's requests.

    Attributes:
        rows: At least one, by arrival; in the file's order where arrivals are equal or unknown.
        n_dropped: Rows left out because they have no output token: nothing can be measured on
            them. Azure's traces hold some.
    """

    rows: tuple[TraceRow, ...]
    n_dropped: int


@dataclass(frozen=True, kw_only=True, slots=True)
class _Record:
    """A row as its file has it, its time in the unit of the form."""

    where: str
    time: float | None
    n_input_tok: int
    n_output_tok: int
    n_shared_tok: int = 0
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Form:
    """How the rows of one kind of file are read.

    Attributes:
        read: ``(where, line) -> record``.
        per_s: Units of the record's time in a second.
        is_absolute: Times are dates, to be made relative to the first.
    """

    read: Callable[[str, str], _Record]
    per_s: int = 1
    is_absolute: bool = False


def read_trace(path: Path) -> Trace:
    """Read a trace in any of the known forms, told apart by their first line.

    The forms are our own CSV, a CSV of lengths without arrivals, the CSV that Azure published
    (dates, made relative to the earliest row kept) and Mooncake's JSONL (milliseconds from the
    start, ids of 512-token blocks). A Mooncake row shares as many leading blocks as rows before
    it, by arrival, have had; rows that are dropped count, for their prompts were computed.

    Args:
        path: The file, UTF-8.

    Returns:
        Its rows, sorted by arrival.

    Raises:
        UsageError: The file cannot be read, has another form, or holds a wrong value; the message
            names file and line.
    """
    lines = read_lines(path)
    first = next(lines, None)
    if first is None:
        raise UsageError(f"{path}: the file is empty: {_HELP}")
    if first[1].startswith("{"):
        form, lines = _Form(read=_read_mooncake, per_s=1000), chain([first], lines)
    else:
        form = _csv_form(*first)
    records = [form.read(where, line) for where, line in lines]
    # Stable, so that ties and rows without arrivals keep the file's order.
    records.sort(key=lambda record: record.time or 0)
    trace = Trace(
        rows=tuple(_to_rows(records, form)),
        n_dropped=sum(record.n_output_tok == 0 for record in records),
    )
    if not trace.rows:
        raise UsageError(
            f"{path}: no row with output tokens is left ({trace.n_dropped} have none): give a "
            "trace with at least one such row."
        )
    return trace


def _csv_form(where: str, header: str) -> _Form:
    columns = tuple(cell.strip() for cell in header.split(","))
    if columns not in {_OWN, _OWN_SHARED, _LENGTHS, _AZURE}:
        raise UsageError(f"{where}: {shown(header)} is no known header: {_HELP}")
    if columns == _AZURE:
        return _Form(
            read=lambda where, line: _read_csv(where, line, columns, _cell_stamp_us),
            per_s=1_000_000,
            is_absolute=True,
        )
    read_time = None if columns == _LENGTHS else _cell_time
    return _Form(read=lambda where, line: _read_csv(where, line, columns, read_time))


def _read_csv(
    where: str,
    line: str,
    columns: tuple[str, ...],
    read_time: Callable[[str, str, str], float] | None,
) -> _Record:
    """A row of time (unless ``read_time`` is ``None``), input, output maybe shared tokens."""
    cells = line.split(",")
    if len(cells) != len(columns):
        raise UsageError(
            f"{where}: {shown(line)} has {len(cells)} values, the header {len(columns)} columns "
            f"({','.join(columns)}): {MEND}"
        )
    named = list(zip(columns, cells, strict=True))
    time = read_time(where, *named.pop(0)) if read_time else None
    n_input, n_output, *shared = (
        _cell_count(where, name, cell, minimum=0 if index else 1)
        for index, (name, cell) in enumerate(named)
    )
    return _Record(
        where=where,
        time=time,
        n_input_tok=n_input,
        n_output_tok=n_output,
        n_shared_tok=sum(shared),
    )


def _read_mooncake(where: str, line: str) -> _Record:
    row = read_object(where, line)
    missing = [name for name in _MOONCAKE if name not in row]
    if missing:
        raise UsageError(
            f"{where}: {', '.join(missing)} missing in {shown(line)}: give every row "
            f"{', '.join(_MOONCAKE)}."
        )
    time_ms = row["timestamp"]
    if not isinstance(time_ms, int | float) or isinstance(time_ms, bool):
        raise UsageError(f"{where}: timestamp is {shown(time_ms)}, no number: {MEND}")
    _check_time(where, "timestamp", time_ms, per_s=1000)
    blocks = row["hash_ids"]
    if not isinstance(blocks, list) or not all(type(block) is int for block in blocks):
        raise UsageError(f"{where}: hash_ids is {shown(blocks)}, no list of whole numbers: {MEND}")
    return _Record(
        where=where,
        time=time_ms,
        n_input_tok=read_count(where, "input_length", row["input_length"], minimum=1),
        n_output_tok=read_count(where, "output_length", row["output_length"], minimum=0),
        blocks=tuple(blocks),
    )


def _cell_count(where: str, name: str, cell: str, *, minimum: int) -> int:
    try:
        value: object = int(cell)
    except ValueError:
        value = cell
    return read_count(where, name, value, minimum=minimum)


def _cell_time(where: str, name: str, cell: str) -> float:
    try:
        time_s = float(cell)
    except ValueError as error:
        raise UsageError(f"{where}: {name} is {shown(cell)}, no number: {MEND}") from error
    _check_time(where, name, time_s, per_s=1)
    return time_s


def _cell_stamp_us(where: str, name: str, cell: str) -> int:
    """Microseconds since 1970; a stamp without an offset is taken as UTC."""
    cell = cell.strip()
    try:
        stamp = datetime.fromisoformat(cell) if _STAMP.fullmatch(cell) else None
    except ValueError:
        stamp = None
    if stamp is None:
        raise UsageError(
            f"{where}: {name} is {shown(cell)}, no date and time like "
            f"'2023-11-16 18:17:03.9799600': {MEND}"
        )
    if stamp.tzinfo is None:
        stamp = stamp.replace(tzinfo=UTC)
    return (stamp - _EPOCH) // timedelta(microseconds=1)


def _check_time(where: str, name: str, time: float, *, per_s: int) -> None:
    # Before any arithmetic: an integer of JSON may be too large for a float. NaN fails as well.
    if not 0 <= time <= _MAX_ARRIVAL_S * per_s:
        raise UsageError(
            f"{where}: {name} is {shown(time)}, not from 0 to {_MAX_ARRIVAL_S * per_s} (a year): "
            "give times from the trace's start."
        )


def _to_rows(records: Iterable[_Record], form: _Form) -> Iterator[TraceRow]:
    start = None
    seen: set[int] = set()
    for record in records:
        n_known = sum(1 for _ in takewhile(seen.__contains__, record.blocks))
        seen.update(record.blocks)
        if record.n_output_tok == 0:
            continue
        arrival_s = None
        if record.time is not None:
            if start is None:
                start = record.time if form.is_absolute else 0
            arrival_s = (record.time - start) / form.per_s
            _check_time(record.where, "the time since the first row", arrival_s, per_s=1)
        yield TraceRow(
            arrival_s=arrival_s,
            n_input_tok=record.n_input_tok,
            n_output_tok=record.n_output_tok,
            n_shared_tok=min(
                max(record.n_shared_tok, n_known * _BLOCK_TOK), record.n_input_tok - 1
            ),
        )
