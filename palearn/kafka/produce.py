"""Files of records into a Kafka topic, keyed, in order, each record once.

The producer is idempotent, so a retry neither repeats a record nor changes the order within a partition, and
records of one key go to one partition. Batches are compressed with zstd, which is half
the work of gzip. A line that is no record, or has no key, is reported; it never stops the others.
"""

import functools
import logging
import os
import stat
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import InvalidTopicError, KafkaError, MessageSizeTooLargeError, TopicAlreadyExistsError, UnknownError
from kafka.partitioner.default import murmur2

from palearn import files, records
from palearn.config import Access
from palearn.errors import BrokerError, ConfigError, FileFormatError, RecordError
from palearn.files import Line
from palearn.files.options import DEFAULT, ReadOptions
from palearn.files.text_lines import STDIN, opened_file
from palearn.kafka import reachability
from palearn.kafka.local_broker import MAX_MESSAGE_BYTES
from palearn.kafka.reachability import is_wrong_password
from palearn.records import Record

_log = logging.getLogger(__name__)

#: The key of all records when neither a field nor a constant is named.
DEFAULT_KEY = "all"

#: Bad lines reported one by one; further ones are only counted.
MAX_REPORTED = 1000

#: The client's buffer has no bound of its own, so: bytes sent and not yet acknowledged, in steps.
_STEP_BYTES = 2**20
_MAX_STEPS = 32

#: What the broker takes, less room for the batch around a record.
_MAX_RECORD_BYTES = MAX_MESSAGE_BYTES - 2**16

_BATCH_BYTES = 2**18
_LINGER_MS = 20
_CONNECT_MS = 10_000
_DELIVERY_MS = 60_000

_LOGIN = "source.kafka.access: username, password, or mechanism"

#: A batch is split in two at least, down to single records.
_MAX_SPLITS = 32

#: Records between two calls of ``progress``.
_SLICE = 500

#: With a rate, records are sent in slices of this many seconds.
_PACE_S = 0.02


@dataclass(frozen=True)
class BadLine:
    """A line that was not sent, and why."""

    path: str
    line: int
    reason: str
    detail: str


@dataclass
class ProduceReport:
    """The lines by outcome: ``bad`` holds the first :data:`MAX_REPORTED` of ``bad_count``."""

    sent: int = 0
    bad_count: int = 0
    bad: list[BadLine] = field(default_factory=list)
    seconds: float = 0.0

    def add_bad(self, path: str | Path, line: int, error: RecordError) -> None:
        """Count a bad line, and keep it while there is room."""
        self.bad_count += 1
        if len(self.bad) < MAX_REPORTED:
            self.bad.append(BadLine(str(path), line, error.reason, error.detail))


def produce(
    paths: Sequence[str | Path],
    *,
    topic: str,
    bootstrap: str = "127.0.0.1:9092",
    access: Access | None = None,
    options: ReadOptions = DEFAULT,
    constant_key: str | None = None,
    missing_key: str | None = None,
    rate: float | None = None,
    partitions: int = 4,
    progress: Callable[[int, int | None], None] | None = None,
    **given: Any,
) -> ProduceReport:
    """Send the records of files to a topic, in the order of the files and lines; return when all are there.

    What a column is, is decided once for all files: as ``options.known`` says, else as the first one that has it shows.

    Parameters
    ----------
    paths
        Files as :func:`palearn.files.read` reads them.
    topic
        Made with ``partitions`` partitions and the broker's default replication when it is not there.
    bootstrap
        ``host:port`` of a broker; several are separated by commas.
    access
        Security settings; None: the broker asks for nothing.
    options
        How they are read; ``key`` is the field whose value is the key.
    constant_key
        One key for all records, in place of a field; with neither the key is :data:`DEFAULT_KEY`.
    missing_key
        The key of records without the field; without it they are bad lines.
    rate
        Records a second, at most.
    progress
        Called now and then with the bytes read and their total (None when a path is no regular file).
    **given
        Options that stand in place of those of ``options``.

    Raises
    ------
    BrokerError
        No broker answers, or records could not be delivered.
    FileFormatError
        A file cannot be read; the records before it, and of it, are sent.
    """
    options = options.but(**given)
    key_of = _key_function(options.key, constant_key, missing_key)
    if rate is not None and not rate > 0:
        message = f"rate must be > 0 records a second, got {rate}"
        raise ConfigError(message)
    total = _total_bytes(paths, options.format)
    report = ProduceReport()
    started = time.monotonic()
    if options.known is None:
        options = options.but(known=files.decided(paths, options) or None)
    with _Sender(bootstrap, access, topic, partitions) as sender:
        pace = _pacer(rate)
        for path, line in _lines(paths, options, total, progress):
            try:
                value = _wire_bytes(line.value)  # a line that is no record is told as that, not as one without a key
                sender.send(key_of(line), value)
            except RecordError as error:
                report.add_bad(path, line.number, error)
            else:
                report.sent += 1
                pace(report.sent)
            if sender.failures:
                break  # what was not delivered is raised when the sender closes
    report.seconds = time.monotonic() - started
    _log.info(
        "topic %s: %d records sent in %.1f s, %d bad lines",
        topic, report.sent, report.seconds, report.bad_count,
    )  # fmt: skip
    return report


