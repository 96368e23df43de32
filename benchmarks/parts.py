"""What ids and labels that come later cost.

``python -m benchmarks.parts --json``: 20,000 keys, 14 named features, batches of 100,000 records, AROW diagonal, models
and metrics to Parquet. ``plain`` is the topic of :mod:`benchmarks.stream`; ``ids`` the same records with an id each;
``delayed`` the same examples as two records each, features first, the label 20,000 records later. Records a second
without each query's first batch; ``examples`` counts the two records of an example as one. ``never_labelled``: a
million records with ids over 1,000 keys of one bucket, without Spark, whose labels never come, ``max_pending`` 100.
"""

import statistics
from collections import Counter
from typing import Any

import msgspec
import numpy as np

from benchmarks.common import drawn, fill_topic, key_text, own_broker, topic_command
from benchmarks.stream import configuration, palearn, rate, run
from palearn import datasets
from palearn.config import parse
from palearn.engine.bucket import Bucket
from palearn.engine.validation import Chunk
from palearn.records import Record, encode
from palearn.spark.session import session
from palearn.types import IntArray

LEARNERS = [{"algorithm": "arow"}]
DELAY = 20_000


def _with_ids(records: int) -> list[bytes]:
    examples = list(datasets.a9a())
    return [encode(msgspec.structs.replace(examples[i % len(examples)], id=i)) for i in range(records)]


def _delayed(keys: IntArray) -> tuple[IntArray, list[bytes]]:
    """Return keys and values of both records of every example."""
    examples = list(datasets.a9a())
    n = keys.size
    features = [encode(Record(features=examples[i % len(examples)].features, id=i)) for i in range(n)]
    labels = [encode(Record(label=examples[i % len(examples)].label, id=i)) for i in range(n)]
    when = np.concatenate([np.arange(n), np.arange(n) + DELAY / 2 + 0.5])
    order = np.argsort(when, kind="stable")
    both = features + labels
    return np.concatenate([keys, keys])[order], [both[i] for i in order.tolist()]


def never_labelled(records: int = 1_000_000, keys: int = 1_000, batch: int = 100_000) -> dict[str, Any]:
    """Return the state's megabytes after each batch, and what became of the records."""
    source = {"files": {"path": "none"}}
    tree = {"source": source, "learners": LEARNERS, "output": {"path": "none"}, "checkpoint": "none"}
    plan = parse({**tree, "join": {"max_pending": 100}}).bucket_config
    features = [record.features for record in datasets.a9a()]
    blob, sizes, written = None, [], 0
    statuses: Counter[str] = Counter()
    for number, first in enumerate(range(0, records, batch)):
        ids = range(first, first + batch)
        values = [encode(Record(features=features[i % len(features)], id=i)) for i in ids]
        names = [key_text(i % keys).encode() for i in ids]
        bucket = Bucket(plan, blob, number)
        bucket.learn(Chunk(names, values, ["bench"] * batch, np.zeros(batch, np.int64), np.array(ids)))
        written += len(tables["expired"]) if "expired" in (tables := bucket.results()) else 0
        statuses.update(bucket.summary.statuses)
        blob = bucket.to_bytes()
        sizes.append(len(blob) / 1e6)
    return {"state_MB": sizes, "pending": statuses["pending"], "expired": statuses["expired"], "expired_rows": written}


def measure(records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Run the three topics ``rounds`` times in turn."""
    chosen = drawn(records, keys)
    twice, values = _delayed(chosen)
    rates: dict[str, list[float]] = {"plain": [], "ids": [], "delayed": []}
    with own_broker() as (servers, scratch):
        fill_topic(servers, "plain", chosen)
        fill_topic(servers, "ids", chosen, _with_ids(records))
        fill_topic(servers, "delayed", twice, values)
        spark = session(configuration(servers, "none", scratch, 1, LEARNERS), name="parts", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        run(spark, palearn, configuration(servers, "delayed", scratch / "warm", 100_000, LEARNERS), batches=2)
        for round_ in range(rounds):
            for name in rates:
                config = configuration(servers, name, scratch / f"{name}-{round_}", 100_000, LEARNERS)
                rates[name].append(rate(run(spark, palearn, config)))
    best = {name: statistics.median(found) for name, found in rates.items()}
    ratios = {name: best[name] / best["plain"] for name in ("ids", "delayed")}
    return {
        "rows_per_s": best,
        "all_rows_per_s": rates,
        "of_plain": ratios,
        "examples": ratios["delayed"] / 2,
        "never_labelled": never_labelled(),
    }


if __name__ == "__main__":
    topic_command(__doc__, measure)
