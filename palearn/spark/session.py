"""The Spark session, with what the job needs set unless the user set it."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

from pyspark import SparkConf, SparkContext
from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from palearn.config import Config
from palearn.errors import StreamError
from palearn.kafka.jars import differing, read_checksums
from palearn.tables.folder import Folder

#: The Kafka connector, for ``spark-submit --packages``.
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0"
_CHECKSUMS = Path(__file__).with_name("connector.sha256")
#: Where Spark's resolver puts what it fetches, unless ``spark.jars.ivy`` says another place.
_FETCHED = Path(os.path.expanduser("~/.ivy2.5.2/jars"))  # as it is where there is no home: then nothing is there

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
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
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
    _require_connector(spark, config)
    return spark


def reader(*, name: str, master: str | None = None) -> SparkSession:
    """Return a session that reads what a job left; it needs no Kafka."""
    return _start(name, master, local=False, connector=False)


def _start(name: str, master: str | None, *, local: bool, connector: bool) -> SparkSession:
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
        builder = builder.config(*_with_connector(given))
    # Workers must run the interpreter that has palearn, not whichever python3 comes first.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    for key, value in (_DEFAULTS | (_LOCAL_CHECKPOINT if local else {})).items():
        if not given.contains(key):
            builder = builder.config(key, value)
    try:
        return builder.getOrCreate()
    except PySparkRuntimeError as error:
        if error.getCondition() != "JAVA_GATEWAY_EXITED":
            raise
        raise StreamError(_why_not()) from None


def _with_connector(given: SparkConf) -> tuple[str, str]:
    """Return the setting that brings the connector: its jars where they were fetched before, else its name.

    By its name Spark's resolver looks for it, which prints forty lines and takes a second at each start.
    """
    jars = [_FETCHED / name for name in sorted(read_checksums(_CHECKSUMS))]
    elsewhere = given.contains("spark.jars") or given.contains("spark.jars.ivy")
    if elsewhere or not all(jar.is_file() for jar in jars):
        return "spark.jars.packages", CONNECTOR
    return "spark.jars", ",".join(jar.as_uri() for jar in jars)


def _why_not() -> str:
    """Return why Spark's Java did not start; it looks in JAVA_HOME alone, if that is set."""
    home = os.environ.get("JAVA_HOME")
    if shutil.which("java", path=None if home is None else f"{home}/bin"):
        return "Spark did not start, and said why above; is it the --master, or a Java older than 17?"
    where = "there is no java on the PATH" if home is None else f"JAVA_HOME is {home}, which has no bin/java"
    return (
        f"Spark needs Java 17 or 21, and {where}. Install one (Debian, Ubuntu: apt-get install "
        "openjdk-17-jre-headless; macOS: brew install openjdk@21), or let JAVA_HOME name it"
    )


def _require_connector(spark: SparkSession, config: Config) -> None:
    if config.source.kafka is None:
        return
    _require_sound(spark.sparkContext.getConf().get("spark.jars", ""))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(
            "org.apache.spark.sql.kafka010.KafkaSourceProvider",
            True,
            jvm.java.lang.Thread.currentThread().getContextClassLoader(),
        )
    except Exception:
        raise StreamError(f"Spark has no Kafka connector; run spark-submit --packages {CONNECTOR} …") from None


def _require_sound(jars: str) -> None:
    """Raise a StreamError if a jar of the connector, among the URIs of ``spark.jars``, is not what was published."""
    checksums = read_checksums(_CHECKSUMS)
    paths = [Path(unquote(urlsplit(uri).path)) for uri in jars.split(",")]
    known = [path for path in paths if path.name in checksums and path.is_file()]
    if fault := differing(known, checksums):
        folder = known[0].parent
        raise StreamError(f"{fault}, in {folder}; delete it there, delete {folder.parent}/cache, and start again")


def fetch_connector() -> None:
    """Start Spark once with the connector, so that its jars are in the local cache afterwards.

    Raises
    ------
    StreamError
        With the end of what Spark printed, or the name of a damaged jar.
    """
    start = (
        "from pyspark.sql import SparkSession as S;s=S.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        f".config('spark.jars.packages', '{CONNECTOR}').getOrCreate();print(s.conf.get('spark.jars'));s.stop()"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StreamError(f"Spark could not fetch {CONNECTOR}: {done.stderr[-2000:]}{_STALE}")
    _require_sound(done.stdout.splitlines()[-1])


#: An interrupted Maven run leaves a POM without its jar, and Spark's resolver then gives up on it.
_STALE = (
    "\nIf it says 'download failed', delete that artifact's folder under ~/.m2/repository and ~/.ivy2 and try again."
)
