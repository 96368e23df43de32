"""What a key's state weighs, and how fast it becomes bytes and models again.

``python -m benchmarks.state --json``. ``keys``: for keys of 14 and of 100 features and one or four learners, without
Spark: bytes a key in the codec's bytes and in the text that Spark stores, beside the arrays' own (8 a weight, 8 a
variance), and bytes a second of encoding and decoding a bucket of ``--keys`` keys, one core. ``stored``: keys of 100
features through the job, AROW diagonal: bytes a key of RocksDB's files, and of the change log a touched key.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.common import SEED, environment, fill_topic, key_text, own_broker, show
from benchmarks.stream import configuration, palearn, run
from palearn.config import parse
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.validation import Chunk
from palearn.models import codec
from palearn.records import Record, encode
from palearn.spark.ascii_codec import to_text
from palearn.spark.session import session

ONE: list[dict[str, Any]] = [{"algorithm": "arow"}]
FOUR: list[dict[str, Any]] = [{"algorithm": name} for name in ("arow", "pa1", "cw", "pam1")]


def _records(features: int, keys: int, random: np.random.Generator) -> list[bytes]:
    """Return a record a key with a quarter of its features."""
    names = [f"feature-{j}" for j in range(features)]
    out = []
    for _ in range(keys):
        picked = random.choice(features, max(1, features // 4), replace=False).tolist()
        values = random.standard_normal(len(picked)).tolist()
        features_ = {names[j]: value for j, value in zip(picked, values, strict=True)}
        out.append(encode(Record(label=int(random.choice([-1, 1])), features=features_)))
    return out


def _learned(plan: BucketConfig, features: int, keys: int) -> Bucket:
    """Return a bucket whose keys have all of their features."""
    random, bucket = np.random.default_rng(SEED), Bucket(plan)
    names = [key_text(key).encode() for key in range(keys)]
    for round_ in range(20):
        places = np.arange(round_ * keys, (round_ + 1) * keys)
        records = _records(features, keys, random)
        bucket.learn(Chunk(names, records, ["bench"] * keys, np.zeros(keys, np.int64), places))
    return bucket


def _seconds(call: Callable[[], object], rounds: int = 15) -> float:
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def weigh(features: int, learners: list[dict[str, Any]], keys: int) -> dict[str, Any]:
    """Return bytes a key and bytes a second of a bucket of keys of so many features."""
    source = {"files": {"path": "none"}}
    plan = parse(
        {"source": source, "learners": learners, "output": {"path": "none"}, "checkpoint": "none"}
    ).bucket_config
    models = _learned(plan, features, keys).models
    blob = codec.encode(models)
    arrays = sum(array.nbytes for state in models.states for array in state.arrays.values())
    encode_s, decode_s = _seconds(lambda: codec.encode(models)), _seconds(lambda: codec.decode(blob))
    text = len(to_text(blob))
    return {
        "features": features,
        "learners": len(learners),
        "arrays_B_a_key": arrays / keys,
        "bytes_a_key": len(blob) / keys,
        "text_B_a_key": text / keys,
        "bytes / arrays": len(blob) / arrays,
        "text / arrays": text / arrays,
        "encode_GB_per_s": len(blob) / encode_s / 1e9,
        "decode_GB_per_s": len(blob) / decode_s / 1e9,
        "together_GB_per_s": len(blob) / (encode_s + decode_s) / 1e9,
    }


def stored(keys: int, features: int, rounds: int) -> dict[str, float]:
    """Return the bytes of a checkpoint's state once every key has met ``rounds`` records."""
    random = np.random.default_rng(SEED)
    with own_broker() as (servers, scratch):
        values = _records(features, 9_973, random)  # a prime: a key's rounds meet different records
        fill_topic(servers, "state", np.tile(np.arange(keys), rounds), values)
        config = configuration(servers, "state", scratch / "job", keys, ONE, state={"buckets": 64})
        spark: SparkSession = session(config, name="state", master="local[2]")
        spark.sparkContext.setLogLevel("ERROR")
        done = run(spark, palearn, config)
        files = list(Path(config.checkpoint, "state").rglob("*"))
        changes: dict[str, int] = {}
        for file in files:
            if file.suffix == ".changelog":
                changes[file.stem] = changes.get(file.stem, 0) + file.stat().st_size
        query = spark.read.format("statestore").load(config.checkpoint)
        _ = spark.streams.active
        text = query.selectExpr("sum(length(value.groupState.blob)) n").collect()[0]["n"]
        newest = max(changes, key=lambda stem: int(stem.split("_")[0]))
        return {
            "batches": len(done),
            "text_B_a_key": text / keys,
            "changelog_B_a_key": changes[newest] / keys,
            "checkpoint_state_MB": sum(f.stat().st_size for f in files if f.is_file()) / 1e6,
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2000, help="keys of a bucket")
    parser.add_argument("--stored-keys", type=int, default=20_000, help="keys of the job")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = {
        "keys": [weigh(features, race, given.keys) for features in (14, 100) for race in (ONE, FOUR)],
        "stored": stored(given.stored_keys, 100, 12),
    }
    show({"environment": environment(), "arguments": vars(given), **found}, as_json=given.json)


if __name__ == "__main__":
    main()
