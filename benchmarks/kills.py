"""A job that is killed again and again, beside one that never is: the same tables, bit for bit.

``python -m benchmarks.kills --kills 50 --json``: 40,000 records of 14 named features, 50 keys, two learners, four
tables. The job (spark-submit, ``kill -9`` of its whole process group) is started anew until the topic is through.
A kill comes when a start has logged a random number of lines (0 to 5: it learns, batches), and a random part of the
time that the last of them took has passed. ``killed_while`` tells from checkpoint and output at what point each came.
"""

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import yaml

from benchmarks.common import SEED, drawn, environment, fill_topic, own_broker, show
from benchmarks.stream import configuration
from palearn.config import Config
from palearn.spark import stream
from palearn.spark.checkpoint import last_commit
from palearn.spark.connectors import CONNECTOR
from palearn.tables.folder import Folder

LEARNERS = [{"algorithm": "arow"}, {"algorithm": "pa1"}]
MASTER = "local[2]"
JOB = Path(__file__).parents[1] / "jobs/stream.py"
KEYS = 50
#: A kill comes after at most so many lines of a start's log.
MOST_LINES = 5
#: Seconds that a start takes, until one was seen.
START = 5.0
#: What a row's place in its table depends on.
_PLACE = ("batch_id", "key", "learner", "topic", "partition", "offset")


def soak(servers: str, topic: str, folder: Path, *, kills: int, batch: int) -> dict[str, Any]:
    """Stream a topic twice, once with kills; return what happened, and whether both left the same."""

    def config(name: str) -> Config:
        tables = {"path": str(folder / name / "out"), "predictions": {}}
        state = {"buckets": 8, "partitions": 2}
        return configuration(servers, topic, folder / name, batch, LEARNERS, output=tables, state=state)

    whole, killed = config("whole"), config("killed")
    stream.run(whole, master=MASTER)
    random = np.random.default_rng(SEED)
    began = time.perf_counter()
    stages: Counter[str] = Counter()
    start_up = START
    while stages.total() < kills:
        with _Job(killed, folder) as job:
            if lines := int(random.integers(MOST_LINES + 1)):
                took = job.wait_for_lines(lines)
                start_up = took if lines == 1 else start_up
            else:
                took = start_up
            time.sleep(random.uniform(0, took))
            if not job.runs():
                break
            job.kill()
            stages[_stage(killed) if job.lines() else "starting"] += 1
    with _Job(killed, folder) as job:
        job.wait()
    seconds = time.perf_counter() - began
    return {
        "kills": stages.total(),
        "killed_while": dict(stages.most_common()),
        "batches": 1 + (last_commit(Folder(killed.checkpoint)) or 0),
        "seconds": round(seconds, 1),
        "equal": _same_tables(folder / "whole/out", folder / "killed/out"),
    }


class _Job:
    """The job under spark-submit, in a process group of its own; killed at the end of the block if it still runs."""

    def __init__(self, config: Config, folder: Path) -> None:
        settings = folder / "job.yaml"
        settings.write_text(yaml.safe_dump(msgspec.to_builtins(config)), encoding="utf-8")
        self._log = folder / "job.log"
        self._began = time.perf_counter()
        python = {"PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable}
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    str(Path(sys.executable).with_name("spark-submit")), "--master", MASTER, "--packages", CONNECTOR,
                    "--conf", "spark.ui.enabled=false", "--conf", "spark.log.level=ERROR",
                    str(JOB), "--config", str(settings),
                ],
                stdout=log, stderr=subprocess.STDOUT, start_new_session=True, env=os.environ | python,
            )  # fmt: skip

    def __enter__(self) -> "_Job":
        return self

    def __exit__(self, *error: object) -> None:
        if self.runs():
            self.kill()

    def wait_for_lines(self, count: int) -> float:
        """Wait until the job has logged so many lines, or ended; return the seconds that the last one took."""
        seen = 0
        while self.runs() and (lines := self.lines()) < count:
            if lines > seen:
                seen, self._began = lines, time.perf_counter()
            time.sleep(0.02)
        return time.perf_counter() - self._began

    def lines(self) -> int:
        """Return how many lines the job has logged: one that it learns, and one a batch."""
        return len(re.findall(r"^[\d:]{8} (?:learning|batch) ", self._log.read_text(encoding="utf-8"), re.MULTILINE))

    def runs(self) -> bool:
        """Whether it neither ended nor was killed; an error is raised here."""
        status = self._process.poll()
        if status is not None and status not in (0, -signal.SIGKILL):
            raise RuntimeError(self._log.read_text(encoding="utf-8"))
        return status is None

    def wait(self) -> None:
        """Wait until it has come to the end of the topic."""
        self._process.wait()
        self.runs()

    def kill(self) -> None:
        """Kill driver and JVM; the Python workers end with them."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def _stage(config: Config) -> str:
    """Return what the job was at, as the folders tell it."""
    checkpoint, output = Folder(config.checkpoint), Folder(config.output.path)
    planned = max((int(name) for name in checkpoint.names("offsets") if name.isdecimal()), default=None)
    if planned == last_commit(checkpoint):
        return "between batches"
    if output.has("_palearn", "batches", f"{planned}.json"):
        return "batch recorded, Spark not told"
    if any(output.has(table, f"batch_id={planned}") for table in output.names()):
        return "tables put in place"
    return "tables written" if output.sizes("_staging") else "learning"


def _same_tables(first: Path, second: Path) -> bool:
    names = [sorted(path.name for path in out.iterdir() if path.name[0] not in "_.") for out in (first, second)]
    return names[0] == names[1] and all(_rows(first / name) == _rows(second / name) for name in names[0])


def _rows(table: Path) -> list[str]:
    """Return a table's rows as text that tells every bit, in an order that no task decides."""
    rows: pa.Table = ds.dataset(table, partitioning="hive").to_table()
    order = [(name, "ascending") for name in _PLACE if name in rows.column_names]
    return [repr(row) for row in rows.sort_by(order).to_pylist()]


def main() -> None:
    """Fill a topic, and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=40_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with own_broker() as (servers, scratch):
        fill_topic(servers, "kills", drawn(given.records, KEYS))
        # The topic must last for all kills: a start gets through two or three batches.
        found = soak(servers, "kills", scratch, kills=given.kills, batch=max(given.records // (4 * given.kills), 1))
    show({"environment": environment(), "arguments": vars(given), **found}, as_json=given.json)


if __name__ == "__main__":
    main()
