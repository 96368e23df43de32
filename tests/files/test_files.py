"""Files of records: every format, every kind of bad line with its number, nothing lost or reordered."""

import bz2
import gzip
import lzma
import tempfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palearn import files, records
from palearn.errors import FileFormatError, RecordError
from palearn.records import Record


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def plain(row: Record | RecordError) -> Record:
    """Return the record as a Record proper: the decoder of JSON gives a subclass, which equals none."""
    assert isinstance(row, Record)
    return Record(*(getattr(row, field) for field in Record.__struct_fields__))


def good(path: Path, **options: Any) -> list[Record]:
    return [plain(row) for _, row in files.read(path, **options)]


def summary(path: Path, **options: Any) -> list[tuple[int, Any]]:
    """(line, label of the record, or the reason why it is none)."""
    return [
        (line, row.reason if isinstance(row, RecordError) else row.label) for line, row in files.read(path, **options)
    ]


# LIBSVM

labels = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text("abcxyz", min_size=4),  # long enough to be neither nan nor inf
)
rows = st.tuples(
    labels,
    st.dictionaries(st.integers(0, 10**6).map(str), st.floats(allow_nan=False, allow_infinity=False)),
)


@given(st.lists(rows, max_size=8))
def test_libsvm_written_from_records_reads_back_exactly(examples: list[tuple[Any, dict[str, float]]]) -> None:
    text = "".join(
        f"{label} {' '.join(f'{name}:{value!r}' for name, value in features.items())}\n" for label, features in examples
    )
    with tempfile.TemporaryDirectory() as folder:
        read_back = good(write(Path(folder) / "a.libsvm", text))
    assert [(r.label, list((r.features or {}).items())) for r in read_back] == [
        (label, list(features.items())) for label, features in examples
    ]
    assert [type(r.label) for r in read_back] == [type(label) for label, _ in examples]


def test_libsvm_keeps_the_order_of_features_and_ignores_comments(tmp_path: Path) -> None:
    path = write(tmp_path / "a.svm", "# header\n+1 9:1 2:0.5 # why\n\n-1   \r\nspam 3:1e-3\n2.5")
    assert [(line, row) for line, row in files.read(path)] == [
        (2, Record(label=1, features={"9": 1.0, "2": 0.5})),
        (4, Record(label=-1, features={})),
        (5, Record(label="spam", features={"3": 0.001})),
        (6, Record(label=2.5, features={})),
    ]
    (_, first), *_ = files.read(path)
    assert isinstance(first, Record)
    assert records.encode(first) == b'{"label":1,"features":{"9":1.0,"2":0.5}}'


def test_libsvm_names_its_features(tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", "1 2:1 1:3\n1 3:1\n1 0:1\n1 4:1\n")
    rows = list(files.read(path, names=["age", "job=clerk"]))
    assert rows[0] == (1, Record(label=1, features={"job=clerk": 1.0, "age": 3.0}))
    assert [(line, row.reason) for line, row in rows[1:] if isinstance(row, RecordError)] == [
        (2, "bad_line"),
        (3, "bad_line"),
        (4, "bad_line"),
    ]
    with pytest.raises(FileFormatError, match="not unique"):
        files.read(path, names=["age", "age"])


@pytest.mark.parametrize(
    ("line", "reason", "seen"),
    [
        ("1 2:1 2:3", "bad_features", "'2'"),
        ("1 2:1 3", "bad_features", "'3'"),
        ("1 2:one", "bad_features", "'one'"),
        ("1 2:", "bad_features", "'2'"),
        ("1 2:nan", "non_finite", "nan"),
        ("1 2:-inf", "non_finite", "-inf"),
        ("1 2:1e400", "non_finite", "inf"),
        ("1:0.5 2:1", "bad_line", "'1:0.5'"),
        ("nan 1:1", "non_finite", "label"),
        ("18446744073709551616 1:1", "bad_label", "18446744073709551616"),
        ("1 2:1 \udcff", "not_utf8", "byte 6"),
    ],
)
def test_libsvm_bad_lines_are_named_and_do_not_stop_the_others(
    tmp_path: Path, line: str, reason: str, seen: str
) -> None:
    path = write(tmp_path / "a.libsvm", f"1 1:1\n{line}\n-1 1:1\n".encode(errors="surrogateescape"))
    rows = list(files.read(path))
    assert [number for number, _ in rows] == [1, 2, 3]
    error = rows[1][1]
    assert isinstance(error, RecordError)
    assert error.reason == reason
    assert seen in error.detail
    assert [row.label for _, row in rows[::2] if isinstance(row, Record)] == [1, -1]


def test_a_line_without_end_is_a_bad_line_and_is_not_held_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.text_lines, "MAX_LINE_BYTES", 20)
    path = write(tmp_path / "a.libsvm", "1 1:1\n1 " + "1:1 " * 100 + "\n-1 1:1 2:1 3:1 4:12\n1 1:1")
    assert summary(path) == [(1, 1), (2, "too_large"), (3, -1), (4, 1)]
    table = write(tmp_path / "a.csv", "x,label\n1,a\n" + "1" * 70 + ",b\n2,c\n")
    assert summary(table) == [(2, "a"), (3, "too_large"), (4, "c")]


