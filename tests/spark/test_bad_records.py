"""Records that cannot be used: each is written out whole with its reason, counted, and stops nothing."""

import base64
import itertools
import json
from pathlib import Path

import pandas as pd
import pytest

from palearn import records, tables
from tests.spark.conftest import (
    Message,
    assert_accounts_balance,
    assert_same_learning,
    config,
    consume,
    learn_without_spark,
    make_topic,
    people,
    send,
    stream,
)

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.usefixtures("spark")]

GOOD = b'{"label": 1, "features": {"x": 1}}'


def labelled(features: str, label: str = "1") -> bytes:
    return f'{{"label": {label}, "features": {features}}}'.encode()


def short_names(count: int) -> list[str]:
    letters = "0123456789abcdefghijklmnopqrstuvwxyz"
    return ["".join(name) for name in itertools.islice(itertools.product(letters, repeat=4), count)]


#: What is wrong -> (key, value, reason).
BAD: dict[str, tuple[bytes | None, bytes | None, str]] = {
    "not JSON": (b"k", b"label=1 x=2", "not_json"),
    "empty": (b"k", b"", "not_json"),
    "cut short": (b"k", GOOD[:-1], "not_json"),
    "more after the object": (b"k", GOOD + b" 1", "not_json"),
    "single quotes": (b"k", b"{'label': 1}", "not_json"),
    "tombstone": (b"k", None, "not_json"),
    "no object: list": (b"k", b"[1, 2]", "not_object"),
    "no object: number": (b"k", b"1", "not_object"),
    "no object: null": (b"k", b"null", "not_object"),
    "no UTF-8": (b"k", b'{"label": 1, "features": {"\xff\xfe": 1}}', "not_utf8"),
    "UTF-16": (b"k", '{"label": 1}'.encode("utf-16"), "not_utf8"),
    "half a surrogate pair": (b"k", labelled('{"\\ud800": 1}'), "not_utf8"),
    "key no UTF-8": (b"\xff\x00", GOOD, "not_utf8"),
    "null key": (None, GOOD, "no_key"),
    "empty key": (b"", GOOD, "no_key"),
    "no features": (b"k", b'{"label": 1}', "no_features"),
    "features null": (b"k", labelled("null"), "no_features"),
    "features a number": (b"k", labelled("7"), "bad_features"),
    "features a list": (b"k", labelled('[{"x": 1}]'), "bad_features"),
    "feature an object": (b"k", labelled('{"x": {"y": 1}}'), "bad_features"),
    "bag of numbers": (b"k", labelled('{"x": [1, 2]}'), "bad_features"),
    "LIBSVM text damaged": (b"k", labelled('"3:1 oops"'), "bad_features"),
    "NaN": (b"k", labelled('{"x": NaN}'), "non_finite"),
    "infinity": (b"k", labelled('{"x": Infinity}'), "non_finite"),
    "minus infinity": (b"k", labelled('{"x": -Infinity}'), "non_finite"),
    "1e400": (b"k", labelled('{"x": 1e400}'), "non_finite"),
    "NaN in LIBSVM text": (b"k", labelled('"3:nan"'), "non_finite"),
    "integer beyond doubles": (b"k", labelled('{"x": 1%s}' % ("0" * 400)), "non_finite"),
    "label a list": (b"k", labelled('{"x": 1}', "[1]"), "bad_label"),
    "label an object": (b"k", labelled('{"x": 1}', "{}"), "bad_label"),
    "label 1e400": (b"k", labelled('{"x": 1}', "1e400"), "bad_label"),
    "label text, classes unnamed": (b"k", labelled('{"x": 1}', '"spam"'), "bad_label"),
    "id a list": (b"k", b'{"id": [1], "label": 1, "features": {"x": 1}}', "bad_id"),
    "weight negative": (b"k", b'{"weight": -1, "label": 1, "features": {"x": 1}}', "bad_weight"),
    "weight text": (b"k", b'{"weight": "1", "label": 1, "features": {"x": 1}}', "bad_weight"),
    "views, none configured": (b"k", b'{"label": 1, "views": {"a": {"x": 1}}}', "bad_view"),
    "name of 10 kB": (b"k", labelled(json.dumps({"n" * 10_000: 1})), "name_too_long"),
    "the bias's name": (b"k", labelled('{"(bias)": 1}'), "reserved_name"),
    "100,000 features": (
        b"k",
        labelled(json.dumps(dict.fromkeys(short_names(100_000), 1), separators=(",", ":"))),
        "too_many_features",
    ),
    "2 MB": (b"k", labelled(json.dumps({"text": "x" * 2_000_000})), "too_large"),
    "2 MB, no key": (None, b"{" + b" " * 2_000_000, "too_large"),
    "nested lists": (b"k", b"[" * 100_000, "not_json"),
    "nested lists, closed": (b"k", b"[" * 100_000 + b"]" * 100_000, "not_json"),
    "nested objects": (b"k", b'{"features": ' * 50_000 + b"1" + b"}" * 50_000, "not_json"),
    "nested in an unknown field": (
        b"k",
        b'{"label": 1, "features": {"x": 1}, "y": ' + b"[" * 90_000 + b"]" * 90_000 + b"}",
        "not_json",
    ),
}


