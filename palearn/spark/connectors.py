"""Jars that Spark lacks: its Kafka connector, and Hadoop's s3a for a checkpoint in an object store.

Spark's resolver fetches them, and they are compared with what was published. With them goes a jar of palearn's own: the
checkpoint file manager whose source is ``java/``.
"""

import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyspark
from pyspark import SparkConf
from pyspark.sql import SparkSession

from palearn.errors import StreamError
from palearn.kafka.jars import differing, read_checksums
from palearn.spark.release import NUMBER, RELEASE, log, number, require_release

#: The Kafka connector, for ``spark-submit --packages``: that of Spark's own release.
CONNECTOR = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{RELEASE}"
#: What it consists of. Of a release that has no list Spark's resolver brings the jars, and nobody compares them.
_CHECKSUMS = Path(__file__).with_name(f"connector-{RELEASE}.sha256")
#: Where Spark's resolver puts what it fetches, unless ``spark.jars.ivy`` says another place.
_FETCHED = Path(os.path.expanduser("~/.ivy2.5.2/jars"))  # as it is where there is no home: then nothing is there
_PYSPARK = Path(pyspark.__file__).parent
#: The Hadoop that Spark brings; s3a must be of the same release.
HADOOP = next((jar.stem.rpartition("-")[2] for jar in _PYSPARK.glob("jars/hadoop-client-api-*.jar")), "3.4.1")
_S3A_CHECKSUMS = Path(__file__).with_name(f"s3a-{HADOOP}.sha256")
#: Hadoop's release -> that of Amazon's SDK which it was built with.
_SDK = {"3.5.0": "2.35.4"}
_SDK_PARTS = ("s3", "s3-transfer-manager", "sts", "apache-client", "netty-nio-client")
#: What hadoop-aws names and does not need here: a bundle of 680 MB with all of Amazon's services, and what Spark has.
_UNUSED = (
    "software.amazon.awssdk:bundle",
    *(f"io.netty:netty-{name}" for name in (
        "buffer", "codec", "codec-http", "codec-http2", "common", "handler", "resolver", "transport",
        "transport-classes-epoll", "transport-native-unix-common",
    )),
    "org.slf4j:slf4j-api", "commons-logging:commons-logging", "commons-codec:commons-codec",
    "org.apache.httpcomponents:httpclient", "org.apache.httpcomponents:httpcore",
)  # fmt: skip
#: palearn's checkpoint file manager, and the first Spark whose interface it has.
MANAGER, MANAGER_JAR = "palearn.ObjectStoreCheckpointFileManager", Path(__file__).with_name("palearn-checkpoint.jar")
_MANAGED = (4, 1)
#: Connectors of an older release that were tried and did the whole job, where a mirror has no newer one.
_STAND_INS: dict[tuple[int, ...], tuple[int, ...]] = {(4, 3): (4, 2)}


def settings(given: SparkConf, *, kafka: bool, s3a: bool) -> dict[str, str]:
    """Return the settings that bring connectors: their jars where they were fetched before, else their names.

    By their names Spark's resolver looks for them, which prints forty lines and takes a second at each start.
    """
    own = [MANAGER_JAR.as_uri()] if s3a and NUMBER >= _MANAGED else []
    names = [*([CONNECTOR] if kafka else []), *(s3a_packages() if s3a else [])]
    if not names:
        return {}
    lists = [*([_checksums()] if kafka else []), *([_s3a_checksums()] if s3a else [])]
    jars = [_FETCHED / name for name in sorted({name for found in lists for name in found})]
    elsewhere = given.contains("spark.jars") or given.contains("spark.jars.ivy")
    if not elsewhere and all(lists) and all(jar.is_file() for jar in jars):
        return {"spark.jars": ",".join([*(jar.as_uri() for jar in jars), *own])}
    if not all(lists):
        log.warning("palearn has no checksums of %s: its jars are taken as Maven sends them", " and ".join(names))
    out = {"spark.jars.packages": ",".join(names)} | ({"spark.jars.excludes": ",".join(_UNUSED)} if s3a else {})
    return out | ({"spark.jars": ",".join(own)} if own and not given.contains("spark.jars") else {})


def require_connector(spark: SparkSession) -> None:
    """Raise a StreamError if the connector is not there, is damaged, or is that of another Spark."""
    _require_sound(spark.sparkContext.getConf().get("spark.jars", ""))
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        provider = jvm.java.lang.Class.forName(
            "org.apache.spark.sql.kafka010.KafkaSourceProvider",
            True,
            jvm.java.lang.Thread.currentThread().getContextClassLoader(),
        )
    except Exception:
        raise StreamError(f"Spark has no Kafka connector; run spark-submit --packages {CONNECTOR} …") from None
    # What its manifest says; who builds one of his own may say nothing.
    _require_fitting(provider.getPackage().getImplementationVersion())


