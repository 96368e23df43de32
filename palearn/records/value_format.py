"""How the values of one topic differ from the format."""

from collections.abc import Mapping
from typing import Literal, TypeAlias

import msgspec

Encoding: TypeAlias = Literal["json", "libsvm", "avro", "protobuf"]

#: Encodings of values that begin with a schema's id.
WITH_SCHEMA: tuple[Encoding, ...] = ("avro", "protobuf")


class ValueFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How the values of one topic differ from the format; all that a worker needs to read them.

    Parameters
    ----------
    view
        The topic brings this view: a record's features are the view's.
    fields
        Names that the topic has for ``label``, ``features``, ``views``, ``id``, ``weight`` or ``time``.
    format
        What the values are written in.
    schemas
        Avro and Protobuf: a schema's id, or None for any, and its content (an Avro schema's JSON, a serialized
        ``FileDescriptorSet``).
    message
        Protobuf: the full name of the message that a value must be; None: whichever its header names.
    """

    view: str | None = None
    fields: Mapping[str, str] = {}
    format: Encoding = "json"
    schemas: tuple[tuple[int | None, bytes], ...] = ()
    message: str | None = None


PLAIN = ValueFormat()


def format_of(topic: str, forms: Mapping[str, ValueFormat]) -> ValueFormat:
    """Return how a topic's values are written; ``""`` in ``forms`` stands for topics that are not named there."""
    return forms.get(topic) or forms.get("", PLAIN)
