"""Files as other people's tools write them: what becomes of each cell, whichever way a file comes in.

Each case says what was wrong before this was a test: W (wrong without a word), L (good rows were lost), R (refused
with no way out), - (was right).
"""

import datetime as dt
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palearn import files, records
from palearn.errors import FileFormatError, RecordError
from palearn.evaluate.prequential import evaluate
from palearn.files.options import ReadOptions
from palearn.kafka import produce
from palearn.records import Record
from palearn.spark import source
from tests.files.test_files import write

Found = list[tuple[int, str | None, Record | str]]
Door = Callable[..., Found]


def read(path: Path, **options: Any) -> Found:
    """evaluate, search and predict."""
    return [(n, key, _said(value)) for n, key, value in files.lines(path, **options)]


def sent(path: Path, **options: Any) -> Found:
    """produce: what is on the wire, read again as the stream reads it."""
    out: Found = []
    for n, key, value in files.lines(path, **options):
        try:
            out.append((n, key, records.decode_value(produce._wire_bytes(value))))
        except RecordError as error:
            out.append((n, key, error.reason))
    return out


def replayed(path: Path, **options: Any) -> Found:
    """replay: what a task hands to the engine."""
    constant = None if "key" in options else "all"
    out: Found = []
    for batch in source._read_file(str(path), ReadOptions(**options), constant):
        for row in batch.to_pylist():
            key = None if row["key"] is None or constant else row["key"].decode()
            fault = None if row["fault"] is None else json.loads(row["fault"])[0]
            out.append((row["offset"], key, fault or _said(row["value"])))
    return out


def _said(value: object) -> Record | str:
    if isinstance(value, RecordError):
        return value.reason
    try:
        return records.decode_value(value) if isinstance(value, bytes) else value  # type: ignore[return-value]
    except RecordError as error:
        return error.reason


@pytest.fixture(params=[read, sent, replayed], ids=["read", "sent", "replayed"])
def door(request: pytest.FixtureRequest) -> Door:
    return request.param  # type: ignore[no-any-return]


def features(found: Found) -> list[Any]:
    return [x.features if isinstance(x, Record) else x for _, _, x in found]


def keys(found: Found) -> list[str | None]:
    return [key for _, key, _ in found]


def parquet(path: Path, **columns: Any) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


# -- Cells ---------------------------------------------------------------------------------------------------


def test_a_cell_is_as_long_as_a_line_may_be(tmp_path: Path, door: Door) -> None:  # W: 3,188 rows of 3
    replies = "\n".join(f"reply {i},{i % 7},1" for i in range(12_000))
    path = write(tmp_path / "a.csv", f'text,y,label\nshort,1,0\n"{replies}",2,1\nshort,3,0\n')
    found = door(path, columns={"text": "ignore"})
    assert features(found) == [{"y": 1.0}, {"y": 2.0}, {"y": 3.0}]
    assert [n for n, _, _ in found] == [2, 3, 12_003]


def test_a_bad_byte_costs_its_record_with_all_of_its_lines(tmp_path: Path, door: Door) -> None:  # L: 1,000 rows
    good = b"".join(b"ok,%d,%d\n" % (i % 5, i % 2) for i in range(1000))
    path = write(tmp_path / "a.csv", b'note,x,label\n"first\nlast caf\xe9",1,0\n' + good)
    found = door(path)
    assert found[0] == (2, None, "not_utf8")
    assert [n for n, _, _ in found[1:]] == list(range(4, 1004))
    assert all(isinstance(x, Record) for _, _, x in found[1:])
    told = dict(files.read(path))[2]
    assert isinstance(told, RecordError)
    assert told.detail == "line 3 is not UTF-8 at byte 8; the record is lines 2 to 3"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('"5 inch,1,0', "bad_line"),  # L: all rows behind it
        ('5 inch",1,0', None),  # -: no cell begins with it
        ('"5" inch,1,0', "bad_line"),  # -
        ('a,"1,0', "bad_line"),  # L
        ('""",1,0', "bad_line"),  # L
        ('"a""b",1,0', None),  # -
        ('a,1,"', "bad_line"),  # L
    ],
)
def test_a_stray_quote_costs_its_line(tmp_path: Path, door: Door, line: str, reason: str | None) -> None:
    good = "".join(f"ok,{i % 5},{i % 2}\n" for i in range(3000))
    found = door(write(tmp_path / "a.csv", f'note,x,label\n{line}\n{good}"late, 1,0\n{good}'))
    assert found[0][2] == reason if reason else isinstance(found[0][2], Record)
    assert [n for n, _, x in found if x == "bad_line"] == ([2] if reason else []) + [3003]
    assert len(found) == 6002


