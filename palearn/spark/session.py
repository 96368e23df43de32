"""The Spark session, with what the job needs set unless the user set it."""

import logging
import os
import sys
from collections.abc import Mapping

from py4j.protocol import Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from palearn.config import Config
from palearn.errors import StreamError
from palearn.spark import connectors
from palearn.spark.release import NUMBER, require_java, require_release, require_same, warn_if_untested
from palearn.spark.stopping import shielded
from palearn.tables import object_stores
from palearn.tables.folder import Folder
from palearn.tables.object_stores import is_store

log = logging.getLogger("palearn.spark")

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
    "spark.redaction.regex": "(?i)secret|password|passphrase|token|access[._]?key|jaas|keystore[.]key",
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
_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass"
_LOCAL_CHECKPOINT = {
    _MANAGER_KEY: (
        f"org.apache.spark.sql.execution.streaming.{'checkpointing.' if NUMBER >= (4, 1) else ''}"
        "FileSystemBasedCheckpointFileManager"
    ),
}


def session(config: Config, *, name: str, master: str | None = None, reads: str | None = None) -> SparkSession:
    """Return the session of the job.

    Parameters
    ----------
    config
        ``state.partitions`` sets the shuffle partitions; by default there are as many as cores.
    name
        Shown in Spark's interface.
    master
        Spark master such as ``local[2]``; None: what spark-submit was given, else ``local[*]``.
    reads
        Another folder that Spark will read: the models to begin with.

    Raises
    ------
    StreamError
        A connector is not on Spark's classpath, or one of its jars is damaged; a store refuses.
    """
    checkpoint = Folder(config.checkpoint)
    stores = [path for path in (checkpoint.path, reads) if path is not None and is_store(path)]
    given = config.storage.variables()
    spark = _start(name, master, local=checkpoint.is_local, kafka=True, stores=bool(stores), given=given)
    if not SparkConf().contains("spark.sql.shuffle.partitions"):
        partitions = config.state.partitions or spark.sparkContext.defaultParallelism
        spark.conf.set("spark.sql.shuffle.partitions", str(partitions))
    if config.source.kafka is not None:
        connectors.require_connector(spark)
    if stores:
        connectors.require_s3a(spark)
    if checkpoint.is_store:
        _manage(spark, checkpoint)
    return spark


def reader(*, name: str, master: str | None = None, path: str = "") -> SparkSession:
    """Return a session that reads what a job left in a folder; it needs no Kafka."""
    stores = is_store(path)
    spark = _start(name, master, local=False, kafka=False, stores=stores, given={})
    if stores:
        connectors.require_s3a(spark)
    return spark


def _manage(spark: SparkSession, checkpoint: Folder) -> None:
    """Choose how Spark writes a checkpoint in a store.

    Raises
    ------
    StreamError
        The store does not know conditional writes: two jobs could go on with one checkpoint.
    """
    if spark.conf.get(_MANAGER_KEY, None) is not None:
        return
    if not connectors.has_manager(spark):
        log.warning(
            "the checkpoint is written by Spark's own manager, which renames by copying: right, but slower; give "
            "spark-submit --jars %s", connectors.MANAGER_JAR,
        )  # fmt: skip
        return
    with object_stores.told(checkpoint.path):
        try:
            conditional = _is_conditional(spark, checkpoint)
        except Py4JJavaError as error:
            raise OSError(str(error.java_exception)) from None
    if not conditional:
        raise StreamError(
            f"the store of {checkpoint.path} ignores conditions of writes (If-None-Match), by which it would keep a "
            "second job off the checkpoint: choose another store, or a mounted folder"
        )
    spark.conf.set(_MANAGER_KEY, connectors.MANAGER)


def _is_conditional(spark: SparkSession, checkpoint: Folder) -> bool:
    """Whether the store refuses to write a new file where one is."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    manager = jvm.palearn.ObjectStoreCheckpointFileManager
    place = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.uri}/palearn.probe")
    jsc = spark.sparkContext._jsc
    assert jsc is not None
    files = manager(place.getParent(), jsc.hadoopConfiguration())
    files.delete(place)
    files.createAtomic(place, False).close()
    try:
        files.createAtomic(place, False).close()
    except Py4JJavaError as error:
        if error.java_exception.getClass().getSimpleName() != "FileAlreadyExistsException":
            raise
        return True
    finally:
        files.delete(place)
    return False


def _start(
    name: str, master: str | None, *, local: bool, kafka: bool, stores: bool, given: Mapping[str, str]
) -> SparkSession:
    """Start Spark; ``given`` are variables that workers need to reach a store."""
    require_release()
    warn_if_untested()
    inside_submit = "PYSPARK_GATEWAY_PORT" in os.environ
    if inside_submit:
        SparkContext._ensure_initialized()  # attached to spark-submit's JVM, SparkConf knows what it was given
    conf = SparkConf()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    elif not conf.contains("spark.master"):
        builder = builder.master("local[*]")
    settings = _DEFAULTS | (_LOCAL_CHECKPOINT if local else {})
    settings |= {f"spark.executorEnv.{variable}": value for variable, value in given.items()}
    if stores:
        settings |= object_stores.hadoop_options()
    if not inside_submit and not conf.contains("spark.jars.packages"):
        settings |= connectors.settings(conf, kafka=kafka, s3a=stores)
    # Workers must run the interpreter that has palearn, not whichever python3 comes first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in settings.items():
        if not conf.contains(key):
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
