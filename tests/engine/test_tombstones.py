"""A tombstone forgets its key: what comes after is learned as if the key had never been there."""

import random
from dataclasses import replace

import numpy as np
import pytest

from palearn.engine.bucket import Bucket
from tests.streams import Row, assert_accounts, chunk, learner, plan, rows, run

TABLES = frozenset(("models", "metrics", "predictions", "rejected", "expired", "forgotten"))


def forgetting(**options):
    made = plan(learner("pa1", C=0.5), learner("arow"), tables=TABLES, **options)
    return replace(made, tombstone="forget")


def examples(seed, n=300, keys=12, tombstones=20):
    """Records of keys; every now and then a tombstone, and waiting fragments."""
    chosen = random.Random(seed)
    out = []
    for i in range(n):
        key = f"k{chosen.randrange(keys)}"
        value = {"label": chosen.choice([1, -1]), "features": {f"f{chosen.randrange(9)}": chosen.random()}}
        if chosen.random() < 0.2:
            value = {"id": str(i), "features": value["features"]}
        out.append((key, value))
    for at in sorted(chosen.sample(range(n), tombstones)):
        out.insert(at, (f"k{chosen.randrange(keys)}", None))
    return out


def after_tombstones(stream):
    """Return the records of each key behind its last tombstone."""
    kept = []
    for row in reversed(stream):
        if row.value is None:
            kept.append((row.key, None))
        elif (row.key, None) not in kept:
            kept.append(row)
    return [row for row in reversed(kept) if isinstance(row, Row)]


@pytest.mark.parametrize("seed", range(4))
def test_a_key_is_as_if_it_had_never_been_there(seed):
    stream = rows(examples(seed))
    ran = run(forgetting(), stream)
    rest = after_tombstones(stream)
    clean = run(forgetting(), rest)
    left = {row.key.decode() for row in rest}
    assert {pair: row for pair, row in ran.models.items() if pair[0] in left} == clean.models
    assert_accounts(ran)
    assert ran.total.records == len(stream)


@pytest.mark.parametrize("max_keys", [None, 5])
@pytest.mark.parametrize("seed", range(3))
def test_batches_and_restarts_change_nothing(seed, max_keys):
    stream = rows(examples(seed))
    whole = run(forgetting(max_keys=max_keys), stream)
    for cuts in ([40], [1, 2, 3, 150], list(range(10, 320, 10))):
        cut = run(forgetting(max_keys=max_keys), stream, cuts=cuts, shuffle=seed)
        gone = {row["key"] for row in whole.tables["forgotten"]}
        live = {pair for pair in whole.models if pair[0] not in gone}
        assert {pair: cut.models[pair] for pair in live} == {pair: whole.models[pair] for pair in live}
        assert cut.in_order("forgotten") == whole.in_order("forgotten")
        assert cut.total.statuses == whole.total.statuses
        assert_accounts(cut)


def test_a_row_of_the_table_has_place_and_time():
    stream = rows([("a", {"label": 1, "features": {"f": 1}}), ("a", None), ("b", None)])
    bucket = Bucket(forgetting())
    bucket.learn(chunk(stream)._replace(time=np.array([0, 1_700_000_000_123, 5])))
    tables = bucket.results()
    first, second = tables["forgotten"].to_pylist()
    assert (first["key"], first["topic"], first["partition"], first["offset"]) == ("a", "t", 0, 1)
    assert first["asked_at"].timestamp() == 1_700_000_000.123
    assert second["key"] == "b"
    assert "models" not in tables
    assert bucket.models.keys == []
    assert (bucket.summary.forgotten, bucket.summary.statuses["expired"]) == (1, 2)


def test_fragments_that_wait_leave_without_a_row_of_them():
    waiting = [("a", {"id": str(i), "features": {"secret": i}}) for i in range(3)]
    ran = run(forgetting(), rows([*waiting, ("a", None), ("a", {"id": "1", "label": 1})]))
    assert "expired" not in ran.tables
    assert ran.total.statuses == {
        "learned": 0, "scored": 0, "pending": 1, "duplicate": 0, "rejected": 0, "expired": 4,
    }  # fmt: skip
    assert b"secret" not in ran.blobs[0]


def test_a_row_of_a_key_that_left_before_its_tombstone_is_none_of_it():
    one = {"label": 1, "features": {"f": 1}}
    ran = run(forgetting(max_keys=1), rows([("a", one), ("b", one), ("a", None)]))
    assert {key for key, _ in ran.models} == {"b"}
    assert {key for key, _ in ran.metrics} == {"b"}


def test_a_tombstone_without_a_key_is_rejected_and_one_that_is_not_asked_for_too():
    ran = run(forgetting(), rows([(None, None)]))
    assert ran.total.reasons == {"not_json": 1}
    ran = run(plan(learner("pa1")), rows([("a", {"label": 1, "features": {"f": 1}}), ("a", None)]))
    assert ran.total.reasons == {"not_json": 1}
    assert {key for key, _ in ran.models} == {"a"}