def mixed(topic: str, bad: dict[str, tuple[bytes | None, bytes | None, str]]) -> list[tuple]:  # type: ignore[type-arg]
    """Return the bad records with good ones of the same key and others all around, over two partitions.

    A good key has one partition, so that its order is the same however the batches fall.
    """
    out = []
    for i, (record, (key, value, _)) in enumerate(zip(people(), bad.values(), strict=False)):
        for partition, good_key in ((0, b"k"), (i % 3 % 2, f"good{i % 3}".encode())):
            out.append((topic, partition, good_key, records.encode(record)))
        out.append((topic, i % 2, key, value))
    return out


def rejected_rows(out: Path) -> dict[tuple[str, int, int], dict[str, object]]:
    frame = tables.read(out, "rejected").drop(columns="batch_id")
    # A key or value that is null is None, not NaN.
    frame = frame.astype(object).where(frame.notna(), None)
    rows = frame.to_dict("records")
    found = {(row["topic"], row["partition"], row["offset"]): row for row in rows}
    assert len(found) == len(rows)
    return found


@pytest.fixture(scope="module")
def bad_stream(broker: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Message]]:
    """Output of a stream of good and bad records in several batches, and what its topic holds."""
    folder = tmp_path_factory.mktemp("bad")
    make_topic(broker, "bad-records", 2)
    sent = send(broker, mixed("bad-records", BAD))
    return stream(config(broker, "bad-records", folder, "source.kafka.max_offsets_per_trigger=50")), sent


def test_every_bad_record_is_rejected_whole_with_its_reason(bad_stream: tuple[Path, list[Message]]) -> None:
    out, sent = bad_stream
    found = rejected_rows(out)
    wrong = []
    for what, message in zip(BAD, sent[2::3], strict=True):
        key, value, reason = BAD[what]
        row = found.pop(message[:3], None)
        if row is None:
            wrong.append(f"{what}: not rejected")
            continue
        if row["reason"] != reason:
            wrong.append(f"{what}: {row['reason']} ({row['detail']}), expected {reason}")
        if (row["key"], row["value"]) != (key, value):
            wrong.append(f"{what}: key or value is not what was sent")
        if not 10 < len(str(row["detail"])) < 500:
            wrong.append(f"{what}: the detail is no sentence: {row['detail']!r:.600}")
    assert wrong == []
    assert found == {}
    assert {row[2] for row in BAD.values()} <= set(records.REASONS)


def test_every_batch_accounts_for_every_record(bad_stream: tuple[Path, list[Message]]) -> None:
    out, sent = bad_stream
    accounts = assert_accounts_balance(out, len(sent))
    assert len(accounts) >= 3
    assert accounts["rejected"].sum() == len(BAD)
    assert accounts["learned"].sum() == 2 * len(BAD)
    expected = pd.Series([reason for _, _, reason in BAD.values()]).value_counts().to_dict()
    seen: dict[str, int] = {}
    for reasons in accounts["reasons"]:
        for reason, count in reasons:
            seen[reason] = seen.get(reason, 0) + count
    assert seen == expected


