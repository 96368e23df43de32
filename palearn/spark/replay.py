"""Replay: the same buckets, engine and tables over history, as one batch job."""

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from palearn.config import Config
from palearn.errors import ConfigError
from palearn.intake import Chunk
from palearn.spark import source, stateful
from palearn.spark.session import require_topics, session
from palearn.spark.sinks import Sink
from palearn.spark.store import Folder


def run(
    config: Config,
    *,
    paths: list[str] | None = None,
    start: str = "earliest",
    end: str = "latest",
    master: str | None = None,
    spark: SparkSession | None = None,
) -> None:
    """Learn files, or the configured topics between two offsets, into the output folder as batch 0.

    Parameters
    ----------
    config
        ``output.path`` must be empty; the checkpoint is not used.
    paths
        Files, or None for the topics of ``source.kafka``.
    start, end
        ``earliest``, ``latest``, or JSON ``{"topic": {"0": offset}}``.

    Raises
    ------
    ConfigError
        The output folder is not empty.
    """
    output = Folder(config.output.path)
    if output.names():
        raise ConfigError(f"{config.output.path} is not empty; a replay writes a whole history, give it a new folder")
    spark = spark or session(config, name="palearn replay", master=master)
    records = history(spark, config, paths, start, end)
    Sink(config).write(stateful.replay(sort(records), config), 0)


def history(
    spark: SparkSession, config: Config, paths: list[str] | None, start: str = "earliest", end: str = "latest"
) -> DataFrame:
    """Return the records of files (None: of ``source.files``), or of the configured topics between two offsets."""
    files = config.source.files
    if paths is None and files is not None:
        paths = [files.path] if isinstance(files.path, str) else list(files.path)
    if paths is not None:
        return source.from_files(spark, config, paths, files.format if files else None)
    if config.source.kafka is not None:
        require_topics(spark, config.source.kafka)
    return source.topic_range(spark, config, start, end)


def sample(
    config: Config,
    records: int,
    *,
    paths: list[str] | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
) -> Chunk:
    """Return about so many records of files or topics: the first ones of each file or partition, in equal parts."""
    spark = spark or session(config, name="palearn sample", master=master)
    frame = history(spark, config, paths)
    most = max(1, records // frame.rdd.getNumPartitions())

    def first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = most
        for batch in batches:
            yield batch.slice(0, left)
            left -= batch.num_rows
            if left <= 0:
                return

    return stateful.chunk_of(frame.mapInArrow(first, frame.schema).toArrow())


def sort(records: DataFrame) -> DataFrame:
    """Bring each bucket's records together, in their order."""
    return records.repartition("bucket").sortWithinPartitions("bucket", "topic", "partition", "offset")
