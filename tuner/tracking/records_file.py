"""Request records as a compressed CSV file: what every figure of a point was computed from."""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from pathlib import Path

from objectives import RequestRecord

_CHUNK_SEPARATOR = ";"


def write_records(file: Path, records: Sequence[RequestRecord]) -> None:
    """Write records, one row per request, times in seconds of the level's clock.

    The file appears whole or not at all, and equal records give equal files.

    Args:
        file: Ends in ``.csv.gz``.
        records: In any number.

    Raises:
        OSError: The file cannot be written.
    """
    import pandas as pd

    rows = {
        "index": [r.index for r in records],
        "due_s": [repr(r.due_s) for r in records],
        "sent_s": ["" if r.sent_s is None else repr(r.sent_s) for r in records],
        "end_s": [repr(r.end_s) for r in records],
        "n_prompt_tok": pd.array([r.n_prompt_tok for r in records], dtype="Int64"),
        "n_output_tok": pd.array([r.n_output_tok for r in records], dtype="Int64"),
        "n_output_tok_asked": [r.n_output_tok_asked for r in records],
        "is_warmup": [r.is_warmup for r in records],
        "is_success": [r.is_success for r in records],
        "error": [r.error or "" for r in records],
        # repr is the shortest text that reads back to the same float.
        "chunk_s": [_CHUNK_SEPARATOR.join(map(repr, r.chunk_s)) for r in records],
    }
    partial = file.with_name(f"{file.name}.part")
    # Neither time nor name in the header, or equal records would differ.
    with partial.open("wb") as raw, gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as packed:
        # Left to itself pandas does not quote a lone carriage return, which ends the row.
        pd.DataFrame(rows).to_csv(
            packed, index=False, quoting=csv.QUOTE_NONNUMERIC, errors="backslashreplace"
        )
    partial.replace(file)


def read_records(file: Path) -> list[RequestRecord]:
    """The inverse of ``write_records``.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a file of request records.
    """
    import pandas as pd

    try:
        table = pd.read_csv(file, compression="gzip", dtype=str, na_filter=False)
        columns = {str(name): table[name].tolist() for name in table.columns}
        return [
            _record(dict(zip(columns, values, strict=True)))
            for values in zip(*columns.values(), strict=True)
        ]
    except (KeyError, ValueError, EOFError) as error:
        raise ValueError(f"{file} is not a whole file of request records: {error}") from error


def _record(row: Mapping[str, str]) -> RequestRecord:
    chunks = row["chunk_s"].split(_CHUNK_SEPARATOR) if row["chunk_s"] else []
    chunks = row["chunk_s"].split(_CHUNK_SEPARATOR) if row["chunk_s"] else []
    return RequestRecord(
        index=int(row["index"]),
        due_s=float(row["due_s"]),
        sent_s=float(row["sent_s"]) if row["sent_s"] else None,
        chunk_s=tuple(map(float, chunks)),
        end_s=float(row["end_s"]),
        n_prompt_tok=int(row["n_prompt_tok"]) if row["n_prompt_tok"] else None,
        n_output_tok=int(row["n_output_tok"]) if row["n_output_tok"] else None,
        n_output_tok_asked=int(row["n_output_tok_asked"]),
        error=None if row["is_success"] == "True" else row["error"],
        is_warmup=row["is_warmup"] == "True",
    )
