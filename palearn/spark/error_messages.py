"""Any failure as one sentence: its cause, where, and what to do. The one place that knows them.

Recognised are those of :mod:`palearn.spark.known_failures`, in what Python, Spark, Kafka and Hadoop write about them.
One that is not known is shown as its deepest cause. Nothing here needs Spark.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from palearn.config import Config
from palearn.errors import PalearnError, StreamError, shown
from palearn.spark.known_failures import KNOWN
from palearn.tables import object_stores

#: What pyarrow, deltalake and Hadoop's s3a write about a store.
_OF_A_STORE = re.compile(r"AWS Error|fs\.s3a\.|Generic S3 error|awssdk\.services\.s3")
#: Longest part of a foreign text in a sentence.
_LONGEST = 400


class Cause(NamedTuple):
    """What is said of a failure, and its name for collectors of logs."""

    name: str
    sentence: str


def explain(error: BaseException, config: Config | None = None, *, job: bool = False) -> str:
    """Return the sentence of a failure.

    Parameters
    ----------
    error
        palearn's own error says it itself; of others all that is nested in them is looked at.
    config
        Names the folders and brokers in the sentence.
    job
        Whether a stream stopped, which goes on when it is started again.
    """
    if isinstance(error, PalearnError):
        return str(error)
    return cause(text_of(error), config, job=job).sentence


def reason(text: str, config: Config) -> str:
    """Return the sentence for what Spark wrote about a stream that stopped."""
    return cause(text, config, job=True).sentence


def cause(text: str, config: Config | None = None, *, job: bool = False) -> Cause:
    """Return what is said of a failure: palearn's own error in it, else one that is known, else its deepest cause."""
    mine = own(text)
    if mine is not None:
        return Cause("palearn", mine)
    stored = object_stores.sentence(text) if _OF_A_STORE.search(text) else None
    if stored is not None:
        return Cause("store", stored)
    for failure in KNOWN:
        if found := re.search(failure.pattern, text):
            detail = found.groupdict().get("detail") or found[0]
            return Cause(failure.name, failure.sentence(_places(config, detail), job=job))
    return Cause("unknown", f"{deepest(text)} (--debug shows the whole trace)")


def _places(config: Config | None, detail: str) -> dict[str, str]:
    kafka = None if config is None else config.source.kafka
    return {
        "detail": shown(" ".join(detail.split()))[:_LONGEST],
        "servers": kafka.bootstrap_servers if kafka else "its address",
        "checkpoint": f"the checkpoint {config.checkpoint}" if config else "a checkpoint",
        "output": f"the output {config.output.path}" if config else "an output",
    }


def own(text: str) -> str | None:
    """Return the sentence of palearn's own error in a worker; else None."""
    found = re.search(r"palearn\.errors\.\w+: ([^\n]*)", text)
    return found[1] if found else None


# -- what is nested in an error ------------------------------------------------------------------------------


def text_of(error: BaseException) -> str:
    """Return all that is written about an error: Python's own trace, and Java's with its causes."""
    parts = []
    for each in _chain(error):
        java = _java_text(each)
        parts.append(java if java is not None else f"{type(each).__name__}: {each}")
    return "\n".join(parts)


def trace_of(error: BaseException) -> str:
    """Return the whole trace, Python's and Java's, for ``--debug``."""
    java = [text for each in _chain(error) if (text := _java_text(each)) is not None]
    return "".join([*traceback.format_exception(error), *(f"\n{text}\n" for text in java)])


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and those that it came of."""
    seen: set[int] = set()
    following: BaseException | None = error
    while following is not None and id(following) not in seen:
        seen.add(id(following))
        yield following
        following = following.__cause__ or (None if following.__suppress_context__ else following.__context__)


def _java_text(error: BaseException) -> str | None:
    """Return what Java wrote about an error of py4j's or PySpark's, if it is one; the JVM may be gone."""
    java: Any = getattr(error, "java_exception", None)  # py4j's
    stack = getattr(error, "_stackTrace", None)  # PySpark's, with its causes
    if java is None and not isinstance(stack, str):
        return None
    try:
        told = str(error)  # py4j asks Java for the trace
    except Exception:
        told = type(error).__name__
    return told if not isinstance(stack, str) or stack in told else f"{told}\n{stack}"


#: Errors that only carry another one.
_WRAPPERS = (
    "Py4JJavaError", "Py4JError", "PythonException", "SparkException", "StreamingQueryException",
    "SparkRuntimeException", "CapturedException",
)  # fmt: skip
_AFTER_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t][^\n]*\n|\n)*(?P<line>[^\s][^\n]*)")
_CAUSED_BY = re.compile(r"^\s*Caused by: (?P<line>[^\n]*)", re.MULTILINE)


def deepest(text: str) -> str:
    """Return the deepest cause in a text of nested traces, in one line.

    That is the first Python exception that carries no other (Python writes causes first), else the last ``Caused by``
    of Java's, else the first line that is not empty.
    """
    for found in _AFTER_TRACE.finditer(text):
        line = found["line"]
        if line.partition(":")[0].rpartition(".")[2] not in _WRAPPERS:
            return _one_line(line)
    causes = [_one_line(found["line"]) for found in _CAUSED_BY.finditer(text)]
    if causes:
        return causes[-1]
    return next((_one_line(line) for line in text.splitlines() if line.strip(" \t:;")), "nothing is said of its cause")


def _one_line(line: str) -> str:
    """Return a line without the packages of its exception's name, and Spark's code at its end."""
    line = re.sub(r"^((?:[A-Za-z_$][\w$]*\.)+)(?=[A-Z][\w$]*(?:: |$))", "", line.strip())
    line = re.sub(r"\s*SQLSTATE: \w+$", "", line)
    name, colon, message = line.partition(": ")
    if colon and name.rpartition(".")[2] in _WRAPPERS and message:
        line = message
    return shown(line)[:_LONGEST]


@contextmanager
def in_one_sentence(what: str = "", config: Config | None = None, *, job: bool = False) -> Iterator[None]:
    """Raise what goes wrong in Spark, Kafka or a file system meanwhile as a StreamError of one sentence.

    ``what`` stands before it, such as ``the replay stopped``. Faults of palearn's own code are not among them.
    """
    try:
        yield
    except PalearnError:
        raise
    except Exception as error:
        if not is_foreign(error):
            raise
        told = explain(error, config, job=job)
        raise StreamError(f"{what}: {told}" if what else told) from error


def is_foreign(error: BaseException) -> bool:
    """Whether an error is of Java, PySpark, Kafka's client, pyarrow or the operating system."""
    home = type(error).__module__.partition(".")[0]
    return isinstance(error, OSError) or home in ("py4j", "pyspark", "kafka", "pyarrow")
