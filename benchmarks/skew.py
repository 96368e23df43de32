"""A hot key and a hot bucket: how much of a batch waits for the one task that has them.

``python -m benchmarks.skew --json``: batches of 100,000 records of 14 named features, 2 cores. ``even`` has 20,000
keys; in ``hot_key`` one key has nine of ten records; in ``hot_bucket`` the keys that share one of 64 buckets have nine
of ten. Rows a second without each query's first batch, for numbers of shuffle partitions and of buckets.
"""

import statistics
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.common import SEED, drawn, fill_topic, key_text, own_broker, topic_command
from benchmarks.stream import configuration, palearn, rate, run
from palearn.spark.session import session
from palearn.spark.source import bucket_of
from palearn.types import IntArray

LEARNERS = [{"algorithm": "arow"}]
SHARE = 0.9
BUCKETS = 64
#: (shuffle partitions, buckets)
LAYOUTS = ((2, BUCKETS), (4, BUCKETS), (8, BUCKETS), (4, 8 * BUCKETS))


def _keys_of_one_bucket(spark: SparkSession, keys: int) -> IntArray:
    frame = spark.createDataFrame([(key, key_text(key)) for key in range(keys)], "key long, text string")
    rows = frame.where(bucket_of("text", BUCKETS) == 0).collect()
    return np.array(sorted(row["key"] for row in rows))


def measure(records: int, keys: int, rounds: int) -> dict[str, Any]:
    """Run every topic with every layout ``rounds`` times in turn."""
    random = np.random.default_rng(SEED)
    hot = random.random(records) < SHARE
    rates: dict[str, dict[str, list[float]]] = {}
    with own_broker() as (servers, scratch):
        spark = session(configuration(servers, "none", scratch, 1, LEARNERS), name="skew", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        even = drawn(records, keys)
        bucket = _keys_of_one_bucket(spark, keys)
        topics = {
            "even": even,
            "hot_key": np.where(hot, 0, even),
            "hot_bucket": np.where(hot, random.choice(bucket, records), even),
        }
        for name, chosen in topics.items():
            fill_topic(servers, name, chosen)
        run(spark, palearn, configuration(servers, "even", scratch / "warm", 100_000, LEARNERS), batches=2)
        for round_ in range(rounds):
            for name in topics:
                for partitions, buckets in LAYOUTS:
                    spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
                    layout = f"{partitions} partitions, {buckets} buckets"
                    folder = scratch / f"{name}-{layout.replace(', ', '-').replace(' ', '-')}-{round_}"
                    state = {"buckets": buckets, "partitions": partitions}
                    config = configuration(servers, name, folder, 100_000, LEARNERS, state=state)
                    rates.setdefault(name, {}).setdefault(layout, []).append(rate(run(spark, palearn, config)))
    best = {name: {layout: statistics.median(found) for layout, found in row.items()} for name, row in rates.items()}
    ratios = {name: {layout: best[name][layout] / best["even"][layout] for layout in best[name]} for name in best}
    return {"rows_per_s": best, "of_even": ratios}


if __name__ == "__main__":
    topic_command(__doc__, measure)
