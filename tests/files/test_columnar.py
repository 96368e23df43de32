"""Columns: what is guessed of CSV, and said, beside pyarrow's own reading; Arrow files and what hurts in them."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from palearn import files
from palearn.errors import FileFormatError, RecordError
from palearn.files import arrow, csv
from palearn.records import Record
from tests.streams import seconds


def good(path: Path, **options: Any) -> list[Record]:
    return [row for _, row in files.read(path, **options) if isinstance(row, Record)]


def reasons(path: Path) -> list[str | None]:
    return [row.reason if isinstance(row, RecordError) else None for _, row in files.read(path)]


# -- CSV ---------------------------------------------------------------------------------------------------

CSV = (
    "age,job,urgent,zip,label,id,mixed\n"
    "39,clerk,true,02139,1,7,?\n?,cook,FALSE,12,0,8,9\n4,,,,0,,1\n5.5,clerk,true,3,1,9,2\n"
)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "a.csv"
    path.write_text(CSV)
    return path


def test_kinds_of_csv_are_guessed_and_cells_that_differ_are_kept(table: Path) -> None:
    assert files.kinds(table) == {
        "age": "number",
        "job": "text",
        "urgent": "boolean",
        "zip": "number",
        "label": "label",
        "id": "id",
        "mixed": "number",
    }
    first, second, third, _ = good(table)
    assert first.features == {"age": 39.0, "job=clerk": 1.0, "urgent": 1.0, "zip": 2139.0, "mixed=?": 1.0}
    assert second.features == {"age=?": 1.0, "job=cook": 1.0, "urgent": 0.0, "zip": 12.0, "mixed": 9.0}
    assert third.features == {"age": 4.0, "mixed": 1.0}


def test_kinds_of_csv_can_be_said(table: Path) -> None:
    columns = {"zip": "text", "mixed": "ignore", "id": "ignore", "job": "id", "urgent": "text"}
    assert {name: kind for name, kind in files.kinds(table, columns=columns).items() if name in columns} == columns
    first, *_ = good(table, columns=columns)
    assert first == Record(label=1, id="clerk", features={"age": 39.0, "urgent=true": 1.0, "zip=02139": 1.0})
    assert [x.features for x in good(table, columns={"label": "boolean", "id": "text"}, label="mixed")] == [
        {"age": 39.0, "job=clerk": 1.0, "urgent": 1.0, "zip": 2139.0, "label": 1.0, "id=7": 1.0},
        {"age=?": 1.0, "job=cook": 1.0, "urgent": 0.0, "zip": 12.0, "label": 0.0, "id=8": 1.0},
        {"age": 4.0, "label": 0.0},
        {"age": 5.5, "job=clerk": 1.0, "urgent": 1.0, "zip": 3.0, "label": 1.0, "id=9": 1.0},
    ]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ({"none": "text"}, "no column 'none'; the columns are: age, job"),
        ({"age": "float"}, "'age' must be one of number, text, boolean, bag, id, weight, time, ignore, got 'float'"),
        ({"label": "text"}, "'label' is the label's column"),
        ({"job": "id"}, "the columns job, id would all be the id"),
    ],
)
def test_what_columns_cannot_be(table: Path, columns: dict[str, str], told: str) -> None:
    with pytest.raises(FileFormatError, match=told):
        list(files.read(table, columns=columns))
    with pytest.raises(FileFormatError, match=told):
        files.kinds(table, columns=columns)


def test_other_formats_have_no_columns(tmp_path: Path) -> None:
    (tmp_path / "a.libsvm").write_text("1 1:1\n")
    with pytest.raises(FileFormatError, match="libsvm has no columns"):
        files.read(tmp_path / "a.libsvm", columns={"a": "text"})
    assert files.kinds(tmp_path / "a.libsvm") == {}


def test_guesses_are_those_of_pyarrow_where_a_column_is_of_one_kind(tmp_path: Path) -> None:
    dice = np.random.default_rng(8)
    columns: dict[str, list[str]] = {"label": ["1"] * 50}
    for i in range(40):
        make = [
            lambda: str(dice.integers(-9, 9)),
            lambda: repr(float(dice.normal())),
            lambda: str(dice.choice(["true", "false"])),
            lambda: str(dice.choice(["red", "blue", "x1", "a b"])),
        ][i % 4]
        columns[f"c{i}"] = [make() if dice.random() < 0.8 else "" for _ in range(50)]
    path = tmp_path / "a.csv"
    lines = [",".join(columns), *map(",".join, zip(*columns.values(), strict=True))]
    path.write_text("\n".join(lines) + "\n")
    theirs = arrow_csv.read_csv(path, convert_options=arrow_csv.ConvertOptions(strings_can_be_null=True))
    names = {"int64": "number", "double": "number", "bool": "boolean", "string": "text"}
    expected = {field.name: names[str(field.type)] for field in theirs.schema} | {"label": "label"}
    assert files.kinds(path) == expected
    # And the same records as pyarrow's own types give through Parquet.
    pq.write_table(theirs, tmp_path / "a.parquet")
    assert good(path) == good(tmp_path / "a.parquet")


def test_the_guess_is_made_from_the_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "SAMPLE_ROWS", 3)
    path = tmp_path / "a.csv"
    path.write_text("x,label\n" + "1,0\n" * 3 + "red,1\n" * 9)
    assert files.kinds(path)["x"] == "number"
    assert [row.features for row in good(path)] == [{"x": 1.0}] * 3 + [{"x=red": 1.0}] * 9
    monkeypatch.setattr(csv, "SAMPLE_ROWS", 1000)
    assert files.kinds(path)["x"] == "text"


def test_evaluate_shows_what_columns_are_and_takes_another_word(table: Path, run: Any) -> None:
    status, out, err = run("evaluate", str(table), "--column", "zip=text", "--column", "id=ignore")
    assert (status, "4 examples" in out) == (0, True)
    told = "age number, job text, urgent boolean, zip text, label, id ignore, mixed number"
    assert err == f"{table}: {told} (change one with --column NAME=text)\n"
    status, out, err = run("evaluate", str(table), "--json")
    assert json.loads(out)["n"] == 4
    status, out, err = run("evaluate", str(table), "--column", "zip")
    assert (status, "--column takes NAME=KIND" in err) == (2, True)


def test_a_held_out_file_s_columns_are_those_of_the_first(tmp_path: Path, run: Any) -> None:
    train, test = tmp_path / "a.csv", tmp_path / "b.csv"
    train.write_text("x,label\n" + "red,1\nblue,-1\n7,1\n" * 4)
    test.write_text("x,label\n7,1\n7,1\n")  # numbers by themselves, one of three texts beside the first
    status, out, _ = run("evaluate", str(train), "--holdout", str(test), "--no-bias", "--json")
    assert (status, json.loads(out)["holdout"]["mistakes"]) == (0, [0])


def test_standard_input_is_a_file(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    def piped(content: bytes) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(content)))

    piped(b'{"label":1,"features":{"a":1}}\n' * 3)
    status, out, _ = run("evaluate", "-", "--json")
    assert (status, json.loads(out)["n"]) == (0, 3)
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [1.0, 2.0], "label": [1, -1]}), sink)
    for content, format in ((CSV.encode(), "csv"), (ipc(TABLE), "arrow"), (sink.getvalue(), "parquet")):
        piped(content)
        assert [number for number, _ in files.read("-", format=format)][:2] in ([1, 2], [2, 3])
        assert files.kinds("-", format=format) == {}
    assert run("evaluate", "-", "--shuffle", "1", "--repeats", "2")[0] == 2
    assert run("search", "-")[0] == 2


# -- Arrow ---------------------------------------------------------------------------------------------------


def ipc(table: pa.Table, *, stream: bool = False, **options: Any) -> bytes:
    sink = io.BytesIO()
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=2)
    return sink.getvalue()


TABLE = pa.table(
    {
        "n": [1, None, 3],
        "flag": [True, False, None],
        "job": pa.array(["clerk", None, "cook"]).dictionary_encode(),
        "view": pa.array(["u", None, "w"]).cast(pa.string_view()),
        "tags": [["a", "b", "a"], [], None],
        "label": ["x", None, "y"],
        "id": [7, 8, 9],
    }
)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("compression", [None, "lz4", "zstd"])
def test_arrow_rows_are_those_of_parquet(tmp_path: Path, stream: bool, compression: str | None) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(ipc(TABLE, stream=stream, compression=compression))
    pq.write_table(TABLE.set_column(3, "view", TABLE["view"].cast(pa.string())), tmp_path / "a.parquet")
    rows = list(files.read(path))
    assert rows == list(files.read(tmp_path / "a.parquet"))
    assert rows[0][1] == Record(
        label="x", id=7, features={"n": 1.0, "flag": 1.0, "job=clerk": 1.0, "view=u": 1.0, "tags=a": 2.0, "tags=b": 1.0}
    )
    columns = {"n": "text", "tags": "ignore", "id": "number"}
    assert good(path, columns=columns)[2] == Record(
        label="y", features={"n=3": 1.0, "job=cook": 1.0, "view=w": 1.0, "id": 9.0}
    )
    assert files.kinds(path, columns={"n": "text"}) == {
        "n": "text",
        "flag": "boolean",
        "job": "text",
        "view": "text",
        "tags": "bag",
        "label": "label",
        "id": "id",
    }


def test_arrow_maps_and_views(tmp_path: Path) -> None:
    maps = pa.map_(pa.string(), pa.float64())
    table = pa.table({"label": [1, 2], "features": pa.array([[("b", 1.0), ("a", 2.0)], []], maps)})
    feather.write_feather(table, tmp_path / "a.feather")
    assert good(tmp_path / "a.feather") == [
        Record(label=1, features={"b": 1.0, "a": 2.0}),
        Record(label=2, features={}),
    ]
    feather.write_feather(pa.table({"label": [1], "views": [{"p": {"x": 1.0}}]}), tmp_path / "v.feather")
    assert good(tmp_path / "v.feather") == [Record(label=1, views={"p": {"x": 1.0}})]


@pytest.mark.parametrize("stream", [False, True])
def test_an_arrow_file_that_ends_anywhere_is_damaged(tmp_path: Path, stream: bool) -> None:
    whole = ipc(TABLE, stream=stream)
    path = tmp_path / "a.arrow"
    allowed = 0
    for size in range(0, len(whole), 37):
        path.write_bytes(whole[:size])
        try:
            found = len(list(files.read(path)))
        except FileFormatError:
            continue
        allowed += 1
        assert stream  # which may end after any message
        assert found in (0, 2, 3)
    assert allowed < 5
    path.write_bytes(b"FEA1" + whole)
    with pytest.raises(FileFormatError, match="Feather version 1"):
        list(files.read(path))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[None] * 3], pa.list_(pa.null())),
        pa.array([[True]]),
        pa.array([[{}]], pa.list_(pa.struct([]))),
        pa.RunEndEncodedArray.from_arrays(pa.array([1], pa.int32()), pa.array([1.0])),
        pa.array([["a"]], pa.list_view(pa.string())),
        pa.array([["a"]], pa.list_(pa.string_view())),
        pa.array([["a"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))),
    ],
    ids=lambda column: str(column.type),
)
def test_types_whose_bytes_do_not_bound_a_value_are_not_read(tmp_path: Path, column: pa.Array) -> None:
    path = tmp_path / "a.arrow"
    path.write_bytes(ipc(pa.table({"x": column})))
    with pytest.raises(FileFormatError, match=r"column 'x' is of type .* which (is not read|can be no feature)"):
        list(files.read(path))


def test_rows_that_hold_nothing_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    sink = io.BytesIO()
    table = pa.table({"x": pa.nulls(10**9)})
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    path.write_bytes(sink.getvalue())
    assert path.stat().st_size < 1000
    with seconds(10), pytest.raises(FileFormatError, match="1000000000 rows, which hold nothing"):
        list(files.read(path))


@pytest.mark.parametrize("kind", ["arrow", "parquet", "view"])
def test_a_text_that_many_rows_share_counts_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(files.text_lines, "MAX_LINE_BYTES", 10_000)
    texts = pa.array(["x" * 9_000, "y" * 20_000, "z"])
    numbers = pa.array([0, 0, 1, 2] * 50, pa.int8())
    column = pa.DictionaryArray.from_arrays(numbers, texts)
    table = pa.table({"t": column.cast(pa.string()).cast(pa.string_view()) if kind == "view" else column})
    path = tmp_path / f"a.{'parquet' if kind == 'parquet' else 'arrow'}"
    if kind == "parquet":
        pq.write_table(table, path)
    else:
        feather.write_feather(table, path, compression="uncompressed")
    assert reasons(path) == [None, None, "too_large", None] * 50


def test_what_a_message_claims_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "a.arrow"
    whole = bytearray(ipc(pa.table({"x": [1.0] * 2000, "label": [1] * 2000}), compression="zstd"))
    # A compressed buffer begins with its size: claim 2^40 bytes for each of 16, the size of two rows of 8 bytes.
    claimed = bytes(whole).replace(struct.pack("<q", 16), struct.pack("<q", 2**40))
    assert claimed != bytes(whole)
    path.write_bytes(claimed)
    with seconds(10), pytest.raises(FileFormatError, match=r"claim more than|damaged"):
        list(files.read(path))
    assert arrow.MAX_BATCH_BYTES < 2**31