# CSV


def test_csv_numbers_are_numbers_and_all_else_is_one_hot(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        "\ufeffage, job ,big,label,id,weight,time\n39,clerk, 1e3,1,007,2,2024-01-01\n"
        ' 4.5,"a, ""b""",,spam,,,\n\n1_0,,,,,,17\n',
    )
    assert list(files.read(path)) == [
        (
            2,
            Record(
                label=1,
                features={"age": 39.0, "job=clerk": 1.0, "big": 1000.0},
                id="007",
                weight=2.0,
                time="2024-01-01",
            ),
        ),
        (3, Record(label="spam", features={"age": 4.5, 'job=a, "b"': 1.0})),
        (5, Record(label=None, features={"age=1_0": 1.0}, time=17.0)),
    ]


def test_csv_bad_lines_have_the_number_of_their_first_line(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.csv",
        b'x,y,label\n1,2,ok1\n1,2\n1,2,3,4\n"two\nlines",2,ok6\nnan,2,a\n1e999,2,a\n1,\xff,a\n'
        b'1,"b"c,a\n1,2,inf\n1,2,ok12\n1,"open,2\n3,4,a\n',
    )
    assert summary(path) == [
        (2, "ok1"),
        (3, "bad_line"),
        (4, "bad_line"),
        (5, "ok6"),
        (7, "non_finite"),
        (8, "non_finite"),
        (9, "not_utf8"),
        (10, "bad_line"),
        (11, "non_finite"),
        (12, "ok12"),
        (13, "bad_line"),
        (14, "a"),
    ]


@pytest.mark.parametrize("weight", ["0", "-1", "heavy"])
def test_csv_weight_must_be_positive(tmp_path: Path, weight: str) -> None:
    assert summary(write(tmp_path / "a.csv", f"x,weight,label\n1,{weight},a\n")) == [(2, "bad_weight")]


@pytest.mark.parametrize(
    ("content", "label", "message"),
    [
        ("x,y\n1,2\n", None, "no label column 'label'; the columns are: x, y"),
        ("x,label\n1,2\n", "target", "no label column 'target'; the columns are: x, label"),
        ("x,x,label\n", None, "'x' stands twice"),
        (",,\n", None, "must name the columns"),
        ("", None, "must name the columns.*empty"),
        ('x,"y\n', None, "must name the columns.*a quote is opened and not closed"),
        (b"x,\xff,label\n", None, "UTF-8"),
    ],
)
def test_csv_needs_a_header(tmp_path: Path, content: str | bytes, label: str | None, message: str) -> None:
    with pytest.raises(FileFormatError, match=message):
        list(files.read(write(tmp_path / "a.csv", content), label=label))


def test_csv_label_is_the_column_that_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "target,label\n>50K,1\n")
    assert good(path, label="target") == [Record(label=">50K", features={"label": 1.0})]


# JSON lines


def test_jsonl_lines_are_records_as_on_the_wire(tmp_path: Path) -> None:
    lines = [
        '{"label": "spam", "features": {"free": 1, "lang": "en", "gone": null}}',
        "",
        '{"label": 1, "views": {"page": {"exam": 2}, "link": {}}}',
        "{not json",
        '{"label": 1}',
        "[1]",
        '{"label": 1, "features": {"a": 1e400}}',
    ]
    rows = list(files.read(write(tmp_path / "a.jsonl", "\n".join(lines))))
    assert [(line, plain(row)) for line, row in rows[:2]] == [
        (1, Record(label="spam", features={"free": 1.0, "lang=en": 1.0})),
        (3, Record(label=1, views={"page": {"exam": 2.0}, "link": {}})),
    ]
    assert [(line, row.reason) for line, row in rows[2:] if isinstance(row, RecordError)] == [
        (4, "not_json"),
        (5, "no_features"),
        (6, "not_object"),
        (7, "non_finite"),
    ]


# Parquet


