"""What a cluster says of its topics, asked before Spark starts: names, partitions, and the offsets that are there."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec
from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from palearn.config import KafkaSource
from palearn.errors import BrokerError
from palearn.kafka.reachability import is_wrong_password

#: An answer may take so long; a busy machine needs its time.
_TIMEOUT_MS = 10_000
#: What stands for a partition's first offset and for its end.
END, FIRST = -1, -2

#: Topic -> partition -> offset.
Offsets = Mapping[str, Mapping[int, int]]


@dataclass
class Topics:
    """The topics of a cluster, and of some of them first offset and end a partition."""

    names: set[str]
    ranges: dict[str, dict[int, tuple[int, int]]] = field(default_factory=dict)


def topics_of(kafka: KafkaSource) -> Topics:
    """Return what the cluster says of its topics, with the partitions of those that the source names.

    Raises
    ------
    BrokerError
        It does not say; or not to this client.
    """
    access = {} if kafka.access is None else kafka.access.python_options()
    try:
        consumer = KafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers.split(","), enable_auto_commit=False,
            request_timeout_ms=_TIMEOUT_MS, bootstrap_timeout_ms=_TIMEOUT_MS, **access,
        )  # fmt: skip
    except (KafkaError, OSError, ValueError) as error:
        raise BrokerError(_silent(kafka, error)) from None
    try:
        names = set(consumer.topics())
        found = Topics(names)
        for topic in wanted(kafka, names):
            parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]
            first, end = consumer.beginning_offsets(parts), consumer.end_offsets(parts)
            found.ranges[topic] = {part.partition: (first[part], end[part]) for part in parts}
        return found
    except (KafkaError, OSError) as error:
        raise BrokerError(_silent(kafka, error)) from None
    finally:
        consumer.close()


def wanted(kafka: KafkaSource, names: Iterable[str]) -> list[str]:
    """Return those of the cluster's topics that a source takes."""
    return sorted(name for name in names if kafka.takes(name))


def _silent(kafka: KafkaSource, error: Exception) -> str:
    if is_wrong_password(kafka.access, error):
        return (
            f"Kafka at {kafka.bootstrap_servers} does not let this job in (invalid credentials, as it seems); correct "
            "source.kafka.access"
        )
    return (
        f"Kafka at {kafka.bootstrap_servers} does not say which topics it has ({type(error).__name__}: "
        f"{str(error) or 'no reason'}); see that its brokers run, and that source.kafka.access is what they ask for"
    )


def missing_topics(kafka: KafkaSource, found: Topics) -> list[str]:
    """Return a sentence for every topic that the source names and that is not there."""
    faults = []
    if kafka.topics_pattern is not None and not found.ranges:
        near = difflib.get_close_matches(kafka.topics_pattern, found.names, n=3, cutoff=0.3)
        faults.append(
            f"source.kafka.topics_pattern: Kafka at {kafka.bootstrap_servers} has no topic like {kafka.topics_pattern}"
            f"{', the nearest ones are ' + ', '.join(near) if near else ''}; the pattern fits a whole name"
        )
    for topic in kafka.topics:
        if topic not in found.names:
            near = difflib.get_close_matches(topic, found.names, n=1, cutoff=0.6)
            hint = f"did you mean {near[0]}? Else make" if near else "make"
            faults.append(
                f"source.kafka.topics: Kafka at {kafka.bootstrap_servers} has no topic {topic}; {hint} it (palearn "
                "produce does). If the checkpoint began with it, it was deleted: start over with a new checkpoint and "
                "a new output"
            )
    return faults


def range_faults(begin: Offsets | None, stop: Offsets | None) -> list[str]:
    """Return a sentence for every partition whose range ends before it begins."""
    return [
        f"--to: offset {end} of {topic}, partition {partition}, is before --from, {start}"
        for topic, parts in (begin or {}).items()
        for partition, start in parts.items()
        if 0 <= (end := (stop or {}).get(topic, {}).get(partition, END)) < start
    ]


def given_offsets(text: str) -> Offsets | None:
    """Return the offsets of a text such as ``starting_offsets``; None: it is ``earliest`` or ``latest``."""
    if text.lower() in ("earliest", "latest"):
        return None
    return msgspec.json.decode(text, type=dict[str, dict[int, int]], strict=False)


def offset_faults(name: str, given: Offsets, found: Topics) -> list[str]:
    """Compare offsets with those that are there; return a sentence for each that is not.

    Parameters
    ----------
    name
        What gave them, such as ``source.kafka.starting_offsets``.
    given
        −1 stands for a partition's end, −2 for its first offset.
    """
    faults = []
    topics = found.ranges
    if strange := sorted(given.keys() - topics.keys()):
        faults.append(f"{name}: {', '.join(strange)} is not among the topics of the source ({', '.join(topics)})")
    if lacking := sorted(topics.keys() - given.keys()):
        faults.append(f"{name}: topic {', '.join(lacking)} is lacking; give an offset for each of its partitions")
    for topic in sorted(given.keys() & topics.keys()):
        there, asked = topics[topic], given[topic]
        count = f"topic {topic} has the partitions {_numbers(there)}"
        if more := sorted(asked.keys() - there.keys()):
            faults.append(f"{name}: {topic} has no partition {_numbers(more)}; {count}")
        if less := sorted(there.keys() - asked.keys()):
            faults.append(f"{name}: partition {_numbers(less)} of {topic} is lacking; {count} (-2: its first, -1: end)")
        for partition in sorted(asked.keys() & there.keys()):
            faults += _of_partition(name, topic, partition, asked[partition], *there[partition])
    return faults


def _of_partition(name: str, topic: str, partition: int, offset: int, first: int, end: int) -> list[str]:
    place = f"{name}: offset {offset} of {topic}, partition {partition},"
    if offset in (END, FIRST):
        return []
    if offset < 0:
        return [f"{place} does not exist; -1 is the end, -2 for the first one"]
    if offset > end:
        return [f"{place} is beyond its end, {end}"]
    if offset < first:
        return [f"{place} is gone: the first one that Kafka still has is {first} (-2 stands for it)"]
    return []


def _numbers(found: Iterable[int]) -> str:
    """Return numbers as text, ``0 to 3`` where none is left out."""
    numbers = sorted(found)
    if len(numbers) > 2 and numbers[-1] - numbers[0] == len(numbers) - 1:
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers)) or "none"
