"""The state of a stopped job, read whole, and its export as a models table."""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from palearn.engine.tombstones import earlier
from palearn.errors import ConfigError
from palearn.models import codec
from palearn.models.from_table import BEFORE
from palearn.models.keyed import Models
from palearn.spark import error_messages
from palearn.spark.ascii_codec import from_text
from palearn.spark.checkpoint import (
    batch_offsets,
    forget_requests,
    has_start,
    has_whole_start,
    known_of,
    last_commit,
    start_of,
    started,
)
from palearn.spark.models_table import WRITTEN, RowsFile, publish, written
from palearn.spark.operator import state_of, with_bucket_context
from palearn.spark.session import reader
from palearn.tables.folder import Folder
from palearn.tables.locks import locked
from palearn.tables.store import Store


def export(checkpoint: str, out: str, *, master: str | None = None, spark: SparkSession | None = None) -> int:
    """Write the models of a stopped job, read from its state, as a models table; return how many keys it has.

    Raises
    ------
    ConfigError
        ``checkpoint`` is no checkpoint with state, its job runs, or ``out`` is not empty.
    StreamError
        The state cannot be read, or the models not be written.
    """
    source, target = Folder(checkpoint), Folder(out)
    known_of(source)
    if target.names():
        raise ConfigError(f"{target.path} is not empty; give the export a new folder")
    spark = spark or reader(name="palearn state export", master=master, path=source.path)
    store, asked = Store(out), forget_requests(source)
    batch = last_commit(source)
    place = store.target(BEFORE if batch is None else batch)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = RowsFile(place)
        for number, blob in blobs_in(batches, asked):
            with with_bucket_context(number):
                models = codec.decode(blob)
            yield written(f"{number}.paln", rows.add(models))
        yield from rows.close()

    with locked(source), error_messages.in_one_sentence():
        files = whole_state(spark, source).mapInArrow(write, WRITTEN).collect()
    publish(store, place.batch_id, files)
    return sum(row["keys"] or 0 for row in files)


def whole_state(spark: SparkSession, checkpoint: Folder) -> DataFrame:
    """Return bucket, blob (a text) or start (bytes) of every bucket: of Spark's state, else what it begins with."""
    state = state_of(spark, checkpoint) if last_commit(checkpoint) is not None else None
    if not has_start(checkpoint):
        if state is None:
            raise ConfigError(f"{checkpoint.path} has no state yet: no batch is committed")
        return state.selectExpr("bucket", "blob", "cast(null as binary) as start")
    if not has_whole_start(checkpoint):
        raise ConfigError(f"the models with which {checkpoint.path} began are not whole in it: restore an older copy")
    path = checkpoint.path
    kinds = {"bucket": pa.int32(), "blob": pa.string(), "start": pa.binary()}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("bucket").to_pylist():
                row = {"bucket": number, "start": start_of(Folder(path), number)}
                yield pa.RecordBatch.from_pylist([row], pa.schema(kinds))

    begun = spark.createDataFrame([(number,) for number in started(checkpoint)], "bucket int")
    if state is not None:
        begun = begun.join(state, "bucket", "left_anti")
    begun = begun.mapInArrow(read, "bucket int, blob string, start binary")
    if state is None:
        return begun
    return state.selectExpr("bucket", "blob", "cast(null as binary) as start").unionByName(begun)


def blobs_in(batches: Iterator[pa.RecordBatch], asked: Mapping[int, Mapping[str, int]]) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of the buckets of :func:`whole_state`, without keys ``asked`` to be forgotten."""
    for batch in batches:
        for number, text, start in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            with with_bucket_context(number):
                blob = start if text is None else from_text(text)
                if text is not None and number in asked:
                    blob = codec.encode(remembered(codec.decode(blob), asked[number]))
            yield number, blob


def remembered(models: Models, asked: Mapping[str, int]) -> Models:
    """Return models without the keys that were asked to be forgotten and have had no record since."""
    gone = [models.index[key] for key in earlier(models, asked)]
    return models.of_keys(np.setdiff1d(np.arange(len(models.keys)), gone)) if gone else models


def learned_up_to(checkpoint: Folder) -> dict[str, dict[str, int]]:
    """Return where a stopped job would go on: topic -> partition -> offset, as ``starting_offsets`` takes it."""
    last = last_commit(checkpoint)
    found: dict[str, dict[str, int]] = dict(known_of(checkpoint).get("left", {}))
    for row in [] if last is None else batch_offsets(checkpoint, last):
        found[row["topic"]] = found.get(row["topic"], {}) | {str(row["partition"]): row["end"]}
    return found
