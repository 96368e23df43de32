"""The models table outside of a stream: its rows as Spark reads them, and rows that tasks write, seen all at once."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from palearn.engine import result_rows
from palearn.errors import ConfigError
from palearn.models.counters import N_SEEN, UPDATED_BATCH
from palearn.models.from_table import BEFORE
from palearn.models.keyed import Models
from palearn.tables.folder import Folder, TableFile
from palearn.tables.forgotten import forgotten
from palearn.tables.layouts import Target
from palearn.tables.store import Store
from palearn.types import IntArray

#: A row a file that was written, and the keys whose models it has; of the models table's files null.
WRITTEN = "file string, keys long, bytes long"


def table_of(spark: SparkSession, source: Folder, columns: Sequence[str]) -> DataFrame:
    """Return all rows of the models table of an output folder (or of its ``models/``).

    Raises
    ------
    ConfigError
        There is none, or it lacks one of the columns.
    """
    gone = forgotten(source)
    if source.has("models"):
        source = Folder(f"{source.path}/models")
    if not any(name.startswith("batch_id=") for name in source.names()):
        raise ConfigError(f"{source.path} is no models table: give an output folder, its models/, or a checkpoint")
    table = spark.read.parquet(source.pattern)
    if "calibration" not in table.columns:  # an older version wrote the file that was looked at, maybe not all
        more = T.StructType([*table.schema.fields, T.StructField("calibration", T.ArrayType(T.DoubleType()))])
        table = spark.read.schema(more).parquet(source.pattern)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ConfigError(f"{source.path} is no models table: it has no column {' and no '.join(missing)}")
    # A text, where Spark is told not to look what partitions are: "9" would come after "10".
    table = table.withColumn("batch_id", F.col("batch_id").cast("long"))
    if gone:
        past = spark.createDataFrame([*gone.items()], "gone string, since long")
        table = table.join(past, (table["key"] == past["gone"]) & (table["batch_id"] < past["since"]), "left_anti")
    return table


def newest(table: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return columns of the newest row of each key and learner of a models table."""
    rows = table.groupBy("key", "learner").agg(F.max_by(F.struct(*columns), "batch_id").alias("row"))
    return rows.select("row.*")


class RowsFile:
    """The rows of the models table that a task writes, in one file; ``target`` None: none."""

    def __init__(self, target: Target | None) -> None:
        context = TaskContext.get()
        assert context is not None
        stem = f"part-{context.partitionId():05d}"
        self._target = target
        self._name = "" if target is None else target.name(stem, context.taskAttemptId())
        self._file: TableFile | None = None

    def add(self, models: Models) -> int:
        """Write the rows of all keys of a bucket that were ever scored; return how many keys they are."""
        keys = scored(models)
        if self._target is None or not keys.size:
            return 0
        rows = pa.Table.from_batches(result_rows.model_rows(models, keys, result_rows.Texts(models, keys)))
        rows = result_rows.plain(rows, "models")
        if self._file is None:
            folder = Folder(self._target.path)
            self._file = folder.table_file(rows.schema, *self._target.place("models"), self._name)
        self._file.add(rows)
        return int(keys.size)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Put the file in its place, and yield a row that describes it."""
        if self._file is not None:
            yield written(self._name, None, self._file.close())


def scored(models: Models) -> IntArray:
    """Return the keys that have models; the others have nothing but pending fragments."""
    counts = models.counts
    return np.flatnonzero((counts[:, N_SEEN] > 0) | (counts[:, UPDATED_BATCH] == BEFORE))


def publish(store: Store, batch: int, rows: Iterable[Any]) -> None:
    """Let readers see the rows of the models table in the files that tasks wrote (:data:`WRITTEN`), all at once."""
    store.publish(batch, {f"models/{row['file']}": row["bytes"] for row in rows if row["keys"] is None})


def written(file: str, keys: int | None, size: int | None = None) -> pa.RecordBatch:
    """Return the row that describes a written file (:data:`WRITTEN`)."""
    kinds = pa.schema([("file", pa.string()), ("keys", pa.int64()), ("bytes", pa.int64())])
    return pa.RecordBatch.from_pylist([{"file": file, "keys": keys, "bytes": size}], kinds)
