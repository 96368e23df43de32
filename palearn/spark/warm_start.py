"""Warm start: jobs that start with the models of another job.

A new checkpoint may begin with models (``palearn stream --warm-start``): those of a models table, or, bit for bit
and with pending fragments, those of the checkpoint of a stopped job. They are put into the new checkpoint, a file a
bucket, and are a bucket's state until Spark has one of it; the models table has them as batch -1::

    CHECKPOINT/palearn.json     warm_start: whose models they are; written first
    CHECKPOINT/start/B.paln     models of bucket B
    CHECKPOINT/start/done.json  how many files there are; written last
    OUT/models/batch_id=-1/     the same models as rows
"""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from palearn.config import Config
from palearn.errors import ConfigError
from palearn.models import codec, from_table
from palearn.models.counters import CHANGED, UPDATED_BATCH
from palearn.models.from_table import BEFORE
from palearn.models.keyed import Models
from palearn.spark import error_messages
from palearn.spark.checkpoint import KNOWN, batch_rows, forget_requests, has_begun, has_whole_start, known_of
from palearn.spark.export import blobs_in, learned_up_to, whole_state
from palearn.spark.models_table import WRITTEN, RowsFile, newest, publish, scored, table_of, written
from palearn.spark.operator import bucket_config_in, bucket_config_of, pieces, with_bucket_context
from palearn.spark.source import bucket_of
from palearn.tables.folder import Folder
from palearn.tables.layouts import require_there
from palearn.tables.locks import locked
from palearn.tables.store import Store

log = logging.getLogger("palearn.stream")

_PART = "bucket int, part binary"
#: What Kafka calls the first offset that is there.
_EARLIEST = -2


def begin_warm(spark: SparkSession, config: Config, models: str | None) -> None:
    """Let the configuration's checkpoint begin with models, if it is new; None: without.

    Raises
    ------
    ConfigError
        The checkpoint has begun otherwise, or the models do not fit the configuration.
    StreamError
        The models cannot be read or written.
    """
    checkpoint = Folder(config.checkpoint)
    known = known_of(checkpoint)
    began, wanted = known.get("warm_start"), None if models is None else Folder(models).path
    learned = has_begun(checkpoint)
    whole = has_whole_start(checkpoint)
    if began is not None and not whole and (learned or wanted is None):
        way = (
            "restore an older copy of the checkpoint, or choose a new checkpoint and a new output"
            if learned
            else "give --warm-start again"
        )
        raise ConfigError(f"the models of {began}, with which {checkpoint.path} began, are not whole in it: {way}")
    if wanted is None or (whole and wanted == began):
        return
    if whole or learned or wanted == checkpoint.path:
        raise ConfigError(
            f"{checkpoint.path} has begun{f' with the models of {began}' if began else ''}; --warm-start is for a new "
            "checkpoint and a new output"
        )
    with error_messages.in_one_sentence(), _parts(spark, config, Folder(wanted)) as parts:
        checkpoint.write(known | {"warm_start": wanted}, KNOWN)
        try:
            keys = _prepare(config, checkpoint, parts)
        except Exception:
            checkpoint.discard("start")
            checkpoint.write(known, KNOWN)
            raise
    log.info("beginning with the models of %s keys from %s", f"{keys:,}", wanted)


def _prepare(config: Config, checkpoint: Folder, parts: DataFrame) -> int:
    """Write the models of every bucket, and the table's rows; return how many keys they are."""
    path, store = checkpoint.path, Store(config.output.path, config.output.format, known_of(checkpoint)["id"])
    target = store.target(BEFORE) if config.output.models else None
    checkpoint.discard("start")
    store.begin()

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder, rows = Folder(path), RowsFile(target)
        for bucket, blobs in _by_bucket(batches):
            models = Models.merged([codec.decode(blob) for blob in blobs])
            models.counts[:, CHANGED], models.counts[scored(models), UPDATED_BATCH] = 0, BEFORE
            folder.write_bytes(codec.encode(models), "start", f"{bucket}.paln")
            rows.add(models)
            yield written(f"{bucket}.paln", len(models.keys))
        yield from rows.close()

    # By their bytes: what stands first in a bucket must not depend on which task came first.
    sorted_ = parts.repartition("bucket").sortWithinPartitions("bucket", "part")
    rows = sorted_.mapInArrow(write, WRITTEN).collect()
    started = {row["file"]: row["keys"] for row in rows if row["keys"] is not None}
    require_there(checkpoint, ("start",), started)
    publish(store, BEFORE, rows)
    checkpoint.write({"files": len(started)}, "start", "done.json")
    return sum(started.values())


@contextmanager
def _parts(spark: SparkSession, config: Config, source: Folder) -> Iterator[DataFrame]:
    """Yield the models, bucket by bucket."""
    if not source.has(KNOWN):
        yield _of_table(spark, config, source)
        return
    with locked(source):
        _require_same(config, source)
        require_new_records(config, source.path, learned_up_to(source))
        yield _of_state(spark, config, source)


