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
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from numbers import Real
from typing import Annotated, Any, get_type_hints

import msgspec
from msgspec import Meta

from palearn.errors import RecordError

LabelValue = str | int | float | bool
Label = LabelValue | None

#: Every reason code of the ``rejected`` table.
REASONS = (
    "not_utf8",
    "not_json",
    "not_object",
    "no_key",
    "no_features",
    "bad_features",
    "bad_label",
    "not_binary",
    "too_many_labels",
    "non_finite",
    "too_many_features",
    "name_too_long",
    "reserved_name",
    "too_large",
    "bad_view",
    "bad_weight",
    "bad_id",
    "bad_time",
    "bad_line",
    "conflict",
)

#: Name of the constant feature that ``bias: true`` adds; records may not use it.
BIAS = "(bias)"
#: A feature's name may be this long, in characters.
MAX_NAME = 512


class Record(msgspec.Struct, gc=False, omit_defaults=True):
    """One example, or a part of one, as it travels; features are already numbers."""

    label: str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | bool | None = None
    features: dict[str, float] | None = None
    views: dict[str, dict[str, float]] | None = None
    id: str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    weight: float | None = None
    time: str | int | float | None = None


class Form(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the values of one topic differ from the format.

    Parameters
    ----------
    view
        The topic brings this view: a record's features are the view's.
    fields
        Names that the topic has for ``label``, ``features``, ``views``, ``id``, ``weight`` or ``time``.
    """

    view: str | None = None
    fields: Mapping[str, str] = {}


PLAIN = Form()

# Everything that this decoder refuses is read again, with reasons, by _careful.
_fast = msgspec.json.Decoder(Record).decode
#: What the fast decoder and its caller raise for a value that needs a second look.
_REFUSED = (msgspec.MsgspecError, TypeError, UnicodeDecodeError, RecursionError)
_encode = msgspec.json.Encoder().encode


def decoder(form: Form) -> Callable[[bytes], Record]:
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
        return _in_view(Record(*msgspec.structs.astuple(decode(value))), view)

    return record


def _in_view(record: Record, view: str | None) -> Record:
    """Make the features those of a view, where the topic brings one."""
    if view is not None:
        if record.views is not None:
            raise RecordError("bad_view", f"a record of this topic has the view {view!r} in its features, not 'views'")
        if record.features is not None:
            record.views, record.features = {view: record.features}, None
    return record


def encode(record: Record) -> bytes:
    """Return the record's wire bytes (JSON; features in their order)."""
    return _encode(record)


def decode_value(value: bytes | None, form: Form = PLAIN) -> Record:
    """Return the record in ``value``, a value of a topic of that form.

    Raises
    ------
    RecordError
        With a reason of :data:`REASONS` and a sentence; whole views, labels that fit the task and limits of
        size are checked where the configuration is known (:mod:`palearn.bucket`).
    """
    try:
        record = decoder(form)(value)  # type: ignore[arg-type]
        if record.features is None and record.views is None:
            record = _careful(value, form)
    except _REFUSED:
        record = _careful(value, form)
    if value is not None and not value.isascii():
        _utf8(value)  # the fast decoder does not look into the fields it skips
    return check(record)


def check(record: Record) -> Record:
    """Return the record, or raise a RecordError where it cannot be one on any stream."""
    if record.features is None and record.views is None and (record.id is None or record.label is None):
        raise RecordError("no_features", "no field 'features', 'views' or 'x', and no label for an 'id'")
    if record.weight is not None:
        check_weight(record.weight)
    check_label(record.label)
    return record


def check_label(label: object) -> None:
    """Raise ``bad_label`` unless it is None, text, a finite number of at most 64 bits, or a boolean."""
    if label is None or isinstance(label, str | bool):
        return
    if isinstance(label, float) and math.isfinite(label):
        return
    if not isinstance(label, int) or not -(2**63) <= label < 2**63:
        raise RecordError("bad_label", f"label must be text, a finite number or a boolean, got {_short(label)}")


def check_weight(weight: float) -> None:
    """Raise ``bad_weight`` unless it is a finite number > 0."""
    if not 0.0 < weight < math.inf:
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {_short(weight)}")


def decode_values(
    values: Sequence[bytes | None], most: int, form: Form = PLAIN, features: int = 2**31
) -> list[Record | RecordError]:
    """Return each value's record, or why it is none.

    All at once in C where every value is well formed, which they mostly are; else one by one.

    Parameters
    ----------
    values
        Values of a topic of that form.
    most, features
        The longest value allowed, in bytes, and the most features: a record with more is not held until all are read.
    """
    try:
        found: list[Record] = list(map(decoder(form), values))  # type: ignore[arg-type]
        regular = max(map(len, values), default=0) <= most  # type: ignore[arg-type]
        if not all(map(bytes.isascii, values)):  # type: ignore[arg-type]
            [value.decode() for value in values]  # type: ignore[union-attr]
    except (*_REFUSED, RecordError):
        regular = False
    if regular and all(_is_regular(record, value, features) for record, value in zip(found, values, strict=True)):
        return found  # type: ignore[return-value]
    found = []
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


def _record_or_fault(value: bytes | None, most: int, form: Form, features: int) -> Record | RecordError:
    if value is not None and len(value) > most:
        detail = f"the value has {len(value)} bytes, at most {most} are allowed (records.max_bytes)"
        return RecordError("too_large", detail)
    try:
        record = decode_value(value, form)
        return record if _size(record) <= features else too_many_features(_size(record), features)
    except RecordError as fault:
        return fault


def event_time(record: Record) -> float | None:
    """Return the record's ``time`` in seconds: a number as it is, a text as ISO 8601 (without a zone: UTC).

    Raises
    ------
    RecordError
        ``bad_time``: it is neither.
    """
    time = record.time
    if time is None:
        return None
    try:
        if isinstance(time, str):
            moment = datetime.fromisoformat(time)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        if math.isfinite(time):
            return float(time)
    except (ValueError, OverflowError):
        pass
    raise RecordError("bad_time", f"time must be a finite number of seconds, or ISO 8601, got {_short(time)}")


def _careful(value: bytes | None, form: Form) -> Record:
    """Read a value that the fast decoder refused: strings as features, or a reason to reject it."""
    fields = _parse(value)
    if not isinstance(fields, dict):
        raise RecordError("not_object", f"the value is a JSON {type(fields).__name__}, not an object")
    if form.fields:
        names = {name: name for name in (*Record.__struct_fields__, "x")} | dict(form.fields)
        if "x" in form.fields.values():
            del names["x"]  # it is another field here, not dense features
        fields = {name: fields.get(called) for name, called in names.items()}
    label = fields.get("label")
    check_label(label)
    identity = fields.get("id")
    integral = isinstance(identity, int) and not isinstance(identity, bool) and -(2**63) <= identity < 2**63
    if identity is not None and not integral and not isinstance(identity, str):
        raise RecordError("bad_id", f"id must be text or an integer, got {_short(identity)}")
    weight = fields.get("weight")
    if weight is not None and (isinstance(weight, bool) or not isinstance(weight, int | float)):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {_short(weight)}")
    time = fields.get("time")
    record = Record(
        label=label,
        features=_features(fields),
        views=_views(fields.get("views")),
        id=identity,
        weight=None if weight is None else number("weight", weight),
        time=time if isinstance(time, str | int | float) else None,
    )
    return _in_view(record, form.view)


def _parse(value: bytes | None) -> Any:
    """Parse JSON, finding out why it is none; NaN and infinity are named as such."""
    if value is None:
        raise RecordError("not_json", "the record has no value (a tombstone)")
    text = _utf8(value)
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


def _utf8(value: bytes) -> str:
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise RecordError("not_utf8", f"the value is not UTF-8 at byte {error.start}") from None


def _refuse_constant(word: str) -> float:
    raise RecordError("non_finite", f"the value holds {word}, which is not a finite number")


def _features(fields: dict[str, Any]) -> dict[str, float] | None:
    features, dense = fields.get("features"), fields.get("x")
    if features is None and dense is not None:
        if not isinstance(dense, list):
            raise RecordError("bad_features", f"'x' must be a list of numbers, got {_short(dense)}")
        return numbers("x", {str(i): item for i, item in enumerate(dense)})
    if isinstance(features, str):
        return parse_libsvm(features.split())
    return None if features is None else numbers("features", features)


def _views(views: Any) -> dict[str, dict[str, float]] | None:
    if views is None:
        return None
    if not isinstance(views, dict):
        raise RecordError("bad_view", f"'views' must map a view's name to its features, got {_short(views)}")
    return {view: numbers(f"view {view!r}", features) for view, features in views.items() if features is not None}


def numbers(where: str, features: Any) -> dict[str, float]:
    """Return feature values as numbers: booleans, one-hot strings, bags and nulls resolved, order kept."""
    if not isinstance(features, dict):
        raise RecordError("bad_features", f"{where} must map names to values, got {_short(features)}")
    out: dict[str, float] = {}
    for name, item in features.items():
        if not isinstance(name, str):
            raise RecordError("bad_features", f"{where}: a feature's name must be text, got {_short(name)}")
        if isinstance(item, str):
            out[f"{name}={item}"] = out.get(f"{name}={item}", 0.0) + 1.0
        elif isinstance(item, Real):
            out[name] = out.get(name, 0.0) + number(name, item)
        elif isinstance(item, list):
            if len(name) > MAX_NAME:  # it would be repeated with every word
                raise name_too_long(len(name))
            for word in item:
                if not isinstance(word, str):
                    raise RecordError(
                        "bad_features", f"feature {name[:60]!r}: a bag holds text only, got {_short(word)}"
                    )
                out[f"{name}={word}"] = out.get(f"{name}={word}", 0.0) + 1.0
        elif item is not None:
            raise RecordError(
                "bad_features", f"feature {name[:60]!r} must be a number, boolean, text, list of text or null"
            )
    return out


def name_too_long(size: int) -> RecordError:
    """Return what is wrong with a feature's name of so many characters."""
    return RecordError("name_too_long", f"a feature's name has {size} characters, at most {MAX_NAME} are allowed")


def too_many_features(size: int, most: int) -> RecordError:
    """Return what is wrong with a record of so many features."""
    detail = f"the record has {size} features, at most {most} are allowed (state.max_features)"
    return RecordError("too_many_features", detail)


def number(name: str, item: Real | float) -> float:
    """Return a finite float, or raise ``non_finite``."""
    try:
        value = float(item)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise RecordError("non_finite", f"{name[:60]!r} is {value}, not a finite number")
    return value


def parse_libsvm(items: list[str]) -> dict[str, float]:
    """Return the features of LIBSVM items such as ``["3:1", "11:0.5"]``; names are the indices as written."""
    out: dict[str, float] = {}
    for item in items:
        name, colon, text = item.rpartition(":")
        if not colon or not name:
            raise RecordError("bad_features", f"expected index:value, got {item[:60]!r}")
        if name in out:
            raise RecordError("bad_features", f"feature {name[:60]!r} stands twice")
        try:
            value = float(text)
        except ValueError:
            raise RecordError("bad_features", f"feature {name[:60]!r}: {text[:60]!r} is no number") from None
        out[name] = number(name, value)
    return out


def _short(item: Any) -> str:
    text = repr(item)
    return text if len(text) <= 80 else text[:77] + "..."


def label_text(label: LabelValue) -> str:
    """Return a label as the text that tables show and that tells classes apart (1, 1.0 and "1" are one class)."""
    if isinstance(label, bool):
        return "true" if label else "false"
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def record_key(record: Record, field: str) -> str | None:
    """Return the text of one field of a record, to be its key, or None when it is not there or empty.

    The field is ``id``, ``label`` or ``time``, or a feature's value, or the value of the first one-hot
    feature ``field=value``. In a record of views a feature is named ``view:name``.
    """
    if field in ("id", "label", "time"):
        top: Label = getattr(record, field)
        if top is not None:
            return label_text(top) or None
    features = record.features
    if record.views is not None and features is None:
        view, _, field = field.partition(":")
        features = record.views.get(view)
    if features is None:
        return None
    value = features.get(field)
    if value is not None:
        return label_text(value)
    prefix = field + "="
    for name in features:
        if name.startswith(prefix):
            return name[len(prefix) :] or None
    return None


def key_of(value: bytes | None, field: str, form: Form = PLAIN) -> bytes | None:
    """Return the key that a value holds: its top-level ``field``, or as :func:`record_key` finds it.

    ``form`` is that of the value's topic. None where the value has no such field or is no record; then it is rejected
    as such.
    """
    try:
        fields = msgspec.json.decode(value)  # type: ignore[arg-type]
        top = fields.get(form.fields.get(field, field)) if isinstance(fields, dict) else None
        text = label_text(top) if isinstance(top, LabelValue) else record_key(decode_value(value, form), field)
    except (*_REFUSED, RecordError):
        return None
    return None if text is None else text.encode()
