"""The streaming job: Kafka in, one model a key, tables out."""

import logging

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter

from palearn.config import Config, ProcessingTime
from palearn.errors import StreamError
from palearn.spark import source, stateful
from palearn.spark.session import require_topics, session
from palearn.spark.sinks import Sink
from palearn.spark.store import Folder, claim

log = logging.getLogger("palearn.stream")


def build(records: DataFrame, config: Config, sink: Sink) -> DataStreamWriter:
    """Return the unstarted query over ``records`` (the columns of :mod:`palearn.spark.source`)."""
    writer = (
        stateful.train(records, config)
        .writeStream.outputMode("append")
        .option("checkpointLocation", Folder(config.checkpoint).uri)
        .foreachBatch(sink.write)
    )
    if isinstance(config.trigger, ProcessingTime):
        return writer.trigger(processingTime=config.trigger.processing_time)
    return writer.trigger(availableNow=True)


def run(config: Config, *, master: str | None = None, spark: SparkSession | None = None) -> None:
    """Run the job until its trigger ends it (``available_now``) or it is stopped.

    Raises
    ------
    ConfigError
        Checkpoint and output do not belong to this configuration or to each other.
    StreamError
        The query failed; nothing that was committed is lost, and a restart goes on where it stopped.
    """
    claim(config)
    spark = spark or session(config, name="palearn stream", master=master)
    sink = Sink(config, Folder(config.checkpoint))
    kafka = config.source.kafka
    if kafka is not None:
        require_topics(spark, kafka)
        log.info("learning %s from %s", ", ".join(x.name for x in sink.learners), ", ".join(kafka.topics))
    query = build(source.stream(spark, config), config, sink).start()
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        raise StreamError(f"the stream stopped: {_cause(error)}") from error
    except KeyboardInterrupt:
        log.info("stopping; a batch that was not committed is done again at the next start")
        query.stop()
    sink.finish(spark)


def _cause(error: StreamingQueryException) -> str:
    """Return the sentence of palearn's own error if there is one in the chain, else the first line of Spark's."""
    text = str(error)
    for line in text.splitlines():
        if "palearn.errors." in line:
            return line.partition("palearn.errors.")[2]
    return text.splitlines()[0][:500]