def test_an_open_quote_is_looked_for_no_further_than_a_line_may_be_long(
    tmp_path: Path, door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.text_lines, "MAX_LINE_BYTES", 100)
    rows = "ok,1,0\n" * 50
    found = door(write(tmp_path / "a.csv", f'note,x,label\n"open,1,0\n{rows}closed" ,1,0\n'))
    assert [x == "bad_line" for _, _, x in found] == [True] + [False] * 51


def test_numbers_are_read_one_way(tmp_path: Path, door: Door) -> None:
    path = write(tmp_path / "a.csv", "x,label\n1e3,01\n007,1\n١,+1\n1_0,1.0\n")
    assert [x.label for _, _, x in door(path) if isinstance(x, Record)] == ["01", 1, 1, 1.0]  # W: 01 was 1
    assert features(door(path)) == [{"x": 1000.0}, {"x": 7.0}, {"x=١": 1.0}, {"x=1_0": 1.0}]  # W: ١ was 1


# -- Keys ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key_feature", [False, True])
def test_the_key_is_no_feature_unless_asked_for(tmp_path: Path, door: Door, key_feature: bool) -> None:  # W
    rows = [("48000", 1, 0.5), ("48001", 0, -0.5)]
    text = write(tmp_path / "a.csv", "user,label,f\n" + "".join(f"{u},{y},{f}\n" for u, y, f in rows))
    user, label, f = zip(*rows, strict=True)
    table = parquet(tmp_path / "a.parquet", user=[int(u) for u in user], label=label, f=f)
    for path in (text, table):
        found = door(path, key="user", key_feature=key_feature)
        assert keys(found) == ["48000", "48001"]
        more = [{"user": float(u)} if key_feature else {} for u in user]
        assert features(found) == [m | {"f": x} for m, x in zip(more, f, strict=True)]


def test_the_key_of_a_column_and_of_a_field_give_the_same_figures(tmp_path: Path) -> None:  # W: 50.2 % and 3.4 %
    lines, objects = ["user,label,f1,f2"], []
    for i in range(400):
        f1, f2 = (i * 37 % 101 - 50) / 50, (i * 53 % 97 - 48) / 48
        row = {"user": ["48000", "48001"][i % 2], "label": 1 if f1 + f2 > 0 else -1, "f1": f1, "f2": f2}
        lines.append(",".join(map(str, row.values())))
        objects.append(json.dumps({"user": row["user"], "label": row["label"], "features": {"f1": f1, "f2": f2}}))
    pq.write_table(pa.table({n: [json.loads(o)["user"] for o in objects] if n == "user" else
                             [json.loads(o)["label"] if n == "label" else json.loads(o)["features"][n] for o in objects]
                             for n in ("user", "label", "f1", "f2")}), tmp_path / "a.parquet")  # fmt: skip
    text = write(tmp_path / "a.csv", "\n".join(lines))
    jsonl = write(tmp_path / "a.jsonl", "\n".join(objects))
    found = [evaluate(path, "pa1", key="user") for path in (text, jsonl, tmp_path / "a.parquet")]
    assert found[0]["error"] < 0.2
    for other in found[1:]:
        assert {k: v for k, v in other.items() if k != "seconds"} == {
            k: v for k, v in found[0].items() if k != "seconds"
        }