def parquet(path: Path, columns: dict[str, Any]) -> Path:
    pq.write_table(pa.table(columns), path, row_group_size=2)
    return path


def test_parquet_columns_are_features(tmp_path: Path) -> None:
    path = parquet(
        tmp_path / "a.parquet",
        {
            "n": [1, None, 3],
            "flag": [True, False, None],
            "job": pa.array(["clerk", None, "cook"]).dictionary_encode(),
            "tags": [["a", "b", "a"], [], None],
            "label": ["x", None, "y"],
            "id": [7, 8, 9],
            "time": [datetime(2024, 1, 1, tzinfo=UTC), None, None],
        },
    )
    assert list(files.read(path)) == [
        (
            1,
            Record(
                label="x",
                features={"n": 1.0, "flag": 1.0, "job=clerk": 1.0, "tags=a": 2.0, "tags=b": 1.0},
                id=7,
                time="2024-01-01T00:00:00+00:00",
            ),
        ),
        (2, Record(label=None, features={"flag": 0.0}, id=8)),
        (3, Record(label="y", features={"n": 3.0, "job=cook": 1.0}, id=9)),
    ]


def test_parquet_map_and_struct_columns_hold_the_features(tmp_path: Path) -> None:
    number_map = pa.map_(pa.string(), pa.float64())
    features = pa.array([[("b", 1.0), ("a", 2.0)], [], None], number_map)
    path = parquet(tmp_path / "m.parquet", {"label": [1, 2, 3], "features": features, "other": [1, 2, 3]})
    rows = list(files.read(path))
    assert rows[:2] == [
        (1, Record(label=1, features={"b": 1.0, "a": 2.0})),
        (2, Record(label=2, features={})),
    ]
    assert isinstance(rows[2][1], RecordError)
    assert (rows[2][0], rows[2][1].reason) == (3, "no_features")

    views = [
        {"page": {"exam": 2, "lab": None}, "link": {"cs": 1}},
        {"page": {"exam": 1, "lab": 1}, "link": None},
    ]
    assert good(parquet(tmp_path / "v.parquet", {"label": [1, -1], "views": views})) == [
        Record(label=1, views={"page": {"exam": 2.0}, "link": {"cs": 1.0}}),
        Record(label=-1, views={"page": {"exam": 1.0, "lab": 1.0}}),
    ]


def test_parquet_bad_rows(tmp_path: Path) -> None:
    infinity = float("inf")
    path = parquet(tmp_path / "a.parquet", {"x": [1.0, infinity, 2.0], "label": [1.0, 1.0, infinity]})
    assert summary(path) == [(1, 1.0), (2, "non_finite"), (3, "non_finite")]
    path = parquet(tmp_path / "t.parquet", {"when": [datetime(2024, 1, 1, tzinfo=UTC)], "label": [1]})
    assert good(path)[0].features == {"when=2024-01-01 00:00:00+00:00": 1.0}
    path = parquet(tmp_path / "l.parquet", {"x": [1], "label": [b"spam"]})
    assert summary(path) == [(1, "bad_label")]
    # As on the wire, or a file would be learned here and rejected there.
    path = parquet(tmp_path / "i.parquet", {"id": pa.array([2**63, 1], pa.uint64()), "label": [1, 2]})
    assert summary(path) == [(1, "bad_id"), (2, 2)]
    assert summary(parquet(tmp_path / "w.parquet", {"weight": [True], "label": [1]})) == [(1, "bad_weight")]
    pq.write_table(pa.table([[1], [2], [3]], ["x", "label", "x"]), path)
    with pytest.raises(FileFormatError, match="column 'x' stands twice"):
        summary(path)
    path = parquet(tmp_path / "f.parquet", {"features": [[1.0, 2.0]], "label": [1]})
    with pytest.raises(FileFormatError, match="column 'features' is of type list<"):
        good(path)
    with pytest.raises(FileFormatError, match="no label column 'y'; the columns are: features, label"):
        list(files.read(path, label="y"))


# Containers


