"""Values in Avro, Protobuf and LIBSVM: the same records as in JSON, their faults, and what a configuration says."""

import io
import json
import struct
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import fastavro
import pytest
from google.protobuf import descriptor_pb2

from palearn import records
from palearn.config import Config, parse
from palearn.engine.bucket import Bucket
from palearn.errors import ConfigError, RecordError
from palearn.records import Record, ValueFormat, decode_value, decode_values, key_of
from tests import schemas
from tests.schemas import AVRO, AVRO_ID, DESCRIPTORS, PROTOBUF_ID, avro_value, json_value, protobuf_value
from tests.streams import chunk, learner, plan, rows

AVRO_FORM = ValueFormat(format="avro", schemas=((AVRO_ID, json.dumps(AVRO).encode()),))
PROTOBUF_FORM = ValueFormat(format="protobuf", schemas=((PROTOBUF_ID, DESCRIPTORS.SerializeToString()),))
#: Features in alphabetical order, which is Protobuf's when Python writes one order.
VALUES: list[dict[str, Any]] = [
    {"label": 1, "features": {"a": 0.1, "b": True, "g": ["x", "y", "x"], "lang": "en", "none": None}},
    {"label": -1, "features": {"a": -2.5, "c": 1e-300}, "weight": 2.5},
    {"label": 1, "features": {"c": 3.0, "d\u00e9 \u2028": 7.0}, "time": 17.25, "user": "u"},
    {"id": "7", "features": {"a": 1.5}},
    {"id": "7", "label": -1},
    {"label": -1, "features": {"a": 0.0, "b": False}},
    {"label": True, "features": {"z": 1.0}},
    {"label": 0.5, "features": {"z": 1.0}},
]
VIEWS = [{"label": 1, "views": {"link": {}, "page": {"a": 1.0, "b": "t"}}}, {"label": 0, "views": {"page": {"a": 1.0}}}]


@pytest.mark.parametrize("value", [*VALUES, *VIEWS, {"label": "spam", "features": {"x": 1.0}}], ids=str)
def test_a_record_is_the_same_in_json_avro_and_protobuf(value: dict[str, Any]) -> None:
    expected = decode_value(json_value(value))
    for found in (decode_value(avro_value(value), AVRO_FORM), decode_value(protobuf_value(value), PROTOBUF_FORM)):
        assert records.encode(found) == records.encode(expected)
        assert type(found.label) is type(expected.label)


def test_a_bucket_has_the_same_bits_in_json_avro_and_protobuf() -> None:
    made = plan(learner("arow"), learner("pa1"))
    two_labelled = [value for value in VALUES if value.get("label") != 0.5]  # 1 is the positive label
    blobs = set()
    for write, form in ((json_value, ValueFormat()), (avro_value, AVRO_FORM), (protobuf_value, PROTOBUF_FORM)):
        bucket = Bucket(replace(made, forms={"t": form}))
        bucket.learn(chunk(rows([("k", write(value)) for value in two_labelled * 3])))
        assert bucket.summary.reasons == {}
        assert bucket.summary.statuses["pending"] == 0  # a part that waits is kept as it came
        blobs.add(bucket.to_bytes())
    assert len(blobs) == 1


def test_maps_of_protobuf_keep_the_order_in_which_they_were_written() -> None:
    def pair(name: bytes) -> bytes:
        number = struct.pack("<d", 1.0)
        entry = bytes([0x0A, len(name)]) + name + b"\x12\x09\x11" + number  # key = 1, value = 2 {number_value = 2}
        return bytes([0x12, len(entry)]) + entry

    body = b"".join(map(pair, (b"z", b"a", b"m", b"a")))
    value = struct.pack(">bI", 0, PROTOBUF_ID) + b"\x02\x02" + body
    assert list((decode_value(value, PROTOBUF_FORM).features or {}).items()) == [("z", 1.0), ("a", 1.0), ("m", 1.0)]


def test_the_first_message_of_a_file_and_one_inside_another() -> None:
    head = struct.pack(">bI", 0, PROTOBUF_ID)
    entry = b"\x0a\x0c\x0a\x01q\x11" + struct.pack("<d", 2.0)
    assert decode_value(head + b"\x04\x00\x00" + entry, PROTOBUF_FORM) == Record(features={"q": 2.0})
    found = decode_values([head + b"\x00" + b"\x0a\x01t", head + b"\x02\x00" + b"\x0a\x01t"], 99, PROTOBUF_FORM)
    assert [fault.reason for fault in found if isinstance(fault, RecordError)] == ["no_features"] * 2


def test_logical_types_of_avro() -> None:
    fields = [*AVRO["fields"], {"name": "who", "type": {"type": "string", "logicalType": "uuid"}}]
    form = ValueFormat(
        format="avro", schemas=((None, json.dumps({**AVRO, "fields": fields}).encode()),), fields={"id": "who"}
    )
    when, who = datetime(2026, 1, 2, 3, tzinfo=UTC), uuid.UUID(int=5)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, {**AVRO, "fields": fields}, {"features": {"a": 1.0}, "time": when, "who": who})
    for number in (0, 9):  # one schema for any id
        found = decode_value(struct.pack(">bI", 0, number) + out.getvalue(), form)
        assert (found.id, records.event_time(found)) == (str(who), when.timestamp())


