"""How long a record takes from Kafka to the tables: predictions, metrics and models, which appear together.

``python -m benchmarks.latency --json``: records of 14 named features of 20,000 keys at 100, 1,000 and 10,000 a second,
sent by this process to a broker of its own; the job with all tables and a trigger that waits for nothing. A record's
time is from its timestamp in Kafka (when it was sent) to the note that its batch is whole, so it includes the batch
before. The first seconds of each rate do not count.
"""

import argparse
import time
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from benchmarks.common import drawn, environment, fill_topic, key_text, own_broker, show
from benchmarks.stream import configuration
from palearn import datasets
from palearn.config import Config
from palearn.records import encode
from palearn.spark import source
from palearn.spark.session import session
from palearn.spark.sink import Sink
from palearn.spark.stream import build
from palearn.tables.folder import Folder
from palearn.types import FloatArray, IntArray

RATES = (100, 1_000, 10_000)
KEYS = 20_000
#: Seconds of each round in which the job starts, or catches up.
WARM = 20
_PARTITIONS = 4


def send(servers: str, topic: str, rate: int, seconds: float) -> None:
    """Send records evenly, in steps of a hundredth of a second."""
    values, keys = [encode(record) for record in datasets.a9a()], drawn(int(rate * seconds), KEYS).tolist()
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=5)
    began, sent = time.perf_counter(), 0
    while sent < len(keys):
        due = min(len(keys), int((time.perf_counter() - began) * rate))
        for i in range(sent, due):
            producer.send(topic, value=values[i % len(values)], key=key_text(keys[i]).encode())
        sent = due
        time.sleep(0.01)
    producer.flush()
    producer.close()


def sent_at(servers: str, topic: str) -> list[IntArray]:
    """Return the milliseconds at which each partition's records were sent, by their offsets."""
    consumer = KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False, consumer_timeout_ms=3000)
    parts = [TopicPartition(topic, number) for number in range(_PARTITIONS)]
    consumer.assign(parts)
    consumer.seek_to_beginning()
    found: list[list[int]] = [[] for _ in parts]
    for record in consumer:
        found[record.partition].append(record.timestamp)
    consumer.close()
    return [np.array(times, np.int64) for times in found]


def waits(config: Config, sent: list[IntArray], after_ms: int) -> FloatArray:
    """Return the seconds from each record's time to its batch's, of those sent after a moment."""
    found = []
    for path in (Path(config.output.path) / "_palearn" / "batches").glob("*.json"):
        done = path.stat().st_mtime_ns / 1e6
        for part in msgspec.json.decode(path.read_bytes())["offsets"]:
            times = sent[part["partition"]][part["start"] : part["end"]]
            found.append((done - times[times >= after_ms]) / 1e3)
    return np.concatenate(found)


def measure(seconds: float, rates: list[int], buckets: list[int]) -> list[dict[str, Any]]:
    """Return percentiles of the waits, a row a rate and count of buckets."""
    out = []
    with own_broker() as (servers, scratch):
        spark = session(
            configuration(servers, "warm", scratch / "warm", 250_000, [{"algorithm": "arow"}]),
            name="latency", master="local[2]",
        )  # fmt: skip
        spark.sparkContext.setLogLevel("ERROR")
        for many in buckets:
            for rate in rates:
                topic, folder = f"rate-{rate}-{many}", scratch / f"{rate}-{many}"
                fill_topic(servers, topic, drawn(100, KEYS), partitions=_PARTITIONS)
                tables = {"path": str(folder / "out"), "predictions": True}
                config = configuration(
                    servers, topic, folder, 250_000, [{"algorithm": "arow"}],
                    output=tables, state={"buckets": many}, trigger={"processing_time": "0 seconds"},
                )  # fmt: skip
                sink = Sink(config, Folder(config.checkpoint))
                query = build(source.stream(spark, config), config, sink.write).start()
                began = time.time()
                send(servers, topic, rate, WARM + seconds)
                query.processAllAvailable()
                query.stop()
                found = waits(config, sent_at(servers, topic), int((began + WARM) * 1e3))
                p50, p99 = np.percentile(found, [50, 99]).tolist()
                out.append(
                    {
                        "records/s": rate,
                        "buckets": many,
                        "n": found.size,
                        "p50 s": p50,
                        "p99 s": p99,
                        "max s": float(found.max()),
                    }
                )
    return out


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rates", type=int, nargs="+", default=list(RATES))
    parser.add_argument("--buckets", type=int, nargs="+", default=[64, 16])
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.seconds, given.rates, given.buckets)
    show({"environment": environment(), "arguments": vars(given), "latency": found}, as_json=given.json)


if __name__ == "__main__":
    main()
