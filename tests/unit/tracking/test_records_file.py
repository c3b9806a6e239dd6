import csv
import gzip
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from objectives import RequestRecord
from tuner.tracking import read_records, write_records

SERVED = RequestRecord(
    index=0,
    due_s=0.1,
    sent_s=0.1 + 0.2,
    chunk_s=(0.5, 1 / 3 + 1, 2.0),
    end_s=2.25,
    n_prompt_tok=32,
    n_output_tok=12,
    n_output_tok_asked=12,
    is_warmup=True,
)
NEVER_SENT = RequestRecord(
    index=1,
    due_s=0.0,
    sent_s=None,
    chunk_s=(),
    end_s=3.0,
    n_prompt_tok=None,
    n_output_tok=None,
    n_output_tok_asked=12,
    error='no connection, "refused"\nby 127.0.0.1',
)

finite = st.floats(allow_nan=False, allow_infinity=False)
counts = st.integers(min_value=0, max_value=10**9)
# Lone surrogates are no text, and the client decodes what it receives.
texts = st.text(st.characters(exclude_categories=["Cs"]))
records = st.builds(
    RequestRecord,
    index=counts,
    due_s=finite,
    sent_s=st.none() | finite,
    chunk_s=st.lists(finite, max_size=5).map(tuple),
    end_s=finite,
    n_prompt_tok=st.none() | counts,
    n_output_tok=st.none() | counts,
    n_output_tok_asked=counts,
    error=st.none() | texts,
    is_warmup=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(records, max_size=6))
def test_any_records_read_back_exactly(written: list[RequestRecord]) -> None:
    with TemporaryDirectory() as folder:
        file = Path(folder) / "requests.csv.gz"
        write_records(file, written)
        assert read_records(file) == written


@pytest.mark.parametrize(
    "error", ["cut\rhere", "a\r\nb", "nul \x00 byte", "NA", "None", " x ", '"']
)
def test_odd_error_texts_read_back_exactly(tmp_path: Path, error: str) -> None:
    file = tmp_path / "requests.csv.gz"
    write_records(file, [replace(NEVER_SENT, error=error)])
    assert read_records(file)[0].error == error


def test_the_file_is_plain_csv_for_other_programs(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv.gz"
    write_records(file, [SERVED, NEVER_SENT])
    with gzip.open(file, "rt", encoding="utf-8", newline="") as lines:
        served, never_sent = csv.DictReader(lines)
    assert served == {
        "index": "0",
        "due_s": "0.1",
        "sent_s": "0.30000000000000004",
        "end_s": "2.25",
        "n_prompt_tok": "32",
        "n_output_tok": "12",
        "n_output_tok_asked": "12",
        "is_warmup": "True",
        "is_success": "True",
        "error": "",
        "chunk_s": "0.5;1.3333333333333333;2.0",
    }
    assert (never_sent["sent_s"], never_sent["n_prompt_tok"], never_sent["chunk_s"]) == ("",) * 3
    assert never_sent["error"] == 'no connection, "refused"\nby 127.0.0.1'


def test_an_answer_of_twenty_thousand_chunks_reads_back(tmp_path: Path) -> None:
    # Its column is longer than the 131072 characters that Python's csv module stops at.
    chunks = tuple(index / 7 for index in range(20_000))
    record = RequestRecord(
        index=0,
        due_s=0.0,
        sent_s=0.0,
        chunk_s=chunks,
        end_s=3000.0,
        n_prompt_tok=1,
        n_output_tok=20_000,
        n_output_tok_asked=20_000,
    )
    file = tmp_path / "requests.csv.gz"
    write_records(file, [record])
    assert read_records(file) == [record]


def test_an_error_without_words_stays_a_failure(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv.gz"
    silent = RequestRecord(
        index=0,
        due_s=0.0,
        sent_s=0.0,
        chunk_s=(),
        end_s=1.0,
        n_prompt_tok=None,
        n_output_tok=None,
        n_output_tok_asked=1,
        error="",
    )
    write_records(file, [silent])
    assert not read_records(file)[0].is_success


def test_equal_records_give_equal_files(tmp_path: Path) -> None:
    first, second = tmp_path / "a.csv.gz", tmp_path / "b.csv.gz"
    write_records(first, [SERVED])
    write_records(second, [SERVED])
    assert first.read_bytes() == second.read_bytes()


def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "requests.csv.gz"
    write_records(file, [SERVED])

    def fill_the_disk(self: gzip.GzipFile, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip.GzipFile, "write", fill_the_disk)
    with pytest.raises(OSError, match="No space left"):
        write_records(file, [NEVER_SENT])
    assert read_records(file) == [SERVED]


def test_nothing_but_the_file_is_left(tmp_path: Path) -> None:
    write_records(tmp_path / "requests.csv.gz", [SERVED])
    assert [path.name for path in tmp_path.iterdir()] == ["requests.csv.gz"]


@pytest.mark.parametrize("content", [b"", b"a,b\n1,2\n", b"\xff\xfe"])
def test_another_files_content_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "requests.csv.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(ValueError, match=r"requests\.csv\.gz is not a whole file"):
        read_records(file)


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "requests.csv.gz"
    write_records(file, [SERVED, NEVER_SENT])
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(ValueError, match="not a whole file"):
        read_records(file)


def test_a_missing_file_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "requests.csv.gz")