AVRO_BAD: dict[str, tuple[bytes | None, str, str]] = {
    "a tombstone": (None, "no_header", "tombstone"),
    "empty": (b"", "no_header", "b''"),
    "JSON": (b'{"label":1}', "no_header", "lab"),
    "another schema": (avro_value(VALUES[0], 4), "unknown_schema", "schema 4 .known: 3.; see records.schema"),
    "cut": (avro_value(VALUES[0])[:-1], "bad_avro", "not what its schema says"),
    "more": (avro_value(VALUES[0]) + b"\0", "bad_avro", "1 bytes are left"),
    "no such branch": (avro_value({})[:5] + b"\x7e", "bad_avro", "not what its schema says"),
    "a text of a size below 0": (avro_value({})[:5] + b"\x06\x01", "bad_avro", "not what its schema says"),
    "no UTF-8": (avro_value({"label": "\u00e9"}).replace(b"\xc3\xa9", b"\xff\xff"), "not_utf8", "invalid start byte"),
    "no number": (avro_value({"features": {"a": float("nan")}}), "non_finite", "'a' is nan"),
    "nothing": (avro_value({}), "no_features", "no field"),
    "a weight of 0": (avro_value({"features": {}, "weight": 0.0}), "bad_weight", "> 0"),
}
PROTOBUF_BAD: dict[str, tuple[bytes | None, str, str]] = {
    "another schema": (protobuf_value(VALUES[0], 4), "unknown_schema", "no file is given for schema 4"),
    "no place": (protobuf_value({})[:5], "no_header", "damaged"),
    "a place without end": (protobuf_value({})[:5] + b"\xff" * 9, "no_header", "damaged"),
    "a place below 0": (protobuf_value({})[:5] + b"\x02\x01", "no_header", "damaged"),
    "a message that is not there": (protobuf_value({})[:5] + b"\x02\x06", "unknown_schema", r"no message at \(3,\)"),
    "cut": (protobuf_value(VALUES[0])[:-1], "bad_protobuf", "no message of its schema"),
    "no UTF-8": (protobuf_value({"user": "\u00e9"}).replace(b"\xc3\xa9", b"\xff\xff"), "bad_protobuf", "UTF-8"),
    "an infinite number": (
        protobuf_value({"label": 1, "features": {"a": 1.0}}).replace(
            struct.pack("<d", 1.0), struct.pack("<d", float("inf"))
        ),
        "non_finite",
        "'a' is inf",
    ),
    "a nested feature": (protobuf_value({"features": {"a": {"b": 1}}}), "bad_features", "'a' must be"),
}


@pytest.mark.parametrize(
    ("value", "reason", "told", "form"),
    [
        *((*case, AVRO_FORM) for case in AVRO_BAD.values()),
        *((*case, PROTOBUF_FORM) for case in PROTOBUF_BAD.values()),
    ],
    ids=[*(f"avro {name}" for name in AVRO_BAD), *(f"protobuf {name}" for name in PROTOBUF_BAD)],
)
def test_a_bad_value_has_its_reason_and_stops_nothing(
    value: bytes | None, reason: str, told: str, form: ValueFormat
) -> None:
    with pytest.raises(RecordError, match=told) as caught:
        decode_value(value, form)
    assert caught.value.reason == reason
    write = avro_value if form is AVRO_FORM else protobuf_value
    bucket = Bucket(replace(plan(learner("pa1")), forms={"t": form}))
    good = write(VALUES[1])
    bucket.learn(chunk(rows([("k", good), ("k", value), ("k", good)])))
    assert bucket.summary.reasons == {reason: 1}
    assert bucket.summary.statuses["learned"] == 2


def test_another_message_than_the_one_that_is_named() -> None:
    form = ValueFormat(format="protobuf", schemas=PROTOBUF_FORM.schemas, message="shop.Other")
    with pytest.raises(RecordError, match=r"is a shop\.Example, records\.message is shop\.Other") as caught:
        decode_value(protobuf_value(VALUES[0]), form)
    assert caught.value.reason == "unknown_schema"


def test_keys_of_values() -> None:
    value = {"features": {"lang": "en"}, "label": 1, "user": "u1"}
    for found, form in ((avro_value(value), AVRO_FORM), (protobuf_value(value), PROTOBUF_FORM)):
        assert [key_of(found, name, form) for name in ("user", "lang", "label", "none")] == [b"u1", b"en", b"1", None]
        assert key_of(found[:-1], "user", form) is None
    assert key_of(b"1 3:2", "3", ValueFormat(format="libsvm")) == b"2"


