"""The first records of a topic, as a sample to look at; nothing is committed."""

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from palearn.config.security import Access
from palearn.errors import BrokerError
from palearn.kafka import reachability

#: How long to wait for more records, in ms.
_WAIT_MS = 3_000


def first_records(bootstrap: str, access: Access | None, topic: str, most: int) -> list[tuple[bytes | None, bytes]]:
    """Return up to ``most`` records of a topic, from its beginning: their keys and values; tombstones are left out.

    Raises
    ------
    BrokerError
        No broker accepts connections, or there is no such topic.
    """
    reachability.require(bootstrap, access)
    settings = {} if access is None else access.python_options()
    try:
        consumer = KafkaConsumer(bootstrap_servers=bootstrap.split(","), consumer_timeout_ms=_WAIT_MS, **settings)
        try:
            partitions = consumer.partitions_for_topic(topic)
            if not partitions:
                raise BrokerError(f"Kafka at {bootstrap} has no topic {topic!r:.80}, and there is no such file")
            places = [TopicPartition(topic, number) for number in sorted(partitions)]
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            # The iterator ends after a while without records, or where there are as many as wanted.
            pairs = zip(range(most), consumer, strict=False)
            return [(record.key, record.value) for _, record in pairs if record.value is not None]
        finally:
            consumer.close()
    except KafkaError as error:
        raise BrokerError(f"topic {topic!r:.80} of {bootstrap} cannot be read: {error}") from error
