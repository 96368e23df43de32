"""The job with checkpoint and tables in an object store, a real one on this machine, and with Delta tables."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

from palearn import tables
from palearn.config import Config
from palearn.spark.checkpoint import last_commit
from palearn.tables.folder import Folder
from tests.spark.conftest import MOST, config, in_order
from tests.spark.test_jobs import start

ALL = ("models", "metrics", "batches")
ROOT = Path(__file__).parents[2]


def stored(broker: str, topic: str, folder: str, format: str = "delta", *overrides: str) -> Config:
    """Return a configuration whose folders are in a store (or anywhere)."""
    where = {"output": {"path": f"{folder}/out", "format": format}, "checkpoint": f"{folder}/checkpoint"}
    return config(broker, topic, Path("none"), MOST, *overrides, **where)


def frame(out: str | Path, table: str) -> Any:
    found = in_order(tables.read(out, table))
    return found[sorted(found)]


def assert_same(out: str, finished: Path) -> None:
    """Assert that an output has the rows of an uninterrupted job on a disk, batch for batch."""
    for name in ALL:
        assert_frame_equal(
            frame(out, name), frame(finished / "out", name), check_exact=True, check_dtype=False, obj=name
        )


JOB = """\
import sys
from pathlib import Path
from palearn.config import load
from palearn.spark import stream
stream.run(load(sys.argv[1], sys.argv[2:]), master="local[2]")
"""


def in_a_process(
    folder: Path, broker: str, topic: str, where: str, format: str, *overrides: str
) -> subprocess.Popen[str]:
    """Start the job as a process of its own; its session has what a store needs."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(json.dumps({
        "source": {"kafka": {"bootstrap_servers": broker, "topics": [topic], "max_offsets_per_trigger": 500}},
        "learners": [
            {"name": "pa1", "algorithm": "pa1", "C": 0.1}, {"name": "pam1", "algorithm": "pam1", "C": 0.1},
            {"name": "arow", "algorithm": "arow", "r": 1.0},
            {"name": "full", "algorithm": "arow", "r": 1.0, "covariance": "full"},
        ],
        "state": {"buckets": 4, "partitions": 2}, "metrics": {"window": 50},
        "output": {"path": f"{where}/out", "format": format}, "checkpoint": f"{where}/checkpoint",
    }), encoding="utf-8")  # fmt: skip
    (folder / "job.py").write_text(JOB, encoding="utf-8")
    quiet = "--conf spark.ui.enabled=false --conf spark.log.level=ERROR --driver-memory 1g pyspark-shell"
    return start([sys.executable, str(folder / "job.py"), str(folder / "job.yaml"), *overrides], folder, PYSPARK_SUBMIT_ARGS=quiet)  # fmt: skip # noqa: E501


def finish(process: "subprocess.Popen[str]") -> None:
    printed, _ = process.communicate()
    assert process.returncode == 0, printed[-3000:]


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_job_in_a_store_writes_what_one_on_a_disk_does(
    format: str, broker: str, adult: str, finished: Path, bucket: str, tmp_path: Path
) -> None:
    finish(in_a_process(tmp_path, broker, adult, bucket, format))
    assert_same(f"{bucket}/out", finished)
    checkpoint = Folder(f"{bucket}/checkpoint")
    assert last_commit(checkpoint) == last_commit(Folder(str(finished / "checkpoint")))
    finish(in_a_process(tmp_path, broker, adult, bucket, format))  # nothing is new
    assert_same(f"{bucket}/out", finished)