@pytest.mark.parametrize(
    ("suffix", "compress"),
    [
        (".gz", gzip.compress),
        (".bz2", bz2.compress),
        (".xz", lzma.compress),
        (".zst", lambda data: pa.compress(data, codec="zstd", asbytes=True)),
    ],
)
@pytest.mark.parametrize("kind", ["libsvm", "csv", "jsonl", "vw", "parquet", "arrow"])
def test_every_format_in_every_compression(
    tmp_path: Path, suffix: str, compress: Callable[[bytes], bytes], kind: str
) -> None:
    count = 3000
    table = {"x": list(range(count)), "label": [i % 2 for i in range(count)]}
    pq.write_table(pa.table(table), tmp_path / "plain.parquet")
    feather.write_feather(pa.table(table), tmp_path / "plain.arrow", chunksize=1000)
    content = {
        "libsvm": "".join(f"{i % 2} 1:{i}\n" for i in range(count)).encode(),
        "csv": b"x,label\n" + b"".join(b"%d,%d\n" % (i, i % 2) for i in range(count)),
        "jsonl": b"".join(b'{"label":%d,"features":{"x":%d}}\n' % (i % 2, i) for i in range(count)),
        "vw": "".join(f"{i % 2} | x:{i}\n" for i in range(count)).encode(),
        "arrow": (tmp_path / "plain.arrow").read_bytes(),
        "parquet": (tmp_path / "plain.parquet").read_bytes(),
    }[kind]
    expected = [Record(label=i % 2, features={"x": float(i)}) for i in range(count)]
    names = ["x"] if kind == "libsvm" else None
    assert good(write(tmp_path / f"plain.{kind}", content), names=names) == expected
    assert good(write(tmp_path / f"packed.{kind}{suffix}", compress(content)), names=names) == expected

    damaged = write(tmp_path / f"damaged.{kind}{suffix}", compress(content)[:-40])
    with pytest.raises(FileFormatError, match="damaged"):
        list(files.read(damaged))


def test_the_caller_may_keep_the_file_open_and_follow_its_position(tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", "1 1:1\n" * 50_000)
    with path.open("rb") as opened:
        reading = files.read(path, opened=opened)
        next(reading)
        assert 0 < opened.tell() < 100_000  # no more than a buffer ahead
        assert sum(1 for _ in reading) == 49_999
        assert opened.tell() == path.stat().st_size


def test_what_is_no_file_of_records(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="--format libsvm"):
        files.read(tmp_path / "a.txt")
    with pytest.raises(FileFormatError, match="--format"):
        files.read(tmp_path / "gz")
    with pytest.raises(FileFormatError, match=r"must be one of .* got 'xls'"):
        files.read(tmp_path / "a.csv", format="xls")
    with pytest.raises(FileFormatError, match=r"nothing\.csv.*No such file"):
        list(files.read(tmp_path / "nothing.csv"))
    with pytest.raises(FileFormatError, match="no Parquet file"):
        list(files.read(write(tmp_path / "a.parquet", "1 1:1\n")))
    with pytest.raises(FileFormatError, match="cannot be read"):
        list(files.read(write(tmp_path / "a.csv.gz", "x,label\n")))
    assert summary(write(tmp_path / "a.txt", "1 1:1\n"), format="libsvm") == [(1, 1)]
    assert files.format_of("A.B.LIBSVM.GZ") == "libsvm"


def test_record_key() -> None:
    record = Record(
        label=1.0,
        id="",
        time=17,
        features={"user": 42.0, "half": 0.5, "job=": 1.0, "job=cook": 1.0, "job=clerk": 1.0, "shop=9": 1.0},
    )
    expected = {
        "label": "1",
        "id": None,
        "time": "17",
        "user": "42",
        "half": "0.5",
        "shop": "9",
        "none": None,
    }
    assert {field: records.record_key(record, field) for field in expected} == expected
    assert records.record_key(record, "job") is None  # the first one counts, and it is empty
    assert records.record_key(Record(features={"id": 3.0}), "id") == "3"
    assert records.record_key(Record(features={"id": 1.0 - 2**53}), "id") == "-9007199254740991"

    views = Record(views={"page": {"user": 42.0, "lang=en": 1.0}, "link": {}})
    assert records.record_key(views, "page:user") == "42"
    assert records.record_key(views, "page:lang") == "en"
    assert records.record_key(views, "link:lang") is None
    assert records.record_key(views, "user") is None


def test_keys_that_are_one_as_floats_stay_apart(tmp_path: Path) -> None:
    ids = [2**53, 2**53 + 1]
    jsonl = write(tmp_path / "a.jsonl", "".join(f'{{"user": {user}, "label": 1, "features": {{}}}}\n' for user in ids))
    assert [line.key for line in files.lines(jsonl, key="user")] == [*map(str, ids)]
    for path in (
        write(tmp_path / "a.csv", f"user,label\n{ids[0]},1\n{ids[1]},1\n"),
        parquet(tmp_path / "a.parquet", {"user": ids, "label": [1, 1]}),
    ):
        assert [line.key for line in files.lines(path, key="user")] == [*map(str, ids)]
