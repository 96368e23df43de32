"""Examples in parts through Kafka and Spark: from one topic or three, in any batches, over a kill, and repeated."""

import base64
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from palearn import records, tables
from palearn.errors import ConfigError
from palearn.records import Record
from tests.spark.conftest import (
    STATUSES,
    Message,
    assert_accounts_balance,
    assert_same_learning,
    assert_same_outputs,
    batches,
    config,
    consume,
    learn_without_spark,
    make_topic,
    people,
    replay,
    send,
    stream,
)
from tests.spark.killing import kill_job
from tests.spark.test_jobs import start_job, wait_for

pytestmark = [pytest.mark.spark, pytest.mark.kafka]
needs_spark = pytest.mark.usefixtures("spark")

#: Of the topic of parts: seven batches, and limits that bite.
SMALL = "source.kafka.max_offsets_per_trigger=90"
LIMITS = ("join={max_pending: 6, max_age_records: 25, remember_ids: 40}", "output.predictions={}")
Value = dict[str, Any]


def occupation(record: Record) -> bytes:
    return str(records.record_key(record, "occupation")).encode()


def json_bytes(value: Value) -> bytes:
    return json.dumps(value).encode()


def parts_of(number: int, person: Record, dice: np.random.Generator) -> list[tuple[float, Value]]:
    """Return the records of a person, each with the place in the stream where it comes."""
    features, label = {"features": person.features}, {"label": person.label}
    ident, later = {"id": f"person-{number} \u00e9"}, number + dice.exponential(20)
    match number % 10:
        case 0:
            return [(number, features | label)]  # no parts
        case 1:
            return [(number, features)]  # scored, never learned
        case 2:
            return [(number, ident | features)]  # its label never comes
        case 3:
            return [(number, ident | label), (later, ident | features)]
        case 4:
            return [(number, ident | features), (later, ident | label), (later + 9, ident | label)]
        case 5:
            other = {"label": -(person.label or 0)}
            return [(number, ident | features), (later, ident | label), (later + 9, ident | other)]
        case _:
            return [(number, ident | features), (later, ident | label)]


@pytest.fixture(scope="module")
def parts(broker: str) -> tuple[str, list[Message]]:
    """Topic of people in parts, keyed by occupation, in three partitions; tests only read it."""
    topic, dice = "people-in-parts", np.random.default_rng(6)
    make_topic(broker, topic, 3)
    timed = [
        (place, occupation(person), json_bytes(value))
        for number, person in enumerate(people(330))
        for place, value in parts_of(number, person, dice)
    ]
    timed.sort(key=lambda part: part[0])
    return topic, send(broker, [(topic, zlib.crc32(key) % 3, key, value) for _, key, value in timed])


