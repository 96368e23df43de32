"""Tables on a disk and in a store, plain and Delta's: the same rows, whole batches, and every reader agrees."""

import json
import threading
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pandas.testing import assert_frame_equal

from palearn import tables
from palearn.cli import app
from palearn.evaluate import predict
from palearn.report import overview
from palearn.report.live import Watch
from palearn.tables import delta, object_stores
from palearn.tables.compaction import compact
from palearn.tables.folder import Folder
from palearn.tables.reading import Tables
from palearn.tables.store import Store
from tests.outputs import Job
from tests.streams import learner, plan, rows

ALL = ("models", "metrics", "batches", "rejected")


def stream(batches: int = 4) -> list[list[Any]]:
    """Return batches of records of three keys, with a bad one in each."""
    out = []
    for b in range(batches):
        items: list[Any] = [
            ("abc"[i % 3], {"label": 1 if (i + b) % 2 else -1, "features": {"x": i, f"f{b}": 1}}) for i in range(9)
        ]
        out.append(rows([*items, ("a", b"no record")], first=10 * b))
    return out


def job(out: str, format: Any) -> Job:
    return Job(out, plan(learner("arow"), learner("pa1")), format=format)


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same output as plain Parquet on a disk."""
    out = tmp_path_factory.mktemp("wanted") / "out"
    job(str(out), "parquet").run(stream())
    return out


def frame(out: str | Path, table: str) -> Any:
    found = tables.read(out, table)
    place = [name for name in ("batch_id", "key", "learner", "offset", "partition") if name in found]
    return found[sorted(found)].sort_values(place).reset_index(drop=True)


def same(out: str, wanted: Path) -> None:
    for name in ALL:
        assert_frame_equal(frame(out, name), frame(wanted, name), check_exact=True, check_dtype=False, obj=name)


def test_every_place_and_format_has_the_same_rows(place: tuple[str, str], wanted: Path) -> None:
    job(*place).run(stream())
    same(place[0], wanted)
    assert delta.is_delta(Folder(place[0]), "models") == (place[1] == "delta")


def test_what_reads_an_output_reads_it_everywhere(
    place: tuple[str, str], wanted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, _ = place
    job(*place).run(stream())
    assert overview.summary(out) == overview.summary(wanted)
    watch, other = Watch(out), Watch(wanted)
    assert watch.read()
    assert other.read()
    assert watch.reading() == other.reading()
    assert predict.load(out).keys == predict.load(wanted).keys

    def told(where: str, *options: str) -> Any:
        app(["models", where, "--json", *options], standalone_mode=False)
        return json.loads(capsys.readouterr().out)

    for options in ([], ["--key", "a"], ["--key", "a", "--batch", "1"], ["--key", "a", "--with", "b"]):
        assert told(out, *options) == told(str(wanted), *options)


def test_compacting_changes_no_row(place: tuple[str, str], wanted: Path) -> None:
    out, _ = place
    job(*place).run(stream())
    found = compact(out, keep=1)
    same(out, wanted)
    assert found.files_before == found.files_after  # one part each
    newest = tables.newest(frame(wanted, "models"))
    dropped = compact(out, keep=1, latest=["models"]).rows_dropped
    assert dropped == len(frame(wanted, "models")) - len(frame(out, "models")) > 0
    assert_frame_equal(tables.newest(frame(out, "models")), newest, check_exact=True, check_dtype=False)
    assert_frame_equal(frame(out, "metrics"), frame(wanted, "metrics"), check_exact=True, check_dtype=False)


def test_two_files_of_a_batch_become_one(place: tuple[str, str]) -> None:
    out, format = place
    store = Store(out, format, "me")  # type: ignore[arg-type]
    store.folder.write({"checkpoint_id": "me", "format": 2}, "_palearn", "owner.json")
    for batch in range(3):
        commit(store, batch, parts=2)
    before = frame(out, "rejected")
    found = compact(out, keep=1)
    assert (found.files_before, found.files_after) == (4, 2)
    assert_frame_equal(frame(out, "rejected"), before)
    assert len(Tables(out).files("rejected", 0)) == 1
    assert len(Tables(out).files("rejected", 2)) == 2
    again = compact(out, keep=1)
    assert (again.files_before, again.files_after) == (2, 2)


def written(store: Store, batch: int, parts: int) -> dict[str, int]:
    import pyarrow as pa

    from palearn.tables.schemas import REJECTED

    target, files = store.target(batch), {}
    for part in range(parts):
        name = target.name(f"part-{part}")
        table = pa.Table.from_pylist([{"topic": "t", "partition": part, "offset": batch, "reason": "bad"}], REJECTED)
        files[f"rejected/{name}"] = store.folder.write_table(table, *target.place("rejected"), name)
    return files


def commit(store: Store, batch: int, parts: int = 1) -> None:
    store.commit(batch, {}, written(store, batch, parts))


def test_a_batch_that_is_done_again_stands_once(place: tuple[str, str]) -> None:
    """Killed after the tables' commits, before the record of the batch; and before them."""
    out, format = place
    first = Store(out, format, "me")  # type: ignore[arg-type]
    commit(first, 0, parts=2)
    if format == "delta" or out.startswith("s3"):
        first._layout.put(first.target(1), written(first, 1, 2))  # the record is not written
    second = Store(out, format, "me")  # type: ignore[arg-type]
    written(second, 1, 2)  # nothing of it is put
    third = Store(out, format, "me")  # type: ignore[arg-type]
    assert not third.is_whole(1)
    third.begin()
    commit(third, 1, parts=2)
    assert sorted(zip(*(frame(out, "rejected")[x] for x in ("batch_id", "partition")), strict=True)) == [
        (0, 0), (0, 1), (1, 0), (1, 1),
    ]  # fmt: skip
    there = {path for path in third.folder.sizes("rejected") if path.endswith(".parquet") and "_delta_log" not in path}
    assert {f"rejected/{path}" for path in there} == set(Tables(out).files("rejected")), "nothing is left over"


