"""From results to tables: one pass over a batch writes every table, on the executors, and returns sums."""

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession

from palearn.config import Config
from palearn.engine import result_rows
from palearn.engine.summary import ENOUGH, Summary, positive_problems, rejection_problems
from palearn.spark.checkpoint import batch_offsets, known_of, last_commit
from palearn.spark.operator import HELD_BYTES, SUMMARY, unwritten
from palearn.spark.worker import freeze_imports
from palearn.spark.worst_keys import Ranking, Windows
from palearn.tables import schemas
from palearn.tables.folder import Folder, TableFile
from palearn.tables.layouts import Target
from palearn.tables.store import Offsets, Store

if TYPE_CHECKING:
    from palearn.spark.monitor import Monitor

log = logging.getLogger("palearn.stream")

#: What a writing task returns: one row of :class:`Written` (topic null), and the rows that go to Kafka.
_WRITTEN = "topic string, key binary, value binary"
_KINDS = (pa.string(), pa.binary(), pa.binary())

Totals = dict[str, dict[str, int]]
Message = tuple[str | None, bytes | None, bytes]


@dataclass
class Written:
    """What a task, or all, wrote of a batch: sums, the size of each file (``TABLE/FILE``), windows for the ranking."""

    summary: Summary
    files: dict[str, int] = field(default_factory=dict)
    worst: Windows = field(default_factory=dict)

    def add(self, other: "Written") -> None:
        """Add what another task wrote."""
        self.summary.add(other.summary)
        self.files |= other.files
        self.rank(other.worst)

    def rank(self, found: Windows) -> None:
        """Add windows of other keys for the ranking."""
        for learner, windows in found.items():
            self.worst.setdefault(learner, {}).update(windows)


