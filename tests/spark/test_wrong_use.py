"""Topics, offsets and checkpoints that are not what a job left: a sentence, never silence, and nothing twice."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pandas.testing import assert_frame_equal
from pyspark.sql import DataFrame

from palearn import tables
from palearn.engine.bucket import Bucket
from palearn.errors import PalearnError
from palearn.models import codec
from palearn.spark import error_messages
from palearn.spark.sink import Sink, Written
from palearn.tables.folder import Folder
from palearn.tables.store import FORMAT
from tests.spark.conftest import (
    assert_accounts_balance,
    assert_same_outputs,
    make_topic,
    send,
    stream,
)
from tests.spark.test_outages import GOING, job_of, refused, running
from tests.spark.test_store import assert_refused

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

# -- topics that are not what they were -------------------------------------------------------------------


def examples(topic: str, count: int, first: int = 0, partitions: int = 2) -> list[tuple[str, int, bytes, bytes]]:
    """Return messages of three keys, spread over partitions."""
    return [
        (topic, i % partitions, b"k%d" % (i % 3), b'{"label": %d, "features": {"x": %d, "y": 1}}' % (i % 2, i % 7 - 3))
        for i in range(first, first + count)
    ]


def made(broker: str, topic: str, count: int, partitions: int = 2) -> None:
    make_topic(broker, topic, partitions)
    send(broker, examples(topic, count, partitions=partitions))


@contextmanager
def admin(broker: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=broker)
    try:
        yield client
    finally:
        client.close()


def delete(broker: str, topic: str) -> None:
    with admin(broker) as client:
        client.delete_topics([topic])
        until = time.monotonic() + 30
        while topic in client.list_topics():
            assert time.monotonic() < until
            time.sleep(0.05)


@pytest.mark.parametrize("count", [4, 40], ids=["fewer records", "more records"])
def test_a_topic_made_anew_while_the_job_is_stopped(broker: str, topic: str, tmp_path: Path, count: int) -> None:
    made(broker, topic, 20)
    chosen = job_of(broker, topic, tmp_path)
    out = stream(chosen)
    delete(broker, topic)
    assert f"has no topic {topic}" in refused(chosen)
    made(broker, topic, count)
    told = refused(chosen)
    assert f"topic {topic} was deleted and made again" in told
    assert "Start over" in told
    assert_accounts_balance(out, 20)


@pytest.mark.parametrize("again", [None, 40], ids=["deleted", "made anew"])
def test_a_topic_deleted_while_the_job_runs(broker: str, topic: str, tmp_path: Path, again: int | None) -> None:
    made(broker, topic, 20)
    with running(job_of(broker, topic, tmp_path, GOING)) as job:
        job.wait_for(1)
        delete(broker, topic)
        if again:
            made(broker, topic, again)
        told = job.end()
    assert ("was deleted and made again" if again else f"has no topic {topic}") in told
    assert_accounts_balance(job.out, 20)


def test_nothing_of_a_topic_made_anew_under_a_batch_is_kept(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def meanwhile(self: Sink, rows: DataFrame) -> Written:
        if (out / "batches").exists():
            delete(broker, topic)
            made(broker, topic, 60)
        return collect(self, rows)

    collect = Sink._collect
    made(broker, topic, 40)
    chosen = job_of(broker, topic, tmp_path, "source.kafka.max_offsets_per_trigger=20")
    out = Path(chosen.output.path)
    monkeypatch.setattr(Sink, "_collect", meanwhile)
    assert f"topic {topic} was deleted and made again" in refused(chosen)
    assert_accounts_balance(out, 20)


def test_partitions_that_are_added_are_learned_too(broker: str, topic: str, tmp_path: Path) -> None:
    made(broker, topic, 12)
    for partitions in (3, 4):
        stream(job_of(broker, topic, tmp_path))
        with admin(broker) as client:
            client.create_partitions({topic: partitions})
        send(broker, examples(topic, 12, partitions=partitions))
    with running(job_of(broker, topic, tmp_path, GOING)) as job:
        job.wait_for(3)
        with admin(broker) as client:
            client.create_partitions({topic: 6})
        send(broker, examples(topic, 12, partitions=6))
        until = time.monotonic() + 60
        while tables.read(job.out, "batches")["records"].sum() < 48:
            assert time.monotonic() < until
            time.sleep(0.1)
    assert job.error is None
    accounts = assert_accounts_balance(job.out, 48)
    assert accounts["empty_offsets"].sum() == 0
    assert {(row["partition"], row["start"]) for row in accounts["offsets"].iloc[-1]} >= {(4, 0), (5, 0)}


def test_offsets_gone_by_retention(broker: str, topic: str, tmp_path: Path) -> None:
    made(broker, topic, 20)
    most = "source.kafka.max_offsets_per_trigger=20"
    out = stream(job_of(broker, topic, tmp_path, most))
    send(broker, examples(topic, 40))
    gone = {TopicPartition(topic, 0): 15, TopicPartition(topic, 1): 28}  # five of one, all of the next batch of other
    with admin(broker) as client:
        client.delete_records(gone)
    with pytest.raises(PalearnError) as caught:
        stream(job_of(broker, topic, tmp_path, most))
    told = str(caught.value)
    assert told.count("gone from Kafka") == 2  # a line for each partition
    assert topic in told
    assert "failOnDataLoss=false" in told
    assert_accounts_balance(out, 20)

    stream(job_of(broker, topic, tmp_path, most, "source.kafka.options.failOnDataLoss=false"))
    accounts = assert_accounts_balance(out, 20 + 40 - 5 - 18)
    assert accounts["empty_offsets"].sum() == 5 + 18
    assert accounts["empty_offsets"].iloc[1] == 5 + 10


def test_a_topic_that_the_configuration_does_not_name_any_more(tmp_path: Path) -> None:
    text = "Query terminated with exception: Some data may have been lost because they are not available in Kafka"
    told = error_messages.reason(text, job_of("none", "none", tmp_path))
    assert "or source.kafka.topics lacks a topic" in told


def test_offsets_of_transactions_hold_no_records(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    producer = KafkaProducer(bootstrap_servers=broker, transactional_id=topic, enable_idempotence=True, acks="all")
    try:
        producer.init_transactions()
        for number in range(3):
            producer.begin_transaction()
            for name, part, key, value in examples(topic, 5, partitions=1):
                producer.send(name, value, key, partition=part)
            producer.flush()
            producer.abort_transaction() if number == 1 else producer.commit_transaction()
    finally:
        producer.close()
    out = stream(job_of(broker, topic, tmp_path))
    accounts = assert_accounts_balance(out, 10)
    assert accounts["empty_offsets"].sum() == 5 + 3  # an aborted transaction, and a marker of each


# -- checkpoints that were copied -------------------------------------------------------------------------


def copied(folder: Path) -> str:
    shutil.copytree(folder / "checkpoint", folder / "copy")
    return f"checkpoint={folder / 'copy'}"


def test_a_copy_of_the_checkpoint_goes_on_and_the_original_is_refused(broker: str, topic: str, tmp_path: Path) -> None:
    most = "source.kafka.max_offsets_per_trigger=10"
    made(broker, topic, 20)
    (tmp_path / "straight").mkdir()
    for folder in (tmp_path / "straight", tmp_path):
        stream(job_of(broker, topic, folder, most))
    copy = copied(tmp_path)
    send(broker, examples(topic, 30))
    for chosen in (job_of(broker, topic, tmp_path / "straight", most), job_of(broker, topic, tmp_path, most, copy)):
        out = stream(chosen)
    assert_accounts_balance(out, 50)
    assert_same_outputs(out, tmp_path / "straight" / "out")
    assert_refused(job_of(broker, topic, tmp_path, most), "only to batch 1", "Give that copy")


def test_a_copy_of_the_checkpoint_and_its_original_do_not_take_turns(broker: str, topic: str, tmp_path: Path) -> None:
    made(broker, topic, 20)
    chosen = job_of(broker, topic, tmp_path)
    stream(chosen)
    copy = job_of(broker, topic, tmp_path, copied(tmp_path))
    send(broker, examples(topic, 10))
    out = stream(copy)
    # The same records in the same batch: nothing is written, and the original has learned them too.
    before = [tables.read(out, name) for name in ("models", "metrics", "batches")]
    stream(chosen)
    for name, rows in zip(("models", "metrics", "batches"), before, strict=True):
        assert_frame_equal(tables.read(out, name), rows)
    # The original goes on, and the copy has other records for its next batch.
    send(broker, examples(topic, 4))
    stream(chosen)
    send(broker, examples(topic, 4))
    told = refused(copy)
    assert "batch 2" in told
    assert "Go on with that copy" in told
    assert_accounts_balance(out, 34)


def test_a_copy_of_the_checkpoint_does_not_run_beside_its_original(broker: str, topic: str, tmp_path: Path) -> None:
    made(broker, topic, 10)
    with running(job_of(broker, topic, tmp_path, GOING)) as job:
        job.wait_for(1)
        told = refused(job_of(broker, topic, tmp_path, GOING, copied(tmp_path)))
        assert f"another job runs on {job.out}" in told
    assert job.error is None
    assert_accounts_balance(job.out, 10)


# -- what a newer palearn wrote ---------------------------------------------------------------------------


def test_the_output_of_a_newer_version_is_refused(broker: str, topic: str, tmp_path: Path) -> None:
    made(broker, topic, 10)
    chosen = job_of(broker, topic, tmp_path)
    owner = Folder(str(stream(chosen) / "_palearn"))
    owner.write(owner.read("owner.json") | {"format": FORMAT + 1}, "owner.json")
    assert_refused(chosen, f"a newer palearn (format {FORMAT + 1}, not {FORMAT})", "upgrade palearn")


def test_the_state_of_a_newer_version_is_refused(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(broker, topic, 10)
    chosen = job_of(broker, topic, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(codec, "VERSION", codec.VERSION + 1)
        newer = Bucket(chosen.bucket_config).to_bytes()
    start = Folder(str(tmp_path / "checkpoint" / "start"))
    for bucket in range(chosen.state.buckets):
        start.write_bytes(newer, f"{bucket}.paln")
    start.write({"files": chosen.state.buckets}, "done.json")
    told = refused(chosen)
    assert "state of bucket" in told
    assert f"format version {codec.VERSION + 1} is newer" in told
    assert "upgrade it" in told
    assert "damaged" not in told
