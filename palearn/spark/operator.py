"""The stateful operator: a thin adapter between Spark's groups and :class:`palearn.engine.bucket.Bucket`.

A group is a bucket of keys. Its state is one row of a schema that Spark froze with the first batch:
``(format_version, n_keys, blob)``; all evolution happens inside the blob: the bytes of :mod:`palearn.models.codec`,
as a text (:mod:`palearn.spark.ascii_codec`).
"""

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import palearn
from palearn.config import Config, Source, Storage
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.validation import Chunk
from palearn.errors import NewerFormatError, RecordError, StateFormatError, StreamError
from palearn.models import codec
from palearn.records import ValueFormat
from palearn.spark.ascii_codec import from_text, to_text
from palearn.spark.checkpoint import forget_requests, has_start, start_of
from palearn.spark.release import RELEASE
from palearn.spark.worker import freeze_imports
from palearn.tables.folder import Folder

STATE = "format_version int, n_keys int, blob string"
#: A row a bucket and table: the rows as an Arrow IPC stream; table ``summary`` is JSON.
RESULT = "table string, payload binary"
SUMMARY = "summary"
#: About so many bytes of results, and of new state, may wait in a worker for the rest of its partition.
HELD_BYTES = 64 * 2**20
#: A Java string has at most 2^31 - 1 characters, and a state's text eight for seven bytes; Spark adds a little.
_MOST_STATE_BYTES = 2**31 // 8 * 7 - 2**20

Payload = tuple[str, bytes]


class _Given(msgspec.Struct):
    """What a worker is given: a configuration, what its schemas' files hold, and the driver's versions."""

    config: Config
    forms: dict[str, ValueFormat]
    palearn: str = palearn.__version__
    pyspark: str = RELEASE


@lru_cache(maxsize=8)
def bucket_config_of(config: str) -> BucketConfig:
    """Return what a configuration in JSON says of buckets; made once a worker process, not once a group.

    Raises
    ------
    StreamError
        This machine has another palearn or pyspark than the driver: its bits might be others.
    """
    given = msgspec.json.decode(config, type=_Given)
    mine, theirs = (palearn.__version__, RELEASE), (given.palearn, given.pyspark)
    if mine != theirs:
        raise StreamError(
            f"a worker has palearn {mine[0]} and pyspark {mine[1]}, the driver {theirs[0]} and {theirs[1]}: install "
            "the same on every machine (docs/cluster.md)"
        )
    return given.config.bucket_config_with(given.forms)


