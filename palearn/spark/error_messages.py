"""Any failure as one sentence: its cause, where, and what to do. The one place that knows them.

:data:`KNOWN` lists the failures that are recognised, in what Python, Spark, Kafka and Hadoop write about them;
docs/operations.md has the same list. One that is not known is shown as its deepest cause. Nothing here needs Spark.
"""

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from palearn.config import Config
from palearn.errors import PalearnError, StreamError, shown
from palearn.tables import object_stores

#: Stands only behind a failure that can pass by itself or be mended outside of the configuration.
AGAIN = "nothing that was committed is lost: start the job again, and it goes on with the batch that failed"
#: What pyarrow, deltalake and Hadoop's s3a write about a store.
_OF_A_STORE = re.compile(r"AWS Error|fs\.s3a\.|Generic S3 error|awssdk\.services\.s3")
#: Longest part of a foreign text in a sentence.
_LONGEST = 400


@dataclass(frozen=True)
class Failure:
    """A failure that is recognised.

    Parameters
    ----------
    name
        One word for collectors of logs.
    pattern
        What Python, Spark, Kafka or Hadoop write; its group ``detail``, else all of it, is shown.
    says
        The cause. ``{detail}``, ``{servers}``, ``{checkpoint}`` and ``{output}`` are filled in.
    do
        What to do about it.
    passes
        Whether the same command can succeed later, unchanged.
    """

    name: str
    pattern: str
    says: str
    do: str
    passes: bool = False

    def sentence(self, places: dict[str, str], *, job: bool) -> str:
        """Return the whole sentence; only a ``job`` has a committed batch to go on from."""
        told = f"{self.says.format(**places)}. {self.do.format(**places)}"
        return f"{told}; {AGAIN}" if self.passes and job else told


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


# -- what is known ---------------------------------------------------------------------------------------------

