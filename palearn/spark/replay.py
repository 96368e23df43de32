"""Replay: the same buckets, engine and tables over history, as one batch job."""

import logging
from collections.abc import Iterator, Set
from typing import Any

import pyarrow as pa
from msgspec.structs import replace
from pyspark.sql import DataFrame, SparkSession

from palearn import files
from palearn.config import Config, offsets_fault
from palearn.engine.summary import Summary
from palearn.engine.validation import Chunk
from palearn.errors import ConfigError, StreamError, shown
from palearn.files.options import ReadOptions
from palearn.records import KINDS
from palearn.spark import checkpoint, error_messages, operator, source
from palearn.spark.readiness import require_ready_to_replay
from palearn.spark.session import session
from palearn.spark.sink import Sink
from palearn.spark.topics import Topics, make_output_topics, require_broker, require_topics
from palearn.tables import object_stores
from palearn.tables.folder import Folder

_log = logging.getLogger(__name__)


def run(
    config: Config,
    *,
    paths: list[str] | None = None,
    start: str = "earliest",
    end: str = "latest",
    batches_of: str | None = None,
    reading: ReadOptions | None = None,
    master: str | None = None,
    spark: SparkSession | None = None,
) -> tuple[Summary, list[str]]:
    """Learn files, or the configured topics between two offsets, into the output folder as batch 0.

    Returns what happened to the records, and what makes the figures not worth looking at.

    Parameters
    ----------
    config
        ``output.path`` must be empty; the checkpoint is not used.
    paths
        Files, or None for the topics of ``source.kafka``.
    start, end
        ``earliest``, ``latest``, or JSON ``{"topic": {"0": offset}}``.
    reading
        How files are read; None: as ``source.files`` and ``records`` say.
    batches_of
        Checkpoint of a streaming job: learn the records that it took, in its batches. The order in which parts from
        several topics or partitions come together depends on them.

    Raises
    ------
    ConfigError
        The output folder is not empty, ``start`` or ``end`` is no place, or ``batches_of`` does not tell its batches.
    """
    object_stores.use(config.storage.variables())
    output = Folder(config.output.path)
    if output.names():
        raise ConfigError(f"{config.output.path} is not empty; a replay writes a whole history, give it a new folder")
    for name, place in (("start (--from)", start), ("end (--to)", end)):
        if fault := offsets_fault(place):
            raise ConfigError(f"{name}: {fault}")
    chosen = paths is not None or (start, end) != ("earliest", "latest")
    if batches_of is not None and (chosen or config.source.kafka is None):
        raise ConfigError("the batches of a checkpoint are those of source.kafka: no files, and no other offsets")
    with error_messages.in_one_sentence("the replay stopped", config):
        return _run(config, paths, start, end, batches_of, reading, master, spark)


def _run(
    config: Config,
    paths: list[str] | None,
    start: str,
    end: str,
    batches_of: str | None,
    reading: ReadOptions | None,
    master: str | None,
    spark: SparkSession | None,
) -> tuple[Summary, list[str]]:
    ends = None if batches_of is None else _ends(checkpoint.batches_of(batches_of))
    kafka = (paths is None and config.source.files is None) or bool(config.output.topics)
    require_ready_to_replay(config, kafka=kafka, start=start, end=end, ends=ends)
    spark = spark or session(config, name="palearn replay", master=master)
    if ends is not None and batches_of is not None:
        _require_same(spark, config, batches_of, {topic for topic, _ in ends})
    own = _paths(config, paths)
    if own is not None:
        config, reading = _with_columns(config, own, reading or source.reading_of(config))
    records = (
        history(spark, config, paths, start, end, reading) if ends is None else source.batches(spark, config, ends)
    )
    make_output_topics(spark, config)
    sink = Sink(config)
    sink.write(operator.replay(sort(records), config), 0)
    return sink.summary, sink.problems(sink.summary)


def _paths(config: Config, paths: list[str] | None) -> list[str] | None:
    """Return the files to read: those given, else those of ``source.files``; None: topics are read."""
    own = config.source.files
    if paths is not None or own is None:
        return paths
    return [own.path] if isinstance(own.path, str) else list(own.path)


def _with_columns(config: Config, paths: list[str], reading: ReadOptions) -> tuple[Config, ReadOptions]:
    """Decide once what the columns of all files are; it is read so in every task, and told with the models."""
    known = dict(reading.known or {})
    for path in paths:
        kinds, notes = files.look(path, reading.but(known=None))
        known = {name: kind for name, kind in kinds.items() if kind in KINDS} | known
        if kinds:
            notes = [", ".join(f"{name} {known.get(name, kind)}" for name, kind in kinds.items()), *notes]
        for note in notes:
            _log.info("%s: %.4000s", path, shown(note))
    if not known:
        return config, reading
    columns = known | dict(reading.columns)
    records = replace(config.records, columns=columns)
    return replace(config, records=records), reading.but(known=known)


def history(
    spark: SparkSession,
    config: Config,
    paths: list[str] | None,
    start: str = "earliest",
    end: str = "latest",
    reading: ReadOptions | None = None,
) -> DataFrame:
    """Return the records of files (None: of ``source.files``), or of the configured topics between two offsets."""
    paths = _paths(config, paths)
    if paths is not None:
        return source.from_files(spark, config, paths, reading)
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
    if paths is None:
        _require_broker(config)
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

    return operator.chunk_of(frame.mapInArrow(first, frame.schema).toArrow())


def _require_broker(config: Config) -> None:
    """Raise a BrokerError when there should be a broker and none answers; to be asked before Spark starts."""
    if config.source.kafka is not None:
        require_broker(config.source.kafka)


def sort(records: DataFrame) -> DataFrame:
    """Bring each bucket's records together, in their order."""
    order = [name for name in ("bucket", "batch", "topic", "partition", "offset") if name in records.columns]
    return records.repartition("bucket").sortWithinPartitions(*order)


def _require_same(spark: SparkSession, config: Config, path: str, topics: Set[str]) -> None:
    """Raise a StreamError if a checkpoint's topics are no longer those; warn of a configuration that is another one."""
    assert config.source.kafka is not None
    known = checkpoint.known_of(Folder(path))
    with Topics(spark, config.source.kafka) as there:
        ids = there.all_ids()
    for topic in sorted(topics):
        if topic not in ids or ids[topic] != known["topics"].get(topic, ids[topic]):
            state = "is gone" if topic not in ids else "was deleted and made again"
            raise StreamError(f"topic {topic} {state} since {path} took from it: its batches cannot be repeated")
    if differing := [name for name, part in config.fingerprint.items() if known["fingerprint"].get(name) != part]:
        _log.warning(
            "the configuration has other %s than %s began with: the batches are the same, the models will not be",
            " and ".join(differing), path,
        )  # fmt: skip


def _ends(batches: list[list[dict[str, Any]]]) -> checkpoint.Ends:
    """Return where each partition stood before the first batch, and after each."""
    ends: checkpoint.Ends = {}
    for number, rows in enumerate(batches):
        for row in rows:
            stops = ends.setdefault((row["topic"], row["partition"]), [row["start"]] * (number + 1))
            if row["start"] != stops[-1]:
                raise ConfigError(
                    f"batch {number} began again with offset {row['start']} of {row['topic']}, partition "
                    f"{row['partition']}, which earlier batches had taken up to {stops[-1]}: the topic was left out "
                    "and put back. Batches with records that were learned twice cannot be repeated"
                )
            stops.append(row["end"])
        for stops in ends.values():
            stops += stops[-1:] * (number + 2 - len(stops))
    return ends
