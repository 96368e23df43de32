"""A record once it is read, what it may hold, and what it shows: its label as text, its key, its time."""

import math
from datetime import UTC, datetime
from numbers import Real
from typing import Annotated

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
    "bad_key",
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
    "no_header",
    "unknown_schema",
    "bad_avro",
    "bad_protobuf",
    "conflict",
)

#: Name of the constant feature that ``bias: true`` adds; records may not use it.
BIAS = "(bias)"
#: A feature's name may be this long, in characters.
MAX_NAME = 512
#: From here on not every integer is a float.
_INEXACT = 2.0**53


class Record(msgspec.Struct, gc=False, omit_defaults=True):
    """One example, or a part of one, as it travels; features are already numbers."""

    label: str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | float | bool | None = None
    features: dict[str, float] | None = None
    views: dict[str, dict[str, float]] | None = None
    id: str | Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    weight: float | None = None
    time: str | int | float | None = None


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
    if isinstance(label, str) and not is_utf8(label):
        raise RecordError("not_utf8", f"the label {label!r:.80} holds half of a surrogate pair")
    if label is None or isinstance(label, str | bool):
        return
    if isinstance(label, float) and math.isfinite(label):
        return
    if not isinstance(label, int) or not -(2**63) <= label < 2**63:
        must = "text, a finite number (an integer of 64 bits) or a boolean"
        raise RecordError("bad_label", f"label must be {must}, got {brief(label)}")


def check_weight(weight: float) -> None:
    """Raise ``bad_weight`` unless it is a finite number > 0."""
    if not 0.0 < weight < math.inf:
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {brief(weight)}")


def check_id(identity: object) -> None:
    """Raise ``bad_id`` unless it is None, text, or an integer of 64 bits."""
    integral = isinstance(identity, int) and not isinstance(identity, bool) and -(2**63) <= identity < 2**63
    if identity is not None and not integral and not isinstance(identity, str):
        raise RecordError("bad_id", f"id must be text or an integer of 64 bits, got {brief(identity)}")


def number(name: str, item: Real | float) -> float:
    """Return a finite float, or raise ``non_finite``."""
    try:
        value = float(item)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        raise RecordError("non_finite", f"{name[:60]!r} is {value}, not a finite number")
    return value


def name_too_long(size: int) -> RecordError:
    """Return what is wrong with a feature's name of so many characters."""
    return RecordError("name_too_long", f"a feature's name has {size} characters, at most {MAX_NAME} are allowed")


def too_many_features(size: int, most: int) -> RecordError:
    """Return what is wrong with a record of so many features."""
    detail = f"the record has {size} features, at most {most} are allowed (state.max_features)"
    return RecordError("too_many_features", detail)


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
    raise RecordError("bad_time", f"time must be a finite number of seconds, or ISO 8601, got {brief(time)}")


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

    Raises
    ------
    RecordError
        ``no_key``: the feature is a number so large that others may have become the same one.
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
        if abs(value) >= _INEXACT:
            raise RecordError(
                "no_key",
                f"the key is the feature {field[:60]!r}, a number of more than 53 bits, which features do not keep "
                "apart: make it text (of a file's column: --column NAME=text)",
            )
        return label_text(value)
    prefix = field + "="
    for name in features:
        if name.startswith(prefix):
            return name[len(prefix) :] or None
    return None


def brief(item: object) -> str:
    """Return what a message shows of a value."""
    text = repr(item)
    return text if len(text) <= 80 else text[:77] + "..."


def is_utf8(text: str) -> bool:
    """Whether a text can be written; one of Python's may hold half of a surrogate pair, and then it cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


def utf8(value: bytes) -> str:
    """Return a value's text, or raise ``not_utf8``."""
    try:
        return bytes(value).decode()
    except UnicodeDecodeError as error:
        raise RecordError("not_utf8", f"the value is not UTF-8 at byte {error.start}") from None