class Sink:
    """Writes micro-batches; :meth:`write` is Spark's ``foreachBatch`` function.

    ``checkpoint`` is that of the query, None where there is none: what each batch took of the topics stands there.
    ``check`` is called when a batch's records were read, and before anything of it is seen; it may refuse the batch.
    ``monitor`` is called with every batch that is written.
    Spark calls it once a batch on the driver, and again with the same number if the batch was not committed.
    The frame is consumed exactly once: a second action would run the stateful operator again.
    """

    def __init__(
        self,
        config: Config,
        checkpoint: Folder | None = None,
        check: Callable[[], None] = lambda: None,
        monitor: "Monitor | None" = None,
    ) -> None:
        self.config, self.checkpoint, self.check, self.monitor = config, checkpoint, check, monitor
        owner = "" if checkpoint is None else known_of(checkpoint)["id"]
        self.store = Store(config.output.path, config.output.format, owner)
        self.learners = config.make_learners()
        #: Of all batches of this run.
        self.summary = Summary()

    def write(self, frame: DataFrame, batch_id: int) -> None:
        """Write a batch's tables, whole or not at all, and log one line, after what is wrong with it."""
        began = time.perf_counter()
        before = self.store.totals(batch_id)
        offsets = None if self.checkpoint is None else batch_offsets(self.checkpoint, batch_id)
        whole = self.store.is_whole(batch_id, offsets)
        self.store.begin()
        topics = self.config.output.topics
        target = self.store.target(batch_id, whole=whole)
        rows = frame.mapInArrow(self._writer(target, "part", topics), _WRITTEN)
        if topics:
            rows = rows.persist()
        try:
            written = self._collect(rows)
            totals = _totals(before, written.summary)
            self.check()
            own = self._driver_rows(target, written, totals, offsets)
            if topics:
                self._produce(rows, own, batch_id, topics)
            if not whole:
                self.store.commit(batch_id, totals, written.files, offsets, time.perf_counter() - began)
        finally:
            if topics:
                rows.unpersist()
        seconds = time.perf_counter() - began
        self.summary.add(written.summary)
        for problem in self.problems(written.summary):
            log.warning("batch %d: %s", batch_id, problem, extra={"event": "problem", "batch": batch_id})
        figures = _figures(written.summary, totals, seconds)
        log.info(
            _line(batch_id, written.summary, totals, seconds),
            extra={"event": "batch", "batch": batch_id, "figures": figures},
        )
        if self.monitor is not None:
            self.monitor.tell(batch_id, seconds, written.summary, totals, written.worst)

    def problems(self, batch: Summary) -> list[str]:
        """Return what makes a batch's figures not worth looking at; a replay's only batch is the whole run."""
        run = positive_problems(self.summary, self.config.settings, ended=self.checkpoint is None)
        return rejection_problems(batch, ended=self.checkpoint is None) + run

    def finish(self, spark: SparkSession) -> None:
        """Snapshot the models that changed since their last snapshot, when the job has stopped."""
        if self.summary.n < ENOUGH:  # else it is said
            for problem in positive_problems(self.summary, self.config.settings, ended=True):
                log.warning(problem)
        models = self.config.output.models
        # Not the store's newest batch: the state may be of the one before, whose rows must not replace newer ones.
        last = None if self.checkpoint is None else last_commit(self.checkpoint)
        if not models or models.every_batches == 1 or last is None:
            return
        self.store.begin()
        frame = unwritten(spark, self.config)
        written = self._collect(frame.mapInArrow(self._writer(self.store.target(last), "stop", {}), _WRITTEN))
        self.store.add(last, written.files)

    def _writer(self, target: Target, prefix: str, topics: dict[str, str]) -> Any:
        return _writer(target, prefix, topics, None if self.monitor is None else self.monitor.ranking)

    def _collect(self, rows: DataFrame) -> Written:
        """Run a batch, and return what all tasks wrote."""
        written = Written(Summary(mistakes=dict.fromkeys((x.name for x in self.learners), 0)))
        for row in rows.where("topic is null").collect():
            written.add(msgspec.json.decode(row["value"], type=Written))
        return written

    def _driver_rows(self, target: Target, written: Written, totals: Totals, offsets: Offsets) -> dict[str, pa.Table]:
        """Write the rows that sum over all buckets: batches, and the metrics over all keys."""
        output, rows, summary = self.config.output, {}, written.summary
        if output.batches:
            account = {
                "records": summary.records,
                **summary.statuses,
                "keys_evicted": summary.keys_evicted,
                "features_evicted": summary.features_evicted,
                "reasons": list(summary.reasons.items()),
                "offsets": offsets,
                "empty_offsets": None if offsets is None else _span(offsets) - summary.records,
            }
            rows["batches"] = pa.Table.from_pylist([account], schemas.BATCHES)
        if output.metrics:
            rows["metrics"] = pa.Table.from_batches([result_rows.total_rows(totals)])
        for name, table in rows.items():
            file = target.name("part-all")
            written.files[f"{name}/{file}"] = self.store.folder.write_table(table, *target.place(name), file)
        return rows

    def _produce(self, written: DataFrame, own: dict[str, pa.Table], batch_id: int, topics: dict[str, str]) -> None:
        kafka = self.config.source.kafka
        assert kafka is not None
        rows = [row for name, table in own.items() if name in topics for row in messages(table, batch_id, topics[name])]
        frame = written.where("topic is not null")
        if rows:
            frame = frame.unionByName(written.sparkSession.createDataFrame(rows, _WRITTEN))
        options = {f"kafka.{name}": value for name, value in kafka.client_options.items()}
        frame.write.format("kafka").options(**options).save()


def _writer(target: Target, prefix: str, topics: dict[str, str], ranking: Ranking | None) -> Any:
    """Return the function that writes one partition's results, in files named so, and tells what it wrote."""

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None
        file = target.name(f"{prefix}-{context.partitionId():05d}", context.taskAttemptId())
        folder, written = Folder(target.path), Written(Summary())
        files: dict[str, TableFile] = {}
        for parts in _in_pieces(batches, written.summary):
            waiting: list[Message] = []
            for name, tables in parts.items():
                table = result_rows.plain(
                    pa.concat_tables(tables), name
                )  # a cast a bucket would cost a millisecond each
                if name not in files:
                    files[name] = folder.table_file(table.schema, *target.place(name), file)
                files[name].add(table)
                if name == "metrics" and ranking is not None:
                    written.rank(ranking.found(table))
                if name in topics:
                    waiting += messages(table, target.batch_id, topics[name])
            if waiting:
                yield _batch(waiting)
        written.files = {f"{name}/{file}": table.close() for name, table in files.items()}
        freeze_imports()
        yield _batch([(None, None, msgspec.json.encode(written))])

    return write


