"""VW text: what each part of a line becomes, and what is refused; `python -m benchmarks.vw` compares with VW itself."""

from pathlib import Path
from typing import Any

import pytest

from palearn import files
from palearn.errors import FileFormatError, RecordError
from palearn.evaluate.prequential import evaluate
from palearn.files.options import ReadOptions
from palearn.records import Record, encode
from palearn.spark import source


def read(folder: Path, *lines: str, **options: Any) -> list[Record | RecordError]:
    path = folder / "a.vw"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [row for _, row in files.read(path, **options)]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("1 |f a", Record(label=1, features={"f:a": 1.0})),
        ("-1 2.5 |f a:2 b", Record(label=-1, weight=2.5, features={"f:a": 2.0, "f:b": 1.0})),
        ("1 2 'tag |f a", Record(label=1, weight=2.0, id="tag", features={"f:a": 1.0})),
        ("1 'tag|f a", Record(label=1, id="tag", features={"f:a": 1.0})),
        ("1 tag|f a", Record(label=1, id="tag", features={"f:a": 1.0})),
        ("1|f a", Record(id="1", features={"f:a": 1.0})),
        ("|f a", Record(features={"f:a": 1.0})),
        ("spam | a b:-.5e1", Record(label="spam", features={"a": 1.0, "b": -5.0})),
        ("1 |f:3 a:2 b |g c", Record(label=1, features={"f:a": 6.0, "f:b": 3.0, "g:c": 1.0})),
        ("1 |f:3 city:paris", Record(label=1, features={"f:city=paris": 1.0})),
        ("1 |f a a:2|f a", Record(label=1, features={"f:a": 4.0})),
        ("1 |f\ta \t b ", Record(label=1, features={"f:a": 1.0, "f:b": 1.0})),
        ("1 |f", Record(label=1, features={})),
        ("1 |f é:0", Record(label=1, features={"f:é": 0.0})),
    ],
)
def test_each_part_of_a_line(tmp_path: Path, line: str, expected: Record) -> None:
    assert read(tmp_path, line, columns={"tag": "id"}) == [expected]
    assert [row.id for row in read(tmp_path, line) if isinstance(row, Record)] == [None]


@pytest.mark.parametrize(
    ("line", "reason", "told"),
    [
        ("1", "bad_line", "needs a '|'"),
        ("1:0.5 2:1 |f a", "bad_line", "costs, actions and initial predictions"),
        ("1 2 0.5 |f a", "bad_line", "got '1 2 0.5'"),
        ("shared |f a", "bad_line", "'shared'"),
        ("1\t2 |f a", "bad_line", "a tab"),
        ("1 0 |f a", "bad_weight", "> 0"),
        ("1 heavy |f a", "bad_weight", "'heavy'"),
        ("1 inf |f a", "bad_weight", "inf"),
        ("1 |f :3", "bad_features", "needs a name"),
        ("1 |:3 a", "bad_line", "namespace needs a name"),
        ("1 |f a:1:2", "bad_features", "'1:2' is no number"),
        ("1 |f a:", "bad_features", "'' is no number"),
        ("1 |f a:0x1F", "bad_features", "'0x1F'"),
        ("1 |f a:3d", "bad_features", "'3d'"),
        ("1 |f:x a", "bad_features", "'x' is no number"),
        ("1 |f a:nan", "non_finite", "nan"),
        ("1 |f a:1e308 a:1e308", "non_finite", "inf"),
        ("1 |f:1e300 a:1e300", "non_finite", "inf"),
    ],
)
def test_what_is_refused_does_not_stop_the_others(tmp_path: Path, line: str, reason: str, told: str) -> None:
    good, bad, last = read(tmp_path, "1 |f a", line, "", "-1 |f a")
    assert isinstance(bad, RecordError)
    assert (bad.reason, told in bad.detail) == (reason, True)
    assert [row.label for row in (good, last) if isinstance(row, Record)] == [1, -1]


def test_namespaces_are_views_where_views_are_asked_for(tmp_path: Path) -> None:
    record = Record(label=1, views={"page": {"exam": 2.0, "lab": 1.0}, "link": {"cs": 0.5}})
    assert read(tmp_path, "1 |page:2 exam |link cs:0.5 |page lab", views=True) == [record]
    found = evaluate(tmp_path / "a.vw", "two_view_pa", {"C": 1.0, "gamma": 0.5}, views=["page", "link"], bias=False)
    assert (found["n"], found["rejected"]) == (1, 0)
    assert evaluate(tmp_path / "a.vw", views=["page", "other"])["reasons"] == {"bad_view": 1}
    (replayed,) = source._read_file(str(tmp_path / "a.vw"), ReadOptions(views=True), "all")
    assert replayed.column("value").to_pylist() == [encode(record)]


def test_columns_of_vw_are_its_tag(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match="the one column tag"):
        read(tmp_path, "1 |f a", columns={"a": "id"})
