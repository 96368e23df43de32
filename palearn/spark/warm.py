"""Jobs that begin with what others learned, and the state of a stopped job as a models table.

A new checkpoint may begin with models (``palearn stream --warm-start``): those of a models table, or, to the last bit
and with what waits, those of the checkpoint of a stopped job. They are put into the new checkpoint, a file a bucket,
and are a bucket's state until Spark has one of it; the models table has them as batch -1::

    CHECKPOINT/palearn.json     warm_start: whose models they are; written first
    CHECKPOINT/start/B.paln     models of bucket B
    CHECKPOINT/start/done.json  how many files there are; written last
    OUT/models/batch_id=-1/     the same models as rows
"""

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
import numpy as np
import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from palearn import codec, results, warm
from palearn.config import Config
from palearn.errors import ConfigError, StreamError
from palearn.metrics import CHANGED, N_SEEN, UPDATED_BATCH
from palearn.models import Models
from palearn.spark import failures
from palearn.spark.checkpoint import KNOWN, has_begun, has_start, known_of, last_commit, locked, start_of, taken
from palearn.spark.folder import Folder, TableFile
from palearn.spark.session import reader
from palearn.spark.source import bucket_of
from palearn.spark.stateful import pieces, plan_in, plan_of, state_of, told
from palearn.spark.store import place
from palearn.spark.text import from_text
from palearn.types import IntArray
from palearn.warm import BEFORE

log = logging.getLogger("palearn.stream")

_STAGED = ("_staging", "models")
_PART = "bucket int, part binary"
#: A row a file that was written, and the keys whose models it has; of the models table's files null.
_WRITTEN = "file string, keys long"


def begin(spark: SparkSession, config: Config, models: str | None) -> None:
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
    whole = _has_whole_start(checkpoint)
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
    with _told(), _parts(spark, config, Folder(wanted)) as parts:
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
    path, output = checkpoint.path, Folder(config.output.path)
    rows_in = output.path if config.output.models else None
    checkpoint.discard("start")
    output.discard("models", f"batch_id={BEFORE}")
    output.discard("_staging")

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        folder, rows = Folder(path), _Rows(rows_in)
        for bucket, blobs in _by_bucket(batches):
            models = Models.merged([codec.decode(blob) for blob in blobs])
            models.counts[:, CHANGED], models.counts[_scored(models), UPDATED_BATCH] = 0, BEFORE
            folder.write_bytes(codec.encode(models), "start", f"{bucket}.paln")
            rows.add(models)
            yield _written(f"{bucket}.paln", len(models.keys))
        yield from rows.close()

    # By their bytes: what stands first in a bucket must not depend on which task came first.
    sorted_ = parts.repartition("bucket").sortWithinPartitions("bucket", "part")
    files = {row["file"]: row["keys"] for row in sorted_.mapInArrow(write, _WRITTEN).collect()}
    started = {file: keys for file, keys in files.items() if file.endswith(".paln")}
    _require_there(checkpoint, ("start",), started)
    _publish(output, BEFORE, files.keys() - started.keys())
    checkpoint.write({"files": len(started)}, "start", "done.json")
    return sum(started.values())


def _has_whole_start(checkpoint: Folder) -> bool:
    """Whether all models that the job of a checkpoint began with are there; what was not all written is none."""
    done = checkpoint.read("start", "done.json")
    return done is not None and len(_started(checkpoint)) == done["files"]


def _started(checkpoint: Folder) -> list[int]:
    """Return the buckets that begin with models."""
    return [int(name.removesuffix(".paln")) for name in checkpoint.names("start") if name.endswith(".paln")]


@contextmanager
def _parts(spark: SparkSession, config: Config, source: Folder) -> Iterator[DataFrame]:
    """Give the models in parts of one bucket each."""
    if not source.has(KNOWN):
        yield _of_table(spark, config, source)
        return
    with locked(source):
        _require_same(config, source)
        _require_new_records(config, source)
        yield _of_state(spark, config, source)


