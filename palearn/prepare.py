"""What first use would otherwise wait for: jars from Maven Central, kernels compiled by numba."""

from collections.abc import Callable, Iterator

from palearn.evaluate import evaluate
from palearn.learners import LEARNERS
from palearn.records import Record

Report = Callable[[str, int, int], None]


def prepare(report: Report) -> None:
    """Fetch and compile; ``report(what, done, total)`` is told of each step."""
    from palearn.kafka.jars import kafka_jars
    from palearn.spark.session import fetch_connector

    kafka_jars(lambda done, total: report("Kafka's jars", done, total))
    report("Spark's Kafka connector", 0, 1)
    fetch_connector()
    report("Spark's Kafka connector", 1, 1)
    variants = list(_variants())
    for done, (name, task, params) in enumerate(variants):
        report("compiling the kernels", done, len(variants))
        views = ("a", "b") if LEARNERS[name].views else ()
        evaluate(_examples(bool(views)), name, params, task=task, views=views)
    report("ready", len(variants), len(variants))


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