def train(records: DataFrame, config: Config) -> DataFrame:
    """Return the results of learning every bucket's records, with Spark keeping the buckets' state."""
    described = bucket_config_in(config)
    every = config.output.models.every_batches if config.output.models else 1
    checkpoint = Folder(config.checkpoint)
    path, begins, asked = checkpoint.path, has_start(checkpoint), forget_requests(checkpoint)
    spark = records.sparkSession
    # PySpark sends a partition's results when there are more rows of them than this.
    most_rows = int(spark.conf.get("spark.sql.execution.arrow.maxRecordsPerBatch", "10000") or 0)
    held = _Held(HELD_BYTES)

    def learn(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        batch_id = current_batch()
        with with_bucket_context(key[0], batch_id):
            if state.exists:
                blob: bytes | None = from_text(state.get[2])
            else:
                blob = start_of(Folder(path), key[0]) if begins else None
            bucket = Bucket(bucket_config_of(described), blob, batch_id)
        bucket.forget_earlier(asked.get(key[0], {}))
        # The group may come in pieces: its order is restored over all of them.
        bucket.learn(_chunk(list(frames)))
        payloads = pack(bucket, models=batch_id % every == every - 1)
        text = _state_text(key[0], bucket)
        state.update((codec.VERSION, len(bucket.models.keys), text))
        del bucket
        freeze_imports()
        yield pd.DataFrame(held.add(payloads, len(text), most_rows), columns=["table", "payload"])

    return records.groupBy("bucket").applyInPandasWithState(learn, RESULT, STATE, "append", GroupStateTimeout.NoTimeout)


def replay(records: DataFrame, config: Config) -> DataFrame:
    """Return the results of learning every bucket's records in one batch, without state.

    ``records`` must be sorted within their partitions by bucket, batch (if they have one), topic, partition and offset,
    and no bucket may be spread over two partitions. Only a bucket's models and one piece of its records are in memory.
    """
    described = bucket_config_in(config)

    def learn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = bucket_config_of(described)
        current, bucket = None, None
        for batch in batches:
            for number, chunk in _split(batch):
                if number != current:
                    if bucket is not None:
                        yield _result_batch(pack(bucket))
                    current, bucket = number, Bucket(plan)
                assert bucket is not None
                bucket.learn(chunk)
        if bucket is not None:
            yield _result_batch(pack(bucket))
        del bucket
        freeze_imports()

    return records.mapInArrow(learn, RESULT)


def unwritten(spark: SparkSession, config: Config) -> DataFrame:
    """Return, from the state of a stopped job, the models that changed since their last snapshot."""
    described, asked = bucket_config_in(config), forget_requests(Folder(config.checkpoint))

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = bucket_config_of(described)
        for batch in batches:
            for number, blob in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
                with with_bucket_context(number):
                    bucket = Bucket(plan, from_text(blob))
                bucket.forget_earlier(asked.get(number, {}))
                yield _result_batch(pack(bucket))

    return state_of(spark, Folder(config.checkpoint)).mapInArrow(rows, RESULT)


def state_of(spark: SparkSession, checkpoint: Folder) -> DataFrame:
    """Return bucket and blob (a text) of every bucket in a checkpoint's state, as the last batch left it."""
    _ = spark.streams.active  # a session that never had a query cannot read state otherwise
    state = spark.read.format("statestore").load(plain_uri(checkpoint))
    return state.selectExpr("key.bucket", "value.groupState.blob")


#: What Hadoop writes otherwise where a path becomes a URI; Spark's reader of state takes that for the path.
_WRITTEN_OTHERWISE = re.compile(r"[^A-Za-z0-9/_.~!$&'()*+,;=:@\u00a0-\U0010ffff-]")


def plain_uri(checkpoint: Folder) -> str:
    """Return an address that Spark's reader of state finds: of a path with special characters, a link's."""
    if not checkpoint.is_local or not _WRITTEN_OTHERWISE.search(checkpoint.root):
        return checkpoint.uri
    link = Path(_links().name) / hashlib.sha256(os.fsencode(checkpoint.root)).hexdigest()[:16]
    if not link.is_symlink():
        link.symlink_to(checkpoint.root)
    return f"file://{link}"


@lru_cache(maxsize=1)
def _links() -> tempfile.TemporaryDirectory[str]:
    """Return the folder of this process's links, which ends with it."""
    return tempfile.TemporaryDirectory(prefix="palearn-")


@contextmanager
def with_bucket_context(bucket: int, batch_id: int | None = None) -> Iterator[None]:
    """Add the bucket's number, and the batch, to errors of its state's bytes."""
    when = "" if batch_id is None else f" before batch {batch_id}"
    try:
        yield
    except NewerFormatError as error:
        raise NewerFormatError(f"the state of bucket {bucket}{when}: {error}") from error
    except StateFormatError as error:
        raise StateFormatError(
            f"the state of bucket {bucket}{when}: {error}. The checkpoint is damaged: restore an older copy of it, or "
            "start over with a new one (palearn stream --warm-start MODELS, palearn replay)"
        ) from error


def _state_text(number: int, bucket: Bucket) -> str:
    """Return a bucket's state as Spark keeps it."""
    blob = bucket.to_bytes()
    if len(blob) > _MOST_STATE_BYTES:
        raise StateFormatError(
            f"the state of bucket {number} would have {len(blob)} bytes, more than Spark can hold; use more buckets "
            "(state.buckets), or bound them more tightly (state.max_keys, state.max_features, join)"
        )
    return to_text(blob)


class _Held:
    """What a task's results hold back: its copy counts up to ``most`` bytes.

    PySpark keeps results and new states of a partition's groups until there are many rows, however large they are.
    """

    def __init__(self, most: int) -> None:
        self._bytes, self._most = 0, most

    def add(self, payloads: list[Payload], state: int, most_rows: int) -> list[Payload | tuple[None, None]]:
        """Return a group's rows; with empty ones after them if all that is held back shall go."""
        self._bytes += state + sum(len(payload) for _, payload in payloads)
        if self._bytes <= self._most:
            return [*payloads]
        self._bytes = 0
        return [*payloads, *[(None, None)] * most_rows]


def bucket_config_in(config: Config) -> str:
    """Return what workers need of a configuration, as JSON: nothing that lets one into Kafka or a store."""
    given = msgspec.structs.replace(config, source=Source(), storage=Storage())
    return msgspec.json.encode(_Given(given, config.forms)).decode()


def pack(bucket: Bucket, *, models: bool = True) -> list[Payload]:
    """Return a bucket's results as rows of :data:`RESULT`; there is always a summary."""
    out = []
    for name, table in bucket.results(models=models).items():
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        out.append((name, sink.getvalue().to_pybytes()))
    return [*out, (SUMMARY, msgspec.json.encode(bucket.summary))]


def current_batch() -> int:
    """Return the number of the micro-batch that this task belongs to."""
    context = TaskContext.get()
    number = context.getLocalProperty("streaming.sql.batchId") if context else None
    return int(number) if number is not None else 0


def _chunk(frames: list[pd.DataFrame]) -> Chunk:
    def column(name: str) -> list[Any]:
        return [item for frame in frames for item in frame[name].tolist()]

    partition = np.concatenate([frame["partition"].to_numpy(np.int64) for frame in frames])
    offset = np.concatenate([frame["offset"].to_numpy(np.int64) for frame in frames])
    time = np.concatenate([frame["time"].to_numpy(np.int64) for frame in frames]) if "time" in frames[0] else None
    return Chunk(column("key"), column("value"), column("topic"), partition, offset, time)


def chunk_of(rows: pa.RecordBatch | pa.Table) -> Chunk:
    """Return rows of :mod:`palearn.spark.source` as a bucket takes them."""
    values: list[Any] = rows.column("value").to_pylist()
    for i, fault in enumerate(rows.column("fault").to_pylist()):
        if fault is not None:
            values[i] = RecordError(*msgspec.json.decode(fault))
    partition = np.asarray(rows.column("partition")).astype(np.int64)
    offset = np.asarray(rows.column("offset")).astype(np.int64)
    time = np.asarray(rows.column("time")).astype(np.int64) if "time" in rows.schema.names else None
    return Chunk(rows.column("key").to_pylist(), values, rows.column("topic").to_pylist(), partition, offset, time)


def _split(batch: pa.RecordBatch) -> Iterator[tuple[int, Chunk]]:
    """Yield the pieces of one bucket, and one batch where batches are repeated, in order."""
    for piece in pieces(batch, *(name for name in ("bucket", "batch") if name in batch.schema.names)):
        yield piece.column("bucket")[0].as_py(), chunk_of(piece)


def pieces(batch: pa.RecordBatch, *columns: str) -> Iterator[pa.RecordBatch]:
    """Yield the runs of rows that have the same numbers in these columns, in order."""
    cut = np.zeros(max(0, batch.num_rows - 1), np.bool_)
    for name in columns:
        number = np.asarray(batch.column(name))
        cut |= number[1:] != number[:-1]
    cuts = (np.flatnonzero(cut) + 1).tolist()
    for first, stop in zip([0, *cuts], [*cuts, batch.num_rows], strict=True):
        if first < stop:
            yield batch.slice(first, stop - first)


def _result_batch(payloads: list[Payload]) -> pa.RecordBatch:
    tables, blobs = zip(*payloads, strict=True)
    return pa.record_batch([pa.array(tables, pa.string()), pa.array(blobs, pa.binary())], names=["table", "payload"])
