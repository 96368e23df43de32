"""What each output table costs, and what a replay saves.

``python -m benchmarks.tables --json``: 500,000 JSON records of 14 named features, 20,000 keys, batches of 100,000, AROW
diagonal, with no table at all, each table alone, and all of them; rows a second without each query's first batch, and
milliseconds of a batch of 100 records on an empty state. ``replay`` is ``palearn replay`` of the same topic, its first
second included, beside the stream from its first batch to its last.
"""

import statistics
import time
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from benchmarks.common import drawn, fill_topic, own_broker, topic_command
from benchmarks.stream import configuration, palearn, rate, run
from palearn.config import Config
from palearn.spark import replay
from palearn.spark.session import session

LEARNERS = [{"algorithm": "arow"}]
NO_TABLE: dict[str, Any] = dict.fromkeys(("models", "metrics", "predictions", "rejected", "batches"), False)
CHOICES: dict[str, dict[str, Any]] = {
    "none": NO_TABLE,
    **{name: NO_TABLE | {name: {}} for name in ("batches", "metrics", "models", "predictions")},
    "all": {name: {} for name in NO_TABLE},
}


def _config(servers: str, topic: str, folder: Path, batch: int, tables: dict[str, Any]) -> Config:
    output = {"path": str(folder / "out"), **tables}
    return configuration(servers, topic, folder, batch, LEARNERS, output=output)


def measure(records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Run every choice of tables ``rounds`` times in turn, then replay and stream."""
    rates: dict[str, list[float]] = {name: [] for name in CHOICES}
    small: dict[str, float] = {}
    with own_broker() as (servers, scratch):
        fill_topic(servers, "bench", drawn(records, keys))
        fill_topic(servers, "small", drawn(3000, keys))
        spark = session(_config(servers, "bench", scratch, 100_000, NO_TABLE), name="tables", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, palearn, _config(servers, "bench", scratch / "warm", 100_000, CHOICES["all"]), batches=2)
        for round_ in range(rounds):
            for name, tables in CHOICES.items():
                folder = scratch / f"{name}-{round_}"
                rates[name].append(rate(run(spark, palearn, _config(servers, "bench", folder, 100_000, tables))))
        for name, tables in CHOICES.items():
            config = _config(servers, "small", scratch / f"small-{name}", 100, tables)
            small[name] = statistics.median(b["ms"] for b in run(spark, palearn, config)[3:])
        history = _replay_beside_stream(spark, servers, scratch, records, rounds)
    best = {name: statistics.median(found) for name, found in rates.items()}
    price = {name: best["none"] / found - 1 for name, found in best.items()}
    return {"rows_per_s": best, "time_beyond_none": price, "batch_of_100_ms": small, **history}


def _replay_beside_stream(
    spark: SparkSession, servers: str, scratch: Path, records: int, rounds: int
) -> dict[str, Any]:
    """Return rows a second of both, all tables but predictions, first batch included."""
    seconds: dict[str, list[float]] = {"replay": [], "stream": []}
    for round_ in range(rounds):
        folder = scratch / f"replay-{round_}"
        began = time.perf_counter()
        replay.run(configuration(servers, "bench", folder, 100_000, LEARNERS), spark=spark)
        seconds["replay"].append(time.perf_counter() - began)
        config = configuration(servers, "bench", scratch / f"history-{round_}", 100_000, LEARNERS)
        seconds["stream"].append(sum(b["ms"] for b in run(spark, palearn, config)) / 1000)
    both = {name: records / min(found) for name, found in seconds.items()}
    return {"history_rows_per_s": both, "replay / stream": both["replay"] / both["stream"]}


if __name__ == "__main__":
    topic_command(__doc__, measure)
