"""Records from Kafka (stream or range) or files, as raw bytes with their place and their bucket.

Every source gives the same columns: bucket, key, value, topic, partition, offset; files add ``fault``, the
reason that a line could not be read. Nothing is decoded in the JVM: :mod:`palearn.records` alone knows how.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.pandas.functions import pandas_udf

from palearn import files
from palearn.config import Config, KafkaSource, KeyRule
from palearn.errors import ConfigError, RecordError
from palearn.files.options import ReadOptions
from palearn.records import ValueFormat, encode, key_of
from palearn.records.keys import KeyFormat, canonical
from palearn.records.value_format import format_of
from palearn.spark.checkpoint import Ends
from palearn.spark.worker import freeze_imports

COLUMNS = ("bucket", "key", "value", "topic", "partition", "offset")

#: So long at least a running job waits for brokers that do not answer, before it stops: restarts are over by then.
_PATIENCE_MS = "300000"
#: Options that make the source fast and safe; the configuration's ``options`` win.
_KAFKA = {
    "failOnDataLoss": "true",
    "kafka.isolation.level": "read_committed",
    # A task waits for records, and driver and tasks for offsets; Spark's own two minutes and one are less than many
    # a restart takes. The driver asks twice (thrice by default): it waits twice as long.
    "kafkaConsumer.pollTimeoutMs": _PATIENCE_MS,
    "kafka.default.api.timeout.ms": _PATIENCE_MS,
    "fetchOffset.numRetries": "2",
    # At the log's end every batch would wait this long a partition; Kafka's own 500 ms is half a second each.
    "kafka.fetch.max.wait.ms": "20",
    "kafka.max.partition.fetch.bytes": str(8 * 2**20),
    "kafka.max.poll.records": "20000",
}
_FILE_ROW = "key binary, value binary, topic string, partition int, offset long, fault string"


def stream(spark: SparkSession, config: Config) -> DataFrame:
    """Return the unbounded records of the configured topics."""
    kafka = _kafka(config)
    options = {
        "startingOffsets": kafka.starting_offsets,
        "maxOffsetsPerTrigger": str(kafka.max_offsets_per_trigger),
    }
    reader = spark.readStream.format("kafka").options(**_options(kafka), **options)
    return _with_bucket(reader.load(), config)


def topic_range(spark: SparkSession, config: Config, start: str = "earliest", end: str = "latest") -> DataFrame:
    """Return the records between two offsets: ``earliest``, ``latest`` or Spark's JSON of offsets a partition."""
    return _range(spark, config, {"startingOffsets": start, "endingOffsets": end})


def batches(spark: SparkSession, config: Config, ends: Ends) -> DataFrame:
    """Return the records that a checkpoint took, with the number of the batch that took each (column ``batch``).

    Parameters
    ----------
    ends
        Topic and partition -> where it stood before the first batch, and after each.
    """

    def offsets(at: int) -> str:
        topics: dict[str, dict[str, int]] = {}
        for (topic, partition), stops in ends.items():
            topics.setdefault(topic, {})[str(partition)] = stops[at]
        return msgspec.json.encode(topics).decode()

    parts: dict[str, list[int]] = {}
    for topic, partition in ends:
        parts.setdefault(topic, []).append(partition)
    # Not the topics: they may have got partitions since.
    assign = {"assign": msgspec.json.encode(parts).decode(), "subscribe": None, "subscribePattern": None}
    return _with_batch(
        _range(spark, config, {"startingOffsets": offsets(0), "endingOffsets": offsets(-1), **assign}), ends
    )


def _range(spark: SparkSession, config: Config, options: dict[str, Any]) -> DataFrame:
    # Of the stream's options none may say where to begin: Spark heeds a time before an offset.
    given = {name: value for name, value in _options(_kafka(config)).items() if not name.lower().startswith("starting")}
    chosen = {name: value for name, value in (given | options).items() if value is not None}
    reader = spark.read.format("kafka").options(**chosen)
    return _with_bucket(reader.load(), config).withColumn("fault", F.lit(None).cast("string"))


