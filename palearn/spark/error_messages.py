"""Why a stream stopped, in one sentence that says what to do."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from palearn.config import Config
from palearn.errors import StreamError

_AGAIN = "nothing that was committed is lost: start the job again, and it goes on with the batch that failed"


def reason(text: str, config: Config) -> str:
    """Return the sentence for what Spark wrote about a failure.

    That of palearn's own error if there is one, else that of a failure known here, else Spark's first line.
    """
    mine = own(text)
    if mine is not None:
        return mine
    for pattern, sentence in _KNOWN:
        if found := re.search(pattern, text):
            return sentence(found, config)
    return f"{text.splitlines()[0][:500]}; {_AGAIN}"


def own(text: str) -> str | None:
    """Return the sentence of palearn's own error in a worker, or of state that cannot be loaded; else None."""
    if found := re.search(r"palearn\.errors\.\w+: ([^\n]*)", text):
        return found[1]
    for damaged in (
        r"(?s)CANNOT_LOAD_STATE_STORE.*?Caused by: [\w.$]+: ([^\n]*)",
        r"(Checksum error: [^\n]*?)(?= SQLSTATE|\n|$)",
    ):
        if found := re.search(damaged, text):
            return (
                f"the checkpoint's state cannot be loaded ({found[1]:.300}): files of it are damaged or missing. "
                "Restore an older copy of it, or start over with a new one (palearn stream --warm-start MODELS, "
                "palearn replay)"
            )
    return None


@contextmanager
def in_one_sentence() -> Iterator[None]:
    """Raise what goes wrong in Spark, where no stream runs, as a StreamError of one sentence."""
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        text = str(error)
        raise StreamError(own(text) or f"Spark cannot do it: {text.splitlines()[0]:.500}") from error


def _full(found: re.Match[str], config: Config) -> str:
    return (
        f"a disk is full ({found[0]}): that of the checkpoint {config.checkpoint}, of the output "
        f"{config.output.path}, or of spark.local.dir. Free some space; {_AGAIN}"
    )


def _worker(found: re.Match[str], config: Config) -> str:
    return (
        "a Python worker ended in the middle of its work: killed, for want of memory more often than not (fewer "
        f"records a batch or more buckets need less). {_AGAIN.capitalize()}"
    )


def _python(found: re.Match[str], config: Config) -> str:
    return (
        f"the workers cannot run the job's Python code ({found[0]}): PYSPARK_PYTHON must name a Python of the driver's "
        f"version, with palearn, on every machine (docs/cluster.md). {_AGAIN.capitalize()}"
    )


def _heap(found: re.Match[str], config: Config) -> str:
    return (
        "Java had no memory left: give it more (spark-submit --driver-memory 4g, --executor-memory 4g; "
        f"PYSPARK_SUBMIT_ARGS='--driver-memory 4g pyspark-shell' for palearn stream). {_AGAIN.capitalize()}"
    )


def _two_jobs(found: re.Match[str], config: Config) -> str:
    return f"another job runs on the checkpoint {config.checkpoint}; stop one of the two. This one changed nothing"


def _lost(found: re.Match[str], config: Config) -> str:
    detail = " ".join((found["why"] or found[0]).split())[:300]
    return (
        "records that the checkpoint has not seen are gone from Kafka, by retention or because a topic was deleted "
        f"and made again, or source.kafka.topics lacks a topic ({detail}). Nothing is learned twice or "
        "skipped silently: to go on without them give --set source.kafka.options.failOnDataLoss=false (the table "
        "batches then counts them as empty_offsets), or start over"
    )


def _broker(found: re.Match[str], config: Config) -> str:
    servers = config.source.kafka.bootstrap_servers if config.source.kafka else "the brokers"
    return f"Kafka at {servers} does not answer any more ({found[0]}). {_AGAIN.capitalize()}"


def _refused(found: re.Match[str], config: Config) -> str:
    servers = config.source.kafka.bootstrap_servers if config.source.kafka else "the brokers"
    return (
        f"Kafka at {servers} does not let this job in any more ({found[1]}); correct "
        f"source.kafka.access. {_AGAIN.capitalize()}"
    )


_KNOWN: tuple[tuple[str, Callable[[re.Match[str], Config], str]], ...] = (
    (r"No space left on device|Disk quota exceeded", _full),
    (r"(?:FileNotFoundError|OSError)[^\n]*_staging[^\n]*", _two_jobs),  # whose folder the other job has cleared
    (r"CONCURRENT_STREAM_LOG_UPDATE|Multiple streaming queries are concurrently using", _two_jobs),
    (r"java\.lang\.OutOfMemoryError: [^\n]*", _heap),
    (
        r"Python in worker has different version: [\d.]+ than that in driver: [\d.]+(?<!\.)"
        r'|Cannot run program "[^"\n]*"|ModuleNotFoundError: [^\n]*|Error from python worker',
        _python,
    ),
    (r"Python worker exited unexpectedly", _worker),
    (
        r"(?s)(?:KAFKA_DATA_LOSS|[Ss]ome data may have been (?:lost|missed)|OffsetOutOfRangeException)"
        r"(?:.{,600}?\nReason: (?P<why>[^\n]*))?[^\n]*",
        _lost,
    ),
    (
        r"org\.apache\.kafka\.common\.errors\.\w*Auth(?:entication|orization)\w*Exception: ([^\n]*?)(?= SQLSTATE|\n|$)",
        _refused,
    ),
    (r"org\.apache\.kafka\.common\.errors\.(?:TimeoutException|DisconnectException)[^\n]*?(?= SQLSTATE|$|\n)", _broker),
)
