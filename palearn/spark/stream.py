"""The streaming job: Kafka in, one model a key, tables out."""

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from palearn.config import Config, ProcessingTime
from palearn.errors import ConfigError, StreamError
from palearn.spark import error_messages, operator, source
from palearn.spark.checkpoint import claimed, require_same_topics
from palearn.spark.release import require_release
from palearn.spark.session import session
from palearn.spark.sink import Sink
from palearn.spark.topics import NoAnswer, Topics, require_broker
from palearn.spark.warm_start import begin_warm
from palearn.tables.folder import Folder

if TYPE_CHECKING:
    from palearn.spark.monitor import Monitor

log = logging.getLogger("palearn.stream")

#: How often the topics are looked at, and how long an answer may take, in seconds.
_LOOK_S = 10


def build(records: DataFrame, config: Config, write: Callable[[DataFrame, int], None]) -> DataStreamWriter:
    """Return the unstarted query over ``records`` (the columns of :mod:`palearn.spark.source`)."""
    writer = (
        operator.train(records, config)
        .writeStream.outputMode("append")
        .option("checkpointLocation", Folder(config.checkpoint).uri)
        .foreachBatch(write)
    )
    if isinstance(config.trigger, ProcessingTime):
        return writer.trigger(processingTime=config.trigger.interval)
    return writer.trigger(availableNow=True)


def run(
    config: Config, *, warm_start: str | None = None, master: str | None = None, spark: SparkSession | None = None
) -> None:
    """Run the job until its trigger ends it (``available_now``) or it is stopped.

    Parameters
    ----------
    warm_start
        A models table (:mod:`palearn.spark.warm_start`): a new checkpoint begins with these models.

    Raises
    ------
    ConfigError
        Checkpoint and output do not belong to this configuration or to each other, or another job runs on them.
    StreamError
        The query failed; nothing that was committed is lost, and a restart goes on where it stopped.
    """
    try:
        _run(config, warm_start, master, spark)
    except Py4JJavaError as error:
        raise _stopped(str(error.java_exception), config) from error
    except (OSError, PySparkException) as error:
        raise _stopped(str(error), config) from error


def _stopped(text: str, config: Config) -> StreamError:
    return StreamError(f"the stream stopped: {error_messages.reason(text, config)}")


def _run(config: Config, warm_start: str | None, master: str | None, spark: SparkSession | None) -> None:
    kafka = config.source.kafka
    if kafka is None:
        raise ConfigError("a stream learns from source.kafka; files are learned by palearn replay")
    require_release()
    with claimed(config), _monitored(config) as monitor:
        require_broker(kafka)  # before Spark starts: that takes ten seconds and prints forty lines
        spark = spark or session(config, name="palearn stream", master=master)
        with Topics(spark, kafka) as topics:
            checkpoint = Folder(config.checkpoint)
            require_same_topics(checkpoint, topics.ids())
            topics.make(config.output.topics.values())
            begin_warm(spark, config, warm_start)
            try:
                _learn(spark, config, checkpoint, topics, monitor)
            except StreamingQueryException:
                with suppress(NoAnswer):  # Spark does not know why offsets are out of range
                    require_same_topics(checkpoint, topics.ids(_LOOK_S * 1000))
                raise


def _monitored(config: Config) -> "AbstractContextManager[Monitor | None]":
    """Return what tells others of the stream while it is entered; the package for it is an extra."""
    prometheus = config.monitoring.prometheus
    if prometheus is None:
        return nullcontext()
    try:
        from palearn.spark.monitor import serving
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"monitoring.prometheus needs prometheus_client: pip install 'palearn[prometheus]' ({error})"
        ) from None
    return serving(config, prometheus)


def _learn(spark: SparkSession, config: Config, checkpoint: Folder, topics: Topics, monitor: "Monitor | None") -> None:
    assert config.source.kafka is not None
    patience = source.patience_ms(config.source.kafka)
    # Only after a batch was read is it certain that nothing in it is another topic's.
    sink = Sink(config, checkpoint, lambda: require_same_topics(checkpoint, topics.ids(patience)), monitor)
    log.info("learning %s from %s", ", ".join(x.name for x in sink.learners), ", ".join(config.source.kafka.topics))
    query = build(source.stream(spark, config), config, sink.write).start()
    try:
        _watch(query, checkpoint, topics, patience, monitor)
    except KeyboardInterrupt:
        log.info("stopping; a batch that was not committed is done again at the next start")
    finally:
        if query.isActive:  # Spark warns of a query without a job
            query.stop()
    sink.finish(spark)


def _watch(
    query: StreamingQuery, checkpoint: Folder, topics: Topics, patience_ms: int, monitor: "Monitor | None"
) -> None:
    """Wait for the end of a query. Say meanwhile what Spark waits for without a word.

    Raises
    ------
    StreamError
        A topic is gone.
    """
    gone = False
    while not query.awaitTermination(_LOOK_S):
        if monitor is not None:
            monitor.look(query)
        try:
            require_same_topics(checkpoint, topics.ids(_LOOK_S * 1000))
        except NoAnswer as error:
            if not gone:
                log.warning("%s; waiting for it, %d s at least", error, patience_ms // 1000)
            gone = True
        else:
            if gone:
                log.warning("Kafka answers again")
            gone = False
