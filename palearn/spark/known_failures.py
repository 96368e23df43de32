"""The failures that are recognised: how they are written, and what is said of them.

docs/operations.md has the same list.
"""

from dataclasses import dataclass

#: Stands only behind a failure that can pass by itself or be mended outside of the configuration.
AGAIN = "nothing that was committed is lost: start the job again, and it goes on with the batch that failed"


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
