"""The stateful operator: a thin adapter between Spark's groups and :class:`palearn.bucket.Bucket`.

A group is a bucket of keys. Its state is one row of a schema that Spark froze with the first batch:
``(format_version, n_keys, blob)``; all evolution happens inside the blob: the bytes of :mod:`palearn.codec`, as a
text (:mod:`palearn.spark.text`).
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from palearn import codec
from palearn.bucket import Bucket, Plan
from palearn.config import Config
from palearn.errors import RecordError
from palearn.intake import Chunk
from palearn.spark.store import Folder
from palearn.spark.text import from_text, to_text

STATE = "format_version int, n_keys int, blob string"
#: A row a bucket and table: the rows as an Arrow IPC stream; table ``summary`` is JSON.
RESULT = "table string, payload binary"
SUMMARY = "summary"

Payload = tuple[str, bytes]


@lru_cache(maxsize=8)
def plan_of(config: str) -> Plan:
    """Return the plan of a configuration in JSON; made once a worker process, not once a group."""
    return msgspec.json.decode(config, type=Config).plan


def train(records: DataFrame, config: Config) -> DataFrame:
    """Return the results of learning every bucket's records, with Spark keeping the buckets' state."""
    described = msgspec.json.encode(config).decode()
    every = config.output.models.every if config.output.models else 1

    def learn(key: tuple[Any, ...], frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        batch_id = current_batch()
        bucket = Bucket(plan_of(described), from_text(state.get[2]) if state.exists else None, batch_id)
        # The group may come in pieces: its order is restored over all of them.
        bucket.learn(_chunk(list(frames)))
        payloads = pack(bucket, models=batch_id % every == every - 1)
        state.update((codec.VERSION, len(bucket.models.keys), to_text(bucket.to_bytes())))
        yield pd.DataFrame(payloads, columns=["table", "payload"])

    return records.groupBy("bucket").applyInPandasWithState(learn, RESULT, STATE, "append", GroupStateTimeout.NoTimeout)


def replay(records: DataFrame, config: Config) -> DataFrame:
    """Return the results of learning every bucket's records in one batch, without state.

    ``records`` must be sorted within their partitions by bucket, batch (if they have one), topic, partition and offset,
    and no bucket may be spread over two partitions. Only a bucket's models and one piece of its records are in memory.
    """
    described = msgspec.json.encode(config).decode()

    def learn(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = plan_of(described)
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

    return records.mapInArrow(learn, RESULT)


def unwritten(spark: SparkSession, config: Config) -> DataFrame:
    """Return, from the state of a stopped job, the models that changed since their last snapshot."""
    described = msgspec.json.encode(config).decode()

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = plan_of(described)
        for batch in batches:
            for blob in batch.column("blob").to_pylist():
                yield _result_batch(pack(Bucket(plan, from_text(blob))))

    _ = spark.streams.active  # a session that never had a query cannot read state otherwise
    state = spark.read.format("statestore").load(Folder(config.checkpoint).uri)
    return state.selectExpr("value.groupState.blob").mapInArrow(rows, RESULT)


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
    return Chunk(column("key"), column("value"), column("topic"), partition, offset)


def chunk_of(rows: pa.RecordBatch | pa.Table) -> Chunk:
    """Return rows of :mod:`palearn.spark.source` as a bucket takes them."""
    values: list[Any] = rows.column("value").to_pylist()
    for i, fault in enumerate(rows.column("fault").to_pylist()):
        if fault is not None:
            values[i] = RecordError(*msgspec.json.decode(fault))
    partition = np.asarray(rows.column("partition")).astype(np.int64)
    offset = np.asarray(rows.column("offset")).astype(np.int64)
    return Chunk(rows.column("key").to_pylist(), values, rows.column("topic").to_pylist(), partition, offset)


def _split(batch: pa.RecordBatch) -> Iterator[tuple[int, Chunk]]:
    """Yield the pieces of one bucket, and one batch where batches are repeated, in order."""
    bucket = np.asarray(batch.column("bucket"))
    cut = bucket[1:] != bucket[:-1]
    if "batch" in batch.schema.names:
        number = np.asarray(batch.column("batch"))
        cut |= number[1:] != number[:-1]
    cuts = (np.flatnonzero(cut) + 1).tolist()
    for first, stop in zip([0, *cuts], [*cuts, bucket.size], strict=True):
        if first < stop:
            yield int(bucket[first]), chunk_of(batch.slice(first, stop - first))


def _result_batch(payloads: list[Payload]) -> pa.RecordBatch:
    tables, blobs = zip(*payloads, strict=True)
    return pa.record_batch([pa.array(tables, pa.string()), pa.array(blobs, pa.binary())], names=["table", "payload"])
