"""Kafka keys in every form that producers write, against struct, uuid and fastavro; what does not fit is rejected."""

import io
import json
import struct
import uuid

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from palearn.engine.bucket import Bucket, BucketConfig
from palearn.models.state import Settings
from palearn.records.keys import WANTED, KeyFormat, canonical, misfit, unmarked
from tests.streams import chunk, learner, rows

UUID = uuid.UUID("0F8FAD5B-D9CB-469F-A165-70867728950E")


def avro(schema, value, number=7):
    body = io.BytesIO()
    fastavro.schemaless_writer(body, fastavro.parse_schema(schema), value)
    return b"\0" + struct.pack(">I", number) + body.getvalue()


def avro_format(schema, field=None):
    return KeyFormat("avro", field, json.dumps(schema).encode())


RECORD = {"type": "record", "name": "K", "fields": [{"name": "id", "type": "long"}, {"name": "at", "type": "string"}]}


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_is_its_number_in_decimal(number):
    assert canonical(struct.pack(">q", number), KeyFormat("long")) == str(number).encode()
    assert canonical(avro("long", number), avro_format("long")) == str(number).encode()
    assert canonical(json.dumps(number).encode(), KeyFormat("json")) == str(number).encode()


@given(st.integers(-(2**31), 2**31 - 1))
def test_an_int_is_its_number_in_decimal(number):
    assert canonical(struct.pack(">i", number), KeyFormat("int")) == str(number).encode()


@given(st.text(min_size=1).filter(lambda text: "\0" not in text))
def test_a_text_is_itself_in_json_and_avro(text):
    assert canonical(json.dumps(text).encode(), KeyFormat("json")) == text.encode()
    assert canonical(avro("string", text), avro_format("string")) == text.encode()


@pytest.mark.parametrize(
    ("raw", "written", "expected"),
    [
        ("h\u00e9".encode(), KeyFormat(), "h\u00e9"),
        (UUID.bytes, KeyFormat("uuid"), str(UUID)),
        (str(UUID).upper().encode(), KeyFormat("uuid"), str(UUID)),
        (b'{"id": 12, "x": [1]}', KeyFormat("json", "id"), "12"),
        (b'{"id": "a b"}', KeyFormat("json", "id"), "a b"),
        (b" true", KeyFormat("json"), "true"),
        (avro(RECORD, {"id": -3, "at": "x"}), avro_format(RECORD, "id"), "-3"),
        (avro(RECORD, {"id": -3, "at": "x"}), avro_format(RECORD, "at"), "x"),
        (
            avro({"type": "string", "logicalType": "uuid"}, UUID),
            avro_format({"type": "string", "logicalType": "uuid"}),
            str(UUID),
        ),
    ],
)
def test_a_key_is_read_as_its_form_says(raw, written, expected):
    assert canonical(raw, written) == expected.encode()


@pytest.mark.parametrize(
    ("raw", "written"),
    [
        (b"\xff\xfe", KeyFormat()),
        (b"1234567", KeyFormat("long")),
        (b"12345678", KeyFormat("int")),
        (b"0f8fad5bd9cb469fa16570867728950e", KeyFormat("uuid")),
        (b"{0f8fad5b-d9cb-469f-a165-70867728950e}", KeyFormat("uuid")),
        (b"plain", KeyFormat("json")),
        (b"null", KeyFormat("json")),
        (b'""', KeyFormat("json")),
        (b"1.5", KeyFormat("json")),
        (b"99999999999999999999", KeyFormat("json")),
        (b'{"id": 1}', KeyFormat("json")),
        (b'{"id": null}', KeyFormat("json", "id")),
        (b'"id"', KeyFormat("json", "id")),
        (b'"\\ud800"', KeyFormat("json")),
        (avro("long", 3) + b"x", avro_format("long")),
        (b"\1" + avro("long", 3)[1:], avro_format("long")),
        (b"\0\0", avro_format("long")),
        (avro(RECORD, {"id": 1, "at": ""}), avro_format(RECORD)),
        (avro(RECORD, {"id": 1, "at": ""}), avro_format(RECORD, "at")),
        (avro("bytes", b"x"), avro_format("bytes")),
    ],
)
def test_a_key_that_does_not_fit_is_carried_on_as_it_is(raw, written):
    found = canonical(raw, written)
    assert found == b"\xff" + raw
    assert unmarked(found) == raw


@pytest.mark.parametrize("form", [form for form in WANTED if form != "text"])
def test_a_misfit_is_rejected_whole_with_the_name_of_the_form(form):
    plan = BucketConfig(Settings(), (learner("pa1"),), key_form=form)
    bucket = Bucket(plan)
    good = {"label": 1, "features": {"f": 1}}
    bucket.learn(chunk(rows([(b"\xff\0\1", good), ("7", good)])))
    (row,) = bucket.results()["rejected"].to_pylist()
    assert (row["key"], row["reason"]) == (b"\0\1", "bad_key")
    assert f"records.key.form: {form}" in row["detail"]
    assert bucket.summary.statuses["learned"] == 1
    assert form in misfit(form).detail


@pytest.mark.parametrize("raw", [None, b""])
def test_no_key_stays_none(raw):
    assert canonical(raw, KeyFormat("long")) == raw
