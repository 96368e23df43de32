"""Compacting an output: the same rows in fewer files, while readers look and processes die."""

import ctypes
import os
import random
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pandas.testing import assert_frame_equal

from palearn import tables
from palearn.config import parse
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, Chunk
from palearn.errors import ConfigError
from palearn.tables import locks
from palearn.tables.compaction import compact
from palearn.tables.folder import Folder
from palearn.tables.store import Store

BATCHES, PARTS = 8, 3


def written(folder: Path) -> Path:
    """Write the output of a few batches of six keys, each in three files, as the job does."""
    out = folder / "out"
    config = parse(
        {
            "source": {"files": {"path": "none"}},
            "learners": [{"algorithm": "arow"}, {"algorithm": "pa1"}],
            "output": {"path": str(out)},
            "checkpoint": "none",
        }
    )
    store, blobs = Store(str(out)), [b""] * PARTS
    rng = np.random.default_rng(5)
    store.folder.write({"checkpoint_id": "x", "format": 1}, "_palearn", "owner.json")
    for batch in range(BATCHES):
        files = {}
        for part in range(PARTS):
            bucket = Bucket(config.bucket_config, blobs[part] or None, batch)
            keys = [b"key-%d" % (2 * part + k) for k in rng.integers(2, size=5)]
            values = [b'{"label": %d, "features": {"f%d": 1}}' % (rng.choice([-1, 1]), rng.integers(9)) for _ in keys]
            values[0] = b"no record"
            offsets = np.arange(5) + 5 * batch
            bucket.learn(Chunk(keys, values, ["t"] * 5, np.full(5, part), offsets))
            for name, table in bucket.results().items():
                place = (*store.target(batch).place(name), f"part-{part}.parquet")
                files[f"{name}/part-{part}.parquet"] = store.folder.write_table(result_rows.plain(table, name), *place)
            blobs[part] = bucket.to_bytes()
        totals = {name: {"n": 1, "mistakes": 0, "batch_n": 1, "batch_mistakes": 0} for name in ("arow", "pa1")}
        rows = pa.Table.from_batches([result_rows.total_rows(totals)])
        place = (*store.target(batch).place("metrics"), "part-all.parquet")
        files["metrics/part-all.parquet"] = store.folder.write_table(rows, *place)
        store.commit(batch, totals, files)
    return out


def frames(out: Path) -> dict[str, pd.DataFrame]:
    """Return every table, its rows in one order."""
    return {name: in_order(tables.read(out, name)) for name in ("models", "metrics", "rejected")}


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    place = [name for name in ("batch_id", "key", "learner", "topic", "partition", "offset") if name in frame]
    return frame.sort_values(place).reset_index(drop=True)


def files_of(out: Path, table: str) -> dict[int, int]:
    """Return how many files a plain reader sees of each batch."""
    found = [Path(file).parent.name for file in ds.dataset(out / table, partitioning="hive").files]
    return {batch: found.count(f"batch_id={batch}") for batch in range(BATCHES)}


def test_the_rows_stay_and_old_batches_have_one_file(tmp_path: Path) -> None:
    out = written(tmp_path)
    (out / "report.html").touch()
    before = frames(out)
    found = compact(str(out), keep=3)
    for name, wanted in before.items():
        assert_frame_equal(frames(out)[name], wanted, check_exact=True, obj=name)
    for table, parts in (("models", 3), ("metrics", 4), ("rejected", 3)):
        assert files_of(out, table) == {batch: 1 if batch < BATCHES - 3 else parts for batch in range(BATCHES)}
    assert (found.files_before, found.files_after, found.rows_dropped) == (5 * 10, 5 * 3, 0)
    assert sorted(path.name for path in out.iterdir()) == ["_palearn", "metrics", "models", "rejected", "report.html"]
    again = compact(str(out), keep=3)
    assert (again.files_before, again.files_after) == (5 * 3, 5 * 3)


