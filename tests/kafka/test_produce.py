"""The producer: what the files hold is in the topic, keyed, in order and once; what is bad is reported."""

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition

from palearn import datasets, files, records
from palearn.errors import BrokerError, ConfigError, FileFormatError
from palearn.kafka import produce as producing
from palearn.kafka.produce import BadLine, produce
from palearn.records import Record
from tests.conftest import free_port_pair

pytestmark = pytest.mark.kafka

Messages = list[tuple[int, bytes, bytes]]  # partition, key, value


def consume(bootstrap: str, topic: str) -> Messages:
    """Return all that a topic holds, each partition in its order."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False)
    try:
        parts = [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        consumer.assign(parts)
        consumer.seek_to_beginning(*parts)
        ends = consumer.end_offsets(parts)
        found: Messages = []
        while any(consumer.position(part) < ends[part] for part in parts):
            for batch in consumer.poll(timeout_ms=500).values():
                found += [(message.partition, message.key, message.value) for message in batch]
        return found
    finally:
        consumer.close()


def by_key(messages: Messages) -> dict[bytes, list[bytes]]:
    found = defaultdict(list)
    for _, key, value in messages:
        found[key].append(value)
    return found


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(line + "\n" for line in lines))
    return path


def test_records_come_back_by_key_in_order_with_the_exact_bytes(broker: str, topic: str) -> None:
    path, names = datasets.path("a9a"), datasets.names("a9a")
    report = produce([path], topic=topic, bootstrap=broker, key="occupation", missing_key="none", names=names)
    assert (report.sent, report.bad_count, report.bad) == (32_561, 0, [])

    expected = defaultdict(list)
    for _, record in files.read(path, names=names):
        assert isinstance(record, Record)
        key = records.record_key(record, "occupation") or "none"
        expected[key.encode()].append(records.encode(record))
    found = consume(broker, topic)
    assert by_key(found) == expected
    assert len(expected) == 15  # 14 occupations, and the people without one
    homes = {(key, partition) for partition, key, _ in found}
    assert len(homes) == len(expected)  # each key in one partition
    assert len({partition for _, partition in homes}) == 4  # and the keys in all


def test_every_file_and_format_in_the_order_given(broker: str, topic: str, tmp_path: Path) -> None:
    paths = [
        write(tmp_path / "c.csv", ["x,user,label", "1,ann,a", "2,bob,b"]),
        write(tmp_path / "a.jsonl", ['{"id": "7", "label": 1, "features": {"user": "ann", "x": true}}']),
        write(tmp_path / "b.jsonl", ['{"label": -1, "features": {"user": "ann", "3": 0.5}}']),
    ]
    seen: list[tuple[int, int | None]] = []
    report = produce(
        paths,
        topic=topic,
        bootstrap=broker,
        key="user",
        partitions=1,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (report.sent, report.bad_count) == (4, 0)
    assert consume(broker, topic) == [
        (0, b"ann", b'{"label":"a","features":{"x":1.0}}'),
        (0, b"bob", b'{"label":"b","features":{"x":2.0}}'),
        (0, b"ann", b'{"id": "7", "label": 1, "features": {"user": "ann", "x": true}}'),  # as it stands in the file
        (0, b"ann", b'{"label": -1, "features": {"user": "ann", "3": 0.5}}'),
    ]
    total = sum(path.stat().st_size for path in paths)
    assert seen[-1] == (total, total)
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


def test_a_file_with_bad_lines_gives_its_good_lines_and_names_the_bad(broker: str, topic: str, tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.libsvm",
        ["1 1:1 7:1", "1 1:nan 7:1", "-1 1:2 7:1", "1 1", "1 3:1", "1 1:1 1:1", "1 1:3 7:1"],
    )
    report = produce([path], topic=topic, bootstrap=broker, key="7", partitions=1)
    assert report.sent == 3
    assert [(b.path, b.line, b.reason) for b in report.bad] == [
        (str(path), 2, "non_finite"),
        (str(path), 4, "bad_features"),
        (str(path), 5, "no_key"),
        (str(path), 6, "bad_features"),
    ]
    assert "'7'" in report.bad[2].detail
    assert "--missing-key" in report.bad[2].detail
    assert [json.loads(value)["features"]["1"] for _, _, value in consume(broker, topic)] == [1.0, 2.0, 3.0]


def test_bad_lines_beyond_the_first_thousand_are_counted(broker: str, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", ["1 x"] * 1500 + ["1 1:1"])
    report = produce([path], topic=topic, bootstrap=broker)
    assert (report.sent, report.bad_count, len(report.bad)) == (1, 1500, 1000)
    assert report.bad[-1] == BadLine(str(path), 1000, "bad_features", report.bad[-1].detail)


@pytest.mark.parametrize(("options", "key"), [({}, b"all"), ({"constant_key": "x é"}, "x é".encode())])
def test_without_a_field_all_records_have_one_key(
    broker: str, topic: str, tmp_path: Path, options: dict[str, Any], key: bytes
) -> None:
    path = write(tmp_path / "a.libsvm", ["1 1:1"] * 10)
    produce([path], topic=topic, bootstrap=broker, **options)
    found = consume(broker, topic)
    assert {k for _, k, _ in found} == {key}
    assert len({partition for partition, _, _ in found}) == 1
    assert len(found) == 10


def test_a_partition_is_the_one_that_every_kafka_client_chooses(broker: str, topic: str, tmp_path: Path) -> None:
    from kafka import KafkaProducer

    path = write(tmp_path / "a.jsonl", [json.dumps({"features": {"k": f"key {i}"}}) for i in range(50)])
    produce([path], topic=topic, bootstrap=broker, key="k", partitions=7)
    chosen = {key: partition for partition, key, _ in consume(broker, topic)}
    with KafkaProducer(bootstrap_servers=broker) as plain:
        sent = {key: plain.send(topic, b"{}", key) for key in chosen}
        assert {key: future.get(10).partition for key, future in sent.items()} == chosen


def test_large_records_go_through_and_too_large_ones_are_bad_lines(broker: str, topic: str, tmp_path: Path) -> None:
    def line(count: int) -> str:
        return "1 " + " ".join(f"{i}:{i / 7!r}" for i in range(count))

    path = write(tmp_path / "a.libsvm", [line(125_000), line(180_000), line(3)])
    report = produce([path], topic=topic, bootstrap=broker, partitions=1)
    assert [(b.line, b.reason) for b in report.bad] == [(2, "too_large")]
    sizes = [len(value) for _, _, value in consume(broker, topic)]
    assert len(sizes) == report.sent == 2
    assert 3_000_000 < sizes[0] < 4_000_000


def test_more_than_the_client_may_hold_is_sent_in_steps(
    broker: str, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producing, "_STEP_BYTES", 2_000)
    monkeypatch.setattr(producing, "_MAX_STEPS", 2)
    path = write(tmp_path / "a.libsvm", [f"1 1:{i}" for i in range(2_000)])
    assert produce([path], topic=topic, bootstrap=broker, partitions=1).sent == 2_000
    values = [json.loads(value)["features"]["1"] for _, _, value in consume(broker, topic)]
    assert values == list(range(2_000))


def test_rate_is_kept_by_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    slept: list[float] = []
    monkeypatch.setattr(producing.time, "monotonic", lambda: now)
    monkeypatch.setattr(producing.time, "sleep", slept.append)
    wait = producing._pacer(1000.0)
    for sent in range(1, 61):
        wait(sent)
    assert slept == pytest.approx([0.02, 0.04, 0.06])  # the clock stands still: the whole time is waited
    now = 200.0
    wait(80)
    assert slept[-1] == 0.0  # late: no wait


def test_records_arrive_at_a_rate_too(broker: str, topic: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", ["1 1:1"] * 60)
    report = produce([path], topic=topic, bootstrap=broker, rate=200.0)
    assert report.sent == len(consume(broker, topic)) == 60
    assert report.seconds >= 60 / 200.0 - 0.02


def test_no_broker(tmp_path: Path) -> None:
    address = f"127.0.0.1:{free_port_pair()}"
    path = write(tmp_path / "a.libsvm", ["1 1:1"])
    with pytest.raises(BrokerError, match=f"no Kafka broker answers at {address}.*palearn broker start"):
        produce([path], topic="t", bootstrap=address)
    with pytest.raises(BrokerError, match="no Kafka broker answers at nonsense"):
        produce([path], topic="t", bootstrap="nonsense")


def test_what_is_not_delivered_is_raised(broker: str, topic: str, tmp_path: Path) -> None:
    client = KafkaAdminClient(bootstrap_servers=broker)
    try:
        small = {"num_partitions": 1, "configs": {"max.message.bytes": "1000"}}
        client.create_topics({topic: small}, wait_for_metadata=True)
    finally:
        client.close()
    line = "1 " + " ".join(f"{i}:{i / 7!r}" for i in range(3_000))
    path = write(tmp_path / "a.libsvm", ["1 1:1", line])
    with pytest.raises(BrokerError, match=f"1 records for topic '{topic}' were not delivered: .*MessageSize"):
        produce([path], topic=topic, bootstrap=broker)


def test_a_topic_that_cannot_be_made(broker: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", ["1 1:1"])
    with pytest.raises(BrokerError, match=r"^'no/topic' cannot be a topic's name: give"):
        produce([path], topic="no/topic", bootstrap=broker)


def test_a_damaged_file_ends_the_reading_but_not_what_was_read(broker: str, topic: str, tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.libsvm.gz"
    path.write_bytes(gzip.compress(b"".join(b"1 1:%d\n" % i for i in range(5_000)))[:-100])
    with pytest.raises(FileFormatError, match="damaged"):
        produce([path], topic=topic, bootstrap=broker, partitions=1)
    values = [json.loads(value)["features"]["1"] for _, _, value in consume(broker, topic)]
    assert values == list(range(len(values)))
    assert len(values) > 1_000


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "x", "constant_key": "y"}, "not both"),
        ({"missing_key": "y"}, "give key"),
        ({"constant_key": ""}, "must not be empty"),
        ({"key": "x", "missing_key": ""}, "must not be empty"),
        ({"rate": 0.0}, "rate must be > 0"),
    ],
)
def test_wrong_options(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        produce([write(tmp_path / "a.libsvm", ["1 1:1"])], topic="t", **options)


def test_wrong_files_are_found_before_anything_is_sent(tmp_path: Path) -> None:
    path = write(tmp_path / "a.libsvm", ["1 1:1"])
    with pytest.raises(FileFormatError, match=r"none\.csv: No such file"):
        produce([path, tmp_path / "none.csv"], topic="t")
    with pytest.raises(FileFormatError, match="--format"):
        produce([path, tmp_path / "a.txt"], topic="t")