@pytest.fixture(scope="module")
def in_small_batches(
    broker: str, spark: object, parts: tuple[str, list[Message]], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Output of an uninterrupted run in small batches."""
    return stream(config(broker, parts[0], tmp_path_factory.mktemp("small"), SMALL, *LIMITS))


def rows_of(out: Path, table: str) -> pd.DataFrame:
    """Return a table's rows in the order of the records, without what says which batch wrote them."""
    return by_place(tables.read(out, table).drop(columns="batch_id"))


def by_place(frame: pd.DataFrame) -> pd.DataFrame:
    order = [name for name in ("topic", "partition", "offset", "learner") if name in frame]
    return frame.sort_values(order).reset_index(drop=True)


@needs_spark
def test_parts_of_one_partition_give_the_same_bits_whatever_the_batches(
    broker: str, parts: tuple[str, list[Message]], in_small_batches: Path, tmp_path: Path
) -> None:
    topic, messages = parts
    chosen = [config(broker, topic, tmp_path / name, *LIMITS) for name in ("stream", "replay")]
    outs = [in_small_batches, stream(chosen[0]), replay(chosen[1])]
    expected = learn_without_spark(chosen[0], messages)
    accounts = [assert_accounts_balance(out, len(messages)) for out in outs]
    assert len(accounts[0]) >= len(messages) // 90 > 5
    assert [len(found) for found in accounts[1:]] == [1, 1]
    for out, found in zip(outs, accounts, strict=True):
        assert_same_learning(out, expected)
        for table in ("predictions", "rejected", "expired"):
            assert_frame_equal(rows_of(out, table), by_place(expected[table]), check_exact=True, obj=table)
        assert (found[STATUSES].sum() == accounts[0][STATUSES].sum()).all()
    assert (accounts[0][STATUSES].sum() > 0).all()
    assert (accounts[0]["pending"] < 0).any()


@needs_spark
def test_a_late_label_gives_a_second_prediction_row_with_the_score_the_example_had(
    parts: tuple[str, list[Message]], in_small_batches: Path
) -> None:
    found = rows_of(in_small_batches, "predictions").query("id.notna()")
    assert set(found.groupby(["id", "learner"]).size()) == {1, 2}
    of_label = found[found["label"].notna()]
    value = {(m.partition, m.offset): json.loads(m.value or b"") for m in parts[1]}
    first = {(row.id, row.learner): row for row in found[found["label"].isna()].itertuples()}
    late = 0
    for row in of_label.itertuples():
        part = value[row.partition, row.offset]
        assert part["id"] == row.id
        if "features" in part:  # the label had come before
            assert (row.id, row.learner) not in first
            continue
        late += 1
        before = first[row.id, row.learner]
        assert (before.score, before.predicted, before.key) == (row.score, row.predicted, row.key)
        assert value[before.partition, before.offset]["features"] is not None
        assert (row.label, row.correct) == (str(part["label"]), row.predicted == row.label)
    assert late > 4 * 100


@pytest.mark.slow
@needs_spark
def test_a_job_killed_between_parts_goes_on_as_if_nothing_had_happened(
    broker: str, parts: tuple[str, list[Message]], in_small_batches: Path, tmp_path: Path
) -> None:
    process = start_job("stream", broker, parts[0], tmp_path, SMALL, *LIMITS)
    try:
        wait_for(process, "batch 1:")
    finally:
        kill_job(process)
    out = tmp_path / "out"
    done = batches(out, "batches")
    assert 2 <= len(done) < len(batches(in_small_batches, "batches"))
    assert tables.read(out, "batches")["pending"].sum() > 0
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*.parquet") if "_staging" not in path.parts}
    stream(config(broker, parts[0], tmp_path, SMALL, *LIMITS))
    assert_same_outputs(out, in_small_batches)
    written = {path for path, moment in before.items() if path.stat().st_mtime_ns != moment}
    assert {path.parent.name for path in written} <= {f"batch_id={done[-1]}"}  # the one that Spark may not know of


# -- several topics ---------------------------------------------------------------------------------------


def views_and_labels(topic: str, found: list[Record], dice: np.random.Generator) -> list[list[Message]]:
    """Return what three topics, of two partitions each, have of people: two views, and labels."""
    sent: list[list[Any]] = [[], [], []]
    for number, person in enumerate(found):
        items, key, ident = list((person.features or {}).items()), occupation(person), f"{topic[-4:]}-{number}"
        page = {"uid": ident, "terms": dict(items[::2]), "features": "not this topic's name", "weight": 2.0}
        link = {"id": ident, "views": {"link": dict(items[1::2])}}
        for name, out, value in zip("abc", sent, (page, link, {"id": ident, "label": person.label}), strict=True):
            out.append((f"{topic}-{name}", zlib.crc32(key) % 2, key, json_bytes(value)))
    return [[out[i] for i in dice.permutation(len(out))] for out in sent]


@needs_spark
def test_the_recorded_batches_of_three_topics_give_the_bits_of_the_stream(
    broker: str, topic: str, tmp_path: Path
) -> None:
    names = [f"{topic}-{part}" for part in "abc"]
    for name in names:
        make_topic(broker, name, 2)
    learners = [
        {"name": "both", "algorithm": "two_view_pa", "C": 0.1, "gamma": 0.5},
        {"name": "together", "algorithm": "arow"},
        {"name": "page", "algorithm": "pa1", "view": "page"},
    ]
    options = (
        f"source.kafka.topics=[{', '.join(names)}]",
        f"records.topics={{{names[0]}: {{view: page, fields: {{id: uid, features: terms}}}}}}",
        "records.views=[page, link]",
        "source.kafka.max_offsets_per_trigger=70",
        "join={max_pending: 20}",
        "output.predictions={}",
    )
    chosen = config(broker, topic, tmp_path, *options, learners=learners)
    found = people(160)
    page, link, label = views_and_labels(topic, found, np.random.default_rng(7))
    # Labels come when their people have been scored, and the views of others go on coming.
    send(broker, [*page[:110], *link[:120]])
    stream(chosen)
    send(broker, [*page[110:], *label])
    stream(chosen)
    send(broker, link[120:])
    out = stream(chosen)

    accounts = assert_accounts_balance(out, 3 * len(found))
    assert len(accounts) >= 7
    assert accounts["learned"].sum() + accounts["expired"].sum() + accounts["pending"].sum() == 3 * len(found)
    assert accounts["learned"].sum() > accounts["expired"].sum() > 0
    assert accounts["rejected"].sum() == 0
    newest = tables.metrics(out, latest=True).dropna(subset="key").set_index("learner")
    assert newest.loc["both", "view_difference"].notna().any()

    repeated = config(broker, topic, tmp_path / "repeated", *options, learners=learners)
    again = replay(repeated, batches_of=str(tmp_path / "checkpoint"))
    assert_same_learning(again, {"models": tables.latest_models(out), "metrics": tables.metrics(out, latest=True)})
    for table in ("predictions", "expired"):
        assert_frame_equal(rows_of(again, table), rows_of(out, table), check_exact=True, obj=table)
    once = assert_accounts_balance(again, 3 * len(found))
    assert (once.loc[0, STATUSES] == accounts[STATUSES].sum()).all()


# -- what is written of parts -----------------------------------------------------------------------------


@needs_spark
def test_what_is_not_learned_is_written_whole_with_its_place(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 2)
    make_topic(broker, f"{topic}-expired", 1)
    features = {"features": {"x": 1.0}, "spare": "\u2603 ignored, kept"}
    other = {"features": {"x": 2.0}}
    k: list[Value] = [
        {"id": 1, **features},
        {"id": 2, **features},
        {"id": 2, **other},  # 2: a conflict while it waits
        {"id": 3, **features},  # 1 leaves
        {"id": 2, "label": 1},
        {"id": 2, "label": -1},  # 5: a conflict after it was learned
        {"id": 4, **features},
        {"id": 5, **features},  # 3 leaves
    ]
    j: list[Value] = [{"label": 1, **features}] * 5
    sent = send(
        broker, [(topic, part, key, json_bytes(v)) for part, key, rows in [(0, b"k", k), (1, b"j", j)] for v in rows]
    )
    chosen = config(
        broker, topic, tmp_path, "join.max_pending=2", "source.kafka.max_offsets_per_trigger=4",
        f"output.expired.kafka={topic}-expired",
    )  # fmt: skip
    out = stream(chosen)

    expired = rows_of(out, "expired")
    assert list(zip(expired["id"], expired["offset"], strict=True)) == [("1", 0), ("3", 3)]
    assert set(expired["reason"]) == {"max_pending"}
    rejected = rows_of(out, "rejected")
    assert rejected["offset"].tolist() == [2, 5]
    assert set(rejected["reason"]) == {"conflict"}
    by_offset = {message.offset: message for message in sent if message.partition == 0}
    for table, key in ((expired, "k"), (rejected, b"k")):
        for row in table.itertuples():
            assert (row.topic, row.partition, row.key) == (topic, 0, key)
            assert row.value == by_offset[row.offset].value
    told = [json.loads(message.value or b"") for message in consume(broker, f"{topic}-expired")]
    assert [row["id"] for row in told] == [f"{topic}-0-0", f"{topic}-0-3"]
    assert [base64.b64decode(row["value"]) for row in told] == expired["value"].tolist()

    accounts = assert_accounts_balance(out, len(sent))
    assert len(accounts) > 2
    ends = {0: 0, 1: 0}
    for offsets, count in zip(accounts["offsets"], accounts["records"], strict=True):
        assert {row["topic"] for row in offsets} == {topic}
        assert {row["partition"]: row["start"] for row in offsets} == ends
        assert sum(row["end"] - row["start"] for row in offsets) == count
        ends = {row["partition"]: row["end"] for row in offsets}
    assert ends == {0: len(k), 1: len(j)}


@needs_spark
def test_batches_that_were_not_recorded_cannot_be_repeated(broker: str, topic: str, tmp_path: Path) -> None:
    again = config(broker, topic, tmp_path / "again")
    with pytest.raises(ConfigError, match=r"none is not the checkpoint of a streaming job"):
        replay(again, batches_of=str(tmp_path / "none"))
    make_topic(broker, topic, 1)
    send(broker, [(topic, 0, b"k", json_bytes({"label": 1, "features": {"x": 1}}))])
    stream(config(broker, topic, tmp_path, "output.batches=false"))
    with pytest.raises(ConfigError, match=r"has no table batches, which has what each batch took; was output\.batches"):
        replay(again, batches_of=str(tmp_path / "checkpoint"))
    assert not (tmp_path / "again" / "out").exists()
