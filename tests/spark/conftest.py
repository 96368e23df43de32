"""One Spark session for all tests here, topics of the shipped data, and tables compared bit for bit."""

import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from pandas.testing import assert_frame_equal
from pyspark.sql import SparkSession

from palearn import datasets, records, tables
from palearn.config import Config, parse
from palearn.engine import result_rows
from palearn.engine.bucket import Bucket, Chunk
from palearn.kafka.produce import produce
from palearn.records import Record
from palearn.spark import replay as replay_job
from palearn.spark import stream as stream_job
from palearn.spark.session import session

MASTER = "local[2]"
LEARNERS = [
    {"name": "pa1", "algorithm": "pa1", "C": 0.1},
    {"name": "pam1", "algorithm": "pam1", "C": 0.1},
    {"name": "arow", "algorithm": "arow", "r": 1.0},
    {"name": "full", "algorithm": "arow", "r": 1.0, "covariance": "full"},
]
STATUSES = ["learned", "scored", "pending", "duplicate", "rejected", "expired"]

#: How many of the shipped examples the tests stream.
PEOPLE = 2000
#: In four batches.
MOST = "source.kafka.max_offsets_per_trigger=500"


class Message(NamedTuple):
    """A record as a topic holds it."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Session of all tests; the jobs find it again, as :func:`palearn.spark.session.session` reuses it."""
    quiet = "--conf spark.ui.enabled=false --conf spark.log.level=ERROR --driver-memory 2g"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_SUBMIT_ARGS", f"{quiet} pyspark-shell")
        found = session(config("127.0.0.1:1", "none", Path("none")), name="palearn tests", master=MASTER)
    yield found
    found.stop()


def config(broker: str, topic: str, folder: Path, *overrides: str, **parts: Any) -> Config:
    """Return a configuration with its output and checkpoint in ``folder``; ``overrides`` as in ``--set``."""
    tree = {
        "source": {"kafka": {"bootstrap_servers": broker, "topics": [topic]}},
        "learners": [dict(learner) for learner in LEARNERS],
        "state": {"buckets": 4, "partitions": 2},
        "metrics": {"window": 50},
        "output": {"path": str(folder / "out")},
        "checkpoint": str(folder / "checkpoint"),
        **parts,
    }
    return parse(tree, overrides)


def stream(config: Config) -> Path:
    """Stream what the topic holds now; return the output folder."""
    stream_job.run(config, master=MASTER)
    return Path(config.output.path)


def replay(config: Config, **options: Any) -> Path:
    """Learn history as one batch; return the output folder."""
    replay_job.run(config, master=MASTER, **options)
    return Path(config.output.path)


# -- data -----------------------------------------------------------------------------------------------


def people(count: int = PEOPLE) -> list[Record]:
    """Return the first examples of UCI Adult that name an occupation."""
    employed = (record for record in datasets.a9a() if records.record_key(record, "occupation"))
    return list(itertools.islice(employed, count))


def write_lines(path: Path, found: Iterable[Record]) -> Path:
    """Write records as JSON lines."""
    path.write_bytes(b"".join(records.encode(record) + b"\n" for record in found))
    return path


def produce_people(broker: str, topic: str, path: Path, found: Iterable[Record]) -> None:
    """Send records to a topic as users do, keyed by occupation, in four partitions."""
    report = produce([write_lines(path, found)], topic=topic, bootstrap=broker, key="occupation")
    assert report.bad_count == 0


def make_topic(broker: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=broker)
    try:
        admin.create_topics({topic: {"num_partitions": partitions}}, wait_for_metadata=True)
    finally:
        admin.close()


def send(broker: str, messages: Iterable[tuple[str, int, bytes | None, bytes | None]]) -> list[Message]:
    """Send (topic, partition, key, value) as they are; return them with their offsets."""
    producer = KafkaProducer(bootstrap_servers=broker, enable_idempotence=True, acks="all", max_request_size=4 * 2**20)
    try:
        sent = []
        for topic, partition, key, value in messages:
            future = producer.send(topic, value, key, partition=partition)
            sent.append((topic, partition, future, key, value))
        producer.flush()
        return [Message(topic, part, future.get().offset, *rest) for topic, part, future, *rest in sent]
    finally:
        producer.close()