def test_a_key_is_the_text_that_stands_there(tmp_path: Path, door: Door) -> None:  # W: 7 and 1234
    zips = ["007", "7", "7.0", "01234", "1e3", "true", "é", "a b"]
    path = write(tmp_path / "a.csv", "zip,x,label\n" + "".join(f"{z},1,0\n" for z in zips))
    assert keys(door(path, key="zip")) == zips
    assert keys(door(parquet(tmp_path / "a.parquet", zip=zips, x=[1] * 8, label=[0] * 8), key="zip")) == zips


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (pa.array([7, None]), ["7", None]),
        (pa.array([2**64 - 1, 2**53 + 1], pa.uint64()), ["18446744073709551615", "9007199254740993"]),  # L: no_key
        (pa.array([1.0, 1.5]), ["1", "1.5"]),  # what pandas makes of integers beside a null
        (pa.array([True, False]), ["true", "false"]),
        (pa.array([Decimal("1.50"), None]), ["1.50", None]),  # L
        (pa.array([dt.date(2026, 1, 2), None]), ["2026-01-02", None]),  # L
        (pa.array(["a", ""]), ["a", None]),
        (pa.array(["a", "b"]).dictionary_encode(), ["a", "b"]),
    ],
)
def test_keys_of_typed_columns(tmp_path: Path, door: Door, cells: pa.Array, said: list[str | None]) -> None:
    assert keys(door(parquet(tmp_path / "a.parquet", k=cells, x=[1, 2], label=[0, 1]), key="k")) == said


# -- CSV of other tools --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "options", "expected"),
    [
        ("x;y;label\n1;2;0\n", {}, {"x": 1.0, "y": 2.0}),  # R: one column
        ("x\ty\tlabel\n1\t2\t0\n", {}, {"x": 1.0, "y": 2.0}),  # R
        ("x|y|label\n1|2|0\n", {}, {"x": 1.0, "y": 2.0}),  # R
        ('"x";"y,z";"label"\n1;2;0\n', {}, {"x": 1.0, "y,z": 2.0}),  # R
        ("sep=;\nx;y;label\n1;2;0\n", {}, {"x": 1.0, "y": 2.0}),  # R: Excel's
        ("x:y:label\n1:2:0\n", {"delimiter": ":"}, {"x": 1.0, "y": 2.0}),  # R
        ("x  y label\n1 2  0\n", {"delimiter": " "}, {"x": 1.0, "y": 2.0}),  # R
        ("x;y;label\n1,5;2;0\n", {"decimal": ","}, {"x": 1.5, "y": 2.0}),  # W: x=1,5
        ("1,2,0\n", {"header": ["x", "y", "label"]}, {"x": 1.0, "y": 2.0}),  # R
        ("x,y,label,\n1,2,0,\n", {}, {"x": 1.0, "y": 2.0}),  # R: a comma behind the last column
        ("x,y,label,\n1,2,0\n", {}, {"x": 1.0, "y": 2.0}),  # R
        ("x,y,label\n1,2,0,\n", {}, {"x": 1.0, "y": 2.0}),  # L: every row
        (",x,y,label\n0,1,2,0\n", {}, {"x": 1.0, "y": 2.0}),  # R: pandas' index
        (",x,label\n0,1,0\n", {"columns": {"Unnamed: 0": "number"}}, {"Unnamed: 0": 0.0, "x": 1.0}),  # R
        ("\ufeffx,y,label\r\n1,2,0\r\n", {}, {"x": 1.0, "y": 2.0}),  # -
        ("\n\nx,y,label\n\n1,2,0\n", {}, {"x": 1.0, "y": 2.0}),  # R
        ("x,ÿ,label\n1,2,0\n".encode("latin-1"), {"encoding": "latin-1"}, {"x": 1.0, "ÿ": 2.0}),  # R
        ("x,y,label\n1,é,0\n".encode("utf-16"), {"encoding": "utf-16"}, {"x": 1.0, "y=é": 1.0}),  # R
        ("x,y,label\n1,“q”,0\n".encode("cp1252"), {"encoding": "cp1252"}, {"x": 1.0, "y=“q”": 1.0}),  # L
        ("x,y,label\n1,free free money,0\n", {"columns": {"y": "bag"}}, {"x": 1.0, "y=free": 2.0, "y=money": 1.0}),  # R
    ],
)
def test_csv_of_other_tools(
    tmp_path: Path, door: Door, content: str | bytes, options: dict[str, Any], expected: dict[str, float]
) -> None:
    assert features(door(write(tmp_path / "a.csv", content), **options)) == [expected]


