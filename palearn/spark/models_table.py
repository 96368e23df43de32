"""The models table outside of a stream: its rows as Spark reads them, and rows that tasks write, seen all at once."""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from palearn.engine import result_rows
from palearn.errors import ConfigError
from palearn.models.counters import N_SEEN, UPDATED_BATCH
from palearn.models.from_table import BEFORE
from palearn.models.keyed import Models
from palearn.tables.folder import Folder, TableFile
from palearn.tables.forgotten import forgotten
from palearn.tables.store import place, require_there
from palearn.types import IntArray

#: A row a file that was written, and the keys whose models it has; of the models table's files null.
WRITTEN = "file string, keys long"
_STAGED = ("_staging", "models")


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
    """The rows of the models table that a task writes, in one file; ``path`` None: none."""

    def __init__(self, path: str | None) -> None:
        context = TaskContext.get()
        assert context is not None
        self._path, self._name = path, f"part-{context.partitionId():05d}.parquet"
        self._file: TableFile | None = None

    def add(self, models: Models) -> int:
        """Write the rows of all keys of a bucket that were ever scored; return how many keys they are."""
        keys = scored(models)
        if self._path is None or not keys.size:
            return 0
        rows = pa.Table.from_batches(result_rows.model_rows(models, keys, result_rows.Texts(models, keys)))
        rows = result_rows.plain(rows, "models")
        if self._file is None:
            self._file = Folder(self._path).table_file(rows.schema, *_STAGED, self._name)
        self._file.add(rows)
        return int(keys.size)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Put the file in its place, and yield a row that describes it."""
        if self._file is not None:
            self._file.close()
            yield written(self._name, None)


def scored(models: Models) -> IntArray:
    """Return the keys that have models; the others have nothing but pending fragments."""
    counts = models.counts
    return np.flatnonzero((counts[:, N_SEEN] > 0) | (counts[:, UPDATED_BATCH] == BEFORE))


def publish(folder: Folder, batch: int, files: Iterable[str]) -> None:
    """Move staged rows of the models table to where readers see them, all at once."""
    if files:
        require_there(folder, _STAGED, files)
        place(folder, _STAGED, "models", batch)
    folder.discard("_staging")


def written(file: str, keys: int | None) -> pa.RecordBatch:
    """Return the row that describes a written file (:data:`WRITTEN`)."""
    return pa.record_batch([pa.array([file]), pa.array([keys], pa.int64())], names=["file", "keys"])
