"""What the benchmarks share: a broker of their own, a topic of synthetic keyed records, versions."""

import argparse
import json
import os
import platform
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from palearn import datasets
from palearn.kafka import local_broker
from palearn.records import encode
from palearn.types import IntArray

SEED = 20261128


@contextmanager
def own_broker() -> Iterator[tuple[str, Path]]:
    """Yield the address of a broker that lives as long as the block, and a scratch folder.

    Spark sessions that start inside have 4 GB: one process runs dozens of queries, and Spark keeps a trace of each.
    """
    os.environ.setdefault("PYSPARK_SUBMIT_ARGS", "--driver-memory 4g pyspark-shell")
    with tempfile.TemporaryDirectory(prefix="palearn-bench-") as name:
        port, folder = _free_port(), Path(name)
        local_broker.start(port, folder / "broker")
        try:
            yield f"127.0.0.1:{port}", folder
        finally:
            local_broker.stop(port, folder / "broker")


def drawn(records: int, keys: int) -> IntArray:
    """Return the key of each record, drawn uniformly."""
    return np.random.default_rng(SEED).integers(keys, size=records)


def in_turn(records: int, keys: int) -> IntArray:
    """Return the key of each record: every key has its turn before one has its second."""
    return np.resize(np.random.default_rng(SEED).permutation(keys), records)


def key_text(key: int) -> str:
    """Return a key as it stands in the topics."""
    return f"user-{key:06d}"


def fill_topic(
    servers: str, topic: str, keys: IntArray, values: list[bytes] | None = None, partitions: int = 4
) -> None:
    """Produce a record a key, with ``values`` (None: the rows of a9a, 14 named features each) again and again.

    A topic that is there already gets more records.
    """
    admin = KafkaAdminClient(bootstrap_servers=servers)
    if topic not in admin.list_topics():
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    admin.close()
    if values is None:
        values = [encode(record) for record in datasets.a9a()]
    producer = KafkaProducer(
        bootstrap_servers=servers, enable_idempotence=True, compression_type="zstd", linger_ms=20, batch_size=2**18
    )
    for i, key in enumerate(keys.tolist()):
        producer.send(topic, value=values[i % len(values)], key=key_text(key).encode())
    producer.flush()
    producer.close()


def environment() -> dict[str, Any]:
    """Return versions, cores and seed, for the result's reader."""
    packages = ("pyspark", "numpy", "numba", "pyarrow", "pandas", "msgspec")
    return {
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "seed": SEED,
        **{name: version(name) for name in packages},
    }


def show(result: dict[str, Any], *, as_json: bool) -> None:
    """Print a result as JSON, or a line a figure."""
    if as_json:
        print(json.dumps(result, indent=2))
        return
    for name, value in result.items():
        print(f"{name}: {value}")


def topic_command(
    description: str | None, measure: Callable[[int, int, int], dict[str, Any]], records: int = 500_000, **more: Any
) -> None:
    """Run ``measure(records, keys, rounds)`` as the command line says, and print what it found.

    ``more`` is told with the versions.
    """
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=records)
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    found = measure(given.records, given.keys, given.rounds)
    show({"environment": environment() | more, "arguments": vars(given), **found}, as_json=given.json)


def family(root: int) -> set[int]:
    """Return a process and all that it started, and that those started; from Linux's /proc."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it has ended meanwhile
    found = {root}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def _free_port() -> int:
    """Return a port that is free together with the next one."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
            return port
