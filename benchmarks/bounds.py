"""Peak memory of Spark's workers and of its JVM under hostile streams, beside what the configuration bounds it to.

Run ``python -m benchmarks.bounds --times 20 --json``: a million keys, a key with a million features, and so on; with
``--times 1`` what the tests run.
"""

import argparse
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic
from pyspark.sql import SparkSession

from benchmarks.common import environment, family, own_broker, show
from palearn import tables
from palearn.config import Config, parse
from palearn.records import MAX_NAME
from palearn.spark import operator, stream
from palearn.spark.session import session

MB = 2**20
MASTER = "local[2]"
#: The largest message that the topics take: more than brokers do unless they are told to.
LARGEST = 16 * MB
#: A worker's interpreter, libraries and compiled kernels.
IDLE_BYTES = 450 * MB
#: What a byte may cost: of records in a batch, of those that are decoded, of the largest of these, of a bucket's state,
#: of results that wait.
PER_BYTE, PER_DECODED, PER_LARGEST, PER_STATE, PER_HELD = 5, 20, 100, 16, 4
#: What a feature's number takes in a state: a weight, a variance and its name's place; a class's counts; a key's own.
_FEATURE_BYTES, _CLASS_BYTES, _KEY_BYTES = 20, 24, 300

Message = tuple[bytes, bytes]


class Hostile(NamedTuple):
    """A hostile stream: its records, what of the configuration bounds it, and what must then be counted.

    Parameters
    ----------
    messages
        Makes the stream, ``times`` as large as the tests' one.
    parts
        Of the configuration.
    bucket
        The most keys, features and classes of a key, and the names a bucket keeps at once; and the most bytes of what
        its keys wait for.
    counted
        Whether the accounts show what was cut.
    """

    messages: Callable[[int], Iterator[Message]]
    parts: dict[str, Any]
    bucket: tuple[int, int, int, int, int]
    counted: Callable[[dict[str, Any]], bool]


# -- streams ---------------------------------------------------------------------------------------------


def _value(label: Any, features: dict[str, float], **more: Any) -> bytes:
    given = {} if label is None else {"label": label}
    return json.dumps({**given, "features": features, **more}, separators=(",", ":")).encode()


def many_keys(times: int) -> Iterator[Message]:
    """Keys that never come again."""
    for i in range(50_000 * times):
        yield b"key %d" % i, _value(i % 2, {"a": 1.0, f"b{i % 100}": -0.5})


def wide(times: int) -> Iterator[Message]:
    """A key with 50,000 features, a record with 100,000, a thousand labels and more, names that are too long."""
    for i in range(50 * times):
        yield b"wide", _value("x", {f"f{i * 1000 + j}": 0.5 for j in range(1000)})
    yield b"wide", _value("x", {f"{j:x}": 1 for j in range(100_000)})
    for i in range(1100):
        yield b"labels", _value(f"label {i}", {"a": 1.0})
    for i in range(200 * times):
        yield b"names", _value("x", {f"{i}".ljust(2000, "n"): 1.0})


def endless_ids(times: int) -> Iterator[Message]:
    """Ids that never repeat, half of them without a label, and a key with 90 % of the traffic."""
    for i in range(30_000 * times):
        key = b"hot" if i % 10 else b"cold %d" % (i % 70)
        yield key, _value(i % 2 if i % 3 else None, {"a": 1.0, "b": i % 7}, **({"id": f"id {i}"} if i % 2 else {}))


def large(times: int) -> Iterator[Message]:
    """Values of 10 MB, lists of zeros, and bags of one megabyte."""
    for i in range(10 * times):
        yield b"hot", _value(1, {"a": 1.0}, text="x" * 10**7)
        yield b"hot", b'{"label":1,"x":[' + b"0," * 500_000 + b"0]}"
        yield b"hot", b'{"label":1,"features":{"' + b"n" * 500_000 + b'":["' + b'a","' * 120_000 + b'z"]}}'
        yield b"cold %d" % i, _value(1, {"a": 1.0})


def _reasons(account: dict[str, Any], *names: str) -> bool:
    return all(account["reasons"].get(name, 0) > 0 for name in names)


STREAMS = {
    "many keys": Hostile(
        many_keys,
        {"state": {"max_keys": 500}, "source": 25_000},
        (500, 101, 2, 10_000, 0),
        lambda account: account["keys_evicted"] > 40_000,
    ),
    "features, labels, names": Hostile(
        wide,
        {"state": {"max_features": 2000}, "records": {"task": "multiclass"}, "source": 500},
        (3, 2001, 1000, 200_000, 0),
        lambda account: (
            account["features_evicted"] > 40_000
            and _reasons(account, "too_many_features", "too_many_labels", "name_too_long")
        ),
    ),
    "endless ids, a hot key": Hostile(
        endless_ids,
        {"join": {"max_pending": 100, "remember_ids": 1000}, "source": 10_000},
        (71, 3, 2, 2, 71 * (100 * 300 + 1000 * 12)),
        lambda account: account["expired"] > 2000 and account["pending"] <= 71 * 100,
    ),
    "large values": Hostile(
        large,
        {"source": 32},
        (11, 2, 2, 32, 0),
        lambda account: _reasons(account, "too_large", "too_many_features", "name_too_long"),
    ),
}