def _of_state(spark: SparkSession, config: Config, source: Folder) -> DataFrame:
    """Return the models of a stopped job, in parts of one bucket each."""
    buckets = config.state.buckets
    kinds = {"blob": pa.binary(), "keys": pa.list_(pa.string())}

    def keys(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number, blob in _blobs(batches):
            with told(number):
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
            f"{source.path} has other {' and '.join(differing)} than the configuration; restore them, or begin with "
            f"its models alone: palearn state export {source.path} OUT, then --warm-start OUT"
        )


def _require_new_records(config: Config, source: Folder) -> None:
    """Raise a ConfigError if the job would learn again what a job's models have learned."""
    kafka, seen = config.source.kafka, learned_up_to(source)
    again = [] if kafka is None else sorted(seen.keys() & set(kafka.topics))
    if kafka is not None and kafka.starting_offsets == "earliest" and again:
        raise ConfigError(
            f"{source.path} has learned from {', '.join(again)}: to go on where it stopped, set "
            f"source.kafka.starting_offsets to '{msgspec.json.encode(seen).decode()}' (earliest would learn all anew)"
        )


def learned_up_to(checkpoint: Folder) -> dict[str, dict[str, int]]:
    """Return where a stopped job would go on: topic -> partition -> offset, as ``starting_offsets`` takes it."""
    last = last_commit(checkpoint)
    found: dict[str, dict[str, int]] = {}
    for row in [] if last is None else taken(checkpoint, last):
        found.setdefault(row["topic"], {})[str(row["partition"])] = row["end"]
    return found


def table_of(spark: SparkSession, source: Folder, columns: Sequence[str]) -> DataFrame:
    """Return all rows of the models table of an output folder (or of its ``models/``).

    Raises
    ------
    ConfigError
        There is none, or it lacks one of the columns.
    """
    if source.has("models"):
        source = Folder(f"{source.path}/models")
    if not any(name.startswith("batch_id=") for name in source.names()):
        raise ConfigError(f"{source.path} is no models table: give an output folder, its models/, or a checkpoint")
    table = spark.read.parquet(source.pattern)
    missing = [name for name in columns if name not in table.columns]
    if missing:
        raise ConfigError(f"{source.path} is no models table: it has no column {' and no '.join(missing)}")
    return table


