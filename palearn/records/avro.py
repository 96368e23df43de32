"""Avro: a record's fields, read with the schema it was written with."""

import io
import json
import struct
import uuid
from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Any

import fastavro
from fastavro.schema import SchemaParseException

from palearn.errors import RecordError

#: What fastavro raises for bytes that are not the schema's.
_DAMAGE = (ValueError, TypeError, EOFError, IndexError, KeyError, OverflowError, StopIteration, struct.error)
_NAMED = ("record", "error", "enum", "fixed")


class Avro:
    """A schema.

    Parameters
    ----------
    content
        Its JSON.

    Raises
    ------
    ValueError
        It is no Avro schema; or it is no record; or it is recursive, or has arrays of items that take no bytes: then
        a few bytes of a value could make a reader go on for ever.
    """

    def __init__(self, content: bytes) -> None:
        try:
            self._schema: Any = fastavro.parse_schema(json.loads(content))
        except (SchemaParseException, RecursionError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"no Avro schema: {error!r:.200}") from None
        if not isinstance(self._schema, dict) or self._schema["type"] != "record":
            raise ValueError("an Avro schema of records must be of type record")
        _check_bounded(self._schema, {}, ())

    def fields(self, body: memoryview) -> dict[str, Any]:
        """Return the fields of a record; logical types of ids and times as text."""
        stream = io.BytesIO(body)
        try:
            fields = fastavro.schemaless_reader(stream, self._schema, None)
        except UnicodeDecodeError as error:
            raise RecordError("not_utf8", f"a text of the value is not UTF-8: {error.reason}") from None
        except _DAMAGE as error:
            raise RecordError("bad_avro", f"the value is not what its schema says: {error!r:.200}") from None
        if left := len(body) - stream.tell():
            raise RecordError("bad_avro", f"{left} bytes are left after what the value's schema says")
        return {name: _text(value) for name, value in fields.items()}  # type: ignore[union-attr]


def _text(value: Any) -> Any:
    if isinstance(value, date):
        return value.isoformat()
    return str(value) if isinstance(value, uuid.UUID) else value


def _check_bounded(schema: Any, named: dict[str, Any], inside: tuple[str, ...]) -> bool:
    """Return whether a value may take no bytes at all; raise ValueError where a value's size bounds nothing."""
    if isinstance(schema, str):
        if schema in inside:
            raise ValueError(f"the schema is recursive: {schema!r:.80} is inside itself")
        return schema == "null" or (schema in named and _check_bounded(named[schema], named, inside))
    if isinstance(schema, list):
        for branch in schema:
            _check_bounded(branch, named, inside)
        return False  # the branch's number takes a byte
    assert isinstance(schema, Mapping)
    kind = schema["type"]
    if kind in _NAMED:
        named[schema["name"]] = schema
    if kind in ("record", "error"):
        within = (*inside, schema["name"])
        return all([_check_bounded(field["type"], named, within) for field in schema["fields"]])
    if kind in ("array", "map"):
        empty = _check_bounded(schema["items" if kind == "array" else "values"], named, inside)
        if empty and kind == "array":
            raise ValueError("the items of an array take no bytes, so nothing bounds their number")
        return False
    if kind in _NAMED:
        return bool(kind == "fixed" and schema["size"] == 0)
    return bool(kind == "null")


@lru_cache(maxsize=8)
def any_schema(content: bytes) -> Any:
    """Return a schema of any type, ready to read; what fastavro says of one that is none is raised as it is."""
    return fastavro.parse_schema(json.loads(content))


def value_of(body: bytes, schema: Any) -> Any:
    """Return the value that is all of some bytes, or raise what fastavro says of them, or a ValueError."""
    stream = io.BytesIO(body)
    value = fastavro.schemaless_reader(stream, schema, None)
    if stream.read(1):
        raise ValueError("bytes are left over")
    return value
