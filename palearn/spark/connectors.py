"""Jars that Spark lacks: its Kafka connector. Fetched by Spark's resolver, and compared with what was published."""

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
#: Connectors of an older release that were tried and did the whole job, where a mirror has no newer one.
_STAND_INS: dict[tuple[int, ...], tuple[int, ...]] = {(4, 3): (4, 2)}


def kafka_setting(given: SparkConf) -> tuple[str, str]:
    """Return the setting that brings the connector: its jars where they were fetched before, else its name.

    By its name Spark's resolver looks for it, which prints forty lines and takes a second at each start.
    """
    jars = [_FETCHED / name for name in sorted(_checksums())]
    elsewhere = given.contains("spark.jars") or given.contains("spark.jars.ivy")
    if elsewhere or not jars or not all(jar.is_file() for jar in jars):
        if not jars:
            log.warning("palearn has no checksums of %s: its jars are taken as Maven sends them", CONNECTOR)
        return "spark.jars.packages", CONNECTOR
    return "spark.jars", ",".join(jar.as_uri() for jar in jars)


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


def _checksums() -> dict[str, str]:
    """Return name -> SHA-256 of the connector's jars; none of a release that has no list."""
    return read_checksums(_CHECKSUMS) if _CHECKSUMS.is_file() else {}


def _require_sound(jars: str) -> None:
    """Raise a StreamError if a jar of the connector, among the URIs of ``spark.jars``, is not what was published."""
    checksums = _checksums()
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
    require_release()
    _require_sound(_fetched([CONNECTOR]))


def _fetched(packages: list[str], excluded: str = "") -> str:
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
