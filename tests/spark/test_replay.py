"""Replay: history as one batch gives the bits of the stream; files give the bits of the topic made of them."""

import json
from pathlib import Path

import pytest
from pandas.testing import assert_frame_equal
from pyspark.sql import SparkSession

from palearn import tables
from palearn.errors import ConfigError
from palearn.kafka.produce import produce
from palearn.records import Record
from palearn.spark import replay as replay_job
from tests.spark.conftest import (
    PEOPLE,
    Message,
    assert_accounts_balance,
    assert_same_learning,
    batches,
    by_key,
    config,
    consume,
    learn_without_spark,
    people,
    replay,
    stream,
    write_lines,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

#: Columns that tell where a record was read, which a topic and a file cannot agree on.
PLACE = ["last_topic", "last_partition", "last_offset"]


def assert_same_apart_from_place(out: Path, other: Path) -> None:
    for read in (tables.latest_models, lambda path: tables.metrics(path, latest=True)):
        mine, theirs = (by_key(read(path)).drop(columns=PLACE) for path in (out, other))
        assert len(theirs) > 0
        assert_frame_equal(mine, theirs, check_exact=True)


@pytest.mark.parametrize(("buckets", "partitions"), [(1, 1), (7, 4), (64, 1), (64, 4)])
def test_a_replayed_topic_gives_the_same_bits(
    broker: str, adult: str, adult_messages: list[Message], tmp_path: Path, buckets: int, partitions: int
) -> None:
    shape = (f"state.buckets={buckets}", f"state.partitions={partitions}")
    chosen = config(broker, adult, tmp_path, *shape)
    out = replay(chosen)
    assert_same_learning(out, learn_without_spark(chosen, adult_messages))
    assert_accounts_balance(out, PEOPLE)
    assert batches(out, "models") == [0]
    assert not (tmp_path / "checkpoint").exists()


def test_buckets_that_come_in_many_pieces_give_the_same_bits(
    broker: str, adult: str, adult_messages: list[Message], tmp_path: Path, spark: SparkSession
) -> None:
    name = "spark.sql.execution.arrow.maxRecordsPerBatch"
    chosen = config(broker, adult, tmp_path, "state.buckets=3")
    before = spark.conf.get(name)
    try:
        spark.conf.set(name, "90")
        replay_job.run(chosen, spark=spark)
    finally:
        spark.conf.set(name, before)
    assert_same_learning(tmp_path / "out", learn_without_spark(chosen, adult_messages))


def test_a_range_of_offsets_is_all_that_is_learned(
    broker: str, adult: str, adult_messages: list[Message], tmp_path: Path
) -> None:
    def offsets(each: int) -> str:
        return json.dumps({adult: {str(part): each for part in range(4)}})

    # The time is where a stream begins; Spark would heed it before the offsets.
    chosen = config(broker, adult, tmp_path, "source.kafka.options={startingTimestamp: 1}")
    out = replay(chosen, start=offsets(10), end=offsets(45))
    kept = [message for message in adult_messages if 10 <= message.offset < 45]
    assert_same_learning(out, learn_without_spark(chosen, kept))
    assert_accounts_balance(out, len(kept))


def test_a_folder_that_is_not_empty_is_refused(broker: str, adult: str, tmp_path: Path) -> None:
    chosen = config(broker, adult, tmp_path)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"out is not empty; .* give it a new folder"):
        replay(chosen)
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"


def test_json_lines_give_the_bits_of_the_topic_made_of_them(broker: str, topic: str, tmp_path: Path) -> None:
    found = people(600)
    path = write_lines(tmp_path / "people.jsonl", found)
    with path.open("ab") as file:
        file.write(b"oops\n")
    report = produce([path], topic=topic, bootstrap=broker, key="occupation")
    assert (report.sent, report.bad_count) == (600, 1)

    streamed = stream(config(broker, topic, tmp_path / "stream"))
    chosen = config(broker, topic, tmp_path / "replay", "records.key={field: occupation}")
    replayed = replay(chosen, paths=[str(path)])
    assert_same_apart_from_place(replayed, streamed)
    models = tables.latest_models(replayed)
    assert set(models["last_topic"]) == {str(path)}

    # The damaged line was read, so it is accounted for.
    assert assert_accounts_balance(replayed, 601).loc[0, ["learned", "rejected"]].tolist() == [600, 1]
    (bad,) = tables.read(replayed, "rejected").to_dict("records")
    assert (bad["topic"], bad["offset"], bad["reason"]) == (str(path), 601, report.bad[0].reason)


def test_libsvm_files_give_the_bits_of_the_topic_made_of_them(broker: str, topic: str, tmp_path: Path) -> None:
    paths = [tmp_path / "b.libsvm", tmp_path / "a.svm"]
    for start, path in zip((0, 300), paths, strict=True):
        rows = people(600)[start : start + 300]
        names = {
            name: number for number, name in enumerate(sorted({n for r in people(600) for n in r.features or {}}), 1)
        }
        path.write_text(
            "".join(
                f"{row.label} {' '.join(f'{names[name]}:{value}' for name, value in (row.features or {}).items())}\n"
                for row in rows
            )
        )
    # One key: the order of the files, which is that of their names, is the order of learning.
    produce(sorted(paths), topic=topic, bootstrap=broker, constant_key="all")
    streamed = stream(config(broker, topic, tmp_path / "stream", "source.kafka.max_offsets_per_trigger=250"))
    source = {"files": {"path": [str(path) for path in paths]}}
    chosen = config(broker, topic, tmp_path / "replay", "records.key={constant: all}", source=source)
    replayed = replay(chosen)
    assert_same_apart_from_place(replayed, streamed)
    assert_accounts_balance(replayed, 600)


