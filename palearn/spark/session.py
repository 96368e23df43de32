"""The Spark session, with what the job needs set unless the user set it."""

import os
import sys

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from palearn.config import Config
from palearn.errors import StreamError
from palearn.spark.connectors import kafka_setting, require_connector
from palearn.spark.release import NUMBER, require_java, require_release, require_same, warn_if_untested
from palearn.spark.stopping import shielded
from palearn.tables.folder import Folder

_ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_DEFAULTS = {
    "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # Disk holds this many batches of touched buckets; Spark's own 100 is for small states.
    "spark.sql.streaming.minBatchesToRetain": "10",
    # A bucket's rows should reach Python in one piece: its state travels again with each further piece.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50000",
    "spark.sql.session.timeZone": "UTC",
    # Else the line of each batch stands behind bars of progress, in a log file too.
    "spark.ui.showConsoleProgress": "false",
    # Plans show a source's and a sink's options. Spark's own pattern, and what else lets one into Kafka.
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[.]?key|jaas|keystore[.]key",
    # One thread a task: Spark's tasks are the parallelism.
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.OPENBLAS_NUM_THREADS": "1",
    "spark.executorEnv.NUMBA_NUM_THREADS": "1",
    # Buckets travel as arrays of a megabyte and more, which G1, made for short pauses, handles worst.
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
    "spark.executor.extraJavaOptions": "-XX:+UseParallelGC",
}
#: For a checkpoint on a local disk. Spark's own choice starts ten processes a file there (``chmod``, ``readlink``):
#: 40 a batch, a tenth of a second each file. On shared file systems Spark's own choice is the right one.
_LOCAL_CHECKPOINT = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"org.apache.spark.sql.execution.streaming.{'checkpointing.' if NUMBER >= (4, 1) else ''}"
        "FileSystemBasedCheckpointFileManager"
    ),
}


def session(config: Config, *, name: str, master: str | None = None) -> SparkSession:
    """Return the session of the job.

    Parameters
    ----------
    config
        ``state.partitions`` sets the shuffle partitions; by default there are as many as cores.
    name
        Shown in Spark's interface.
    master
        Spark master such as ``local[2]``; None: what spark-submit was given, else ``local[*]``.

    Raises
    ------
    StreamError
        The Kafka connector is not on Spark's classpath, or one of its jars is damaged.
    """
    spark = _start(name, master, local=Folder(config.checkpoint).is_local, connector=True)
    if not SparkConf().contains("spark.sql.shuffle.partitions"):
        partitions = config.state.partitions or spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    if config.source.kafka is not None:
        require_connector(spark)
    return spark


def reader(*, name: str, master: str | None = None) -> SparkSession:
    """Return a session that reads what a job left; it needs no Kafka."""
    return _start(name, master, local=False, connector=False)


def _start(name: str, master: str | None, *, local: bool, connector: bool) -> SparkSession:
    require_release()
    warn_if_untested()
    inside_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if inside_submit:
        SparkContext._ensure_initialized()  # attached to spark-submit's JVM, SparkConf knows what it was given
    given = SparkConf()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    elif not given.contains("spark.master"):
        builder = builder.master("local[*]")
    if connector and not inside_submit and not given.contains("spark.jars.packages"):
        builder = builder.config(*kafka_setting(given))
    # Workers must run the interpreter that has palearn, not whichever python3 comes first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in (_DEFAULTS | (_LOCAL_CHECKPOINT if local else {})).items():
        if not given.contains(key):
            builder = builder.config(key, value)
    try:
        with shielded():
            spark = builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise StreamError(_why_not()) from None
    require_same(spark.version)
    return spark


def _why_not() -> str:
    """Return why Spark's Java did not start; it looks in JAVA_HOME alone, if that is set."""
    require_java()
    return "Spark did not start, and said why above; is it the --master?"
