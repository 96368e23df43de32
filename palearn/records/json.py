"""JSON: values that are regular are decoded in C, and all others once more, to find what is wrong with them."""

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any, get_type_hints

import msgspec

from palearn.errors import RecordError
from palearn.records.normalize import from_fields, in_view
from palearn.records.record import Record, utf8
from palearn.records.value_format import PLAIN, ValueFormat

# Everything that this decoder refuses is read again, with reasons, by _careful.
_fast = msgspec.json.Decoder(Record).decode
_parts = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
#: What the fast decoder and its caller raise for a value that needs a second look.
REFUSED = (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError)


def decoder(form: ValueFormat) -> Callable[[bytes], Record]:
    """Return the fast decoder of a topic's values.

    Raises
    ------
    ValueError
        Two fields would have one name, or a name cannot be one.
    """
    return _fast if form is PLAIN else _renaming(form.view, tuple(sorted(form.fields.items())))


@lru_cache(maxsize=100)
def _renaming(view: str | None, fields: tuple[tuple[str, str], ...]) -> Callable[[bytes], Record]:
    types = get_type_hints(Record, include_extras=True)
    wire = msgspec.defstruct(
        "Wire", [(name, types[name], None) for name in Record.__struct_fields__], rename=dict(fields), gc=False
    )
    decode = msgspec.json.Decoder(wire).decode

    def record(value: bytes) -> Record:
        return in_view(Record(*msgspec.structs.astuple(decode(value))), view)

    return record


def decoded(value: bytes | None, form: ValueFormat) -> Record:
    """Return the record in a value, or raise a RecordError."""
    try:
        record = decoder(form)(value)  # type: ignore[arg-type]
        if record.features is None and record.views is None:
            record = _careful(value, form)
    except REFUSED:
        record = _careful(value, form)
    if value is not None and not value.isascii():
        utf8(value)  # the fast decoder does not look into the fields it skips
    return record


def field_of(value: bytes | None, name: str) -> Any:
    """Return a value's top-level field, without a look at what the others hold; None where there is none."""
    try:
        field = _parts(value).get(name)  # type: ignore[arg-type]
        return None if field is None else msgspec.json.decode(field)
    except REFUSED:
        return None


def _careful(value: bytes | None, form: ValueFormat) -> Record:
    """Read a value that the fast decoder refused: strings as features, or a reason to reject it."""
    fields = _parse(value)
    if not isinstance(fields, dict):
        raise RecordError("not_object", f"the value is a JSON {type(fields).__name__}, not an object")
    return from_fields(fields, form)


def _parse(value: bytes | None) -> Any:
    """Parse JSON, finding out why it is none; NaN and infinity are named as such."""
    if value is None:
        raise RecordError("not_json", "the record has no value (a tombstone)")
    text = utf8(value)
    try:
        fields = json.loads(text, parse_constant=_refuse_constant)
        # An escaped lone surrogate is JSON, but no text that could be written anywhere.
        json.dumps(fields, ensure_ascii=False).encode()
        return fields
    except RecordError:
        raise
    except UnicodeEncodeError:
        raise RecordError("not_utf8", "the value holds an escaped half of a surrogate pair") from None
    except RecursionError:
        raise RecordError("not_json", "the value is nested too deeply") from None
    except ValueError as error:
        raise RecordError("not_json", f"the value is not JSON: {str(error)[:200]}") from None


def _refuse_constant(word: str) -> float:
    raise RecordError("non_finite", f"the value holds {word}, which is not a finite number")