def test_a_batch_that_is_whole_is_written_where_nobody_sees_it(place: tuple[str, str]) -> None:
    out, format = place
    store = Store(out, format, "me")  # type: ignore[arg-type]
    commit(store, 0)
    before = store.folder.sizes("rejected")
    target = store.target(0, whole=True)
    store.folder.write_bytes(b"x", *target.place("rejected"), target.name("part-0"))
    assert store.folder.sizes("rejected") == before
    Store(out, format, "me").begin()  # type: ignore[arg-type]
    assert not store.folder.names("_staging")


def test_what_is_added_at_a_stop_is_added_once(place: tuple[str, str]) -> None:
    out, format = place
    commit(Store(out, format, "me"), 0)  # type: ignore[arg-type]
    for _ in range(2):
        store = Store(out, format, "me")  # type: ignore[arg-type]
        target = store.target(0)
        name = target.name("stop-0")
        size = store.folder.write_table(ds.dataset([store.folder.at(*path.split("/")) for path in Tables(out).files("rejected")][:1], filesystem=store.folder.fs).to_table(), *target.place("rejected"), name)  # fmt: skip # noqa: E501
        store.add(0, {f"rejected/{name}": size})
    assert len(frame(out, "rejected")) == 2


def test_a_reader_in_a_loop_sees_whole_batches(place: tuple[str, str]) -> None:
    out, format = place
    store, parts, seen, stop = Store(out, format, "me"), 4, set(), threading.Event()  # type: ignore[arg-type]
    commit(store, 0, parts)

    def look() -> None:
        while not stop.is_set():
            counts = tables.read(out, "rejected")["batch_id"].value_counts()
            seen.update(counts.tolist())

    reader = threading.Thread(target=look)
    reader.start()
    for batch in range(1, 12):
        commit(store, batch, parts)
    stop.set()
    reader.join()
    assert seen == {parts}


def test_of_two_drivers_one_has_the_batch(bucket: str, tmp_path: Path) -> None:
    for out in (str(tmp_path / "out"), f"{bucket}/out"):
        first, second = (Store(out, "delta", "me") for _ in range(2))
        commit(first, 0)
        commit(first, 1)
        files = written(second, 2, 1)
        commit(first, 2)
        second._layout.put(second.target(2), files)  # it looks first, and finds the batch
        assert frame(out, "rejected")["batch_id"].tolist() == [0, 1, 2]
        commit(first, 3)
        with pytest.raises(tables.store.StreamError, match="another job has written to the table"):
            commit(second, 3)
        assert frame(out, "rejected")["batch_id"].tolist() == [0, 1, 2, 3]


def test_polars_duckdb_and_pyarrow_read_delta_tables(bucket: str, tmp_path: Path) -> None:
    for out in (str(tmp_path / "out"), f"{bucket}/out"):
        job(out, "delta").run(stream())
        options = object_stores.delta_options(out)
        for name in ALL:
            n = len(frame(out, name))
            opened = DeltaTable(f"{out}/{name}", storage_options=options)
            assert opened.to_pyarrow_dataset().count_rows() == n
            assert pl.scan_delta(f"{out}/{name}", storage_options=options).collect().height == n
            rows_ = opened.to_pyarrow_table()  # noqa: F841 - DuckDB finds it by its name
            assert duckdb.sql("select count(*) from rows_").fetchall() == [(n,)]


def test_the_log_has_a_checkpoint_and_the_batch_s_number(tmp_path: Path) -> None:
    out = str(tmp_path / "out")
    store = Store(out, "delta", "me")
    for batch in range(12):
        commit(store, batch)
    table = DeltaTable(f"{out}/rejected")
    assert table.transaction_version("me") == 11
    assert table.history(1)[0]["batch_id"] == "11"
    assert [path.name for path in Path(out, "rejected/_delta_log").glob("*.checkpoint.parquet")]