def _of_state(spark: SparkSession, config: Config, source: Folder) -> DataFrame:
    """Return the models of a stopped job, bucket by bucket."""
    buckets = config.state.buckets
    kinds, asked = {"blob": pa.binary(), "keys": pa.list_(pa.string())}, forget_requests(source)

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, blob in blobs_in(batches, asked):
            with with_bucket_context(number):
                names = codec.decode(blob).keys
            yield pa.RecordBatch.from_pylist([{"blob": blob, "keys": names}], pa.schema(kinds))

    def split(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for blob, of in zip(batch.column("blob").to_pylist(), batch.column("of").to_pylist(), strict=True):
                models, of_key = codec.decode(blob), np.array(of, np.int64)
                for bucket in np.unique(of_key).tolist():
                    yield _part(bucket, models.of_keys(np.flatnonzero(of_key == bucket)))

    whole = whole_state(spark, source).mapInArrow(keys, "blob binary, keys array<string>")
    return whole.withColumn("of", F.transform("keys", lambda key: bucket_of(key, buckets))).mapInArrow(split, _PART)


def _require_same(config: Config, source: Folder) -> None:
    """Raise a ConfigError if a job's models cannot be taken over as they are."""
    theirs, mine = known_of(source)["fingerprint"], config.fingerprint
    differing = [name for name in ("learners", "records", "metrics") if theirs[name] != mine[name]]
    if theirs["state"]["max_features"] != mine["state"]["max_features"]:
        differing.append("state.max_features")
    if differing:
        raise ConfigError(
            f"{source.path} has other {' and '.join(differing)} than the configuration; give the same ones, or "
            f"start with its models alone: palearn state export {source.path} OUT, then --warm-start OUT"
        )


def require_new_records(config: Config, path: str, seen: Mapping[str, Mapping[str, int]]) -> None:
    """Raise a ConfigError if the job would learn again what its first models have learned, or warn where that is asked.

    ``seen`` is topic -> partition -> offset behind the last record that the models of ``path`` have learned.
    """
    kafka = config.source.kafka
    again = {} if kafka is None else {topic: seen[topic] for topic in sorted(filter(kafka.takes, seen))}
    if kafka is None or not again or kafka.starting_offsets.lower() == "latest":
        return
    where = msgspec.json.encode(again).decode()
    if any(name.lower().startswith(("startingtimestamp", "startingoffsetsbytimestamp")) for name in kafka.options):
        log.warning("%s has learned the records before %s; the stream begins by their time", path, where)
        return
    given = {} if kafka.starting_offsets.lower() == "earliest" else msgspec.json.decode(kafka.starting_offsets)
    first = {
        (topic, part): given.get(topic, {}).get(part, _EARLIEST) for topic, parts in again.items() for part in parts
    }
    if _EARLIEST in first.values():
        raise ConfigError(
            f"{path} has learned from {', '.join(again)}: to go on where it stopped, set "
            f"source.kafka.starting_offsets to '{where}' (earliest would learn them again; if the topic was made "
            'again since, give its first offsets, {"TOPIC": {"0": 0}})'
        )
    twice = [
        f"{topic}, partition {part}, offsets {start} to {again[topic][part] - 1}"
        for (topic, part), start in first.items()
        if 0 <= start < again[topic][part]
    ]
    if twice:
        log.warning("%s has learned records that starting_offsets asks for again: %s", path, "; ".join(twice))


def _learned_by(source: Folder, table: DataFrame) -> dict[str, dict[str, int]]:
    """Return what the models of a table have learned (:func:`require_new_records`), as far as their output says it."""
    found: dict[str, dict[str, int]] = {}
    if {"last_topic", "last_partition", "last_offset"} <= set(table.columns):
        last = table.where("last_topic != ''").groupBy("last_topic", "last_partition").agg(F.max("last_offset"))
        for topic, part, offset in last.collect():
            found.setdefault(topic, {})[str(part)] = offset + 1
    newest_batch = table.agg(F.max("batch_id")).collect()[0][0]
    for offsets in batch_rows(source, newest_batch).values():
        for row in offsets or ():
            own, part = found.setdefault(row["topic"], {}), str(row["partition"])
            own[part] = max(row["end"], own.get(part, 0))
    return found


def _of_table(spark: SparkSession, config: Config, source: Folder) -> DataFrame:
    """Return the models of a models table, the newest row of each key and learner; one part a bucket."""
    table = table_of(spark, source, (*from_table.COLUMNS, "format_version"))
    about = table.agg(F.collect_set("learner").alias("names"), F.max("format_version").alias("version")).collect()[0]
    from_table.require_known_format(about["version"], f" in {source.path}")
    names = sorted(about["names"])
    require_new_records(config, source.path, _learned_by(source, table))
    known = [learner for learner in config.make_learners() if learner.name in names]
    if not known:
        raise ConfigError(f"{source.path} has no learner of the configuration; it has {', '.join(names) or 'none'}")
    from_table.require_readable(known)
    table = table.where(F.col("key").isNotNull() & F.col("learner").isin([learner.name for learner in known]))
    rows = newest(table, from_table.COLUMNS).withColumn("bucket", bucket_of("key", config.state.buckets))
    described = bucket_config_in(config)

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = bucket_config_of(described)
        for bucket, parts in _runs(batches):
            yield _part(bucket, from_table.from_table(pa.Table.from_batches(parts), plan.settings, plan.learners))

    return rows.repartition("bucket").sortWithinPartitions("bucket").mapInArrow(build, _PART)


def _part(bucket: int, models: Models) -> pa.RecordBatch:
    part = codec.encode(models)
    return pa.record_batch([pa.array([bucket], pa.int32()), pa.array([part])], names=["bucket", "part"])


def _by_bucket(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[bytes]]]:
    for bucket, parts in _runs(batches):
        yield bucket, [blob for part in parts for blob in part.column("part").to_pylist()]


def _runs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, list[pa.RecordBatch]]]:
    """Yield the rows of each bucket; they stand together."""
    current, parts = None, list[pa.RecordBatch]()
    for batch in batches:
        for piece in pieces(batch, "bucket"):
            number = piece.column("bucket")[0].as_py()
            if number != current and current is not None:
                yield current, parts
                parts = []
            current = number
            parts.append(piece)
    if current is not None:
        yield current, parts
