"""The streaming job beside what it is built on, and beside one Spark group a key; through the real broker.

``python -m benchmarks.stream --json``: 2,000,000 JSON records of 14 named features, 20,000 keys, batches of
250,000 (the default), AROW diagonal, metrics and models to Parquet. Rates are of all batches but each query's first.

============  ==========================================================================================
pass_through  reads and shuffles, nothing else
counting      the job's own plan and sink with an operator that only counts its records
palearn       the job
group_a_key   one Spark group a key: the same kernel, compact state, models and metrics to Parquet
============  ==========================================================================================
"""

import statistics
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from benchmarks.common import drawn, fill_topic, own_broker, topic_command
from palearn.config import Config, parse
from palearn.engine.summary import Summary
from palearn.learners import Learner, Rows, empty_outcome, layout_of
from palearn.records import decode_value
from palearn.spark import source
from palearn.spark.ascii_codec import from_text, to_text
from palearn.spark.operator import RESULT, STATE, SUMMARY, train
from palearn.spark.session import session
from palearn.spark.sink import Sink
from palearn.spark.worker import freeze_imports

Query = Callable[[SparkSession, Config], Any]
#: Records a batch: the default of a job.
BATCH = 250_000


def configuration(
    servers: str, topic: str, folder: Path, batch: int, learners: list[dict[str, Any]], **parts: Any
) -> Config:
    """Return the job's configuration for one run in ``folder``; ``parts`` replace or add top-level fields."""
    return parse(
        {
            "source": {"kafka": {"bootstrap_servers": servers, "topics": [topic], "max_offsets_per_trigger": batch}},
            "learners": learners,
            "output": {"path": str(folder / "out")},
            "checkpoint": str(folder / "checkpoint"),
            **parts,
        }
    )


def pass_through(spark: SparkSession, config: Config) -> Any:
    """Read and shuffle."""
    records = source.stream(spark, config).repartition("bucket")
    return records.writeStream.format("noop")