@pytest.mark.parametrize(
    ("content", "options", "told"),
    [
        ("5.1,3.5,setosa\n4.9,3.0,setosa\n", {}, "--header a,b,"),
        ("x,ÿ,label\n1,2,0\n".encode("latin-1"), {}, "--encoding"),
        ("x,y,label\n1,2,0\n".encode("utf-16"), {}, "--encoding"),
        ("x,label\n1,0\n", {"encoding": "klingon"}, "encoding 'klingon' is not known"),
        ("x,label\n1,0\n", {"delimiter": ",,"}, "must be one character"),
        ("x,label\n1,0\n", {"decimal": ";"}, "decimal must be"),
        ("x,label\r1,0\r", {}, "carriage return"),
    ],
)
def test_what_cannot_be_read_says_how(tmp_path: Path, content: str | bytes, options: dict[str, Any], told: str) -> None:
    with pytest.raises(FileFormatError, match=told):
        list(files.read(write(tmp_path / "a.csv", content), **options))


@pytest.mark.parametrize("name", ["delimiter", "header", "decimal", "encoding"])
def test_an_option_that_a_format_has_not_is_refused(tmp_path: Path, name: str) -> None:
    path = parquet(tmp_path / "a.parquet", x=[1], label=[0])
    with pytest.raises(FileFormatError, match=f"parquet has no {name}"):
        files.read(path, **{name: ","})


def test_every_text_format_has_encodings(tmp_path: Path, door: Door) -> None:
    for name, line, expected in (
        ("a.jsonl", '{"label": 1, "features": {"y": "é"}}', {"y=é": 1.0}),
        ("a.vw", "1 |é x:2", {"é:x": 2.0}),
        ("a.libsvm", "é 1:2", {"1": 2.0}),
    ):
        path = write(tmp_path / name, line.encode("latin-1"))
        assert features(door(path, encoding="latin-1")) == [expected]
        assert features(door(path)) == ["not_utf8"]


# -- Parquet and Arrow of other tools ------------------------------------------------------------------------


def test_the_index_of_pandas_is_left_out(tmp_path: Path, door: Door) -> None:  # W: it told the label
    frame = pd.DataFrame({"a": [0.5, 1.5, 2.5], "label": [0, 0, 1]}).sample(frac=1, random_state=1)
    for name, index in (
        ("plain", frame),
        ("named", frame.rename_axis("row")),
        ("two", frame.set_index([[1, 2, 3], [4, 5, 6]])),
    ):
        path = tmp_path / f"{name}.parquet"
        index.to_parquet(path)
        assert features(door(path)) == [{"a": a} for a in frame["a"]]
        assert any("pandas' index, left out" in note for note in files.look(path).notes)
    named = tmp_path / "named.parquet"
    assert features(door(named, columns={"row": "number"})) == [
        {"a": a, "row": float(i)} for i, a in frame["a"].items()
    ]
    assert keys(door(named, key="row")) == [str(i) for i in frame.index]


DAYS = [dt.date(2026, 1, 1), dt.date(2026, 1, 2)]
#: Without a zone, as most files have them.
MOMENTS = [dt.datetime.fromisoformat(text) for text in ("2026-01-01T05:00:00", "2026-01-01T06:00:00.000005")]


@pytest.mark.parametrize(
    ("cells", "kind", "expected"),
    [
        (pa.array([Decimal("0.25"), Decimal("1.5")]), None, [{"c": 0.25}, {"c": 1.5}]),  # L
        (pa.array([Decimal("0.25"), None]), "number", [{"c": 0.25}, {}]),  # L
        (pa.array(DAYS), None, [{"c=2026-01-01": 1.0}, {"c=2026-01-02": 1.0}]),  # L
        (pa.array(DAYS), "ignore", [{}, {}]),  # L: not obeyed
        (pa.array(MOMENTS), "text", [{"c=2026-01-01 05:00:00": 1.0}, {"c=2026-01-01 06:00:00.000005": 1.0}]),  # L
        (pa.array(MOMENTS), "ignore", [{}, {}]),  # L
        (pa.array([dt.time(5, 6), None]), None, [{"c=05:06:00": 1.0}, {}]),  # L
        (pa.array([2**64 - 1, 1], pa.uint64()), None, [{"c": 2.0**64}, {"c": 1.0}]),  # -
        (pa.array(["a", "b"], pa.large_string()), None, [{"c=a": 1.0}, {"c=b": 1.0}]),  # -
        (pa.array([1.5, 2.5]).dictionary_encode(), None, [{"c": 1.5}, {"c": 2.5}]),  # -
        (pa.array([1.5, 2.5], pa.float16()), None, [{"c": 1.5}, {"c": 2.5}]),
        (pa.array(["a b a", None]), "bag", [{"c=a": 2.0, "c=b": 1.0}, {}]),  # R
        (pa.array([[1.0], [2.0]]), "ignore", [{}, {}]),  # L
        (pa.array([b"\xff", b"a"]), "ignore", [{}, {}]),  # L: not UTF-8
        (pa.nulls(2), None, [{}, {}]),  # -
    ],
)
def test_types_of_columns(
    tmp_path: Path, door: Door, cells: pa.Array, kind: str | None, expected: list[dict[str, float]]
) -> None:
    path = parquet(tmp_path / "a.parquet", x=[1, 2], c=cells, label=[0, 1])
    found = features(door(path, columns={} if kind is None else {"c": kind}))
    assert found == [{"x": float(i)} | x for i, x in enumerate(expected, 1)]


