"""Trace files: every form gives its rows, and every wrong file says where it is wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.load import text_lines
from tuner.load.traces import Trace, TraceRow, read_trace

OWN = "arrival_s,input_tokens,output_tokens\n"
SHARED = "arrival_s,input_tokens,output_tokens,prefix_hit_tokens_inf_cache\n"
LENGTHS = "num_prefill_tokens,num_decode_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
# A file of its own for each example: tmp_path is one for all.
fuzz = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def read(folder: Path, content: str | bytes) -> Trace:
    path = folder / "t.csv"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return read_trace(path)


def row(arrival_s: float | None, n_input: int, n_output: int, n_shared: int = 0) -> TraceRow:
    return TraceRow(
        arrival_s=arrival_s, n_input_tok=n_input, n_output_tok=n_output, n_shared_tok=n_shared
    )


def mooncake(timestamp: object, n_input: object, n_output: object, blocks: object) -> str:
    names = ("timestamp", "input_length", "output_length", "hash_ids")
    values = (timestamp, n_input, n_output, blocks)
    return json.dumps(dict(zip(names, values, strict=True))) + "\n"


def test_our_own_form_gives_its_rows_as_they_are(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "0.0,4808,10\n0.052,3180,8\n\n7,1,1")
    assert trace == Trace(
        rows=(row(0.0, 4808, 10), row(0.052, 3180, 8), row(7, 1, 1)), n_dropped=0
    )


def test_a_shared_prefix_leaves_at_least_one_token_to_compute(tmp_path: Path) -> None:
    trace = read(tmp_path, SHARED + "0,6758,500,0\n3,7322,490,512\n3,512,9,512\n4,10,9,512\n")
    assert [r.n_shared_tok for r in trace.rows] == [0, 512, 511, 9]


def test_a_file_of_lengths_has_no_arrivals_and_keeps_its_order(tmp_path: Path) -> None:
    trace = read(tmp_path, LENGTHS + "3772,54\n2015,156\n9999,1\n")
    assert trace.rows == (row(None, 3772, 54), row(None, 2015, 156), row(None, 9999, 1))


def test_azures_dates_become_seconds_from_the_first_row(tmp_path: Path) -> None:
    # The published file has line ends as on Windows.
    content = AZURE + (
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,3180,8\n"
        "2023-11-16 18:18:03.9799600,110,27\n"
    )
    trace = read(tmp_path, content.replace("\n", "\r\n"))
    assert trace.rows == (row(0.0, 4808, 10), row(0.052, 3180, 8), row(60.0, 110, 27))


def test_azures_dates_may_have_an_offset_and_no_fraction(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        AZURE
        + "2024-05-10 00:00:00.009930+00:00,5,6\n"
        + "2024-05-10T01:00:01+01:00,7,8\n"
        + "2024-05-10 00:00:02,9,10\n",
    )
    assert [r.arrival_s for r in trace.rows] == [0.0, 0.99007, 1.99007]


def test_azures_time_starts_at_the_first_row_that_is_kept(tmp_path: Path) -> None:
    trace = read(tmp_path, AZURE + "2023-11-16 00:00:00,5,0\n2023-11-16 00:00:30.5,6,1\n")
    assert trace == Trace(rows=(row(0.0, 6, 1),), n_dropped=1)


def test_mooncakes_milliseconds_and_blocks_are_read(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        mooncake(0, 1100, 500, [0, 1, 2])
        # Its first block is known, the second is not, and so the third does not count.
        + mooncake(0, 1500, 490, [0, 7, 2])
        # All three are known, which is more than the prompt is long.
        + mooncake(3052, 1100, 20, [0, 1, 2])
        + mooncake(3052.5, 600, 1, []),
    )
    assert trace.rows == (
        row(0.0, 1100, 500, 0),
        row(0.0, 1500, 490, 512),
        row(3.052, 1100, 20, 1099),
        row(3.0525, 600, 1, 0),
    )


def test_blocks_are_known_from_what_came_earlier_by_arrival_even_if_it_was_dropped(
    tmp_path: Path,
) -> None:
    trace = read(
        tmp_path,
        mooncake(900, 2000, 5, [4, 5, 6, 7])
        + mooncake(100, 2000, 5, [1, 2, 3, 8])
        + mooncake(50, 2000, 0, [1, 2, 9, 10])
        + mooncake(200, 2000, 5, [4, 5, 30, 40]),
    )
    assert trace.n_dropped == 1
    assert [(r.arrival_s, r.n_shared_tok) for r in trace.rows] == [
        (0.1, 1024),
        (0.2, 0),
        (0.9, 1024),
    ]


def test_rows_are_sorted_by_arrival_and_ties_keep_their_order(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "2,1,1\n1,2,1\n2,3,1\n1,4,1\n0,5,1\n")
    assert [r.n_input_tok for r in trace.rows] == [5, 2, 4, 1, 3]


def test_rows_without_output_are_dropped_and_counted(tmp_path: Path) -> None:
    trace = read(tmp_path, OWN + "0,9,0\n1,9,3\n2,9,0\n")
    assert trace == Trace(rows=(row(1.0, 9, 3),), n_dropped=2)


def test_a_byte_order_mark_is_no_part_of_the_header(tmp_path: Path) -> None:
    assert read(tmp_path, "\ufeff" + LENGTHS + "3,4\n").rows == (row(None, 3, 4),)
    assert read(tmp_path, "\ufeff" + mooncake(0, 3, 4, [])).rows == (row(0.0, 3, 4),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "t.csv: the file is empty: give a CSV file whose first line is 'arrival_s,input"),
        (" \n\n", "t.csv: the file is empty"),
        ("a,b\n1,2\n", "t.csv:1: 'a,b' is no known header: give a CSV"),
        ("\n\narrival_s,input_tokens\n0,2\n", "t.csv:3: 'arrival_s,input_tokens' is no known hea"),
        ("[1]", "t.csv:1: '[1]' is no known header"),
        (OWN, "t.csv: no row with output tokens is left (0 have none): give a trace"),
        (OWN + "0,1,0\n", "t.csv: no row with output tokens is left (1 have none)"),
        (OWN + "0,1,1\n\n0,1\n", "t.csv:4: '0,1' has 2 values, the header 3 columns (arrival_s,i"),
        (OWN + "0,1,1,1\n", "t.csv:2: '0,1,1,1' has 4 values"),
        (OWN + "x,1,1\n", "t.csv:2: arrival_s is 'x', no number: correct or delete the line."),
        (OWN + ",1,1\n", "t.csv:2: arrival_s is '', no number"),
        (OWN + "-0.5,1,1\n", "t.csv:2: arrival_s is -0.5, not from 0 to 31622400 (a year): give"),
        (OWN + "nan,1,1\n", "t.csv:2: arrival_s is nan, not from 0"),
        (OWN + "inf,1,1\n", "t.csv:2: arrival_s is inf, not from 0"),
        (OWN + "1700158624,1,1\n", "t.csv:2: arrival_s is 1700158624.0, not from 0"),
        (OWN + "0,1.5,1\n", "t.csv:2: input_tokens is '1.5', no whole number: correct or"),
        (OWN + "0,0,1\n", "t.csv:2: input_tokens is 0, not from 1 to 10000000: correct or"),
        (OWN + "0,1,-1\n", "t.csv:2: output_tokens is -1, not from 0 to 10000000"),
        (OWN + "0,1,10000001\n", "t.csv:2: output_tokens is 10000001, not from 0"),
        (OWN + f"0,{'9' * 70},1\n", f"t.csv:2: input_tokens is {'9' * 60}..., not from 1"),
        (OWN + f"0,{'9' * 5000},1\n", f"t.csv:2: input_tokens is '{'9' * 60}'..., no whole"),
        (SHARED + "0,5,1,x\n", "t.csv:2: prefix_hit_tokens_inf_cache is 'x', no whole number"),
        (LENGTHS + "5,1\n,1\n", "t.csv:3: num_prefill_tokens is '', no whole number"),
        (LENGTHS + "5,z\n", "t.csv:2: num_decode_tokens is 'z', no whole number"),
        (
            AZURE + "yesterday,5,1\n",
            "t.csv:2: TIMESTAMP is 'yesterday', no date and time like '20",
        ),
        (AZURE + "2023-11-31 00:00:00,5,1\n", "t.csv:2: TIMESTAMP is '2023-11-31 00:00:00', no"),
        (AZURE + "2023-11-16,5,1\n", "t.csv:2: TIMESTAMP is '2023-11-16', no date and time"),
        (AZURE + "2023-11-16 18:17:03,0,1\n", "t.csv:2: ContextTokens is 0, not from 1"),
        (AZURE + "2023-11-16 18:17:03,1,?\n", "t.csv:2: GeneratedTokens is '?', no whole"),
        (
            AZURE + "2025-01-01 00:00:00,1,1\n2023-01-01 00:00:00,1,1\n",
            "t.csv:2: the time since the first row is 63158400.0, not from 0",
        ),
        ("{}", "t.csv:1: timestamp, input_length, output_length, hash_ids missing in '{}': give"),
        (mooncake(0, 1, 1, []) + "[1, 2]\n", "t.csv:2: a list of 2 is no JSON object: correct"),
        (mooncake(0, 1, 1, []) + "{cut", "t.csv:2: no valid JSON (Expecting property name"),
        (mooncake(0, 1, 1, []).replace("0", "true", 1), "t.csv:1: timestamp is true, no number"),
        (mooncake("0", 1, 1, []), "t.csv:1: timestamp is '0', no number"),
        (mooncake(-1, 1, 1, []), "t.csv:1: timestamp is -1, not from 0 to 31622400000 (a year)"),
        (mooncake(10**400, 1, 1, []), f"t.csv:1: timestamp is 1{'0' * 59}..., not from 0"),
        (mooncake(0, {"a": 1}, 1, []), "t.csv:1: input_length is an object, no whole number"),
        (mooncake(0, 1.0, 1, []), "t.csv:1: input_length is 1.0, no whole number"),
        (mooncake(0, 1, None, []), "t.csv:1: output_length is null, no whole number"),
        (mooncake(0, 1, 1, 7), "t.csv:1: hash_ids is 7, no list of whole numbers"),
        (mooncake(0, 1, 1, [1, [2]]), "t.csv:1: hash_ids is a list of 2, no list of whole"),
        (mooncake(float("nan"), 1, 1, []), "t.csv:1: NaN, Infinity or a number with thousands"),
        ('{"a": ' + "9" * 5000 + "}", "t.csv:1: NaN, Infinity or a number with thousands"),
        (
            '{"a": 1e999, "timestamp": 1e999}',
            "t.csv:1: input_length, output_length, hash_ids missing",
        ),
        ('{"a": ' + "[" * 100_000, 't.csv:1: too many nested lists or objects in \'{"a": [[['),
        (b"arrival_s\n\xff\n", "t.csv:1: 'arrival_s' is no known header"),
        (OWN.encode() + b"0,1,1\n\xff\n", "t.csv:3: byte 0xff is no UTF-8: save the file as UTF"),
        (OWN.encode("utf-16"), "t.csv:1: byte 0xff is no UTF-8"),
        (b"\x00" * 100, "t.csv:1: '\\x00\\x00"),
    ],
)
def test_a_wrong_file_is_refused_with_place_value_and_remedy(
    tmp_path: Path, content: str | bytes, message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)) as error:
        read(tmp_path, content)
    assert len(str(error.value)) < 700
    assert str(error.value).startswith(str(tmp_path))


def test_a_time_too_large_for_a_float_is_refused(tmp_path: Path) -> None:
    line = mooncake(0, 1, 1, []).replace('"timestamp": 0', '"timestamp": 1e999')
    with pytest.raises(UsageError, match=r"t\.csv:1: timestamp is inf, not from 0"):
        read(tmp_path, line)


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(text_lines, "_MAX_LINE_BYTES", 100)
    assert len(read(tmp_path, OWN + "0,1,1\n" * 90).rows) == 90
    with pytest.raises(UsageError, match=r"t\.csv:2: the line has over 100 bytes"):
        read(tmp_path, OWN + "0" * 200)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: the file cannot be read.*No such file"):
        read_trace(tmp_path / "none.csv")
    with pytest.raises(UsageError, match=r"cannot be read.*directory"):
        read_trace(tmp_path)
    with pytest.raises(UsageError, match=r"cannot be read.*null byte"):
        read_trace(tmp_path / "a\0b")


def check(folder: Path, content: bytes) -> None:
    """Reads ``content``: either rows that keep every promise, or a ``UsageError``."""
    try:
        trace = read(folder, content)
    except UsageError as error:
        assert "t.csv" in str(error)  # noqa: PT017 - either is right
        return
    assert trace.rows
    assert all(r.n_output_tok > 0 and 0 <= r.n_shared_tok < r.n_input_tok for r in trace.rows)
    arrivals = [r.arrival_s for r in trace.rows if r.arrival_s is not None]
    assert len(arrivals) in {0, len(trace.rows)}
    assert arrivals == sorted(arrivals)
    assert all(0 <= arrival < 4e7 for arrival in arrivals)


headers = st.sampled_from([OWN, SHARED, LENGTHS, AZURE, "{", "", "\ufeff" + OWN])


@fuzz
@given(headers, st.binary(max_size=200))
def test_no_bytes_raise_anything_but_a_usage_error(
    tmp_path: Path, header: str, body: bytes
) -> None:
    check(tmp_path, header.encode() + body)


cells = st.one_of(
    st.integers().map(str),
    st.integers(0, 2000).map(str),
    st.floats().map(str),
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(str),
    st.text(max_size=6),
)


@fuzz
@given(headers, st.lists(st.lists(cells, min_size=2, max_size=4), max_size=6))
@example(AZURE, [["0001-01-01 00:00:00+14:00", "1", "1"], ["9999-12-31 23:59:59-14:00", "1", "1"]])
def test_no_cells_raise_anything_but_a_usage_error(
    tmp_path: Path, header: str, lines: list[list[str]]
) -> None:
    body = "\n".join(",".join(line) for line in lines)
    check(tmp_path, (header + body).encode("utf-8", "surrogatepass"))


scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5)
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=5)
blocks = st.lists(st.integers(0, 4), max_size=4)


@fuzz
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9) | values,
            st.integers(1, 2000) | values,
            st.integers(0, 3) | values,
            blocks | values,
        ),
        max_size=5,
    )
)
@example([(10**400, 1, 1, []), (0.5, 1, 1, [])])
def test_no_objects_raise_anything_but_a_usage_error(
    tmp_path: Path, rows: list[tuple[object, object, object, object]]
) -> None:
    check(tmp_path, "".join(mooncake(*cells) for cells in rows).encode())


@fuzz
@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(1, 3000), st.integers(0, 2), blocks),
        min_size=1,
        max_size=8,
    )
)
def test_shared_tokens_are_those_of_the_longest_prefix_in_any_earlier_row(
    tmp_path: Path, rows: list[tuple[int, int, int, list[int]]]
) -> None:
    # Ids stand for whole prefixes, as in Mooncake's files: each names the chain before it.
    chains = [[hash(tuple(ids[: n + 1])) for n in range(len(ids))] for *_, ids in rows]
    content = "".join(
        mooncake(time, n_in, n_out, ids)
        for (time, n_in, n_out, _), ids in zip(rows, chains, strict=True)
    )
    order = sorted(range(len(rows)), key=lambda i: rows[i][0])
    expected = []
    for at, i in enumerate(order):
        _, n_input, n_output, ids = rows[i]
        earlier = [rows[j][3] for j in order[:at]]
        n_common = max(
            (n for n in range(len(ids) + 1) for other in earlier if other[:n] == ids[:n]),
            default=0,
        )
        if n_output:
            expected.append(min(512 * n_common, n_input - 1))
    if expected:
        assert [r.n_shared_tok for r in read(tmp_path, content).rows] == expected