def _in_pieces(batches: Iterator[pa.RecordBatch], summary: Summary) -> Iterator[dict[str, list[pa.Table]]]:
    """Yield the tables of results, by name, as many at a time as may be held; add what is no table to ``summary``."""
    parts: dict[str, list[pa.Table]] = {}
    held = 0
    for batch in batches:
        for name, payload in zip(batch.column(0), batch.column(1), strict=True):
            if name.as_py() == SUMMARY:
                summary.add(msgspec.json.decode(payload.as_py(), type=Summary))
            elif name.is_valid:
                parts.setdefault(name.as_py(), []).append(pa.ipc.open_stream(payload.as_buffer()).read_all())
                held += len(payload.as_buffer())
            if held > HELD_BYTES:
                yield parts
                parts, held = {}, 0
    yield parts


def _batch(messages: list[Message]) -> pa.RecordBatch:
    columns = [pa.array(column, kind) for column, kind in zip(zip(*messages, strict=True), _KINDS, strict=True)]
    return pa.record_batch(columns, names=["topic", "key", "value"])


#: A Kafka message is at most this long, in bytes; brokers and clients take 1 MiB unless configured otherwise.
_MOST_BYTES = 900_000
#: Fields that can make a message too long: records may have keys, ids and labels of any length.
_LONG = ("key", "record_id", "value", "features", "weights", "variances", "labels", "f1", "precision",
         "recall", "predicted", "label")  # fmt: skip


def messages(table: pa.Table, batch_id: int, topic: str) -> list[Message]:
    """Return a table's rows as Kafka messages: JSON with a deterministic id, keyed by the model's key.

    A record's own id is ``record_id``. Of a row that is too long for Kafka the long fields are null and
    ``shortened`` is true; the Parquet table has it whole. A key that is too long itself is no message's key.
    """
    out: list[Message] = []
    for row in table.to_pylist():
        for name in ("f1", "precision", "recall", "reasons"):
            if isinstance(row.get(name), list):
                row[name] = dict(row[name])
        if "id" in row:
            row["record_id"] = row["id"]
        prefix = "last_" if "last_topic" in row else ""
        place = [row.get(f"{prefix}{part}") for part in ("topic", "partition", "offset")]
        where = place if None not in place else ["all", batch_id]
        row["id"] = "-".join(str(part) for part in (*where, row.get("learner")) if part is not None)
        row["batch_id"] = batch_id
        value, key = msgspec.json.encode(row), row.get("key")
        raw = key.encode() if isinstance(key, str) else key
        if len(value) + len(raw or b"") > _MOST_BYTES:
            long = {name: None for name in _LONG if name in row}
            value = msgspec.json.encode({**row, **long, "shortened": True})
            raw = raw if len(value) + len(raw or b"") <= _MOST_BYTES else None
        out.append((topic, raw, value))
    return out


def _span(offsets: list[dict[str, Any]]) -> int:
    """Return how many offsets a batch took."""
    return sum(row["end"] - row["start"] for row in offsets)


def _totals(before: Totals, summary: Summary) -> Totals:
    """Add a batch to each learner's totals."""
    out = {}
    for name, mistakes in summary.mistakes.items():
        past = before.get(name, {"n": 0, "mistakes": 0})
        out[name] = {
            "n": past["n"] + summary.n,
            "mistakes": past["mistakes"] + mistakes,
            "batch_n": summary.n,
            "batch_mistakes": mistakes,
        }
    return out


def _line(batch_id: int, summary: Summary, totals: Totals, seconds: float) -> str:
    statuses = ", ".join(f"{count:,} {status}" for status, count in summary.statuses.items() if count)
    errors = ", ".join(
        f"{name} {t['batch_mistakes'] / t['batch_n']:.4f} (all {t['mistakes'] / t['n']:.4f})"
        for name, t in totals.items()
        if t["batch_n"]
    )
    rate = summary.records / seconds if seconds else 0.0
    records = f"{summary.records:,} records" + (f" ({statuses})" if statuses else "")
    return f"batch {batch_id}: {records}, {rate:,.0f} rows/s, error {errors or 'none yet'}"


def _figures(summary: Summary, totals: Totals, seconds: float) -> dict[str, Any]:
    """Return a batch's figures for collectors of logs."""
    return {
        "records": summary.records,
        **summary.statuses,
        "reasons": summary.reasons,
        "seconds": round(seconds, 3),
        "learners": totals,
    }
