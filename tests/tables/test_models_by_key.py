"""The models table by key: the newest row of each, from what the file holds of it."""

import pyarrow.parquet as pq
import pytest

from palearn.engine import scoring
from palearn.errors import FileFormatError
from palearn.tables import reading
from palearn.tables.models_by_key import ModelsByKey
from tests.asked import KINDS

COLUMNS = scoring.COLUMNS


@pytest.fixture
def out(tmp_path):
    return KINDS["binary"].write(tmp_path / "out")


def expected(out, keys, batch=None):
    frame = reading.latest_models(out, batch=batch)
    rows = frame[frame["key"].isin(keys)].to_dict("records")
    return {(row["key"], row["learner"]): row["weights"].tolist() for row in rows}


def found(table):
    return {(row["key"], row["learner"]): row["weights"] for row in table.to_pylist()}


@pytest.mark.parametrize("batch", [None, 0, 1, 2, 7])
def test_rows_are_the_newest_up_to_a_batch(out, batch):
    table = ModelsByKey(str(out), COLUMNS, batch)
    assert sorted(table.keys()) == ["a", "b"]
    for keys in (["a"], ["b"], ["a", "b"], ["stranger"], ["b", "stranger"]):
        assert found(table.rows(keys)) == expected(out, keys, batch)
    assert table.batch_id == min(2, 2 if batch is None else batch)
    whole = {}
    for rows in table.newest():
        assert whole.keys().isdisjoint(found(rows))
        whole |= found(rows)
    assert whole == expected(out, ["a", "b"], batch)


def test_only_the_row_groups_that_hold_a_key_are_read(out, monkeypatch):
    read = []
    group = pq.ParquetFile.read_row_group

    def counted(self, i, columns):
        if columns != ["key"]:
            read.append(i)
        return group(self, i, columns)

    file = next((out / "models/batch_id=1").iterdir())
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows, file, row_group_size=1)
    table = ModelsByKey(str(out), COLUMNS)
    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    assert found(table.rows(["b"])) == expected(out, ["b"])
    keys = rows.column("key").to_pylist()
    assert read == [i for i, key in enumerate(keys) if key == "b"]
    assert len(read) < len(keys)


def test_new_batches_are_found_and_a_folder_of_models_alone_will_do(out, tmp_path):
    late = out / "models/batch_id=2"
    late.rename(tmp_path / "late")
    table = ModelsByKey(str(out / "models"), COLUMNS)
    before = found(table.rows(["a"]))
    assert (table.batch_id, table.refresh()) == (1, [])
    (tmp_path / "late").rename(late)
    assert (table.refresh(), table.batch_id) == ([2], 2)
    assert found(table.rows(["a"])) == expected(out, ["a"]) != before


def test_files_that_are_exchanged_meanwhile_are_listed_anew(out):
    table = ModelsByKey(str(out), COLUMNS)
    file = next((out / "models/batch_id=2").iterdir())
    names = table._tables.folder.names

    def exchanged(*parts):
        listed = names(*parts)
        if file.exists():
            file.rename(file.with_name("compacted.parquet"))
        return listed

    table._tables.folder.names = exchanged
    assert found(table.rows(["a"])) == expected(out, ["a"])


def test_a_file_of_an_older_version_has_nulls_where_it_lacks_a_column(out):
    for file in out.glob("models/*/*"):
        rows = pq.ParquetFile(file).read()
        pq.write_table(rows.drop_columns(["variances"]), file)
    rows = ModelsByKey(str(out), COLUMNS).rows(["a"])
    assert rows.schema.names == list(COLUMNS)
    assert rows.column("variances").null_count == rows.num_rows == 2


def test_no_models_and_no_batch_so_early_are_told_apart(out, tmp_path):
    with pytest.raises(FileFormatError, match="up to batch -1"):
        ModelsByKey(str(out), COLUMNS, -1)
    with pytest.raises(FileFormatError, match="has no models: is it a job's output"):
        ModelsByKey(str(tmp_path / "nowhere"), COLUMNS)
    with pytest.raises(FileFormatError, match="cannot be read"):
        ModelsByKey("nosuch://bucket/out", COLUMNS)
