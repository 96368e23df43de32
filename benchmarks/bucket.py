"""One bucket of 312 keys and 3,900 records a batch, without Spark: what each stage costs a record.

``python -m benchmarks.bucket --json``: JSON records of 14 named features, AROW diagonal, models and metrics
rows; so many records come to a bucket of 64 in a batch of 250,000. Seconds are those of the processor. The median over
batches; the first three, in which models grow and kernels are compiled, do not count.
"""

import argparse
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.common import SEED, environment, show
from palearn import datasets
from palearn.config import parse
from palearn.engine.bucket import Bucket
from palearn.engine.validation import Chunk
from palearn.records import encode

KEYS, ROWS = 312, 3900
STAGES = ("load", "learn", "results", "dump")


def measure(batches: int, rows: int = ROWS) -> dict[str, Any]:
    """Return microseconds a record for each stage, and the state's kilobytes."""
    plan = parse(
        {
            "source": {"files": {"path": "none"}},
            "learners": [{"algorithm": "arow"}],
            "output": {"path": "none"},
            "checkpoint": "none",
        }
    ).bucket_config
    values = [encode(record) for record in datasets.a9a()]
    random = np.random.default_rng(SEED)
    blob, times = None, []
    for batch in range(batches):
        keys = [b"user-%06d" % key for key in random.integers(KEYS, size=rows).tolist()]
        taken = [values[i] for i in random.integers(len(values), size=rows).tolist()]
        offsets = np.arange(batch * rows, (batch + 1) * rows)
        chunk = Chunk(keys, taken, ["bench"] * rows, np.zeros(rows, np.int64), offsets)
        marks = [time.process_time()]
        bucket = Bucket(plan, blob, batch)
        marks.append(time.process_time())
        bucket.learn(chunk)
        marks.append(time.process_time())
        tables = bucket.results()
        marks.append(time.process_time())
        blob = bucket.to_bytes()
        marks.append(time.process_time())
        assert bucket.summary.statuses["learned"] == rows
        assert 0 < len(tables["models"]) <= len(bucket.models.keys)
        times.append(np.diff(marks) / rows * 1e6)
    stages = {f"{name} us": statistics.median(t[i] for t in times[3:]) for i, name in enumerate(STAGES)}
    return {**stages, "total us": sum(stages.values()), "state kB": len(blob or b"") / 1000}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=40)
    parser.add_argument("--rows", type=int, default=ROWS, help="Records a batch.")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    show(
        {"environment": environment(), "arguments": vars(given), **measure(given.batches, given.rows)},
        as_json=given.json,
    )


if __name__ == "__main__":
    main()