@pytest.mark.parametrize("cells", [[[1.0], [2.0]], [b"\xff", b"a"], [{"a": 1}, {"a": 2}]])
def test_what_can_be_no_feature_is_said_before_any_figure(tmp_path: Path, cells: list[Any]) -> None:  # L: all rows
    path = parquet(tmp_path / "a.parquet", x=[1, 2], c=cells, label=[0, 1])
    with pytest.raises(FileFormatError, match=r"column 'c' is of type .*--column 'c=ignore'"):
        list(files.read(path))


@pytest.mark.parametrize("name", ["views", "features"])
def test_a_column_of_numbers_may_be_called_views(tmp_path: Path, door: Door, name: str) -> None:  # R
    path = parquet(tmp_path / "a.parquet", **{name: [100, 200]}, likes=[1, 2], label=[1, 0])
    assert features(door(path)) == [{name: 100.0, "likes": 1.0}, {name: 200.0, "likes": 2.0}]
    nested = parquet(tmp_path / "b.parquet", **{name: [{"a": {"u": 1}}] if name == "views" else [{"a": 1}]}, likes=[1])
    assert any("likes are left out" in note for note in files.look(nested).notes)


# -- LIBSVM --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 qid:7 1:0.5", {"1": 0.5}),  # W: a feature
        ("1 qid:7", {}),  # W
        ("1 0:0.5 01:2", {"0": 0.5, "1": 2.0}),  # W: 01 and 1 were two
        ("1 1:0.5 qid:7", "bad_features"),  # W
        ("1 a:0.5", "bad_features"),  # W
        ("1 -1:0.5", "bad_features"),  # W
        ("1 +1:0.5", "bad_features"),  # W
        ("1 1.5:2", "bad_features"),  # W
        ("1 1:1 01:2", "bad_features"),  # W
        ("1 1:1_0", "bad_features"),  # W: 10
    ],
)
def test_an_index_is_an_integer(tmp_path: Path, door: Door, line: str, expected: Any) -> None:
    path = write(tmp_path / "a.libsvm", f"{line}\n-1 1:1\n")
    assert features(door(path)) == [expected, {"1": 1.0}]
    found = evaluate(path, "pa1")  # in columns, many lines at once
    assert found["reasons"] == ({} if isinstance(expected, dict) else {expected: 1})


# -- Warnings ------------------------------------------------------------------------------------------------


def notes(path: Path, **options: Any) -> list[str]:
    return files.look(path, ReadOptions(**options)).notes


def test_what_should_be_known_of_columns_is_said(tmp_path: Path) -> None:
    rows = "".join(f"{i % 2},name {i},2026-01-{i % 28 + 1:02d} 10:00,1{i % 9},{i % 9}\n" for i in range(60))
    path = write(tmp_path / "a.csv", "label;name;at;price;n\n" + rows.replace(",", ";").replace(";1", ";1,"))
    told = notes(path)
    assert [any(word in note for note in told) for word in ("'name=ignore'", "'at=ignore'", "--decimal ,", "';'")] == [
        True
    ] * 4
    assert not notes(path, columns=dict.fromkeys(("name", "at"), "ignore"), decimal=",", delimiter=";")
    few = write(tmp_path / "few.csv", "label,name\n0,a\n1,b\n")
    assert not notes(few)


def test_times_of_typed_columns_are_said(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", when=MOMENTS * 20, label=[0, 1] * 20)
    assert "when look like times" in notes(path)[0]
