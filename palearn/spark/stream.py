"""The streaming job: Kafka in, one model a key, tables out."""

import logging
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from palearn.config import Config, ProcessingTime
from palearn.errors import ConfigError
from palearn.spark import error_messages, operator, source
from palearn.spark.checkpoint import claimed, last_commit, note_topics_left, require_same_topics
from palearn.spark.readiness import require_ready
from palearn.spark.session import session
from palearn.spark.sink import Sink
from palearn.spark.stopping import STOP, Batches
from palearn.spark.topics import NoAnswer, Topics
from palearn.spark.warm_start import begin_warm
from palearn.tables import object_stores
from palearn.tables.folder import Folder

if TYPE_CHECKING:
    from palearn.spark.monitor import Monitor

log = logging.getLogger("palearn.stream")

#: How often the topics are looked at, and how long an answer may take, in seconds.
_LOOK_S = 10
#: How often it is asked whether the query has ended, or a signal has come; and how long a batch may take to end then.
_POLL_S, _GRACE_S = 1, 10


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
    STOP.begin()
    with error_messages.in_one_sentence("the stream stopped", config, job=True):
        _run(config, warm_start, master, spark)


def _run(config: Config, warm_start: str | None, master: str | None, spark: SparkSession | None) -> None:
    kafka = config.source.kafka
    if kafka is None:
        raise ConfigError("a stream learns from source.kafka; files are learned by palearn replay")
    object_stores.use(config.storage.variables())
    monitored = _monitored(config)
    require_ready(config)  # before Spark starts: that takes ten seconds and prints forty lines
    with claimed(config), monitored as monitor:
        spark = spark or session(config, name="palearn stream", master=master, reads=warm_start)
        with Topics(spark, kafka) as topics:
            checkpoint = Folder(config.checkpoint)
            require_same_topics(checkpoint, topics.ids())
            note_topics_left(checkpoint, kafka.takes)
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
    log.info(
        "learning %s from %s",
        ", ".join(x.name for x in sink.learners),
        config.source.kafka.described,
        extra={"event": "started"},
    )
    STOP.hold()
    batches = Batches(sink.write)
    query = build(source.stream(spark, config), config, batches).start()
    try:
        _watch(query, checkpoint, topics, patience, monitor)
        if STOP.asked and query.isActive:
            _let_end(query, checkpoint, batches)
    except KeyboardInterrupt:
        STOP.asked = True
    except StreamingQueryException:
        if not STOP.asked:  # what a signal to all processes has broken is done again at the next start
            raise
    _stop(spark, query, batches)
    sink.finish(spark)
    if STOP.asked:
        last = last_commit(checkpoint)
        done = "before the first batch was committed" if last is None else f"after batch {last}"
        log.info("stopped %s; what was not committed is done again at the next start", done, extra={"event": "stopped"})


def _let_end(query: StreamingQuery, checkpoint: Folder, batches: Batches) -> None:
    """Wait for the end of the batch that runs, but not for long."""
    log.info("stopping: the batch that runs may take %d s more", _GRACE_S, extra={"event": "stopping"})
    before, until = last_commit(checkpoint), time.monotonic() + _GRACE_S
    while query.status["isTriggerActive"] and last_commit(checkpoint) == before and time.monotonic() < until:
        if batches.held.is_set() or query.awaitTermination(_POLL_S):
            return


def _stop(spark: SparkSession, query: StreamingQuery, batches: Batches) -> None:
    """Stop a query; of a batch that is left Spark would write a thousand lines."""
    if not query.isActive:  # Spark warns of a query without a job
        return
    context = spark.sparkContext
    level = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger().getLevel().toString()  # type: ignore[union-attr]
    context.setLogLevel("OFF")
    try:
        batches.over.set()
        query.stop()
    finally:
        context.setLogLevel(level)


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
    while not _ended(query, _LOOK_S):
        if STOP.asked:
            return
        if monitor is not None:
            monitor.look(query)
        try:
            require_same_topics(checkpoint, topics.ids(_LOOK_S * 1000))
        except NoAnswer as error:
            if not gone:
                log.warning("%s; waiting for it, %d s at least", error, patience_ms // 1000, extra={"event": "waiting"})
            gone = True
        else:
            if gone:
                log.warning("Kafka answers again", extra={"event": "answered"})
            gone = False


def _ended(query: StreamingQuery, seconds: float) -> bool:
    """Wait for the end of a query, but no longer, and not when a signal has asked to stop; say whether it is there."""
    until = time.monotonic() + seconds
    while time.monotonic() < until and not STOP.asked:
        if query.awaitTermination(_POLL_S):
            return True
    return False
