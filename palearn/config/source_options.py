"""What ``source.kafka`` may not say: names that are none, options that Spark or Kafka's client would refuse later."""

import difflib
import re
from collections.abc import Iterator

from palearn.config.schema import KafkaSource

_TOPICS = "name the topics in source.kafka.topics"
_END = "a stream has no end; palearn replay has --to"
_FIXED = "Spark's source sets it itself"
#: What the configuration itself tells Spark's Kafka source, and what that refuses.
_TAKEN = {
    "kafka.bootstrap.servers": "set source.kafka.bootstrap_servers",
    "subscribe": _TOPICS,
    "subscribepattern": "set source.kafka.topics_pattern",
    "assign": _TOPICS,
    "startingoffsets": "set source.kafka.starting_offsets",
    "maxoffsetspertrigger": "set source.kafka.max_offsets_per_trigger",
    "endingoffsets": _END,
    "endingtimestamp": _END,
    "endingoffsetsbytimestamp": _END,
    "kafka.auto.offset.reset": "set source.kafka.starting_offsets",
    "kafka.enable.auto.commit": "the checkpoint has the offsets; Kafka's own are not used",
    "kafka.key.deserializer": "records.key.form says how keys are written",
    "kafka.value.deserializer": "records.format says how values are written",
    "kafka.interceptor.classes": _FIXED,
    "kafka.client.id": _FIXED,
}
#: The options of Spark's Kafka source, and whether they are numbers.
_SPARKS = {
    "failOnDataLoss": False,
    "kafkaConsumer.pollTimeoutMs": True,
    "fetchOffset.numRetries": True,
    "fetchOffset.retryIntervalMs": True,
    "minOffsetsPerTrigger": True,
    "maxTriggerDelay": False,
    "minPartitions": True,
    "maxRecordsPerPartition": True,
    "groupIdPrefix": False,
    "includeHeaders": False,
    "startingTimestamp": True,
    "startingOffsetsByTimestamp": False,
    "startingOffsetsByTimestampStrategy": False,
}
_BY_LETTERS = {name.lower(): name for name in _SPARKS}
#: What an option of Kafka's client ends with that is a whole number.
_NUMBERS = (".ms", ".bytes", ".records")
#: What Kafka allows in a topic's name.
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


def source_faults(kafka: KafkaSource) -> list[str]:
    """Return what is wrong, each with its path below ``source.kafka``."""
    names = (name_fault(topic) for topic in kafka.topics)
    found = [f"topics: {fault}" for fault in names if fault]
    if bool(kafka.topics) == (kafka.topics_pattern is not None):
        found.append("topics: give topics, or topics_pattern, one of the two")
    if kafka.topics_pattern is not None:
        try:
            re.compile(kafka.topics_pattern)
        except re.error as error:
            found.append(f"topics_pattern: {kafka.topics_pattern!r} is no regular expression: {error}")
    return [*found, *_option_faults(kafka)]


def name_fault(topic: str) -> str | None:
    """Return why a text cannot be a topic's name; None: it can."""
    if _NAME.fullmatch(topic) and topic not in (".", ".."):
        return None
    if re.search(r"[,;\[\]\s]", topic.strip()):
        names = [part for part in re.split(r"[,;\[\]\s'\"]+", topic) if part]
        return f"{topic!r} is no topic's name; a list is written [{', '.join(names)}]"
    return f"{topic!r} is no topic's name: letters, digits, ., _ and - may be in it, 249 characters at most"


def _option_faults(kafka: KafkaSource) -> Iterator[str]:
    """Yield a sentence for every option that the source would refuse; it does not mind how letters are written."""
    for name, value in kafka.spark_options.items():
        letters = name.lower()
        if letters in _TAKEN:
            yield f"options.{name}: {_TAKEN[letters]}"
        elif letters.startswith("kafka."):
            if letters.endswith(_NUMBERS) and not _is_number(value):
                yield f"options.{name}: expected a whole number"
        elif letters not in _BY_LETTERS:
            near = difflib.get_close_matches(letters, [*_BY_LETTERS, *_TAKEN], n=1)
            known = f"did you mean {_BY_LETTERS.get(near[0], near[0])}?" if near else f"known are {', '.join(_SPARKS)}"
            yield f"options.{name}: unknown option; {known} (an option of Kafka's client begins with kafka.)"
        elif _SPARKS[_BY_LETTERS[letters]] and not _is_number(value):
            yield f"options.{name}: expected a whole number"
        elif letters == "failondataloss" and value not in ("true", "false"):
            yield f"options.{name}: expected true or false"


def _is_number(value: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,18}", value) is not None
