"""The choice of buckets and batches: its arithmetic against drawing, its limits, and which way costs move it."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose

from palearn import datasets
from palearn.config import parse
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.validation import Chunk
from palearn.errors import PalearnError
from palearn.evaluate import capacity
from palearn.evaluate.capacity import COSTS, Layout, Sample
from palearn.records import encode


def sample(keys: int = 1000, key_bytes: float = 500.0) -> Sample:
    """Return a sample in which few keys have most of the records."""
    return Sample(np.arange(1, keys + 1) ** 2, 15e-6, key_bytes)


def plan() -> BucketConfig:
    return parse(
        {
            "source": {"files": {"path": "none"}},
            "learners": [{"algorithm": "arow"}],
            "output": {"path": "none"},
            "checkpoint": "none",
        }
    ).bucket_config


def chunk(values: list[bytes], keys: int) -> Chunk:
    n = len(values)
    names = [b"key-%d" % (i % keys) for i in range(n)]
    return Chunk(names, values, ["t"] * n, np.zeros(n, np.int64), np.arange(n))


@pytest.mark.parametrize(("records", "split"), [(10, 1), (1000, 1), (1000, 20), (100_000, 20)])
def test_the_keys_a_batch_touches_are_those_of_drawing(records: int, split: int) -> None:
    found = sample()
    keys = split * found.counts.size
    share = np.repeat(found.counts / found.counts.sum() / split, split)
    random = np.random.default_rng(7)
    drawn = [np.count_nonzero(random.multinomial(records, share)) for _ in range(50)]
    assert_allclose(found.touched(records, keys), np.mean(drawn), rtol=0.02)


def test_the_sample_is_learned_as_the_job_would() -> None:
    taken = chunk([encode(record) for record in datasets.a9a()][:600], 40)
    found = capacity.measure(plan(), taken, rounds=1)
    bucket = Bucket(plan())
    bucket.learn(taken)
    bucket.results()  # which leaves its mark: a snapshot is not due again
    assert found.key_bytes == len(bucket.to_bytes()) / 40
    assert found.counts.tolist() == [15] * 40
    assert 0 < found.learn < 1


@pytest.mark.parametrize("values", [[], [b"{", b'{"label": 1}']])
def test_a_sample_without_an_example_is_refused(values: list[bytes]) -> None:
    with pytest.raises(PalearnError, match=r"no record of the sample can be learned: (it is empty|1 not_json)"):
        capacity.measure(plan(), chunk(values, 1), rounds=1)


@pytest.mark.parametrize("batch", capacity.BATCHES)
@pytest.mark.parametrize("keys", [1000, 1_000_000, 100_000_000])
def test_no_other_number_of_buckets_is_done_sooner(batch: int, keys: int) -> None:
    found, cores = sample(), 8
    best = capacity.layout(found, batch, keys, cores)
    assert keys / best.buckets * found.key_bytes <= capacity.MOST_BYTES
    assert best.buckets >= 4 * cores
    free_groups, free_state = replace(COSTS, group=0.0), replace(COSTS, key=0.0, byte=0.0)
    assert capacity.layout(found, batch, keys, cores, free_groups).buckets >= best.buckets
    assert capacity.layout(found, batch, keys, cores, free_state).buckets <= best.buckets
    for free in (free_groups, free_state):
        assert capacity.layout(found, batch, keys, cores, free).seconds <= best.seconds


@pytest.mark.parametrize(("keys", "buckets"), [(1, 1), (3, 2), (7, 4), (8, 8), (9, 8)])
def test_few_keys_have_as_many_buckets_as_there_are_powers_of_two(keys: int, buckets: int) -> None:
    assert capacity.layout(sample(keys), 1000, keys, 2).buckets == buckets


def test_keys_that_are_too_large_for_any_bucket_have_the_most_buckets() -> None:
    assert capacity.layout(sample(key_bytes=2.0 * capacity.MOST_BYTES), 1000, 1000, 2).buckets == 512


def test_a_buckets_bound_on_keys_is_none_of_the_samples() -> None:
    taken = chunk([encode(record) for record in datasets.a9a()][:120], 40)
    assert (
        capacity.measure(replace(plan(), max_keys=2), taken, 1).key_bytes
        == capacity.measure(plan(), taken, 1).key_bytes
    )


def test_keys_of_rejected_records_have_no_state() -> None:
    good, bad = b'{"label": 1, "features": {"f": 1}}', b"{"
    taken = chunk([good, bad, good, good], 2)._replace(key=[b"a", b"b", b"a", None])
    assert capacity.measure(plan(), taken, 1).counts.tolist() == [2]


def test_idle_keys_cost_less_with_more_buckets() -> None:
    found = sample()
    few, many = (capacity.layout(found, 1000, keys, 2) for keys in (1000, 1_000_000))
    assert many.buckets > few.buckets
    assert many.seconds > few.seconds


def test_the_smallest_batch_that_is_nearly_as_fast_is_chosen() -> None:
    def of(batch: int, seconds: float) -> Layout:
        return Layout(batch, 64, 1.0, 1.0, 1.0, seconds)

    layouts = [of(100, 1.0), of(1000, 2.0), of(2000, 3.5), of(10_000, 12.0)]  # 100, 500, 571, 833 a second
    assert capacity.choose(layouts, 100.0).batch == 10_000
    assert capacity.choose(layouts, 10.0).batch == 1000
    assert capacity.choose(layouts, 0.1).batch == 100


def test_the_advice_is_configuration() -> None:
    found = capacity.advice(sample(), 5_000_000, 4, 10.0)
    block = found["configuration"]
    tree = {
        "source": {"kafka": {"bootstrap_servers": "h:1", "topics": ["t"], **block["source"]["kafka"]}},
        "learners": [{"algorithm": "arow"}],
        "output": {"path": "none"},
        "checkpoint": "none",
        "state": block["state"],
    }
    assert parse(tree).state.partitions == 4
    assert found["state_bytes"] == 5_000_000 * 500.0
    assert capacity.advice(sample(), 10, 4, 10.0)["keys"] == 1000
