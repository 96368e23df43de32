"""Replay: the same buckets, engine and tables over history, as one batch job."""

from pyspark.sql import DataFrame, SparkSession

from palearn.config import Config
from palearn.errors import ConfigError
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
    if paths is None and config.source.files is not None:
        files = config.source.files
        paths = [files.path] if isinstance(files.path, str) else list(files.path)
    if paths is not None:
        format = config.source.files.format if config.source.files else None
        records = source.from_files(spark, config, paths, format)
    else:
        if config.source.kafka is not None:
            require_topics(spark, config.source.kafka)
        records = source.topic_range(spark, config, start, end)
    Sink(config).write(stateful.replay(sort(records), config), 0)


def sort(records: DataFrame) -> DataFrame:
    """Bring each bucket's records together, in their order."""
    return records.repartition("bucket").sortWithinPartitions("bucket", "topic", "partition", "offset")