def _wire_bytes(value: bytes | Record | RecordError) -> bytes:
    """Return what is sent for a line; JSON lines go as they are, once they are known to be records."""
    if isinstance(value, RecordError):
        raise value
    if isinstance(value, bytes):
        records.decode_value(value)
        return value
    return records.encode(value)


def _key_function(field: str | None, constant: str | None, missing: str | None) -> Callable[[Line], bytes]:
    """Return what gives a line's key, or raises ``no_key``."""
    if field is None:
        if missing is not None:
            message = "missing_key is for records without the key's field, and there is no such field: give key"
            raise ConfigError(message)
        encoded = _key_bytes(DEFAULT_KEY if constant is None else constant)
        return lambda line: encoded
    if constant is not None:
        message = f"give key or constant_key, not both; got {field!r} and {constant!r}"
        raise ConfigError(message)
    instead = None if missing is None else _key_bytes(missing)

    def key_of(line: Line) -> bytes:
        if line.key is not None:
            return line.key.encode()
        if instead is None:
            raise RecordError("no_key", f"no field {field!r} for the key; --missing-key gives such records one")
        return instead

    return key_of


def _key_bytes(text: str) -> bytes:
    if not text:
        message = "a key must not be empty"
        raise ConfigError(message)
    return text.encode()


def _total_bytes(paths: Sequence[str | Path], format: str | None) -> int | None:
    """Check that the files are there and have a format, before any record is sent; return their size."""
    total: int | None = 0
    for path in paths:
        files.format_of(path, format)
        if Path(path) == STDIN:
            total = None
            continue
        try:
            found = os.stat(path)
        except OSError as error:
            message = f"cannot open {path}: {error.strerror}"
            raise FileFormatError(message) from None
        total = total + found.st_size if total is not None and stat.S_ISREG(found.st_mode) else None
    return total


def _lines(
    paths: Sequence[str | Path],
    options: ReadOptions,
    total: int | None,
    progress: Callable[[int, int | None], None] | None,
) -> Iterator[tuple[str | Path, Line]]:
    """Yield the lines of all files, telling ``progress`` how far the reading is."""
    before = 0
    for path in paths:
        with opened_file(Path(path)) as raw:
            lines = files.lines(path, options, opened=raw)
            for count, line in enumerate(lines):
                if progress is not None and count % _SLICE == 0 and raw.seekable():
                    progress(before + raw.tell(), total)
                yield path, line
        before += 0 if Path(path) == STDIN else os.path.getsize(path)
    if progress is not None:
        progress(before, total)


def _pacer(rate: float | None) -> Callable[[int], None]:
    """Return what is not acknowledged yet, given the number of records sent so far, until the next may be sent."""
    if rate is None:
        return lambda sent: None
    started = time.monotonic()
    every = max(1, int(rate * _PACE_S))

    def wait(sent: int) -> None:
        if sent % every == 0:
            time.sleep(max(0.0, started + sent / rate - time.monotonic()))

    return wait


