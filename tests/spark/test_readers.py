"""Who reads tables while a job writes them, dies and starts again sees whole batches, and never fewer than before."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from palearn import tables
from tests.spark.conftest import (
    assert_accounts_balance,
    assert_same_learning,
    config,
    consume,
    learn_without_spark,
    people,
    produce_people,
    stream,
    visible,
)
from tests.spark.killing import kill_job
from tests.spark.test_jobs import start_job, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.slow, pytest.mark.usefixtures("spark")]

#: Some twelve batches.
COUNT, MOST = 600, "source.kafka.max_offsets_per_trigger=50"
TABLES = ("metrics", "models")

#: Batch -> its rows, by key and learner.
Seen = dict[int, frozenset[tuple[str | None, str]]]


def with_pyarrow(out: Path, table: str) -> pd.DataFrame:
    return ds.dataset(out / table, partitioning="hive").to_table().to_pandas()


def by_listing(out: Path, table: str) -> pd.DataFrame:
    """Read what a walk through the folders finds."""
    found = [
        pq.ParquetFile(file).read().to_pandas().assign(batch_id=int(folder.name.removeprefix("batch_id=")))
        for folder in visible(out / table)
        for file in visible(folder)
    ]
    return pd.concat(found) if found else pd.DataFrame()


READERS: list[Callable[[Path, str], pd.DataFrame]] = [with_pyarrow, tables.read, by_listing]


class Reader:
    """Reads in a loop; remembers what it saw of each table, each time."""

    def __init__(self, read: Callable[[Path, str], pd.DataFrame], out: Path, ended: threading.Event) -> None:
        self._read, self._out, self._ended = read, out, ended
        self.seen: dict[str, list[Seen]] = {table: [] for table in TABLES}
        self.error: Exception | None = None
        self.thread = threading.Thread(target=self._loop)
        self.thread.start()

    def _loop(self) -> None:
        try:
            while not self._ended.wait(0.05):
                for table, seen in self.seen.items():
                    if (self._out / table).exists():
                        seen.append(batches_in(self._read(self._out, table)))
        except Exception as error:
            self.error = error


def batches_in(frame: pd.DataFrame) -> Seen:
    pairs = frame.assign(key=frame["key"].astype(object).where(frame["key"].notna(), None))
    found = {
        int(batch): list(zip(rows["key"], rows["learner"], strict=True)) for batch, rows in pairs.groupby("batch_id")
    }
    assert all(len(rows) == len(set(rows)) for rows in found.values())
    return {batch: frozenset(rows) for batch, rows in found.items()}


@contextmanager
def reading(out: Path) -> Iterator[list[Reader]]:
    ended = threading.Event()
    readers = [Reader(read, out, ended) for read in READERS]
    try:
        yield readers
    finally:
        ended.set()
        for reader in readers:
            reader.thread.join()


def assert_whole_batches(readers: list[Reader], out: Path) -> None:
    """Assert that each reader saw each batch as it is in the end, and no batch go away again."""
    for reader in readers:
        assert reader.error is None
        for table, seen in reader.seen.items():
            finished = batches_in(tables.read(out, table))
            assert any(0 < len(found) < len(finished) for found in seen)  # it looked while the job wrote
            before: set[int] = set()
            for found in seen:
                assert found.items() <= finished.items()
                assert before <= found.keys()
                before = {*found}


def test_readers_see_whole_batches_while_a_job_writes_and_is_killed(broker: str, topic: str, tmp_path: Path) -> None:
    produce_people(broker, topic, tmp_path / "people.jsonl", people(COUNT))
    chosen, out = config(broker, topic, tmp_path, MOST), tmp_path / "out"
    with reading(out) as readers:
        process = start_job("stream", broker, topic, tmp_path, MOST)
        try:
            wait_for(process, "batch 4:")
        finally:
            kill_job(process)
        stream(chosen)
    assert_accounts_balance(out, COUNT)
    assert_whole_batches(readers, out)
    assert_same_learning(out, learn_without_spark(chosen, consume(broker, topic)))
