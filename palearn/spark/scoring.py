"""Scoring a DataFrame with the models of a job, on Spark's workers; nothing is learned.

The models travel to the workers in one piece, as the bytes that a bucket keeps: they have to fit into the driver's
memory and into each worker's. A frame that streams is scored as well, with models that stay as they are.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.types import from_arrow_schema

from palearn.engine import scoring
from palearn.engine.validation import Chunk, Value
from palearn.errors import ConfigError, RecordError
from palearn.models import codec
from palearn.models.keyed import Models
from palearn.records import Record, numbers
from palearn.spark.models_table import newest, table_of
from palearn.spark.worker import freeze_imports
from palearn.tables.folder import Folder

#: What is added to a frame's rows: columns that are those of ``predictions/``, and why a record has no score.
ADDED = pa.schema([*list(scoring.SCHEMA)[1:], ("fault", pa.string())])
#: What a frame says of its records.
_RECORD = ("key", "value", "features", "views", "id", "label")


def score(df: DataFrame, models: str | Path, *, learners: Sequence[str] = (), batch: int | None = None) -> DataFrame:
    """Score the records of a DataFrame with a job's models: the same bits as the stream's predictions.

    Parameters
    ----------
    df
        ``key`` (text or bytes) is the model's key. The record is either ``value``, JSON as on the wire (text or
        bytes; the columns of Spark's Kafka source will do), or in columns: ``features``, a map or struct of names to
        numbers, booleans, texts or lists of texts, or ``views``, one of those for each view; ``label`` and ``id`` if
        there are any.
    models
        Output folder of a job; the newest row of each key and learner in its ``models/`` is taken.
    learners
        These learners alone, if any is named.
    batch
        The models as of this batch.

    Returns
    -------
    DataFrame
        A row a record and learner: all other columns of ``df`` as they are, and :data:`ADDED`. ``label`` and
        ``correct`` are null where there is no label. ``fault`` is null, or why the record has no score: a reason code
        of :data:`palearn.records.REASONS`, ``no_model`` for its key, or ``part``: features or views are missing.

    Raises
    ------
    ConfigError
        The models cannot score, or ``df`` lacks a column, or has one of the names that are added.
    """
    fields = set(df.columns) & set(_RECORD)
    if "key" not in fields or not fields & {"value", "features", "views"}:
        raise ConfigError(
            "a frame to be scored needs the columns key and value (JSON), or key and features (or views); it has "
            f"{', '.join(df.columns)}"
        )
    kept = [name for name in df.columns if name not in _RECORD]
    if clash := [name for name in kept if name in ADDED.names]:
        raise ConfigError(f"the frame has a column {clash[0]!r}, which the predictions have too: rename it")
    blob = codec.encode(_load(df.sparkSession, Folder(str(models)), learners, batch))

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        loaded = _decoded(blob)
        for part in batches:
            if part.num_rows:
                scored = _scored(loaded, part, kept)
                freeze_imports()
                yield scored

    schema = T.StructType([*df.select(*kept).schema.fields, *from_arrow_schema(ADDED).fields])
    return df.mapInArrow(run, schema)


def _load(spark: SparkSession, source: Folder, learners: Sequence[str], batch: int | None) -> Models:
    table = table_of(spark, source, scoring.COLUMNS)
    if batch is not None:
        table = table.where(F.col("batch_id") <= batch)
    rows = newest(table, scoring.COLUMNS).orderBy("key", "learner").toArrow()
    if not rows.num_rows:
        raise ConfigError(f"{source.path} has no models" + ("" if batch is None else f" up to batch {batch}"))
    return scoring.models_from_rows(rows, learners)


@lru_cache(maxsize=2)
def _decoded(blob: bytes) -> Models:
    """Return the models; made once a worker process, not once a task."""
    return codec.decode(blob)


def _scored(models: Models, part: pa.RecordBatch, kept: list[str]) -> pa.RecordBatch:
    """Return the rows of a piece of the frame, each once a learner, with what is said of them."""
    n, learners = part.num_rows, len(models.learners)
    keys = part.column("key").cast(pa.binary()).to_pylist()
    found = scoring.score(models, Chunk(keys, _values(part), [""] * n, np.zeros(n, np.int64), np.arange(n)))
    at = np.full((n, learners), -1)
    at[found.row] = np.arange(found.row.size * learners).reshape(-1, learners)
    said = scoring.rows(models, found).take(pa.array(at.ravel(), mask=at.ravel() < 0))
    faults: list[str | None] = [None] * n
    for row, reason in (
        *((fault.row, fault.error.reason) for fault in found.faults),
        *((row, "no_model") for row, *_ in found.no_model),
        *((row, "part") for row in found.parts),
    ):
        faults[row] = reason
    record = pa.array(np.repeat(np.arange(n), learners))
    columns = {name: part.column(name).take(record) for name in kept}
    columns |= {name: said.column(name) for name in said.schema.names if name != "row"}
    columns["key"] = pa.array([_text(key) for key in keys], pa.string()).take(record)
    columns["learner"] = pa.array([learner.name for learner in models.learners] * n, pa.string())
    columns["fault"] = pa.array(faults, pa.string()).take(record)
    return pa.record_batch(columns)


def _values(part: pa.RecordBatch) -> list[Value]:
    """Return the records: JSON, or made of columns."""
    names = part.schema.names
    if "value" in names:
        return list(part.column("value").cast(pa.binary()).to_pylist())
    cells = part.select([name for name in _RECORD[2:] if name in names]).to_pylist()
    return [_record(**row) for row in cells]


def _record(features: Any = None, views: Any = None, id: Any = None, label: Any = None) -> Value:
    try:
        return Record(
            label=label,
            id=id,
            features=None if features is None else numbers("features", dict(features)),
            views=None
            if views is None
            else {name: numbers(f"view {name!r}", dict(x)) for name, x in dict(views).items() if x is not None},
        )
    except RecordError as fault:
        return fault


def _text(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None