def test_bad_records_leave_no_trace_in_the_models(broker: str, bad_stream: tuple[Path, list[Message]]) -> None:
    out, sent = bad_stream
    good = [message for i, message in enumerate(sent) if i % 3 != 2]
    assert_same_learning(out, learn_without_spark(config(broker, "bad-records", out.parent), good))


def test_labels_that_contradict_the_task(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    labels = ['"ham"', '"spam"', '"eggs"', "null", "1", '"ham"']
    send(broker, [(topic, 0, b"k", labelled('{"x": 1}', label)) for label in labels])
    out = stream(config(broker, topic, tmp_path, "records.positive=spam"))
    found = rejected_rows(out)
    assert {place[2]: row["reason"] for place, row in found.items()} == {2: "not_binary", 4: "not_binary"}
    assert "'eggs'" in str(found[topic, 0, 2]["detail"])
    accounts = assert_accounts_balance(out, len(labels))
    assert accounts.loc[0, ["learned", "scored", "rejected"]].tolist() == [3, 1, 2]
    assert tables.latest_models(out)["labels"].map(list).tolist() == [["ham", "spam"]] * 4


def test_a_stream_of_nothing_but_bad_records_goes_on(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 2)
    keys = (None, b"", b"k")
    sent = send(broker, [(topic, i % 2, keys[i % 3], b"%d" % i) for i in range(30)])
    out = stream(config(broker, topic, tmp_path, "source.kafka.max_offsets_per_trigger=8"))
    accounts = assert_accounts_balance(out, 30)
    assert accounts["rejected"].sum() == 30
    assert not (out / "models").exists()
    found = rejected_rows(out)
    assert {message[:3]: (message.key, message.value) for message in sent} == {
        place: (row["key"], row["value"]) for place, row in found.items()
    }


def test_empty_but_whole_records_and_records_without_label_are_scored(broker: str, topic: str, tmp_path: Path) -> None:
    make_topic(broker, topic, 1)
    values = [labelled("{}"), labelled('""'), labelled('{"x": null}'), b'{"features": {"x": 1}}', GOOD]
    send(broker, [(topic, 0, b"k", value) for value in values])
    accounts = assert_accounts_balance(stream(config(broker, topic, tmp_path)), len(values))
    assert accounts.loc[0, ["learned", "scored", "rejected"]].tolist() == [1, 4, 0]


def test_bad_records_reach_their_kafka_topic(broker: str, topic: str, tmp_path: Path) -> None:
    small = {what: bad for what, bad in BAD.items() if len(bad[1] or b"") < 100_000}
    make_topic(broker, topic, 2)
    make_topic(broker, f"{topic}-dead", 1)
    sent = send(broker, mixed(topic, small))
    stream(config(broker, topic, tmp_path, f"output.rejected.kafka={topic}-dead"))
    dead = consume(broker, f"{topic}-dead")
    rows = {message.value: json.loads(message.value or b"") for message in dead}
    found = {row["id"]: row for row in rows.values()}
    assert len(found) == len(dead) == len(small)
    for what, message in zip(small, sent[2::3], strict=True):
        row = found[f"{topic}-{message.partition}-{message.offset}"]
        assert row["reason"] == small[what][2]
        key, value = (None if row[x] is None else base64.b64decode(row[x]) for x in ("key", "value"))
        assert (key, value) == (message.key, message.value)
    # Keyed as the records were.
    assert sorted(m.key or b"" for m in dead) == sorted(m.key or b"" for m in sent[2::3])


def test_a_bad_record_too_large_for_a_kafka_message_does_not_stop_the_stream(
    broker: str, topic: str, tmp_path: Path
) -> None:
    make_topic(broker, topic, 1)
    make_topic(broker, f"{topic}-dead", 1)
    value = BAD["2 MB"][1]
    send(broker, [(topic, 0, b"k", value), (topic, 0, b"k", GOOD)])
    out = stream(config(broker, topic, tmp_path, f"output.rejected.kafka={topic}-dead"))
    assert assert_accounts_balance(out, 2).loc[0, ["learned", "rejected"]].tolist() == [1, 1]
    assert rejected_rows(out)[topic, 0, 0]["value"] == value
    (dead,) = consume(broker, f"{topic}-dead")
    assert json.loads(dead.value or b"")["reason"] == "too_large"