_MORE = "(docs/cluster.md)"
#: The failures that are recognised, the first that fits is meant.
KNOWN: tuple[Failure, ...] = (
    Failure(
        "damaged_state",
        r"(?s)CANNOT_LOAD_STATE_STORE.*?Caused by: [\w.$]+: (?P<detail>[^\n]*)",
        "the checkpoint's state cannot be loaded ({detail}): files of it are damaged or missing",
        "Restore an older copy of it, or start over with a new one (palearn stream --warm-start MODELS, palearn "
        "replay)",
    ),
    Failure(
        "damaged_checksum",
        r"(?P<detail>Checksum error: [^\n]*?)(?= SQLSTATE|\n|$)",
        "the checkpoint's state cannot be loaded ({detail}): files of it are damaged or missing",
        "Restore an older copy of it, or start over with a new one (palearn stream --warm-start MODELS, palearn "
        "replay)",
    ),
    Failure(
        "disk_full",
        r"No space left on device|Disk quota exceeded",
        "a disk is full ({detail}): that of {checkpoint}, of {output}, or of spark.local.dir",
        "Free some space",
        passes=True,
    ),
    Failure(
        "read_only",
        r"(?P<detail>[^\n]*(?:Read-only file system|EROFS)[^\n]*)",
        "a file system is mounted read-only ({detail})",
        "Mount it for writing, or name another place for {checkpoint} and {output}",
        passes=True,
    ),
    Failure(
        "disk_fails",
        r"(?P<detail>[^\n]*(?:Input/output error|Stale file handle|Transport endpoint is not connected)[^\n]*)",
        "a disk or a mounted file system fails ({detail})",
        "Look at the system's log (dmesg), and mend or mount it again",
        passes=True,
    ),
    Failure(
        "two_jobs",
        r"(?:FileNotFoundError|OSError)[^\n]*_staging[^\n]*",  # whose folder the other job has cleared
        "another job runs on {checkpoint}",
        "Stop one of the two. This one changed nothing",
    ),
    Failure(
        "two_queries",
        r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using",
        "another job runs on {checkpoint}",
        "Stop one of the two. This one changed nothing",
    ),
    Failure(
        "no_permission",
        r"(?P<detail>[^\n]*(?:\[Errno 1?3\] Permission denied|Permission denied|AccessDeniedException|"
        r"AccessControlException)[^\n]*)",
        "there is no permission ({detail})",
        "Give it to the user that the job runs as, on every machine, or name another place for {checkpoint} and "
        "{output}",
        passes=True,
    ),
    Failure(
        "java_memory",
        r"java\.lang\.OutOfMemoryError: [^\n]*",
        "Java had no memory left ({detail})",
        "Give it more (spark-submit --driver-memory 4g, --executor-memory 4g; PYSPARK_SUBMIT_ARGS='--driver-memory 4g "
        "pyspark-shell' for palearn stream)",
        passes=True,
    ),
    Failure(
        "worker_python",
        r"Python in worker has different version: [\d.]+ than that in driver: [\d.]+(?<!\.)"
        r'|Cannot run program "[^"\n]*"|ModuleNotFoundError: [^\n]*|Error from python worker',
        "the workers cannot run the job's Python code ({detail})",
        f"PYSPARK_PYTHON must name a Python of the driver's version, with palearn, on every machine {_MORE}",
        passes=True,
    ),
    Failure(
        "python_memory",
        r"MemoryError(?:: [^\n]*)?(?=\n|$)|ArrowMemoryError[^\n]*|Cannot allocate memory",
        "Python had no memory left ({detail})",
        "Fewer records a batch (source.kafka.max_offsets_per_trigger) or more buckets (state.buckets) need less",
        passes=True,
    ),
    Failure(
        "worker_killed",
        r"Python worker exited unexpectedly",
        "a Python worker ended in the middle of its work: killed, for want of memory more often than not",
        "Fewer records a batch (source.kafka.max_offsets_per_trigger) or more buckets (state.buckets) need less",
        passes=True,
    ),
    Failure(
        "executor_lost",
        r"ExecutorLostFailure|Remote RPC client disassociated|Executor heartbeat timed out[^\n]*",
        "a Spark executor was lost ({detail}): its machine, or its memory",
        f"Look at the executor's log; if it was killed for memory, give it more {_MORE}",
        passes=True,
    ),
    Failure(
        "records_gone",
        r"(?s)(?:KAFKA_DATA_LOSS|[Ss]ome data may have been (?:lost|missed)|OffsetOutOfRangeException)"
        r"(?:.{,600}?\nReason: (?P<detail>[^\n]*))?[^\n]*",
        "records that the checkpoint has not seen are gone from Kafka, by retention or because a topic was deleted and "
        "made again, or source.kafka.topics lacks a topic ({detail})",
        "Nothing is learned twice or skipped silently: to go on without them give --set "
        "source.kafka.options.failOnDataLoss=false (the table batches then counts them as empty_offsets), or start "
        "over",
    ),
    Failure(
        "offsets_of_a_range",
        r"(?P<detail>(?:If startingOffsets contains specific offsets|assertion failed: If (?:starting|ending)Offsets)"
        r"[^\n]*)",
        "the offsets that were given are not those of the topic's partitions ({detail})",
        "Give an offset for every partition of every topic, -2 for its first and -1 for its end, and no others",
    ),
    Failure(
        "kafka_refuses",
        r"org\.apache\.kafka\.common\.errors\.\w*Auth(?:entication|orization)\w*Exception: "
        r"(?P<detail>[^\n]*?)(?= SQLSTATE|\n|$)",
        "Kafka at {servers} does not let this job in any more ({detail})",
        "Correct source.kafka.access, or the cluster's rules",
        passes=True,
    ),
    Failure(
        "record_too_large",
        r"RecordTooLargeException: (?P<detail>[^\n]*)|MessageSizeTooLargeError(?P<more>[^\n]*)",
        "a row of a table is larger than Kafka takes ({detail})",
        "Raise the topic's max.message.bytes, or leave the table's kafka option out",
    ),
    Failure(
        "unknown_topic",
        r"(?:UnknownTopicOrPartition(?:Exception|Error)|InvalidTopicException)[^\n]*",
        "Kafka at {servers} has no such topic, or it was deleted meanwhile ({detail})",
        "Correct source.kafka.topics; a topic that was deleted and made again needs a new checkpoint and a new output",
    ),
    Failure(
        "broker_silent",
        r"org\.apache\.kafka\.common\.errors\.(?:TimeoutException|DisconnectException)[^\n]*?(?= SQLSTATE|$|\n)"
        r"|(?:KafkaTimeoutError|NoBrokersAvailable|KafkaConnectionError)[^\n]*",
        "Kafka at {servers} does not answer any more ({detail})",
        "See that its brokers run and that this machine reaches the addresses that they advertise",
        passes=True,
    ),
    Failure(
        "kafka_option",
        r"(?:KafkaException: Failed to construct[^\n]*\n(?:.*\n)*?)?"
        r"org\.apache\.kafka\.common\.config\.ConfigException: (?P<detail>[^\n]*)",
        "Kafka's client refuses an option ({detail})",
        "Correct source.kafka.options",
    ),
    Failure(
        "source_option",
        r"(?P<detail>Kafka option '[^\n]*|Option '?\w*'? (?:must|can|is not)[^\n]*|"
        r"(?:Group ID|Invalid value) [^\n]*(?:Kafka|option)[^\n]*)",
        "Spark's Kafka source refuses an option ({detail})",
        "Correct source.kafka.options",
    ),
    Failure(
        "no_number",
        r'NumberFormatException: (?P<detail>For input string: "[^"\n]*"|[^\n]*)'
        r"|(?P<other>[^\n]*should be (?:int|long|double|boolean), but was [^\n]*)",
        "an option holds no number where one is wanted ({detail})",
        "Correct source.kafka.options, or the --conf of Spark that has this value",
    ),
    Failure(
        "file_system",
        r"(?P<detail>No FileSystem for scheme[^\n]*|UnsupportedFileSystemException[^\n]*|Class [\w.]*fs[\w.]* not found"
        r"|Unrecognized filesystem type in URI[^\n]*|Expected a local filesystem path[^\n]*|Cannot parse URI[^\n]*)",
        "{checkpoint} or {output} is on a file system that Spark or Python cannot reach here ({detail})",
        "Give a path on a disk that all machines share, or a file system of docs/configuration.md",
    ),
    Failure(
        "no_user",
        r"(?P<detail>invalid null input: name|KerberosAuthException: failure to login|getpwuid\(\): uid not found"
        r"[^\n]*)",
        "this process's user id has no name, and Hadoop, inside Spark, wants one ({detail})",
        "Start the job as a user that /etc/passwd has (docker run --user NAME), or add a line for this id",
    ),
    Failure(
        "name_too_long",
        r"(?P<detail>[^\n]*File name too long[^\n]*)",
        "a file's name is longer than its file system allows ({detail})",
        "Choose a shorter path for {checkpoint} and {output}",
    ),
    Failure(
        "open_files",
        r"(?P<detail>[^\n]*Too many open files[^\n]*)",
        "the system allows no more open files ({detail})",
        "Raise the limit (ulimit -n), and lower state.partitions",
        passes=True,
    ),
    Failure(
        "port_taken",
        r"(?P<detail>[^\n]*(?:Address already in use|BindException)[^\n]*)",
        "a port is taken by another process ({detail})",
        "Choose another port, or end that process",
        passes=True,
    ),
    Failure(
        "name_unknown",
        r"(?P<detail>[^\n]*(?:UnknownHostException|Name or service not known|Temporary failure in name resolution|"
        r"No resolvable bootstrap urls)[^\n]*)",
        "the name of a machine cannot be resolved ({detail})",
        "Correct the address, or the names that this machine knows (DNS, /etc/hosts); Spark's own is set by "
        "SPARK_LOCAL_IP",
        passes=True,
    ),
    Failure(
        "java_gone",
        r"(?P<detail>Py4JNetworkError[^\n]*|Answer from Java side is empty[^\n]*|Error while sending or receiving"
        r"[^\n]*)",
        "Spark's Java process ended in the middle of its work: killed, for want of memory more often than not",
        "Give it more memory (PYSPARK_SUBMIT_ARGS='--driver-memory 4g pyspark-shell')",
        passes=True,
    ),
)


def documented() -> str:
    """Return the failures that are recognised as the table of docs/operations.md."""
    names = {"detail": "…", "servers": "HOST:PORT", "checkpoint": "the checkpoint", "output": "the output"}
    rows = ["| it says | what to do | the same command can succeed later |", "|---|---|---|"]
    seen = set()
    for failure in KNOWN:
        says, do = (text.format(**names).replace("|", "\\|") for text in (failure.says, failure.do))
        if (says, do) not in seen:
            rows.append(f"| {says} | {do} | {'yes' if failure.passes else 'no'} |")
        seen.add((says, do))
    return "\n".join(rows) + "\n"
