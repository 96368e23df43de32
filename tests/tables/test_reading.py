"""Reading the output tables, and what the report makes of them."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from palearn import tables
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket
from palearn.errors import FileFormatError
from palearn.report import overview
from tests.outputs import Job
from tests.streams import Row, chunk, learner, plan, rows

MADE = plan(learner("pa1", C=0.5), learner("arow"), window=5)


def stream() -> list[list[Row]]:
    """Three batches: a and b, then a and a bad record, then c."""
    value = [{"label": 1 if i % 3 else -1, "features": {f"f{i % 4}": 1.0, "g": i / 10}} for i in range(20)]
    return [
        rows([(key, value[i]) for i, key in enumerate("aabbab")]),
        rows([("a", value[9]), ("a", b"{"), ("a", value[11])], first=6),
        rows([("c", value[3])], first=9),
    ]


def write(folder: Path, name: str, batch_id: int, table: pa.Table | pa.RecordBatch) -> None:
    target = folder / name / f"batch_id={batch_id}"
    target.mkdir(parents=True)
    whole = table if isinstance(table, pa.Table) else pa.Table.from_batches([table])
    pq.write_table(whole, target / "part-0.parquet")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """Output of a job of three batches, as the job lays it out."""
    Job(tmp_path, MADE).run(stream())
    return tmp_path


def test_latest_models_are_the_newest_of_each_key_and_learner(out: Path) -> None:
    frame = tables.latest_models(out)
    found = {(row.key, row.learner): (row.batch_id, row.n_seen, row.last_offset) for row in frame.itertuples()}
    newest: dict[str, Any] = {"a": (1, 5, 8), "b": (0, 3, 5), "c": (2, 1, 9)}
    assert found == {(key, name): newest[key] for key in "abc" for name in ("pa1", "arow")}


def test_metrics_all_or_latest(out: Path) -> None:
    frame = tables.metrics(out)
    # (2 keys + 1 + 1) x 2 learners, and a row over all keys a learner and batch.
    assert len(frame) == 8 + 6
    latest = tables.metrics(out, latest=True)
    assert len(latest) == 6 + 2
    overall = latest[latest["key"].isna()]
    assert set(overall["batch_id"]) == {2}
    assert set(overall["n"]) == {9}


def test_batches_past_nine_are_newer(tmp_path: Path) -> None:
    blob = None
    for batch_id in range(8, 12):
        bucket = Bucket(MADE, blob, batch_id)
        bucket.learn(chunk(rows([("a", {"label": 1, "features": {"f": 1}})], first=batch_id)))
        write(tmp_path, "models", batch_id, result_rows.plain(bucket.results()["models"], "models"))
        blob = bucket.to_bytes()
    assert set(tables.latest_models(tmp_path)["last_offset"]) == {11}


def test_whatever_helps_the_writing_is_not_read(out: Path) -> None:
    before = len(tables.read(out, "models"))
    (out / "models" / "_tmp").mkdir()
    (out / "models" / "_tmp" / "x.parquet").write_bytes(b"half a file")
    (out / "models" / ".part.crc").write_bytes(b"x")
    (out / "_owner.json").write_text("{}")
    assert len(tables.read(out, "models")) == before


def test_the_rejected_record_is_there_whole(out: Path) -> None:
    (row,) = tables.read(out, "rejected").itertuples()
    assert (row.key, row.value, row.topic, row.partition, row.offset, row.reason) == (b"a", b"{", "t", 0, 7, "not_json")
    assert row.batch_id == 1


def test_a_folder_without_tables_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"no table 'models'.*output of a palearn job"):
        tables.latest_models(tmp_path)


def test_summary(out: Path) -> None:
    found = overview.summary(out)
    assert {name: found["records"][name] for name in ("records", "learned", "scored", "rejected")} == {
        "records": 10, "learned": 9, "scored": 0, "rejected": 1,
    }  # fmt: skip
    per_key = {(row.key, row.learner): row for row in tables.metrics(out, latest=True).itertuples()}
    for name, entry in found["learners"].items():
        mistakes = sum(per_key[key, name].mistakes for key in "abc")
        assert entry == {"n": 9, "mistakes": mistakes, "error": mistakes / 9}
    assert set(found["keys"]) == {"a", "b", "c"}
    assert found["keys"]["a"]["n"] == 5
    assert found["keys"]["a"]["errors"]["pa1"] == per_key["a", "pa1"].error
    wrong = sum(entry["n"] * entry["baseline_error"] for entry in found["keys"].values())
    assert found["no_change"] == pytest.approx(wrong / 9)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(out: Path, tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"plot.{suffix}"
    overview.plot(overview.history(out), file)
    assert file.read_bytes().startswith(b"\x89PNG" if suffix == "png" else b"<?xml")
