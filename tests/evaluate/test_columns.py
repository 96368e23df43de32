"""A row means the same in whatever file it stands: kinds of columns are the model's."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import palearn
from palearn import files
from palearn.engine import result_rows, scoring
from palearn.engine.bucket import Bucket
from palearn.evaluate import predict
from palearn.files.options import ReadOptions
from palearn.models import codec
from palearn.models.column_kinds import shown_columns
from palearn.models.keyed import Models
from palearn.records import Record, encode
from tests.files.test_files import write
from tests.streams import chunk, learner, plan, rows


def learned(path: Path, **options: Any) -> Models:
    """Return the models of a stream of what ``produce`` makes of a file."""
    bucket = Bucket(plan(learner("arow"), positive="yes", max_features=None))
    values = [json.loads(encode(row)) for _, row in files.read(path, **options) if isinstance(row, Record)]
    bucket.learn(chunk(rows([("all", value) for value in values])))
    return scoring.models_from_rows(result_rows.plain(bucket.results()["models"], "models"))


def said(models: Models, path: Path, **options: Any) -> list[tuple[float, str]]:
    found = predict.Predictions(models, path, ReadOptions(**options))
    return [(row["score"], row["predicted"]) for batch in found.batches() for row in batch.to_pylist()]


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Path:
    dice = np.random.default_rng(2)
    lines = ["code,x,ok,label"]
    for _ in range(400):
        code = str(dice.choice(["A1", "B2", "17", "C3", "42"]))
        label = "yes" if code in ("17", "A1") else "no"
        lines.append(f"{code},{dice.random():.3f},{str(dice.random() < 0.5).lower()},{label}")
    return write(tmp_path_factory.mktemp("columns") / "train.csv", "\n".join(lines))


def test_a_row_has_one_score_in_every_file(train: Path, tmp_path: Path) -> None:  # W: "no" here and "yes" there
    models = learned(train)
    few = write(tmp_path / "few.csv", "code,x\n17,0.5\n42,0.5\n")
    many = write(tmp_path / "many.csv", "code,x\n17,0.5\n42,0.5\nA1,0.5\nB2,0.5\nC3,0.5\n")
    table = tmp_path / "a.parquet"
    pq.write_table(pa.table({"code": [17, 42], "x": [0.5, 0.5]}), table)
    floats = tmp_path / "b.parquet"
    pq.write_table(pa.table({"code": [17.0, 42.0], "x": [0.5, 0.5]}), floats)
    jsonl = write(tmp_path / "a.jsonl", "".join(f'{{"features": {{"code": "{c}", "x": 0.5}}}}\n' for c in (17, 42)))
    expected = said(models, many)[:2]
    assert [word for _, word in expected] == ["yes", "no"]
    assert [said(models, path) for path in (few, table, floats, jsonl)] == [expected] * 4


def test_truth_values_are_the_models_too(train: Path, tmp_path: Path) -> None:
    models = learned(train)
    cells = ["true", "TRUE", "1", "1.0"]
    found = said(models, write(tmp_path / "a.csv", "ok,x\n" + "".join(f"{cell},0.5\n" for cell in cells)))
    assert len(set(found)) == 1
    assert found[0] != said(models, write(tmp_path / "b.csv", "x\n0.5\n"))[0]


def test_columns_that_the_model_does_not_know_are_named_and_left_out(train: Path, tmp_path: Path) -> None:
    models = learned(train)
    path = write(tmp_path / "a.csv", "code,x,new,outcome\n17,0.5,3,yes\n")
    assert predict.Predictions(models, path).unknown == ["new", "outcome"]
    assert said(models, path) == said(models, write(tmp_path / "b.csv", "code,x\n17,0.5\n"))
    assert predict.Predictions(models, train).unknown == []


def test_what_columns_were_taken_for_travels_with_the_models(train: Path) -> None:
    columns = {"code": "text", "x": "ignore"}
    bucket = Bucket(plan(learner("pa1"), positive="yes", columns=columns))
    bucket.learn(chunk(rows([("all", {"features": {"x": 1.0}, "label": "yes"})])))
    assert codec.decode(bucket.to_bytes()).settings.columns == columns
    assert Bucket(plan(learner("pa1"), positive="yes"), bucket.to_bytes()).models.settings.columns == columns
    (row, *_) = bucket.results()["models"].to_pylist()
    assert json.loads(row["params"])["columns"] == columns


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["x"], {"x": "value"}),
        (["x", "x=?"], {"x": "value"}),
        (["x", "x=true"], {"x": "number"}),
        (["a=b=c"], {"a": "text", "a=b": "text", "a=b=c": "value"}),
        (["=x"], {"=x": "value"}),
        ([], {}),
    ],
)
def test_columns_that_features_come_from(names: list[str], expected: dict[str, str]) -> None:
    found = shown_columns(names)
    assert {name: kind for name, kind in found.items() if name in expected} == expected


# -- A row alone and among others ----------------------------------------------------------------------------

WORDS = ["17", "3.0", "true", "a b", "x=1", "é", "None", "nan?", "-1", "1e3x"]


class Table:
    """A random table: its columns, and rows of cells that are numbers, truth values, texts or None."""

    def __init__(self, seed: int) -> None:
        dice = self.dice = np.random.default_rng(seed)
        self.kinds = {f"c{i}": str(dice.choice(["number", "boolean", "text"])) for i in range(dice.integers(2, 6))}
        self.rows = [{name: self.cell(kind) for name, kind in self.kinds.items()} for _ in range(30)]
        self.labels = [str(dice.choice(["yes", "no"])) for _ in self.rows]

    def cell(self, kind: str) -> Any:
        if self.dice.random() < 0.1:
            return None
        if kind == "number":
            return float(np.round(self.dice.normal(), int(self.dice.integers(0, 17))))
        return bool(self.dice.random() < 0.5) if kind == "boolean" else str(self.dice.choice(WORDS))

    def write(self, path: Path, rows: list[dict[str, Any]]) -> Path:
        if path.suffix == ".jsonl":
            return write(path, "".join(json.dumps({"features": row}) + "\n" for row in rows))
        if path.suffix == ".csv":
            cells = [[_text(row[name]) for name in self.kinds] for row in rows]
            return write(path, "\n".join(map(",".join, [list(self.kinds), *cells])) + "\n")
        types = {"number": pa.float64(), "boolean": pa.bool_(), "text": pa.string()}
        pq.write_table(pa.table({n: pa.array([r[n] for r in rows], types[k]) for n, k in self.kinds.items()}), path)
        return path


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    return str(cell).lower() if isinstance(cell, bool) else str(cell)


def streamed(made: Any, blob: bytes, row: dict[str, Any]) -> tuple[float, str]:
    """Return what the stream says of a record that comes next."""
    bucket = Bucket(made, blob, 1)
    bucket.learn(chunk(rows([("all", {"features": row})], first=1000)))
    (found,) = bucket.results()["predictions"].to_pylist()
    return found["score"], found["predicted"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 25))
def test_a_row_has_the_same_score_alone_and_among_others_to_the_last_bit(tmp_path: Path, first: int) -> None:
    """By predict in three formats, score, the stream and a model in Python; of 200 random tables."""
    for seed in range(first, first + 25):
        table = Table(seed)
        name = ["pa1", "arow", "pam1", "perceptron", "pa_mean"][seed % 5]
        made = plan(learner(name), positive="yes", max_features=None)
        bucket = Bucket(made)
        values = [{"features": row, "label": y} for row, y in zip(table.rows, table.labels, strict=True)]
        bucket.learn(chunk(rows([("all", value) for value in values])))
        blob = bucket.to_bytes()
        models = scoring.models_from_rows(result_rows.plain(bucket.results()["models"], "models"))
        row = table.rows[seed % 30]
        expected = streamed(made, blob, row)
        found = scoring.rows(models, scoring.score(models, chunk(rows([("all", {"features": row})])))).to_pylist()
        assert (found[0]["score"], found[0]["predicted"]) == expected
        assert palearn.from_bytes(blob).score_one(row) == expected[0]
        others = [table.rows[i] for i in table.dice.permutation(30)[:9]]
        place = int(table.dice.integers(0, 10))
        for suffix in (".csv", ".jsonl", ".parquet"):
            alone = table.write(tmp_path / f"a{suffix}", [row])
            among = table.write(tmp_path / f"b{suffix}", [*others[:place], row, *others[place:]])
            assert said(models, alone) == [expected]
            assert said(models, among)[place] == expected