class _Sender:
    """Kafka's producer for one topic: bounded memory, failures remembered until the end."""

    def __init__(self, bootstrap: str, access: Access | None, topic: str, partitions: int) -> None:
        reachability.require(bootstrap, access)
        client = {
            "bootstrap_servers": bootstrap.split(","),
            "bootstrap_timeout_ms": _CONNECT_MS,
            **({} if access is None else access.python_options()),
        }
        try:
            _ensure_topic(client, topic, partitions)
            self._producer = KafkaProducer(
                **client,
                enable_idempotence=True,  # said, so that a setting against it is an error and not a warning
                acks="all",
                compression_type="zstd",
                batch_size=_BATCH_BYTES,
                linger_ms=_LINGER_MS,
                max_request_size=_MAX_RECORD_BYTES,
                delivery_timeout_ms=_DELIVERY_MS,
                max_block_ms=_CONNECT_MS,
                metrics_enabled=False,
            )
            count = len(self._producer.partitions_for(topic))
        except InvalidTopicError:
            fault = (
                f"{topic!r:.80} cannot be a topic's name: give 1 to 249 letters, digits, dots, hyphens and underscores"
            )
            raise BrokerError(fault) from None
        except KafkaError as error:
            fault = f"the broker at {bootstrap} does not take records for topic {topic!r}: {error}"
            if access is not None and is_wrong_password(access, error):
                fault = f"Kafka at {bootstrap} does not let {access.username} in; correct {_LOGIN}"
            raise BrokerError(fault) from error
        # Kafka's own choice of a partition; murmur2 is slow in Python, and keys come again and again.
        self._partition = functools.lru_cache(2**16)(lambda key: (murmur2(key) & 0x7FFFFFFF) % count)
        self._topic = topic
        self._waiting: deque[Any] = deque()
        self._step = 0
        self.failures = 0
        self._first_failure: BaseException | None = None

    def __enter__(self) -> "_Sender":
        return self

    def __exit__(self, *exc: object) -> None:
        """Wait for what was sent; raise when any of it was not delivered."""
        self._flush()
        self._producer.close()
        if self.failures:
            message = f"{self.failures} records for topic {self._topic!r} were not delivered: {self._first_failure}"
            raise BrokerError(message) from self._first_failure

    def _flush(self) -> None:
        """Wait for all that was sent; kafka-python's flush gives up on a batch that had to be split."""
        for attempt in range(_MAX_SPLITS):
            try:
                self._producer.flush()
            except UnknownError:
                _log.debug("waiting for the parts of a batch, attempt %d", attempt + 2)
            else:
                return
        message = f"topic {self._topic!r}: the broker refuses batches however small they are"
        raise BrokerError(message)

    def send(self, key: bytes, value: bytes) -> None:
        """Hand a record over; waits only when too much is on its way."""
        try:
            future = self._producer.send(self._topic, value, key, partition=self._partition(key))
        except MessageSizeTooLargeError:
            detail = f"the record has {len(key) + len(value)} bytes, more than {_MAX_RECORD_BYTES}"
            raise RecordError("too_large", detail) from None
        future.add_errback(self._failed)
        self._step += len(key) + len(value)
        if self._step >= _STEP_BYTES:
            self._step = 0
            self._waiting.append(future)
            if len(self._waiting) > _MAX_STEPS:
                self._wait_for(self._waiting.popleft())

    def _wait_for(self, future: Any) -> None:
        try:
            future.get()
        except KafkaError:
            pass  # counted by _failed

    def _failed(self, error: BaseException) -> None:
        self.failures += 1
        self._first_failure = self._first_failure or error


def _ensure_topic(client: dict[str, Any], topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(**client)
    try:
        if topic not in admin.list_topics():
            admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
            _log.info("topic %s is made, with %d partitions", topic, partitions)
    except TopicAlreadyExistsError:
        pass  # somebody was faster
    finally:
        admin.close()