class Sent(NamedTuple):
    """Bytes of a stream: of its largest value, and of the fullest batch all values, and those that are decoded."""

    largest: int
    batch: int
    decoded: int


def send(servers: str, topic: str, messages: Iterator[Message], batch: int, most: int) -> Sent:
    """Send a stream in its order to a topic of one partition.

    ``batch`` are the records of a batch, ``most`` the bytes of the longest value that is decoded.
    """
    admin = KafkaAdminClient(bootstrap_servers=servers)
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"max.message.bytes": str(LARGEST)})])
    admin.close()
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, linger_ms=20, batch_size=2**18, max_request_size=LARGEST
    )
    sizes: list[int] = []
    for key, value in messages:
        producer.send(topic, value, key, partition=0)
        sizes.append(len(value))
    producer.flush()
    producer.close()
    begins, all_sizes = np.arange(0, len(sizes), batch), np.array(sizes)
    decoded = np.where(all_sizes <= most, all_sizes, 0)
    return Sent(max(sizes), *(int(np.add.reduceat(x, begins).max()) for x in (all_sizes, decoded)))


def configuration(servers: str, topic: str, folder: Path, hostile: Hostile) -> Config:
    """Return the configuration that a hostile stream is run with."""
    parts = dict(hostile.parts)
    kafka = {"bootstrap_servers": servers, "topics": [topic], "max_offsets_per_trigger": parts.pop("source")}
    return parse(
        {
            "source": {"kafka": kafka},
            "learners": [{"algorithm": "arow"}],
            "output": {"path": str(folder / "out")},
            "checkpoint": str(folder / "checkpoint"),
            **parts,
            "state": {"buckets": 2, "partitions": 2, **parts.get("state", {})},
        }
    )


# -- memory ----------------------------------------------------------------------------------------------


class Watch:
    """Peak memory of a session's JVM and of its Python workers, from /proc, while the block runs."""

    def __init__(self, spark: SparkSession) -> None:
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._jvm = int(jvm.java.lang.ProcessHandle.current().pid())
        self._peaks: dict[int, int] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> Self:
        for pid in family(self._jvm):
            Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins again at what it has now
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._read()

    @property
    def worker_bytes(self) -> int:
        """Peak of the largest worker."""
        return max((peak for pid, peak in self._peaks.items() if pid != self._jvm), default=0)

    @property
    def jvm_bytes(self) -> int:
        """Peak of the JVM."""
        return self._peaks.get(self._jvm, 0)

    def _look(self) -> None:
        while not self._stopped.wait(0.1):
            self._read()

    def _read(self) -> None:
        for pid in family(self._jvm):
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue  # it has ended
            peak = next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)
            self._peaks[pid] = max(peak, self._peaks.get(pid, 0))


def bound(config: Config, hostile: Hostile, sent: Sent) -> int:
    """Return what the configuration bounds a worker's memory to, in bytes.

    A bucket's records of a batch and its state are in memory at once, results of other buckets up to what is held. The
    records of a batch are at most ``max_offsets_per_trigger`` times the largest value; here it is known how many.
    """
    keys, features, classes, names, pending = hostile.bucket
    weights = features * (classes if config.records.task == "multiclass" else 1)
    # The most that keys of so many features and classes can have; here no key has both.
    state = keys * (_KEY_BYTES + classes * _CLASS_BYTES) + weights * _FEATURE_BYTES * len(config.learners) + pending
    state += names * MAX_NAME // 16
    return (
        IDLE_BYTES
        + PER_BYTE * sent.batch
        + PER_DECODED * sent.decoded
        + PER_LARGEST * min(sent.largest, config.records.max_bytes)
        + PER_STATE * state
        + PER_HELD * operator.HELD_BYTES
    )


def measure(servers: str, topic: str, folder: Path, hostile: Hostile, times: int) -> dict[str, Any]:
    """Run a hostile stream through the job; return the peaks, the bound, and what was counted."""
    config = configuration(servers, topic, folder, hostile)
    kafka = config.source.kafka
    assert kafka is not None
    sent = send(servers, topic, hostile.messages(times), kafka.max_offsets_per_trigger, config.records.max_bytes)
    spark = session(config, name="bounds", master=MASTER)
    with Watch(spark) as watch:
        stream.run(config, master=MASTER)
    accounts = tables.read(folder / "out", "batches")
    account: dict[str, Any] = accounts.select_dtypes(np.number).sum().to_dict()
    account["reasons"] = {}
    for reasons in accounts["reasons"]:
        for name, count in reasons:
            account["reasons"][name] = account["reasons"].get(name, 0) + count
    return {
        "worker_MB": watch.worker_bytes / MB,
        "bound_MB": bound(config, hostile, sent) / MB,
        "jvm_MB": watch.jvm_bytes / MB,
        **sent._asdict(),
        "batches": account,
        "counted": hostile.counted(account),
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=20, help="the tests' streams, so many times as long")
    parser.add_argument("--stream", choices=STREAMS, action="append", help="only this one")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    with own_broker() as (servers, scratch):
        found = {
            name: measure(servers, f"bounds-{i}", scratch / str(i), STREAMS[name], given.times)
            for i, name in enumerate(given.stream or STREAMS)
        }
    show({"environment": environment(), "arguments": vars(given), **found}, as_json=given.json)


if __name__ == "__main__":
    main()
