"""Kafka keys as producers write them, and the text that is the model's key.

=======  ==================================================================================
form     bytes
=======  ==================================================================================
text     UTF-8
long     8, big-endian, signed (Java's LongSerializer); the key is the number in decimal
int      4, big-endian, signed (Java's IntegerSerializer)
uuid     16 (big-endian), or the 36 characters in any case; the key is the lower-case text
json     a text, a number of at most 64 bits, true or false; or an object with such a field
avro     0, the schema's id (4, big-endian) and Avro: a text, an integer, an enum, a uuid,
         or a record with such a field
=======  ==================================================================================

One rule holds for all keys of a job. A key that does not fit its form is carried on as it is behind the byte FF, which
no UTF-8 text begins with, so that its record can be rejected whole.
"""

import json
import uuid
from collections.abc import Callable
from typing import Any, Literal

import msgspec

from palearn.errors import RecordError
from palearn.records.record import label_text

Form = Literal["text", "long", "int", "uuid", "avro", "json"]
#: Forms whose keys may be records with fields.
WITH_FIELDS = ("avro", "json")
#: What a form's keys are, for those who have others.
WANTED = {
    "text": "UTF-8 text",
    "long": "8 bytes, a big-endian number",
    "int": "4 bytes, a big-endian number",
    "uuid": "a UUID, 16 bytes or its text",
    "json": "JSON: a text, a whole number, true or false, or an object with the field that records.key.field names",
    "avro": "a 0, the id of a schema and Avro: a text, a whole number, or a record with the field that "
    "records.key.field names",
}
_MARK = b"\xff"
_HEADER_BYTES = 5


class KeyFormat(msgspec.Struct, frozen=True):
    """How keys are written; ``schema`` is the content of the Avro schema's file."""

    form: Form = "text"
    field: str | None = None
    schema: bytes | None = None


def canonical(raw: bytes | None, written: KeyFormat) -> bytes | None:
    """Return a key as UTF-8 text, or marked where it does not fit; None or nothing stays what it is."""
    if not raw:
        return raw
    try:
        text = (_READ[written.form](bytes(raw), written) or "").encode()
    except Exception:  # what readers of foreign bytes raise has no end
        text = b""
    return text if text else _MARK + bytes(raw)


def unmarked(raw: bytes) -> bytes:
    """Return the bytes that a producer wrote."""
    return raw.removeprefix(_MARK)


def misfit(form: Form) -> RecordError:
    """Return why a record with a marked key is rejected."""
    return RecordError("bad_key", f"the record's key does not fit records.key.form: {form} ({WANTED[form]})")


def schema_fault(schema: bytes) -> str | None:
    """Return what is wrong with the schema of keys; None: nothing."""
    try:
        from palearn.records import avro

        avro.any_schema(schema)
    except ImportError:
        return "avro is read by a package that is not installed: pip install 'palearn[avro]'"
    except Exception as error:
        return f"the schema cannot be read: {error}"[:300]
    return None


def _number(size: int) -> Callable[[bytes, KeyFormat], str | None]:
    def read(raw: bytes, written: KeyFormat) -> str | None:
        return str(int.from_bytes(raw, "big", signed=True)) if len(raw) == size else None

    return read


def _uuid(raw: bytes, written: KeyFormat) -> str | None:
    if len(raw) == 16:
        return str(uuid.UUID(bytes=raw))
    text = str(uuid.UUID(raw.decode("ascii")))
    return text if len(raw) == len(text) else None  # not with braces, nor without hyphens


def _json(raw: bytes, written: KeyFormat) -> str | None:
    return _plain(json.loads(raw), written)


def _avro(raw: bytes, written: KeyFormat) -> str | None:
    from palearn.records import avro  # an optional package reads it

    assert written.schema is not None
    if raw[0] != 0 or len(raw) < _HEADER_BYTES:
        return None
    return _plain(avro.value_of(raw[_HEADER_BYTES:], avro.any_schema(written.schema)), written)


def _plain(value: Any, written: KeyFormat) -> str | None:
    """Return the text of a value, or of its field; None where it is none."""
    if written.field is not None:
        value = value.get(written.field) if isinstance(value, dict) else None
    if isinstance(value, uuid.UUID):
        return str(value)
    if not isinstance(value, str | int) or (isinstance(value, int) and not -(2**63) <= value < 2**64):
        return None
    return label_text(value) or None


_READ: dict[str, Callable[[bytes, KeyFormat], str | None]] = {
    "text": lambda raw, written: raw.decode(),
    "long": _number(8),
    "int": _number(4),
    "uuid": _uuid,
    "json": _json,
    "avro": _avro,
}