def test_a_line_of_libsvm_as_a_value() -> None:
    form = ValueFormat(format="libsvm")
    assert decode_value(b"+1 3:1 11:0.5 # why", form) == Record(label=1, features={"3": 1.0, "11": 0.5})
    assert decode_value(b"spam", ValueFormat(format="libsvm", view="page")) == Record(label="spam", views={"page": {}})
    bad = {None: "bad_line", b" # x": "bad_line", b"1:1": "bad_line", b"1 1": "bad_features", b"1 \xff:1": "not_utf8"}
    found = decode_values(list(bad), 99, form)
    assert [fault.reason for fault in found if isinstance(fault, RecordError)] == list(bad.values())


# -- the configuration ---------------------------------------------------------------------------------------


def config(tmp_path: Path, **changes: Any) -> Config:
    given = {**schemas.write(tmp_path), **changes}
    return parse(
        {
            "source": {"kafka": {"bootstrap_servers": "h:1", "topics": ["a", "shop", "text"]}},
            "learners": [{"algorithm": "pa1"}],
            "output": {"path": "out"},
            "checkpoint": "checkpoint",
            "records": {key: item for key, item in given.items() if item is not None},
        }
    )


def test_a_configuration_names_a_form_for_each_topic(tmp_path: Path) -> None:
    topics = {**schemas.write(tmp_path)["topics"], "text": {"format": "json"}}
    found = config(tmp_path, topics=topics)
    (tmp_path / "example.avsc").unlink()  # what a worker reads with came along
    with pytest.raises(ConfigError, match=r"example\.avsc cannot be read"):
        found.forms  # noqa: B018
    schemas.write(tmp_path)
    assert sorted(found.bucket_config.forms) == ["a", "shop"]
    assert found.bucket_config.forms["a"] == AVRO_FORM
    assert found.bucket_config.forms["shop"].message == "shop.Example"
    values = [avro_value(VALUES[0]), protobuf_value(VALUES[0]), json_value(VALUES[0])]
    found_records = {
        records.encode(decode_value(value, found.forms.get(topic, ValueFormat())))
        for value, topic in zip(values, ("a", "shop", "text"), strict=True)
    }
    assert len(found_records) == 1


def test_a_checkpoint_does_not_depend_on_the_files_of_schemas(tmp_path: Path) -> None:
    first = config(tmp_path)
    more = {AVRO_ID: str(tmp_path / "example.avsc"), 9: str(tmp_path / "example.avsc")}
    assert config(tmp_path, schema=more).fingerprint == first.fingerprint
    assert config(tmp_path, topics={}).fingerprint != first.fingerprint


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema": None}, r"records\.schema: avro needs the file of its schema"),
        ({"schema": "no/such"}, r"records\.schema: no/such cannot be read"),
        ({"schema": {3: "x.proto"}}, "protoc --include_imports --descriptor_set_out=FILE x.proto"),
        ({"message": "m"}, r"records\.message: only Protobuf has messages"),
        ({"format": "json"}, r"records\.schema: json has none"),
        ({"format": "csv"}, r"records\.format: expected json or libsvm or avro or protobuf"),
        ({"topics": {"shop": {"message": "m"}}}, r"records\.topics\.shop\.message: only Protobuf has messages"),
        ({"topics": {"a": {"format": "protobuf"}}}, r"records\.topics\.a\.schema: protobuf needs the file"),
        ({"topics": {"a": {"format": "libsvm", "fields": {"label": "y"}}}}, "LIBSVM has no names of fields"),
    ],
)
def test_what_a_configuration_may_not_say(tmp_path: Path, changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        config(tmp_path, **changes)


RECORD = '{{"type":"record","name":"R","fields":[{{"name":"x","type":{}}}]}}'


@pytest.mark.parametrize(
    ("format", "content", "told"),
    [
        ("avro", b"{", "no Avro schema"),
        ("avro", b'"string"', "must be of type record"),
        ("avro", RECORD.format('"Q"').encode(), "no Avro schema"),
        ("avro", RECORD.format('["null","R"]').encode(), "recursive: 'R' is inside itself"),
        ("avro", RECORD.format('{"type":"array","items":"null"}').encode(), "items of an array take no bytes"),
        (
            "avro",
            RECORD.format('{"type":"array","items":{"type":"record","name":"E","fields":[]}}').encode(),
            "items of an array take no bytes",
        ),
        ("protobuf", b"", "no descriptor set"),
        ("protobuf", b"\xff", "no descriptor set"),
        ("protobuf", DESCRIPTORS.SerializeToString(), "no such message: .*shop.None"),
        (
            "protobuf",
            descriptor_pb2.FileDescriptorSet(file=DESCRIPTORS.file[2:]).SerializeToString(),
            "--include_imports",
        ),
    ],
    ids=range(10),
)
def test_what_is_no_schema_of_records(format: str, content: bytes, told: str, tmp_path: Path) -> None:
    (tmp_path / "schema").write_bytes(content)
    message = "shop.None" if format == "protobuf" else None
    with pytest.raises(ConfigError, match=told):
        config(tmp_path, format=format, schema=str(tmp_path / "schema"), message=message, topics={})