def consume(broker: str, topic: str) -> list[Message]:
    """Return all that a topic holds, each partition in its order."""
    consumer = KafkaConsumer(bootstrap_servers=broker, enable_auto_commit=False, max_partition_fetch_bytes=8 * 2**20)
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: list[Message] = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for batch in consumer.poll(timeout_ms=500).values():
                found += [Message(m.topic, m.partition, m.offset, m.key, m.value) for m in batch]
        return sorted(found, key=lambda message: message[:3])
    finally:
        consumer.close()


@pytest.fixture(scope="session")
def adult(broker: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Topic of two thousand people, keyed by occupation, in four partitions; tests only read it."""
    produce_people(broker, "adult", tmp_path_factory.mktemp("adult") / "people.jsonl", people())
    return "adult"


@pytest.fixture(scope="session")
def adult_messages(broker: str, adult: str) -> list[Message]:
    found = consume(broker, adult)
    assert len(found) == PEOPLE
    return found


@pytest.fixture(scope="session")
def finished(broker: str, adult: str, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an uninterrupted run's checkpoint and output; tests only read it."""
    folder = tmp_path_factory.mktemp("finished")
    stream(config(broker, adult, folder, MOST, "output.predictions={}"))
    return folder


# -- tables ---------------------------------------------------------------------------------------------


def learn_without_spark(config: Config, messages: list[Message]) -> dict[str, pd.DataFrame]:
    """Return the tables of one bucket that takes in all messages at once, in this process."""
    bucket = Bucket(config.bucket_config)
    bucket.learn(
        Chunk(
            key=[message.key for message in messages],
            value=[message.value for message in messages],
            topic=[message.topic for message in messages],
            partition=np.array([message.partition for message in messages], np.int64),
            offset=np.array([message.offset for message in messages], np.int64),
        )
    )
    rows: dict[str, pa.Table] = bucket.results()
    return {name: result_rows.plain(table, name).to_pandas() for name, table in rows.items()}


def by_key(frame: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of keys in one order, without what depends on the batch."""
    kept = frame[frame["key"].notna()].drop(columns=["batch_id", "updated_batch", "drift"], errors="ignore")
    return kept.sort_values(["key", "learner"]).reset_index(drop=True)


def assert_same_learning(out: Path, expected: dict[str, pd.DataFrame]) -> None:
    """Assert that an output's last models and figures are the expected ones, to the last bit."""
    for name, found in (("models", tables.latest_models(out)), ("metrics", tables.metrics(out, latest=True))):
        wanted = by_key(expected[name])
        assert len(wanted) > 0
        # Counts that the rows over all keys do not have are read as floats beside those rows.
        mine = by_key(found).astype(wanted.dtypes.to_dict())
        assert_frame_equal(mine, wanted, check_exact=True, obj=name)


def assert_same_outputs(out: Path, other: Path) -> None:
    """Assert that two outputs hold the same tables with the same rows, batch for batch."""
    names = [folder.name for folder in visible(out)]
    assert names == [folder.name for folder in visible(other)]
    for name in names:
        first, second = (in_order(tables.read(path, name)) for path in (out, other))
        assert_frame_equal(first, second, check_exact=True, obj=name)


def in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table's rows in an order that does not depend on which task wrote which file."""
    place = [name for name in ("batch_id", "key", "learner", "topic", "partition", "offset") if name in frame]
    return frame.sort_values(place).reset_index(drop=True)


def visible(folder: Path) -> list[Path]:
    """Return what plain readers see of a folder."""
    return sorted(path for path in folder.iterdir() if path.name[0] not in "_.")


def batches(out: Path, table: str) -> list[int]:
    """Return the batches that a table has a folder of."""
    return sorted(int(folder.name.removeprefix("batch_id=")) for folder in visible(out / table))


def assert_accounts_balance(out: Path, records: int) -> pd.DataFrame:
    """Assert that every batch, and all together, accounts for every record; return the accounts."""
    accounts = tables.read(out, "batches").sort_values("batch_id").reset_index(drop=True)
    assert accounts["batch_id"].is_unique
    assert (accounts["records"] == accounts[STATUSES].sum(axis=1)).all()
    assert accounts["records"].sum() == records
    return accounts
