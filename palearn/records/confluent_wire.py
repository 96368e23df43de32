"""Values that begin with the id of their schema, as Confluent's clients write them, read with schemas of local files.

=======  =============================================================================
bytes    content
=======  =============================================================================
1        0
4        the schema's id, big-endian
(some)   Protobuf only: the message's place in its file, as zigzag varints: how many
         numbers, then the message's number, that of a message inside it, and so on;
         the single byte 0 is short for the first message
rest     the Avro or Protobuf encoding
=======  =============================================================================

No registry is asked: which id is which schema stands in the configuration.
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Protocol

from palearn.errors import RecordError
from palearn.records.value_format import ValueFormat

_HEADER = struct.Struct(">bI")


class Schema(Protocol):
    """A schema that reads what comes after the header."""

    def fields(self, body: memoryview) -> dict[str, Any]:
        """Return the fields of a record, or raise a RecordError."""


def fields_of(value: bytes | None, form: ValueFormat) -> dict[str, Any]:
    """Return the fields of a value.

    Raises
    ------
    RecordError
        ``no_header``, ``unknown_schema``, ``bad_avro``, ``bad_protobuf`` or ``not_utf8``.
    """
    if value is None:
        raise RecordError("no_header", "the record has no value (a tombstone)")
    if len(value) < _HEADER.size or value[0] != 0:
        raise RecordError("no_header", f"the value must begin with a 0 and a schema's id, got {bytes(value[:5])!r}")
    schemas = compiled(form)
    (_, number) = _HEADER.unpack_from(value)
    schema = schemas.get(number) or schemas.get(None)
    if schema is None:
        known = ", ".join(str(known) for known in [*schemas][:20])
        raise RecordError(
            "unknown_schema", f"no file is given for schema {number} (known: {known}); see records.schema"
        )
    return schema.fields(memoryview(value)[_HEADER.size :])


def compiled(form: ValueFormat) -> Mapping[int | None, Schema]:
    """Return the schemas of a topic, ready to read.

    Raises
    ------
    ValueError
        One is none, or none that records can be read with.
    ImportError
        The package that reads them is not installed.
    """
    return _compiled(form.format, form.schemas, form.message)


@lru_cache(maxsize=100)
def _compiled(
    format: str, schemas: tuple[tuple[int | None, bytes], ...], message: str | None
) -> Mapping[int | None, Schema]:
    make: Callable[[bytes], Schema]
    if format == "avro":
        from palearn.records.avro import Avro as make  # an optional package reads it
    else:
        from palearn.records.protobuf import Protobuf

        def make(content: bytes) -> Schema:
            return Protobuf(content, message)

    return {number: make(content) for number, content in schemas}