def _with_batch(records: DataFrame, ends: Ends) -> DataFrame:
    """Add the number of the batch that took each record; leave out those that none took."""
    schema = T.StructType([*records.schema.fields, T.StructField("batch", T.IntegerType())])

    def number(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            partition, offset = (np.asarray(batch.column(name)) for name in ("partition", "offset"))
            topic = np.array(batch.column("topic").to_pylist())
            found = np.full(batch.num_rows, -1, np.int32)
            for (name, part), stops in ends.items():
                rows = np.flatnonzero((topic == name) & (partition == part))
                place = np.searchsorted(stops, offset[rows], side="right") - 1
                found[rows] = np.where(place < len(stops) - 1, place, -1)
            yield batch.append_column("batch", pa.array(found)).filter(pa.array(found >= 0))

    return records.mapInArrow(number, schema)


def reading_of(config: Config) -> ReadOptions:
    """Return how a configuration reads files: by ``source.files`` and ``records``.

    Raises
    ------
    ConfigError
        ``records.key`` is ``record``: files have no Kafka key, the configuration says where it is.
    """
    rule, records = config.records.key, config.records
    if not isinstance(rule, KeyRule) or rule.form is not None:
        raise ConfigError("files have no Kafka key: set records.key to {field: NAME} or {constant: TEXT}")
    own = config.source.files
    return ReadOptions(
        key=rule.field,
        key_feature=records.key_feature,
        known=records.columns or None,
        views=bool(records.views),
        **({} if own is None else {name: getattr(own, name) for name in own.__struct_fields__ if name != "path"}),
    )


def from_files(spark: SparkSession, config: Config, paths: list[str], reading: ReadOptions | None = None) -> DataFrame:
    """Return the records of files, read by :mod:`palearn.files`, a task a file; ``reading`` None: :func:`reading_of`.

    A line's place is (file name, 0, line number).

    Raises
    ------
    ConfigError
        ``records.key`` is ``record``.
    """
    options = reading_of(config) if reading is None else reading
    rule = config.records.key
    assert isinstance(rule, KeyRule)
    constant = rule.constant
    places = [(str(Path(path).resolve()),) for path in paths]
    frame = spark.createDataFrame(places, "path string").repartition(len(places), "path")

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.to_pylist():
                yield from _read_file(place["path"], options, constant)

    return _bucketed(frame.mapInArrow(read, _FILE_ROW), config.state.buckets)


def _read_file(path: str, options: ReadOptions, constant: str | None, rows: int = 10_000) -> Iterator[pa.RecordBatch]:
    schema = pa.schema(
        [
            ("key", pa.binary()),
            ("value", pa.binary()),
            ("topic", pa.string()),
            ("partition", pa.int32()),
            ("offset", pa.int64()),
            ("fault", pa.string()),
        ]
    )
    pending: list[dict[str, Any]] = []
    for number, own, value in files.lines(path, options):
        key = constant if options.key is None else own
        row: dict[str, Any] = {"topic": path, "partition": 0, "offset": number}
        row["key"] = None if key is None else key.encode()
        if isinstance(value, RecordError):
            row["fault"] = msgspec.json.encode([value.reason, value.detail]).decode()
        else:
            row["value"] = value if isinstance(value, bytes) else encode(value)
        pending.append(row)
        if len(pending) == rows:
            yield pa.RecordBatch.from_pylist(pending, schema)
            pending = []
    yield pa.RecordBatch.from_pylist(pending, schema)


def _kafka(config: Config) -> KafkaSource:
    if config.source.kafka is None:
        raise ConfigError("source.kafka is not set: name bootstrap_servers and topics")
    return config.source.kafka


def _options(kafka: KafkaSource) -> dict[str, str]:
    clients = {f"kafka.{name}": value for name, value in kafka.client_options.items()}
    topics = {"subscribe": ",".join(kafka.topics)}
    if kafka.topics_pattern is not None:
        topics = {"subscribePattern": kafka.topics_pattern}
    return {**_KAFKA, **clients, **topics, **kafka.spark_options}


def patience_ms(kafka: KafkaSource) -> int:
    """Return how long a running job waits for brokers that do not answer."""
    return int(_options(kafka)["kafka.default.api.timeout.ms"])


def _with_bucket(frame: DataFrame, config: Config) -> DataFrame:
    rule = config.records.key
    if isinstance(rule, KeyRule):
        found = _key_column(rule, config.forms) if rule.form is None else _canonical_key(config.key_format)
        frame = frame.withColumn("key", found)
    if config.records.tombstone == "forget":
        asked = F.when(F.col("value").isNull(), F.unix_millis("timestamp"))
        frame = frame.withColumn("time", F.coalesce(asked, F.lit(0)))
    return _bucketed(frame, config.state.buckets)


def _bucketed(frame: DataFrame, buckets: int) -> DataFrame:
    """Add the bucket of each key; records without one go to a pseudo bucket of their partition.

    There they are rejected and counted, and cannot all end up in one task.
    """
    keyless = F.col("key").isNull() | (F.length("key") == 0)
    bucket = F.when(keyless, -1 - F.col("partition")).otherwise(bucket_of("key", buckets))
    extra = [name for name in ("fault", "time") if name in frame.columns]
    return frame.withColumn("bucket", bucket).select(*COLUMNS, *extra)


def bucket_of(key: str | Column, buckets: int) -> Column:
    """Return the bucket of the keys (binary or text) in a column."""
    return F.pmod(F.xxhash64(key), F.lit(buckets)).cast("int")


def _key_column(rule: KeyRule, forms: Mapping[str, ValueFormat]) -> Column:
    if rule.constant is not None:
        return F.lit(rule.constant.encode())
    field = str(rule.field)

    @pandas_udf("binary")  # type: ignore[call-overload, untyped-decorator]
    def key(values: pd.Series, topics: pd.Series) -> pd.Series:
        found = [key_of(x, field, format_of(topic, forms)) for x, topic in zip(values, topics, strict=True)]
        freeze_imports()
        return pd.Series(found, dtype=object)

    column: Column = key("value", "topic")
    return column


def _canonical_key(written: KeyFormat) -> Column:
    """Return Kafka keys as the model's keys, UTF-8; marked where they do not fit (:mod:`palearn.records.keys`)."""
    raw = F.col("key")
    if written.form == "text":
        return raw
    if written.form in ("long", "int"):  # in Java, without a way to Python and back
        size = 8 if written.form == "long" else 4
        number = F.conv(F.hex(raw), 16, -10).cast("long")
        if size == 4:
            number = number - F.when(number >= 2**31, F.lit(2**32)).otherwise(F.lit(0))
        text = F.encode(number.cast("string"), "UTF-8")
        fits = F.length(raw) == size
        return F.when(fits | (F.length(raw) == 0), F.when(fits, text).otherwise(raw)).otherwise(
            F.concat(F.lit(bytearray(b"\xff")), raw)
        )

    @pandas_udf("binary")  # type: ignore[call-overload, untyped-decorator]
    def key(keys: pd.Series) -> pd.Series:
        return pd.Series([canonical(raw, written) for raw in keys], dtype=object)

    column: Column = key("key")
    return column