def _require_fitting(theirs: str | None) -> None:
    """Raise a StreamError if the connector is of another feature release, which stops it for want of a method."""
    if theirs is None or number(theirs)[:2] == NUMBER[:2]:
        return
    if number(theirs)[:2] == _STAND_INS.get(NUMBER[:2]):
        log.warning("the Kafka connector is that of Spark %s, and this is Spark %s", theirs, pyspark.__version__)
        return
    raise StreamError(
        f"the Kafka connector is that of Spark {theirs}, and this is Spark {pyspark.__version__}; run spark-submit "
        f"--packages {CONNECTOR} …"
    )


def require_s3a(spark: SparkSession) -> None:
    """Raise a StreamError if Hadoop's s3a is not there, or is damaged."""
    _require_sound(spark.sparkContext.getConf().get("spark.jars", ""))
    if not _has_class(spark, "org.apache.hadoop.fs.s3a.S3AFileSystem"):
        names = ",".join(s3a_packages())
        raise StreamError(
            f"Spark has no s3a, which a checkpoint in an object store needs; run spark-submit --packages {names} "
            f"--exclude-packages {','.join(_UNUSED[:1])} … (docs/stores.md)"
        )


def has_manager(spark: SparkSession) -> bool:
    """Whether palearn's checkpoint file manager is on Spark's class path; without it Spark's own renames copies."""
    return _has_class(spark, MANAGER)


def _has_class(spark: SparkSession, name: str) -> bool:
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    try:
        jvm.java.lang.Class.forName(name, True, jvm.java.lang.Thread.currentThread().getContextClassLoader())
    except Exception:
        return False
    return True


def s3a_packages() -> list[str]:
    """Return what ``--packages`` has to name for s3a, with the parts of Amazon's SDK that it uses."""
    sdk = _SDK.get(HADOOP)
    hadoop = [f"org.apache.hadoop:hadoop-aws:{HADOOP}"]
    return hadoop + [f"software.amazon.awssdk:{name}:{sdk}" for name in _SDK_PARTS] if sdk else hadoop


def s3a_jars() -> list[Path]:
    """Return the jars of s3a where they were fetched."""
    return [_FETCHED / name for name in sorted(_s3a_checksums())]


def _s3a_checksums() -> dict[str, str]:
    return read_checksums(_S3A_CHECKSUMS) if _S3A_CHECKSUMS.is_file() else {}


def _checksums() -> dict[str, str]:
    """Return name -> SHA-256 of the connector's jars; none of a release that has no list."""
    return read_checksums(_CHECKSUMS) if _CHECKSUMS.is_file() else {}


def _require_sound(jars: str) -> None:
    """Raise a StreamError if a jar of the connector, among the URIs of ``spark.jars``, is not what was published."""
    checksums = _checksums() | _s3a_checksums()
    paths = [Path(unquote(urlsplit(uri).path)) for uri in jars.split(",")]
    known = [path for path in paths if path.name in checksums and path.is_file()]
    if fault := differing(known, checksums):
        folder = known[0].parent
        raise StreamError(f"{fault}, in {folder}; delete it there, delete {folder.parent}/cache, and start again")


def fetch_connector() -> None:
    """Start Spark once with the connectors, so that their jars are in the local cache afterwards.

    Raises
    ------
    StreamError
        With the end of what Spark printed, or the name of a damaged jar.
    """
    require_release()
    _require_sound(_fetched([CONNECTOR], ""))
    _require_sound(_fetched(s3a_packages(), ",".join(_UNUSED)))


def _fetched(packages: list[str], excluded: str) -> str:
    """Let Spark's resolver fetch packages; return its jars, as ``spark.jars`` has them."""
    start = (
        "from pyspark.sql import SparkSession as S;s=S.builder.master('local[1]').config('spark.ui.enabled', 'false')"
        f".config('spark.jars.packages', '{','.join(packages)}').config('spark.jars.excludes', '{excluded}')"
        ".getOrCreate();print(s.conf.get('spark.jars'));s.stop()"
    )
    done = subprocess.run([sys.executable, "-c", start], capture_output=True, text=True, check=False)
    if done.returncode:
        raise StreamError(f"Spark could not fetch {' and '.join(packages)}: {done.stderr[-2000:]}{_STALE}")
    return done.stdout.splitlines()[-1]


#: An interrupted Maven run leaves a POM without its jar, and Spark's resolver then gives up on it.
_STALE = (
    "\nIf it says 'download failed', delete that artifact's folder under ~/.m2/repository and ~/.ivy2 and try again."
)