def newest(table: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return columns of the newest row of each key and learner of a models table."""
    rows = table.groupBy("key", "learner").agg(F.max_by(F.struct(*columns), "batch_id").alias("row"))
    return rows.select("row.*")


def _of_table(spark: SparkSession, config: Config, source: Folder) -> DataFrame:
    """Return the models of a models table, the newest row of each key and learner; one part a bucket."""
    table = table_of(spark, source, (*warm.COLUMNS, "format_version"))
    about = table.agg(F.collect_set("learner").alias("names"), F.max("format_version").alias("version")).collect()[0]
    if about["version"] > codec.VERSION:
        raise ConfigError(f"{source.path} was written by a newer palearn (format {about['version']}): upgrade palearn")
    names = sorted(about["names"])
    known = [learner for learner in config.make_learners() if learner.name in names]
    if not known:
        raise ConfigError(f"{source.path} has no learner of the configuration; it has {', '.join(names)}")
    warm.require_readable(known)
    table = table.where(F.col("key").isNotNull() & F.col("learner").isin([learner.name for learner in known]))
    rows = newest(table, warm.COLUMNS).withColumn("bucket", bucket_of("key", config.state.buckets))
    described = plan_in(config)

    def build(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        plan = plan_of(described)
        for bucket, parts in _runs(batches):
            yield _part(bucket, warm.from_table(pa.Table.from_batches(parts), plan.settings, plan.learners))

    return rows.repartition("bucket").sortWithinPartitions("bucket").mapInArrow(build, _PART)


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
    spark = spark or reader(name="palearn state export", master=master)
    path = target.path

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = _Rows(path)
        for number, blob in _blobs(batches):
            with told(number):
                models = codec.decode(blob)
            yield _written(f"{number}.paln", rows.add(models))
        yield from rows.close()

    with locked(source), _told():
        batch = last_commit(source)
        files = whole_state(spark, source).mapInArrow(write, _WRITTEN).collect()
    _publish(target, BEFORE if batch is None else batch, {row["file"] for row in files if row["keys"] is None})
    return sum(row["keys"] or 0 for row in files)


def whole_state(spark: SparkSession, checkpoint: Folder) -> DataFrame:
    """Return bucket, blob (a text) or start (bytes) of every bucket: of Spark's state, else what it begins with."""
    state = state_of(spark, checkpoint) if last_commit(checkpoint) is not None else None
    if not has_start(checkpoint):
        if state is None:
            raise ConfigError(f"{checkpoint.path} has no state yet: no batch is committed")
        return state.selectExpr("bucket", "blob", "cast(null as binary) as start")
    if not _has_whole_start(checkpoint):
        raise ConfigError(f"the models with which {checkpoint.path} began are not whole in it: restore an older copy")
    path = checkpoint.path
    kinds = {"bucket": pa.int32(), "blob": pa.string(), "start": pa.binary()}

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("bucket").to_pylist():
                row = {"bucket": number, "start": start_of(Folder(path), number)}
                yield pa.RecordBatch.from_pylist([row], pa.schema(kinds))

    begun = spark.createDataFrame([(number,) for number in _started(checkpoint)], "bucket int")
    if state is not None:
        begun = begun.join(state, "bucket", "left_anti")
    begun = begun.mapInArrow(read, "bucket int, blob string, start binary")
    if state is None:
        return begun
    return state.selectExpr("bucket", "blob", "cast(null as binary) as start").unionByName(begun)


class _Rows:
    """The rows of the models table that a task writes, in one file; ``path`` None: none."""

    def __init__(self, path: str | None) -> None:
        context = TaskContext.get()
        assert context is not None
        self._path, self._name = path, f"part-{context.partitionId():05d}.parquet"
        self._file: TableFile | None = None

    def add(self, models: Models) -> int:
        """Write the rows of all keys of a bucket that were ever scored; return how many keys they are."""
        keys = _scored(models)
        if self._path is None or not keys.size:
            return 0
        rows = pa.Table.from_batches(results.model_rows(models, keys, results.Texts(models, keys)))
        rows = results.plain(rows, "models")
        if self._file is None:
            self._file = Folder(self._path).table_file(rows.schema, *_STAGED, self._name)
        self._file.add(rows)
        return int(keys.size)

    def close(self) -> Iterator[pa.RecordBatch]:
        """Put the file in its place, and yield what tells of it."""
        if self._file is not None:
            self._file.close()
            yield _written(self._name, None)


def _scored(models: Models) -> IntArray:
    """Return the keys that have models; the others have nothing but parts that wait."""
    counts = models.counts
    return np.flatnonzero((counts[:, N_SEEN] > 0) | (counts[:, UPDATED_BATCH] == BEFORE))


def _publish(folder: Folder, batch: int, files: Iterable[str]) -> None:
    """Move staged rows of the models table to where readers see them, all at once."""
    if files:
        _require_there(folder, _STAGED, files)
        place(folder, _STAGED, "models", batch)
    folder.discard("_staging")


def _require_there(folder: Folder, parts: tuple[str, ...], files: Iterable[str]) -> None:
    """Raise a StreamError if files that tasks wrote are not there."""
    missing = sorted({*files} - {*folder.names(*parts)})
    if missing:
        raise StreamError(
            f"{missing[0]} was written, but is not in {folder.at(*parts)} as the driver sees it: the folder must be on "
            "a file system that all machines share"
        )


@contextmanager
def _told() -> Iterator[None]:
    """Say in one sentence what went wrong in Spark."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        raise StreamError(failures.own(text) or f"Spark cannot do it: {text.splitlines()[0]:.500}") from error


def _written(file: str, keys: int | None) -> pa.RecordBatch:
    return pa.record_batch([pa.array([file]), pa.array([keys], pa.int64())], names=["file", "keys"])


def _part(bucket: int, models: Models) -> pa.RecordBatch:
    part = codec.encode(models)
    return pa.record_batch([pa.array([bucket], pa.int32()), pa.array([part])], names=["bucket", "part"])


def _blobs(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    """Yield number and bytes of the buckets of :func:`whole_state`."""
    for batch in batches:
        for number, text, start in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            with told(number):
                blob = start if text is None else from_text(text)
            yield number, blob


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