def test_files_without_a_rule_for_the_key_are_refused(broker: str, tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", [Record(label=1, features={"x": 1.0})])
    with pytest.raises(ConfigError, match=r"records\.key"):
        replay(config(broker, "none", tmp_path), paths=[str(path)])
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("rule", ["{field: occupation}", "{field: time}", "{constant: everybody}"])
def test_keys_from_the_value_or_a_constant(broker: str, topic: str, tmp_path: Path, rule: str) -> None:
    found = people(300)
    for number, record in enumerate(found):
        record.time = None if number % 50 == 7 else f"group {number % 4}"
    produce([write_lines(tmp_path / "a.jsonl", found)], topic=topic, bootstrap=broker, partitions=1)
    messages = consume(broker, topic)
    chosen = config(broker, topic, tmp_path, f"records.key={rule}", "source.kafka.max_offsets_per_trigger=130")
    out = stream(chosen)

    def key(record: Record) -> bytes | None:
        if rule == "{constant: everybody}":
            return b"everybody"
        if rule == "{field: time}":
            return None if record.time is None else str(record.time).encode()
        return next(n for n in record.features or {} if n.startswith("occupation=")).partition("=")[2].encode()

    keyed = [message._replace(key=key(record)) for message, record in zip(messages, found, strict=True)]
    assert_same_learning(out, learn_without_spark(chosen, keyed))
    missing = sum(message.key is None for message in keyed)
    accounts = assert_accounts_balance(out, 300)
    assert accounts["rejected"].sum() == missing == (6 if "time" in rule else 0)
    if missing:
        rejected = tables.read(out, "rejected")
        assert set(rejected["reason"]) == {"no_key"}
        assert set(rejected["value"]) == {m.value for m in keyed if m.key is None}


def test_records_of_two_views(broker: str, topic: str, tmp_path: Path) -> None:
    found = []
    for number, record in enumerate(people(400)):
        items = list((record.features or {}).items())
        views = {"page": dict(items[::2]), "link": dict(items[1::2]) if number % 10 else {}}
        found.append(Record(label=record.label, views=views, time=f"group {number % 3}"))
    found[50].views = {"page": {"x": 1.0}}
    produce([write_lines(tmp_path / "a.jsonl", found)], topic=topic, bootstrap=broker, key="time")
    learners = [
        {"name": "both", "algorithm": "two_view_pa", "C": 0.1, "gamma": 0.5},
        {"name": "together", "algorithm": "arow"},
        {"name": "page", "algorithm": "pa1", "view": "page"},
    ]
    chosen = config(
        broker, topic, tmp_path, "records.views=[page, link]", "source.kafka.max_offsets_per_trigger=150",
        learners=learners,
    )  # fmt: skip
    out = stream(chosen)
    assert_same_learning(out, learn_without_spark(chosen, consume(broker, topic)))
    assert assert_accounts_balance(out, 400)["rejected"].sum() == 1
    assert tables.read(out, "rejected")["reason"].tolist() == ["bad_view"]
    models = tables.latest_models(out).set_index("learner")
    views = {name: {f.partition(":")[0] for f in fs if "(bias)" not in f} for name, fs in models["features"].items()}
    assert views == {"both": {"page", "link"}, "together": {"page", "link"}, "page": {"page"}}
    newest = tables.metrics(out, latest=True).dropna(subset="key").set_index("learner")
    assert newest.loc["both", "view_difference"].notna().all()
    assert newest.loc["page", "view_difference"].isna().all()
    # The same through the batch job.
    assert_same_learning(
        replay(config(broker, topic, tmp_path / "r", "records.views=[page, link]", learners=learners)),
        learn_without_spark(chosen, consume(broker, topic)),
    )


def test_many_classes(broker: str, topic: str, tmp_path: Path) -> None:
    found = []
    for record in people(600):
        occupation = next(n for n in record.features or {} if n.startswith("occupation="))
        rest = {name: value for name, value in (record.features or {}).items() if name != occupation}
        sex = "f" if "sex=Female" in rest else "m"
        found.append(Record(label=occupation.partition("=")[2], features=rest, time=sex))
    produce([write_lines(tmp_path / "a.jsonl", found)], topic=topic, bootstrap=broker, key="time")
    learners = [
        {"name": "one", "algorithm": "pa1", "C": 0.1},
        {"name": "all", "algorithm": "spa1", "C": 0.1},
        {"name": "arow", "algorithm": "arow", "constraints": "all"},
    ]
    chosen = config(
        broker, topic, tmp_path, "records.task=multiclass", "source.kafka.max_offsets_per_trigger=200",
        learners=learners,
    )  # fmt: skip
    out = stream(chosen)
    expected = learn_without_spark(chosen, consume(broker, topic))
    assert_same_learning(out, expected)
    models = tables.latest_models(out)
    assert models["labels"].map(len).min() > 5
    assert (models["weights"].map(len) == models["labels"].map(len) * models["features"].map(len)).all()
    assert_same_learning(
        replay(config(broker, topic, tmp_path / "r", "records.task=multiclass", learners=learners)), expected
    )
