"""Lines and values of workload files, read so that whatever is wrong says where.

Owns how lines and JSON of a file become values or a ``UsageError`` with file and line; knows no
form of file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from tuner.errors import UsageError

# No model has a longer context; far below what an array of int64 can hold.
MAX_TOK = 10_000_000
# A prompt of a million tokens has some five million bytes.
_MAX_LINE_BYTES = 2**26
_MAX_SHOWN = 60
MEND = "correct or delete the line."


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file that are not blank, without the white space around them.

    Args:
        path: The file, UTF-8, with or without a byte order mark.

    Yields:
        ``(where, line)``, ``where`` being ``file:line`` for messages.

    Raises:
        UsageError: The file cannot be read, is no UTF-8, or has a line of over 64 MiB.
    """
    try:
        with path.open("rb") as file:
            n_line = 0
            while raw := file.readline(_MAX_LINE_BYTES + 1):
                n_line += 1
                where = f"{path}:{n_line}"
                if len(raw) > _MAX_LINE_BYTES:
                    raise UsageError(
                        f"{where}: the line has over {_MAX_LINE_BYTES} bytes: give a file with "
                        "one record per line."
                    )
                line = _decode(where, raw, is_first=n_line == 1).strip()
                if line:
                    yield where, line
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | ValueError) -> UsageError:
    """The error of a file that cannot be read, or whose name no file can have (``ValueError``)."""
    why = error.strerror if isinstance(error, OSError) else error
    return UsageError(f"{path}: the file cannot be read ({why}): check its name and rights.")


def read_object(where: str, line: str) -> dict[str, object]:
    """The JSON object that one line, at ``where``, holds.

    Raises:
        UsageError: The line is no JSON object, is nested too deeply, or has a number that JSON
            has no form for (``NaN``) or that is too long.
    """
    try:
        value = DECODER.decode(line)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{where}: {json_problem(error)} in {shown(line)}: {MEND}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{where}: {shown(value)} is no JSON object: {MEND}")
    return value


def json_problem(error: ValueError | RecursionError) -> str:
    """What is wrong with a text that is no JSON."""
    if isinstance(error, RecursionError):
        return "too many nested lists or objects"
    if isinstance(error, json.JSONDecodeError):
        return f"no valid JSON ({error.msg}, column {error.colno})"
    return "NaN, Infinity or a number with thousands of digits"


def read_count(where: str, name: str, value: object, *, minimum: int) -> int:
    """A token count.

    Args:
        where: Of the value, for messages.
        name: Of the value.
        value: Whatever the file holds.
        minimum: The smallest count allowed; the greatest is ``MAX_TOK``.

    Raises:
        UsageError: It is no whole number or out of range.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{where}: {name} is {shown(value)}, no whole number: {MEND}")
    if not minimum <= value <= MAX_TOK:
        raise UsageError(
            f"{where}: {name} is {shown(value)}, not from {minimum} to {MAX_TOK}: {MEND}"
        )
    return value


def shown(value: object) -> str:
    """A value of a file as a message shows it: short, whatever its size."""
    match value:
        case str():
            return repr(value) if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]!r}..."
        case None | bool():
            return json.dumps(value)
        case int() | float():
            text = repr(value)
            return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
        case list():
            return f"a list of {len(value)}"
        case _:
            return "an object"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _decode(where: str, raw: bytes, *, is_first: bool) -> str:
    try:
        # The codec that drops a byte order mark would drop one inside the file as well.
        return raw.decode("utf-8-sig" if is_first else "utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{where}: byte {raw[error.start]:#04x} is no UTF-8: save the file as UTF-8 text."
        ) from error
