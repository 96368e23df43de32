"""Fetch jars from Maven Central and compile numba's kernels ahead of the first use."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec

import numpy as np

from palearn import datasets
from palearn.config import parse
from palearn.engine.bucket import Bucket
from palearn.engine.validation import Chunk
from palearn.evaluate.prequential import evaluate
from palearn.learners import LEARNERS
from palearn.records import Record, encode
from palearn.spark.ascii_codec import from_text, to_text

Report = Callable[[str, int, int], None]


def prepare(report: Report) -> None:
    """Fetch what the installed extras need, and compile; ``report(what, done, total)`` is called at each step."""
    if find_spec("jgo") is not None:
        from palearn.kafka.jars import kafka_jars

        kafka_jars(lambda done, total: report("Kafka's jars", done, total))
    if find_spec("pyspark") is not None:
        from palearn.spark.connectors import fetch_connector

        report("Spark's Kafka connector", 0, 1)
        fetch_connector()
        report("Spark's Kafka connector", 1, 1)
    compile_kernels(report)


def compile_kernels(report: Report = lambda what, done, total: None) -> None:
    """Compile what learning and the output tables run; numba keeps it beside the package."""
    variants = list(_variants())
    for done, (name, task, params) in enumerate(variants):
        report("compiling the kernels", done, len(variants))
        views = ("a", "b") if LEARNERS[name].views else ()
        evaluate(_examples(bool(views)), name, params, task=task, views=views)
    evaluate(datasets.path("a9a"), "pa1")
    _two_batches()
    report("ready", len(variants), len(variants))


def _two_batches() -> None:
    """Learn as the job does: from bytes, into tables, with the state in between."""
    learners = [
        {"algorithm": "pa1"},
        {"algorithm": "arow"},
        {"algorithm": "arow", "name": "full", "covariance": "full"},
    ]
    source = {"kafka": {"bootstrap_servers": "-", "topics": ["-"]}}
    plan = parse({"source": source, "learners": learners, "output": {"path": "-"}, "checkpoint": "-"}).bucket_config
    values = [encode(record) for record in _examples(views=False)]
    state = None
    for batch in range(2):
        bucket = Bucket(plan, None if state is None else from_text(state), batch)
        count = len(values)
        offset = np.arange(count) + batch * count
        bucket.learn(Chunk([b"key"] * count, values, ["-"] * count, np.zeros(count, np.int64), offset))
        bucket.results()
        state = to_text(bucket.to_bytes())


def _variants() -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield one learner for each compiled kernel."""
    for task in ("binary", "multiclass"):
        yield "pa1", task, {}
        yield "arow", task, {"covariance": "full"}
        yield "adagrad_rda", task, {}
    yield "arow", "multiclass", {"covariance": "joint"}
    yield "sop", "binary", {}
    yield "pa_mean", "binary", {}
    yield "two_view_pa", "binary", {}


def _examples(views: bool) -> list[Record]:
    features = {"x": 1.0, "y": 2.0}
    if views:
        return [Record(label=label, views={"a": features, "b": features}) for label in (1, -1)]
    return [Record(label=label, features=features) for label in (1, -1)]