def test_of_a_table_whose_history_may_go_the_newest_rows_stay(tmp_path: Path) -> None:
    out = written(tmp_path)
    before = frames(out)
    found = compact(str(out), keep=2, latest=["models"])
    after = frames(out)
    assert_frame_equal(after["metrics"], before["metrics"], check_exact=True)
    assert_frame_equal(tables.newest(after["models"]), tables.newest(before["models"]), check_exact=True)
    recent = before["models"]["batch_id"] >= BATCHES - 2
    newest = ~before["models"].duplicated(["key", "learner"], keep="last")  # in the order of batches
    assert_frame_equal(after["models"], before["models"][recent | newest].reset_index(drop=True), check_exact=True)
    assert found.rows_dropped == int((~(recent | newest)).sum()) > 0

    compact(str(out), keep=2, latest=["metrics"])
    totals = after["metrics"]["key"].isna()
    assert_frame_equal(
        in_order(tables.read(out, "metrics").query("key.isna()")), after["metrics"][totals].reset_index(drop=True)
    )


def test_readers_in_a_loop_find_every_row_each_time(tmp_path: Path) -> None:
    out = written(tmp_path)
    wanted, seen = frames(out), []
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.append({name: frames(out)[name] for name in wanted})

    readers = [threading.Thread(target=look) for _ in range(2)]
    for reader in readers:
        reader.start()
    for keep in range(BATCHES - 1, 0, -1):
        compact(str(out), keep=keep)
    done.set()
    for reader in readers:
        reader.join()
    assert len(seen) > 2
    for found in seen:
        for name, rows in wanted.items():
            assert_frame_equal(found[name], rows, check_exact=True, obj=name)


def test_a_kill_in_the_middle_loses_nothing(tmp_path: Path) -> None:
    out = written(tmp_path)
    wanted = frames(out)
    # Killed at one after the other of its changes to the file system.
    script = """
import os, signal, sys
from palearn.tables import compaction
from palearn.tables.folder import Folder
left = int(sys.argv[2])
def counted(real):
    def call(*args):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args)
    return call
Folder.exchange = counted(Folder.exchange)
Folder.discard = counted(Folder.discard)
Folder.table_file = counted(Folder.table_file)
compaction.compact(sys.argv[1], keep=2, latest=["metrics"])
"""
    random.seed(3)
    for steps in sorted(random.sample(range(30), 6)):
        killed = subprocess.run([sys.executable, "-c", script, str(out), str(steps)], check=False)
        assert killed.returncode in (0, -signal.SIGKILL)
        found = frames(out)
        for name in ("models", "rejected"):
            assert_frame_equal(found[name], wanted[name], check_exact=True, obj=name)
        assert_frame_equal(tables.newest(found["metrics"]), tables.newest(wanted["metrics"]), check_exact=True)
    compact(str(out), keep=2)
    assert [name for name in os.listdir(out) if name.startswith("_")] == ["_palearn"]


def test_an_output_is_compacted_once_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, said = written(tmp_path), list[str]()
    real = Folder.exchange

    def exchange(self: Folder, *places: tuple[str, ...]) -> None:
        with pytest.raises(ConfigError) as told:
            compact(str(out), keep=BATCHES - 1)
        said.append(str(told.value))
        real(self, *places)

    monkeypatch.setattr(locks, "_DYING_S", 0.0)
    monkeypatch.setattr(Folder, "exchange", exchange)
    compact(str(out), keep=BATCHES - 1)
    assert said
    assert all(re.match(rf"another palearn compact runs on {out} \(process \d+ on .*\); wait", x) for x in said)


def test_what_cannot_be_compacted_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no output folder"):
        compact(str(tmp_path))
    with pytest.raises(ConfigError, match="models and metrics have newest rows, not rejected"):
        compact(str(written(tmp_path)), latest=["rejected"])
    with monkeypatch.context() as patch:  # as on a file system that cannot
        patch.setattr(ctypes, "CDLL", lambda *args, **options: SimpleNamespace())
        with pytest.raises(ConfigError, match=r"batch_id=\d cannot be exchanged for its compacted copy: Function not"):
            compact(str(tmp_path / "out"), keep=1)
