"""Buckets, batch size and partitions for a sample of records: its own costs, and Spark's as they were measured.

The seconds of a batch of ``n`` records of ``d`` keys, which are in ``t`` of ``B`` buckets, are

    batch + (n (record + learn) + t group + t N / B (key + key_bytes byte)) / cores

with ``N`` keys in state. ``learn`` and ``key_bytes`` are the sample's, measured by :func:`measure`; the others are
Spark's, :data:`COSTS`. A bucket is read, learned and written whole: few buckets move the state of keys that a batch
does not touch, and many cost a group each.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.validation import Chunk
from palearn.errors import PalearnError
from palearn.types import IntArray

#: Most bytes of a bucket's state: it is one row, in memory several times over while it travels.
MOST_BYTES = 64_000_000
BATCHES = (1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
_MOST_BUCKETS = 10_000_000


@dataclass(frozen=True)
class Costs:
    """What Spark's part costs: ``batch`` in seconds, the others in seconds of one core.

    ``key`` and ``byte`` are of the state in touched buckets, out of Spark, into arrays and back.
    """

    batch: float
    group: float
    record: float
    key: float
    byte: float


#: Measured on two cores (docs/tuning.md says how well they tell what was measured).
COSTS = Costs(batch=0.45, group=6.8e-3, record=13e-6, key=3e-6, byte=15e-9)


@dataclass(frozen=True)
class Sample:
    """What a sample of records tells: records of each key, seconds to learn a record, bytes of a key's state."""

    counts: IntArray
    learn: float
    key_bytes: float

    def touched(self, records: int, keys: int) -> float:
        """Return how many keys so many records are of, where ``keys`` there are: the sample's, each split evenly."""
        split = keys / self.counts.size
        share = self.counts / self.counts.sum() / split
        return float(split * -np.expm1(-records * share).sum())


@dataclass(frozen=True)
class Layout:
    """A batch size with the buckets that suit it, and what a batch then costs."""

    batch: int
    buckets: int
    touched_keys: float
    touched_buckets: float
    moved_bytes: float
    seconds: float

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.batch / self.seconds


def measure(plan: BucketConfig, chunk: Chunk, rounds: int = 3) -> Sample:
    """Learn the sample in one bucket, as the job would; the fastest of the rounds counts.

    ``max_keys`` is a bound of each of a job's buckets, and none of this one, which has the keys of all.

    Raises
    ------
    PalearnError
        No record of the sample can be learned.
    """
    seconds, size = [], 0
    for _ in range(rounds):
        bucket = Bucket(replace(plan, max_keys=None))
        began = time.perf_counter()
        bucket.learn(chunk)
        bucket.results()
        seconds.append(time.perf_counter() - began)
    keys = {key.encode() for key in bucket.models.keys}
    if not keys:
        reasons = ", ".join(f"{count} {reason}" for reason, count in bucket.summary.reasons.items())
        raise PalearnError(f"no record of the sample can be learned: {reasons or 'it is empty'}")
    size = len(bucket.to_bytes())
    counts = np.array(sorted(Counter(key for key in chunk.key if key in keys).values()), np.int64)
    return Sample(counts, min(seconds) / len(chunk.value), size / len(keys))


def layout(sample: Sample, batch: int, keys: int, cores: int, costs: Costs = COSTS) -> Layout:
    """Return the number of buckets, a power of two, with which a batch is done soonest.

    There are some for every core, as far as there are keys. Where keys are so large that no number of buckets keeps to
    :data:`MOST_BYTES`, it is the largest.
    """
    touched_keys = sample.touched(batch, keys)
    buckets = 2 ** np.arange(int(np.log2(min(keys, _MOST_BUCKETS))) + 1)
    touched = buckets * -np.expm1(-touched_keys / buckets)
    held = touched * keys / buckets
    moved = held * sample.key_bytes
    work = batch * (costs.record + sample.learn) + touched * costs.group + held * costs.key + moved * costs.byte
    seconds = costs.batch + work / np.minimum(cores, touched)
    allowed = (keys / buckets * sample.key_bytes <= MOST_BYTES) & (buckets >= min(4 * cores, buckets[-1]))
    best = int(np.argmin(np.where(allowed, seconds, np.inf))) if allowed.any() else -1
    return Layout(
        batch, int(buckets[best]), touched_keys, float(touched[best]), float(moved[best]), float(seconds[best])
    )


def choose(layouts: Sequence[Layout], seconds: float) -> Layout:
    """Return the smallest batch with four fifths of the highest rate of those that take so many seconds at most."""
    fitting = [x for x in layouts if x.seconds <= seconds] or [min(layouts, key=lambda x: x.seconds)]
    enough = 0.8 * max(x.rate for x in fitting)
    return next(x for x in fitting if x.rate >= enough)


def advice(sample: Sample, keys: int | None, cores: int, seconds: float) -> dict[str, Any]:
    """Return what the sample costs, the best layout for every batch size, and the chosen one as configuration.

    Parameters
    ----------
    sample
        What :func:`measure` found.
    keys
        Keys there will be, at least the sample's; None: the sample's.
    cores
        Cores that learn.
    seconds
        The longest that a batch may take.
    """
    keys = max(keys or 0, sample.counts.size)
    layouts = [layout(sample, batch, keys, cores) for batch in BATCHES]
    chosen = choose(layouts, seconds)
    return {
        "sample": {
            "records": int(sample.counts.sum()),
            "keys": sample.counts.size,
            "learn_us": 1e6 * sample.learn,
            "key_bytes": sample.key_bytes,
        },
        "keys": keys,
        "cores": cores,
        "state_bytes": keys * sample.key_bytes,
        "layouts": [{**asdict(x), "rate": x.rate} for x in layouts],
        "configuration": {
            "source": {"kafka": {"max_offsets_per_trigger": chosen.batch}},
            "state": {"buckets": chosen.buckets, "partitions": cores},
        },
    }
