"""The record format: wire bytes to :class:`Record` and back. The one place that knows it.

A value is a JSON object::

    {"label": "spam", "features": {"free": 1, "len": 0.3, "lang": "en", "urgent": true}}
    {"id": "42", "label": -1, "views": {"page": {"exam": 2}, "link": {"cs101": 1}}}
    {"label": 1, "features": "3:1 11:0.5"}                    LIBSVM text
    {"label": 1, "x": [0.1, 0, 2.3]}                          dense, without features; named "0", "1", "2"
    {"id": "43", "label": "ham"}                              a part: what else the example has comes elsewhere

A feature value is a number, a boolean (1 or 0), a string (one-hot, ``name=value``), a list of strings (a bag:
``name=item`` counts) or null (absent). ``weight`` (> 0), ``id`` and ``time`` are optional; other top-level
fields are ignored. Order of features is kept: sums run in it.

A topic's :class:`ValueFormat` may say that its values are written otherwise: the same fields in Avro or Protobuf
(:mod:`palearn.records.confluent_wire`), or a line of LIBSVM.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from palearn.errors import RecordError
from palearn.records import confluent_wire, json, libsvm
from palearn.records.column_kinds import KINDS, Kind
from palearn.records.json import decoder
from palearn.records.libsvm import parse_libsvm
from palearn.records.normalize import from_fields, in_view, numbers
from palearn.records.record import (
    BIAS,
    MAX_NAME,
    REASONS,
    Label,
    LabelValue,
    Record,
    check,
    check_id,
    check_label,
    check_weight,
    event_time,
    is_utf8,
    label_text,
    name_too_long,
    number,
    record_key,
    too_many_features,
    utf8,
)
from palearn.records.value_format import PLAIN, WITH_SCHEMA, Encoding, ValueFormat

__all__ = [
    "BIAS",
    "KINDS",
    "MAX_NAME",
    "PLAIN",
    "REASONS",
    "WITH_SCHEMA",
    "Encoding",
    "Kind",
    "Label",
    "LabelValue",
    "Record",
    "ValueFormat",
    "check",
    "check_id",
    "check_label",
    "check_weight",
    "decode_value",
    "decode_values",
    "decoder",
    "encode",
    "event_time",
    "from_fields",
    "is_utf8",
    "key_of",
    "label_text",
    "name_too_long",
    "number",
    "numbers",
    "parse_libsvm",
    "record_key",
    "too_many_features",
    "utf8",
]

_encode = msgspec.json.Encoder().encode


def encode(record: Record) -> bytes:
    """Return the record's wire bytes (JSON; features in their order)."""
    return _encode(record)


def decode_value(value: bytes | None, form: ValueFormat = PLAIN) -> Record:
    """Return the record in ``value``, a value of a topic of that form.

    Raises
    ------
    RecordError
        With a reason of :data:`REASONS` and a sentence; whole views, labels that fit the task and limits of
        size are checked where the configuration is known (:mod:`palearn.engine.bucket`).
    """
    return check(_decoded(value, form))


def _decoded(value: bytes | None, form: ValueFormat) -> Record:
    match form.format:
        case "json":
            return json.decoded(value, form)
        case "libsvm":
            return in_view(libsvm.decoded(value), form.view)
        case "avro" | "protobuf":
            return from_fields(confluent_wire.fields_of(value, form), form)


def decode_values(
    values: Sequence[bytes | None], most: int, form: ValueFormat = PLAIN, features: int = 2**31
) -> list[Record | RecordError]:
    """Return each value's record, or the error that says why it is rejected.

    JSON all at once in C where every value is well formed, which they mostly are; else one by one.

    Parameters
    ----------
    values
        Values of a topic of that form.
    most, features
        The longest value allowed, in bytes, and the most features: a record with more is not held until all are read.
    """
    if form.format != "json":
        return [_record_or_fault(value, most, form, features) for value in values]
    try:
        found: list[Record] = list(map(decoder(form), values))  # type: ignore[arg-type]
        regular = max(map(len, values), default=0) <= most  # type: ignore[arg-type]
        if not all(map(bytes.isascii, values)):  # type: ignore[arg-type]
            [value.decode() for value in values]  # type: ignore[union-attr]
    except (*json.REFUSED, RecordError):
        regular = False
    if regular and all(_is_regular(record, value, features) for record, value in zip(found, values, strict=True)):
        return found  # type: ignore[return-value]
    return [_record_or_fault(value, most, form, features) for value in values]


def _is_regular(record: Record, value: bytes | None, most: int) -> bool:
    """Whether the fast decoder saw all there is, and no more than may be: features, or a label for an id.

    A label may stand beside ``x`` (or an escaped name of it), which only the careful one reads.
    """
    if record.weight is not None:
        return False
    if record.features or record.views:
        return _size(record) <= most
    alone = record.features is None and record.views is None and record.label is not None and record.id is not None
    return alone and value is not None and b'"x"' not in value and b"\\" not in value


def _size(record: Record) -> int:
    """Return how many features a record has."""
    return len(record.features or ()) + (sum(map(len, record.views.values())) if record.views else 0)


def _record_or_fault(value: bytes | None, most: int, form: ValueFormat, features: int) -> Record | RecordError:
    if value is not None and len(value) > most:
        detail = f"the value has {len(value)} bytes, at most {most} are allowed (records.max_bytes)"
        return RecordError("too_large", detail)
    try:
        record = decode_value(value, form)
        return record if _size(record) <= features else too_many_features(_size(record), features)
    except RecordError as fault:
        return fault


def key_of(value: bytes | None, field: str, form: ValueFormat = PLAIN) -> bytes | None:
    """Return the key that a value holds: its top-level ``field``, or as :func:`record_key` finds it.

    ``form`` is that of the value's topic. None where the value has no such field or an empty one, or is no record; then
    it is rejected as such.
    """
    try:
        top = _field(value, form.fields.get(field, field), form)
        text = label_text(top) if isinstance(top, LabelValue) else record_key(decode_value(value, form), field)
    except RecordError:
        return None
    return text.encode() if text else None


def _field(value: bytes | None, name: str, form: ValueFormat) -> Any:
    match form.format:
        case "json":
            return json.field_of(value, name)
        case "libsvm":
            return None  # none has a name
        case "avro" | "protobuf":
            return confluent_wire.fields_of(value, form).get(name)
