"""What a worker does once: nothing that it has imported is looked at after every task again."""

import gc
import subprocess
import sys
import weakref

from palearn.engine.bucket import Bucket
from tests.streams import chunk, learner, plan, rows

COUNTED = """
import gc
from palearn.spark import operator
from palearn.spark.worker import freeze_imports
before = len(gc.get_objects())
freeze_imports()
print(before, gc.get_freeze_count(), len(gc.get_objects()))
later = [[] for _ in range(1000)]
freeze_imports()
print(len(gc.get_objects()))
"""


def test_what_is_imported_is_frozen_once() -> None:
    done = subprocess.run([sys.executable, "-c", COUNTED], capture_output=True, text=True, check=True)
    before, frozen, left, later = map(int, done.stdout.split())
    assert before > 50_000
    assert frozen > 0.9 * before
    assert left < 1_000
    assert later >= 1_000


def test_a_bucket_leaves_nothing_for_the_collector() -> None:
    """A circle of references would stay until the next collection, a bucket's names after the other's."""
    gc.collect()
    gc.disable()
    try:
        bucket = Bucket(plan(learner("arow")))
        bucket.learn(chunk(rows([("k", {"label": 1, "features": {"a": 1}})])))
        bucket.results()
        bucket.to_bytes()
        gone = [weakref.ref(bucket), weakref.ref(bucket.models), weakref.ref(bucket.models.vocabulary)]
        del bucket
        assert [ref() for ref in gone] == [None, None, None]
    finally:
        gc.enable()
