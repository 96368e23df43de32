"""Prometheus metrics of a running stream, answered by the driver (docs/monitoring.md).

Counters begin at 0 with each start of the job, as Prometheus expects and makes up for; to go on, all tables would have
to be read at every start. A scrape sees one batch's figures whole and asks nobody: they are made when a batch is done,
and when the driver looks at its query.
"""

import hashlib
import logging
import time
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql.streaming.query import StreamingQuery

from palearn.config import Config, Prometheus
from palearn.engine.summary import Summary
from palearn.errors import shown
from palearn.records import REASONS
from palearn.spark.worst_keys import Ranking, Windows

log = logging.getLogger("palearn.stream")

#: Upper bounds of the histogram of batch times, in seconds.
_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
#: The texts of labels have at most about this many characters.
_LONGEST = 80
#: One value, or a value for each text of a label.
Values = float | Mapping[str, float]


@contextmanager
def serving(config: Config, prometheus: Prometheus) -> Iterator["Monitor"]:
    """Answer Prometheus meanwhile. Where that is impossible, say so and go on: the stream is worth more."""
    monitor = Monitor(config, prometheus)
    registry = CollectorRegistry()
    registry.register(monitor)
    at = f"{prometheus.host}:{prometheus.port}"
    try:
        server, thread = start_http_server(prometheus.port, prometheus.host, registry)
    except OSError as error:
        log.warning(
            "no metrics: nothing can be served at %s (%s); correct monitoring.prometheus and start again. "
            "The stream goes on without them",
            at,
            error.strerror,
        )
        yield monitor
        return
    log.info("metrics for Prometheus at http://%s/metrics", at)
    try:
        yield monitor
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Monitor(Collector):
    """What Prometheus is answered. A fault in here is logged once and stops nothing."""

    def __init__(self, config: Config, prometheus: Prometheus) -> None:
        none = dict.fromkeys((learner.name for learner in config.make_learners()), 0)
        #: What the tasks of the next batch compare their keys with.
        self.ranking = Ranking(prometheus.worst_keys, min(prometheus.min_labelled, config.metrics.window))
        self._sums = Summary(mistakes=none, updates=dict(none), reasons=dict.fromkeys(REASONS, 0))
        self._batches = [0] * (len(_BOUNDS) + 1)
        self._seconds = 0.0
        self._told = [*self._since_start(), _time_of_batch()]
        self._seen: list[Metric] = []
        self._failed = False

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they were told last."""
        yield from self._told
        yield from self._seen

    def tell(
        self,
        batch_id: int,
        seconds: float,
        summary: Summary,
        totals: Mapping[str, Mapping[str, int]],
        worst: Windows,
    ) -> None:
        """Take in a batch that is written: the seconds it took, its sums, and what its tasks found with the ranking."""
        with self._harmless():
            self._sums.add(summary)
            self._batches[bisect_left(_BOUNDS, seconds)] += 1
            self._seconds += seconds
            self.ranking = self.ranking.updated(worst)
            rate = summary.records / seconds
            self._told = [*self._since_start(), _time_of_batch(), *_of_batch(batch_id, rate, totals, self.ranking)]

    def look(self, query: StreamingQuery) -> None:
        """Take in what Spark says of its query: of this moment, and of the newest batch."""
        with self._harmless():
            self._seen = list(_of_query(query.status, query.lastProgress or {}))

    def _since_start(self) -> Iterator[Metric]:
        sums, statuses = self._sums, self._sums.statuses
        final = {status: count for status, count in statuses.items() if status != "pending"}
        yield _counter("palearn_records", "Records read from the topics.", sums.records)
        yield _counter("palearn_settled_records", "Records with a final status.", final, "status")
        yield _counter("palearn_rejected_records", "Records rejected for a reason.", sums.reasons, "reason")
        yield _gauge(
            "palearn_pending_records_change", "Change in pending fragments since the job's start.", statuses["pending"]
        )
        yield _counter("palearn_labelled_records", "Examples scored that have a label.", sums.n)
        yield _counter("palearn_mistakes", "Mistakes on them.", sums.mistakes, "learner")
        yield _counter("palearn_updates", "Examples that made a learner take a step.", sums.updates, "learner")
        yield _counter("palearn_evicted_keys", "Keys dropped by state.max_keys.", sums.keys_evicted)
        yield _counter("palearn_evicted_features", "Features dropped by state.max_features.", sums.features_evicted)
        bounds = [*map(str, _BOUNDS), "+Inf"]
        yield HistogramMetricFamily(
            "palearn_batch_duration_seconds",
            "Time to learn and write a batch.",
            list(zip(bounds, accumulate(self._batches), strict=True)),
            self._seconds,
        )

    @contextmanager
    def _harmless(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            if not self._failed:
                log.warning("the metrics for Prometheus fail, and the stream goes on", exc_info=True)
            self._failed = True


def _time_of_batch() -> Metric:
    """Return the time now: a batch is done, or the job starts."""
    text = "When the newest batch was done, or the job started."
    return _gauge("palearn_newest_batch_timestamp_seconds", text, time.time())


def _of_batch(
    batch_id: int, rate: float, totals: Mapping[str, Mapping[str, int]], ranking: Ranking
) -> Iterator[Metric]:
    yield _gauge("palearn_newest_batch", "Number of the newest batch.", batch_id)
    yield _gauge("palearn_newest_batch_records_per_second", "Its records by its time.", rate)
    for name, text, part, whole in (
        ("palearn_error_ratio", "Mistakes by labelled examples, all keys and batches.", "mistakes", "n"),
        ("palearn_newest_batch_error_ratio", "The same of the newest batch.", "batch_mistakes", "batch_n"),
    ):
        errors = {learner: t[part] / t[whole] for learner, t in totals.items() if t[whole]}
        yield _gauge(name, text, errors, "learner")
    worst = GaugeMetricFamily(
        "palearn_key_error_ratio", "Rolling error of the keys that are worst now.", labels=("learner", "key")
    )
    for learner, keys in ranking.windows.items():
        for key, window in keys.items():
            worst.add_metric((label_text(learner), label_text(key)), window.error)
    yield worst


def _of_query(status: Mapping[str, Any], progress: Mapping[str, Any]) -> Iterator[Metric]:
    """Yield what Spark says of a query: of this moment, of its newest batch's plan, and of the state after it."""
    text = "1 while Spark plans, learns or writes a batch, 0 while it waits."
    yield _gauge("palearn_trigger_active", text, int(status["isTriggerActive"]))
    text = "Offsets of a partition that the newest batch left."
    lag = GaugeMetricFamily("palearn_lag_records", text, labels=("topic", "partition"))
    for source in progress.get("sources", ()):
        done, there = (_offsets(source[name]) for name in ("endOffset", "latestOffset"))
        for (topic, partition), offset in there.items():
            lag.add_metric((topic, partition), offset - done.get((topic, partition), 0))
    yield lag
    for operator in progress.get("stateOperators", ()):
        yield _gauge("palearn_state_memory_bytes", "Memory of Spark's state store.", operator["memoryUsedBytes"])
        disk = operator["customMetrics"].get("rocksdbSstFileSize")
        if disk is not None:
            yield _gauge("palearn_state_disk_bytes", "Files of Spark's state store.", disk)


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    """Return (topic, partition) -> offset."""
    found = msgspec.json.decode(text or "{}", type=dict[str, dict[str, int]])
    return {(topic, partition): offset for topic, parts in found.items() for partition, offset in parts.items()}


def _counter(name: str, text: str, values: Values, label: str | None = None) -> Metric:
    return _filled(CounterMetricFamily(name, text, labels=_labels(label)), values)


def _gauge(name: str, text: str, values: Values, label: str | None = None) -> Metric:
    return _filled(GaugeMetricFamily(name, text, labels=_labels(label)), values)


def _labels(label: str | None) -> list[str]:
    return [] if label is None else [label]


def _filled(family: CounterMetricFamily | GaugeMetricFamily, values: Values) -> Metric:
    if isinstance(values, Mapping):
        for name, value in values.items():
            family.add_metric([label_text(name)], value)
    else:
        family.add_metric([], values)
    return family


def label_text(name: str) -> str:
    """Return a name as a label's text: as it is, if it is short and prints; else what is cut or escaped, and marked.

    The mark is a hash, so that different names stay different: a scrape in which two samples are the same is refused.
    """
    if len(name) <= _LONGEST and name.isprintable():
        return name
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()
    return f"{shown(name[:_LONGEST])[:_LONGEST]}…{digest[:12]}"