def counting(spark: SparkSession, config: Config) -> Any:
    """Count the records of each bucket."""

    def count(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        n = sum(len(frame) for frame in frames)
        state.update((1, (state.get[1] if state.exists else 0) + n, ""))
        freeze_imports()
        yield pd.DataFrame([(SUMMARY, msgspec.json.encode(Summary(records=n)))], columns=["table", "payload"])

    grouped = source.stream(spark, config).groupBy("bucket")
    counted = grouped.applyInPandasWithState(count, RESULT, STATE, "append", GroupStateTimeout.NoTimeout)
    return counted.writeStream.foreachBatch(Sink(config).write)


def palearn(spark: SparkSession, config: Config) -> Any:
    """Learn."""
    return train(source.stream(spark, config), config).writeStream.foreachBatch(Sink(config).write)


_MODEL = (
    "key string, n long, mistakes long, error double, updates long, "
    "features array<string>, weights array<double>, variances array<double>"
)


def group_a_key(spark: SparkSession, config: Config) -> Any:
    """Learn with one Spark group a key: decode, one kernel call, compact state, one row out."""
    (learner,) = config.make_learners()

    def learn(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        frame = pd.concat(list(frames)).sort_values(["topic", "partition", "offset"])
        stored = msgspec.msgpack.decode(from_text(state.get[2])) if state.exists else [[], b"", b"", 0, 0, 0]
        row, blob = _learn_key(learner, [decode_value(value) for value in frame["value"]], stored)
        state.update((1, row["n"], to_text(blob)))
        yield pd.DataFrame([{"key": key[0].decode(), **row}])

    def write(frame: DataFrame, batch_id: int) -> None:
        frame.write.mode("overwrite").parquet(f"{config.output.path}/batch_id={batch_id}")

    grouped = source.stream(spark, config).groupBy("key")
    learned = grouped.applyInPandasWithState(learn, _MODEL, STATE, "append", GroupStateTimeout.NoTimeout)
    return learned.writeStream.foreachBatch(write)


def _learn_key(learner: Learner, records: list[Any], stored: list[Any]) -> tuple[dict[str, Any], bytes]:
    names, w, sigma, n, mistakes, updates = stored
    slots = {name: slot for slot, name in enumerate(names)}
    for record in records:
        for name in record.features:
            slots.setdefault(name, len(slots))
    w, sigma = np.frombuffer(w), np.frombuffer(sigma)
    new = len(slots) - w.size
    w, sigma = np.concatenate([w, np.zeros(new)]), np.concatenate([sigma, np.ones(new)])
    sizes = [len(record.features) for record in records]
    y = np.array([record.label > 0 for record in records], np.int64)
    values = np.array([value for record in records for value in record.features.values()])
    rows = Rows(
        np.concatenate([[0], np.cumsum(sizes)]),
        np.array([slots[name] for record in records for name in record.features], np.int32),
        values, np.add.reduceat(values * values, np.concatenate([[0], np.cumsum(sizes[:-1], dtype=np.int64)])),
        np.zeros(len(records), np.int64), y, np.full(len(records), 2), np.ones(len(records), np.bool_),
        np.ones(len(records)),
    )  # fmt: skip
    out = empty_outcome(len(records))
    learner.run([rows], layout_of(np.array([len(slots)]), np.ones(1, np.int64)), {"w": w, "sigma": sigma}, out)
    n, mistakes = n + len(records), mistakes + int((out.predicted != y).sum())
    updates += int(out.updated.sum())
    state = msgspec.msgpack.encode([list(slots), w.tobytes(), sigma.tobytes(), n, mistakes, updates])
    row = {"n": n, "mistakes": mistakes, "error": mistakes / n, "updates": updates}
    return {**row, "features": list(slots), "weights": w, "variances": sigma}, state


def run(spark: SparkSession, query: Query, config: Config, *, batches: int | None = None) -> list[dict[str, Any]]:
    """Run a query over the topic (or so many batches of it); return each batch's rows and milliseconds."""
    writer = query(spark, config).option("checkpointLocation", config.checkpoint)
    running = writer.trigger(availableNow=True).start()
    while running.isActive and not (batches and len(running.recentProgress) >= batches):
        running.awaitTermination(0.2)
    running.stop()
    if running.exception():
        raise running.exception()
    return [
        {"rows": p["numInputRows"], "ms": p["durationMs"]["triggerExecution"]}
        for p in running.recentProgress
        if p["numInputRows"]
    ]


def rate(batches: list[dict[str, Any]]) -> float:
    """Return rows a second over all batches but the first."""
    later = batches[1:]
    return 1000 * float(sum(b["rows"] for b in later) / sum(b["ms"] for b in later))


def measure(records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Run all designs ``rounds`` times in turn; return rates, ratios and the time of small batches."""
    learners = [{"algorithm": "arow"}]
    designs: dict[str, Query] = {"pass_through": pass_through, "counting": counting, "palearn": palearn}
    rates: dict[str, list[float]] = {name: [] for name in [*designs, "group_a_key"]}
    with own_broker() as (servers, scratch):
        fill_topic(servers, "bench", drawn(records, keys))
        spark = session(configuration(servers, "bench", scratch, BATCH, learners), name="bench", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        for round_ in range(rounds):
            for name, query in designs.items():
                folder = scratch / f"{name}-{round_}"
                config = configuration(servers, "bench", folder, BATCH, learners)
                rates[name].append(rate(run(spark, query, config)))
        config = configuration(servers, "bench", scratch / "keyed", 100_000, learners)
        rates["group_a_key"].append(rate(run(spark, group_a_key, config, batches=2)))
        small = _small_batches(spark, servers, scratch, learners, keys)
    best = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {f"palearn / {name}": best["palearn"] / best[name] for name in best if name != "palearn"}
    return {"rows_per_s": best, "all_rows_per_s": rates, "ratios": ratios, "batch_of_100": small}


def _small_batches(spark: SparkSession, servers: str, scratch: Path, learners: Any, keys: int) -> dict[str, float]:
    """Median milliseconds of batches of 100 records, on an empty state and on that of 20,000 keys."""
    fill_topic(servers, "small", drawn(3000, keys))
    out = {}
    for name, query in {"counting": counting, "palearn": palearn}.items():
        config = configuration(servers, "small", scratch / f"small-{name}", 100, learners)
        out[f"{name} ms"] = statistics.median(b["ms"] for b in run(spark, query, config)[3:])
    fill_topic(servers, "bench", drawn(3000, keys))
    for name, query in {"counting": counting, "palearn": palearn}.items():
        folder = scratch / f"{name}-0"
        config = configuration(servers, "bench", folder, 100, learners)
        out[f"{name} with {keys} keys in state ms"] = statistics.median(b["ms"] for b in run(spark, query, config)[3:])
    out["ratio"] = out["palearn ms"] / out["counting ms"]
    loaded = f"with {keys} keys in state ms"
    out["ratio with keys in state"] = out[f"palearn {loaded}"] / out[f"counting {loaded}"]
    return out


if __name__ == "__main__":
    topic_command(__doc__, measure, records=2_000_000)
