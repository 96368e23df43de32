"""Which Spark is there, and whether palearn runs on it: asked before anything starts."""

import logging
import os
import re
import shutil
import subprocess
from pathlib import Path

import pyspark

from palearn.errors import StreamError

log = logging.getLogger("palearn.spark")

#: The releases of Spark that palearn runs on: from this one, before that one (the extra ``spark`` says the same), and
#: the newest one that it is tested with.
OLDEST, BEFORE, TESTED = (4, 0), (5, 0), (4, 3)


def number(version: str) -> tuple[int, ...]:
    """Return the numbers of a version, without what a distribution adds to them (``4.2.0-amzn-1``)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")[:3]) if found else ()


NUMBER = number(pyspark.__version__)
#: The release of the pyspark that runs here, as artifacts of that release are called.
RELEASE = ".".join(map(str, NUMBER))
_PYSPARK = Path(pyspark.__file__).parent


def require_release() -> None:
    """Raise a StreamError if this Spark is of a release that palearn does not run on.

    It starts nothing: who asks first has no half a minute to wait, and leaves no folder behind.
    """
    if not OLDEST <= NUMBER < BEFORE:
        oldest, before = ".".join(map(str, OLDEST)), BEFORE[0]
        raise StreamError(
            f"this is Spark {pyspark.__version__} ({_PYSPARK}); palearn needs Spark {oldest} or newer, before {before}"
            f": pip install 'pyspark>={oldest},<{before}', or run the spark-submit of such a Spark"
        )
    home = os.environ.get("SPARK_HOME")
    if home and "PYSPARK_GATEWAY_PORT" not in os.environ:  # pyspark starts the Java of that folder, not its own
        for jar in sorted(Path(home).glob("jars/spark-core_*.jar")):
            require_same(jar.stem.split("-", 2)[-1])


#: The releases of Java that Spark 4 runs on begin here.
OLDEST_JAVA = 17


def require_java() -> None:
    """Raise a StreamError if the Java that would start is none, or too old."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:  # it runs already
        return
    home = os.environ.get("JAVA_HOME")
    program = shutil.which("java", path=None if home is None else f"{home}/bin")
    if program is None:
        where = "there is no java on the PATH" if home is None else f"JAVA_HOME is {home}, which has no bin/java"
        raise StreamError(
            f"Spark needs Java 17 or 21, and {where}. Install one (Debian, Ubuntu: apt-get install "
            "openjdk-17-jre-headless; macOS: brew install openjdk@21), or let JAVA_HOME name it"
        )
    release = _release_of(Path(program))
    if release is not None and release < OLDEST_JAVA:
        raise StreamError(f"Spark needs Java 17 or 21, and {program} is Java {release}; let JAVA_HOME name a newer one")


def _release_of(program: Path) -> int | None:
    """Return a Java's release, from the file beside it that says so, else from itself; None: it does not say."""
    try:
        told = (program.resolve().parents[1] / "release").read_text(encoding="utf-8")
        found = re.search(r'JAVA_VERSION="(\d+)(?:\.(\d+))?', told)
    except OSError:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, check=False, timeout=10)
        found = re.search(r'version "(\d+)(?:\.(\d+))?', done.stderr)
    if found is None:
        return None
    return int(found[2] or 1) if found[1] == "1" else int(found[1])  # Java 8 calls itself 1.8


def require_same(java: str) -> None:
    """Raise a StreamError if Java runs another release than Python's."""
    theirs = number(java)
    if theirs == NUMBER:
        return
    home = os.environ.get("SPARK_HOME")
    way = f", or pip install pyspark=={'.'.join(map(str, theirs))}" if OLDEST <= theirs < BEFORE else ""
    raise StreamError(
        f"Java runs Spark {java}{f' (SPARK_HOME is {home})' if home else ''}, and Python has pyspark "
        f"{pyspark.__version__} ({_PYSPARK}): both must be one release. Unset SPARK_HOME, let it name that one{way}"
    )


def warn_if_untested() -> None:
    """Say once of a release that nobody has tested palearn with."""
    if NUMBER[:2] > TESTED:
        log.warning("this is Spark %s; palearn is tested with 4.0 to %d.%d", pyspark.__version__, *TESTED)
