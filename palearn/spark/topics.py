"""What Kafka says of the configured topics, asked through the client that the connector brings."""

from collections.abc import Iterable
from types import TracebackType
from typing import Any, Self

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from palearn.config import Config, KafkaSource
from palearn.errors import StreamError
from palearn.kafka import reachability

#: Who has just started a job wants to know soon that no broker is there; a busy machine needs its time to answer.
START_MS = 30_000


class NoAnswer(StreamError):
    """No broker answers."""


class Topics:
    """The topics of a source; a connection that stays open, to be used with ``with``, after :func:`require_broker`."""

    def __init__(self, spark: SparkSession, kafka: KafkaSource) -> None:
        self._kafka = kafka
        jvm = spark.sparkContext._jvm
        assert jvm is not None
        self._options: Any = jvm.org.apache.kafka.clients.admin.ListTopicsOptions
        self._new: Any = jvm.org.apache.kafka.clients.admin.NewTopic
        self._default: Any = jvm.java.util.Optional.empty()
        properties = jvm.java.util.Properties()
        for name, value in kafka.client_options.items():
            properties.setProperty(name, value)
        properties.setProperty("request.timeout.ms", "10000")
        try:
            self._admin: Any = jvm.org.apache.kafka.clients.admin.AdminClient.create(properties)
        except Py4JJavaError as error:
            cause = error.java_exception.getCause() or error.java_exception
            raise StreamError(f"source.kafka: Kafka's client refuses its options: {cause.getMessage()}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._admin.close()

    def ids(self, timeout_ms: int = START_MS) -> dict[str, str]:
        """Return the id of each topic: another one if it is deleted and made again.

        Raises
        ------
        NoAnswer
            No broker answers in that time.
        StreamError
            None lets us in, or a topic is not there.
        """
        there = self._there(timeout_ms)
        missing = [topic for topic in self._kafka.topics if topic not in there]
        if missing:
            raise StreamError(
                f"Kafka at {self._kafka.bootstrap_servers} has no topic {', '.join(missing)}; make it (palearn produce "
                "does). If the checkpoint began with it, it was deleted: start over with a new checkpoint and a new "
                "output"
            )
        names = self._kafka.topics
        if self._kafka.topics_pattern is not None:
            names = [name for name in there.keySet() if self._kafka.takes(name)]
        return {topic: there[topic].topicId().toString() for topic in names}

    def all_ids(self) -> dict[str, str]:
        """Return the id of every topic of the cluster."""
        there = self._there(START_MS)
        return {topic: there[topic].topicId().toString() for topic in there}

    def make(self, names: Iterable[str]) -> None:
        """Make the topics that are not there, as the cluster makes them by default.

        A producer would wait a minute for each, and then blame the broker.

        Raises
        ------
        NoAnswer
            No broker answers.
        StreamError
            None lets us in, or a topic is refused.
        """
        wanted = set(names)
        there = self._there(START_MS) if wanted else wanted
        missing = sorted(name for name in wanted if name not in there)
        if not missing:
            return
        try:
            self._admin.createTopics([self._new(name, self._default, self._default) for name in missing]).all().get()
        except Py4JJavaError as error:
            reason = str(error.java_exception.getMessage()).partition(":")[2].strip()
            raise StreamError(
                f"Kafka at {self._kafka.bootstrap_servers} has no topic {', '.join(missing)} for the output, and does "
                f"not make it ({reason}); make it, or correct output.TABLE.kafka"
            ) from None

    def _there(self, timeout_ms: int) -> Any:
        """Return the topics that are there, by name."""
        try:
            return self._admin.listTopics(self._options().timeoutMs(timeout_ms)).namesToListings().get()
        except Py4JJavaError as error:
            raise _no_answer(self._kafka.bootstrap_servers, str(error.java_exception.getMessage())) from None


def require_broker(kafka: KafkaSource) -> None:
    """Raise a BrokerError that says so when no broker answers; Spark is not needed for that."""
    if "kafka.security.protocol" not in kafka.options:  # Java's own options only Java knows
        reachability.require(kafka.bootstrap_servers, kafka.access)


def require_topics(spark: SparkSession, kafka: KafkaSource) -> None:
    """Raise a StreamError that says so when a topic is not there."""
    with Topics(spark, kafka) as topics:
        topics.ids()


def make_output_topics(spark: SparkSession, config: Config) -> None:
    """Make the topics that tables go to, where they are not there."""
    if config.output.topics:
        assert config.source.kafka is not None  # the configuration is refused otherwise
        with Topics(spark, config.source.kafka) as topics:
            topics.make(config.output.topics.values())


def _no_answer(servers: str, message: str) -> StreamError:
    kind, _, reason = message.partition(":")
    if kind.endswith("SslAuthenticationException"):
        return StreamError(
            f"the TLS handshake with Kafka at {servers} failed ({reason.strip()}); source.kafka.access.ca must name "
            "the authority that signed the broker's certificate, which must be made out to that host"
        )
    if kind.endswith(("AuthenticationException", "AuthorizationException")):
        return StreamError(
            f"Kafka at {servers} does not let this job in ({reason.strip()}); correct source.kafka.access"
        )
    return NoAnswer(
        f"no Kafka broker answers at {servers} ({reason.strip()}); start one (on this machine: palearn broker start), "
        "correct source.kafka.bootstrap_servers, or set source.kafka.access if it asks for TLS or a password"
    )
