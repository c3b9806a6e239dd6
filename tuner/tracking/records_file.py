"""Request records as a compressed CSV file: what every figure of a point was computed from."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from objectives import RequestRecord

# Shortest text that reads back to the same float, so that the figures can be recomputed exactly.
_CHUNK_SEPARATOR = ";"


def write_records(file: Path, records: Sequence[RequestRecord]) -> None:
    """Write records, one row per request, times in seconds of the level's clock.

    Args:
        file: Ends in ``.csv.gz``.
        records: In any number.
    """
    rows = {
        "index": [r.index for r in records],
        "due_s": [r.due_s for r in records],
        "sent_s": [r.sent_s for r in records],
        "end_s": [r.end_s for r in records],
        "n_prompt_tok": pd.array([r.n_prompt_tok for r in records], dtype="Int64"),
        "n_output_tok": pd.array([r.n_output_tok for r in records], dtype="Int64"),
        "n_output_tok_asked": [r.n_output_tok_asked for r in records],
        "is_warmup": [r.is_warmup for r in records],
        "error": [r.error for r in records],
        "chunk_s": [_CHUNK_SEPARATOR.join(map(repr, r.chunk_s)) for r in records],
    }
    # A fixed time in the header: equal records give equal files.
    compression = {"method": "gzip", "mtime": 0}
    pd.DataFrame(rows).to_csv(file, index=False, compression=compression)


def read_records(file: Path) -> list[RequestRecord]:
    """The inverse of ``write_records``.

    Raises:
        OSError: The file cannot be read.
    """
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        return [_record(row) for row in csv.DictReader(lines)]


def _record(row: dict[str, str]) -> RequestRecord:
    return RequestRecord(
        index=int(row["index"]),
        due_s=float(row["due_s"]),
        sent_s=float(row["sent_s"]) if row["sent_s"] else None,
        chunk_s=tuple(map(float, row["chunk_s"].split(_CHUNK_SEPARATOR)))
        if row["chunk_s"]
        else (),
        end_s=float(row["end_s"]),
        n_prompt_tok=int(row["n_prompt_tok"]) if row["n_prompt_tok"] else None,
        n_output_tok=int(row["n_output_tok"]) if row["n_output_tok"] else None,
        n_output_tok_asked=int(row["n_output_tok_asked"]),
        error=row["error"] or None,
        is_warmup=row["is_warmup"] == "True",
    )
