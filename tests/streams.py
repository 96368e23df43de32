"""Small streams for tests: rows with their place in a topic, cut into batches, spread over buckets, run."""

import json
import random
import signal
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from palearn.engine.bucket import Bucket, BucketConfig, Chunk
from palearn.engine.summary import Summary
from palearn.learners import Learner
from palearn.models.state import Settings
from palearn.records import Record
from palearn.tables.schemas import STATUSES

ALL_TABLES = frozenset(("models", "metrics", "predictions", "rejected"))


class Row(NamedTuple):
    """A record where it stands in a topic."""

    key: bytes | None
    value: Any
    topic: str
    partition: int
    offset: int


def rows(items: Iterable[tuple[Any, Any]], *, topic: str = "t", partition: int = 0, first: int = 0) -> list[Row]:
    """Place (key, value) pairs one after the other; text keys and plain values are turned into bytes."""
    out = []
    for i, (key, value) in enumerate(items):
        raw = key.encode() if isinstance(key, str) else key
        wire = (
            value
            if value is None or isinstance(value, bytes | Record)
            else json.dumps(value, separators=(",", ":")).encode()
        )
        out.append(Row(raw, wire, topic, partition, first + i))
    return out


def chunk(batch: Sequence[Row]) -> Chunk:
    keys, values, topics, partitions, offsets = zip(*batch, strict=True) if batch else ((),) * 5
    return Chunk(keys, values, topics, np.array(partitions, np.int64), np.array(offsets, np.int64))


def plan(
    *learners: Learner, tables: frozenset[str] = ALL_TABLES, max_keys: int | None = None, **settings: Any
) -> BucketConfig:
    """BucketConfig of learners; keyword arguments are :class:`Settings`'."""
    return BucketConfig(Settings(**settings), learners, max_keys=max_keys, tables=tables)


def learner(algorithm: str, name: str | None = None, **options: Any) -> Learner:
    common = {word: options.pop(word) for word in ("task", "tie", "view", "drift") if word in options}
    return Learner(name or algorithm, algorithm, **common, options=options)


def even_cuts(n: int, batches: int) -> list[int]:
    return [round(i * n / batches) for i in range(1, batches)]


@dataclass
class Ran:
    """What a run gave: every table's rows, the newest model a key and learner, and each batch's accounts."""

    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    batches: list[Summary] = field(default_factory=list)
    blobs: dict[int, bytes] = field(default_factory=dict)

    @property
    def total(self) -> Summary:
        total = Summary()
        for batch in self.batches:
            total.add(batch)
        return total

    def newest(self, table: str, *ignored: str) -> dict[tuple[str, str], Any]:
        """Newest row a key and learner, floats as their bits; `ignored` columns left out."""
        found = {}
        for row in self.tables.get(table, []):
            found[row["key"], row["learner"]] = {k: bits(v) for k, v in row.items() if k not in ignored}
        return found

    @property
    def models(self) -> dict[tuple[str, str], Any]:
        return self.newest("models", "updated_batch")

    @property
    def metrics(self) -> dict[tuple[str, str], Any]:
        return self.newest("metrics")

    def in_order(self, table: str) -> list[Any]:
        """Rows of a table in the order of the records they are of, floats as their bits."""
        places = sorted(
            self.tables.get(table, []),
            key=lambda row: (row["topic"], row["partition"], row["offset"], row.get("learner", "")),
        )
        return [bits(row) for row in places]


def run(
    plan: BucketConfig,
    stream: Sequence[Row],
    *,
    buckets: int = 1,
    cuts: Sequence[int] = (),
    shuffle: int | None = None,
    in_memory: bool = False,
) -> Ran:
    """Run a stream through buckets of keys, batch by batch.

    Parameters
    ----------
    buckets
        A key's bucket is the CRC-32 of its bytes, modulo this.
    cuts
        Where one batch ends and the next begins.
    shuffle
        Seed of the order in which a batch's rows arrive; None: in order.
    in_memory
        Keep the buckets between batches instead of stopping and starting from their bytes.
    """
    out = Ran()
    held: dict[int, Bucket] = {}
    for batch_id, (start, stop) in enumerate(pairwise([0, *cuts, len(stream)])):
        spread: dict[int, list[Row]] = {}
        for row in stream[start:stop]:
            spread.setdefault(zlib.crc32(row.key or b"") % buckets, []).append(row)
        total = Summary()
        for number, batch in spread.items():
            if shuffle is not None:
                random.Random(f"{shuffle} {batch_id} {number}").shuffle(batch)
            before = held.get(number) if in_memory else None
            bucket = before or Bucket(plan, out.blobs.get(number), batch_id)
            bucket.learn(chunk(batch))
            for name, table in bucket.results().items():
                out.tables.setdefault(name, []).extend(table.to_pylist())
            out.blobs[number] = bucket.to_bytes()
            if in_memory:
                held[number] = bucket
            else:
                total.add(bucket.summary)
        if in_memory and stop == len(stream):
            for bucket in held.values():
                total.add(bucket.summary)
        out.batches.append(total)
    return out


def bits(value: Any) -> Any:
    """Return a value in which equal means equal to the last bit: -0.0 is not 0.0, NaN is NaN."""
    if isinstance(value, float):
        return value.hex()
    if isinstance(value, dict):
        return {key: bits(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [bits(item) for item in value]
    return value


@contextmanager
def seconds(limit: int) -> Iterator[None]:
    """Fail instead of hanging for ever."""

    def stop(*_: Any) -> None:
        raise AssertionError(f"no answer after {limit} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(limit)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def assert_same(got: Ran, expected: Ran, *, predictions: bool = True) -> None:
    assert got.models == expected.models
    assert got.metrics == expected.metrics
    if predictions:
        assert got.in_order("predictions") == expected.in_order("predictions")
    assert got.in_order("rejected") == expected.in_order("rejected")
    total, other = got.total, expected.total
    assert (total.records, total.statuses, total.reasons) == (other.records, other.statuses, other.reasons)
    assert (total.n, total.mistakes, total.features_evicted) == (other.n, other.mistakes, other.features_evicted)


def assert_accounts(ran: Ran) -> None:
    for batch in [*ran.batches, ran.total]:
        assert set(batch.statuses) == set(STATUSES)
        assert batch.records == sum(batch.statuses.values())
        assert sum(batch.reasons.values()) == batch.statuses["rejected"]
