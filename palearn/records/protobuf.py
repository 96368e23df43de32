"""Protobuf: a record's fields, read with the descriptors of its messages."""

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from palearn.errors import RecordError

#: Messages are never nested more deeply than this, so no place in a file is longer.
_DEEPEST = 100
_WRAPPERS = frozenset(
    f"google.protobuf.{kind}Value"
    for kind in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)


class Protobuf:
    """The messages of a file and of those that it imports.

    Maps are read as the lists of pairs that they are on the wire: so their order is the value's, as it is in JSON.

    Parameters
    ----------
    content
        A serialized ``FileDescriptorSet``, the file last (as protoc writes it).
    message
        The full name of the message that every value must be; None: whichever its header names.

    Raises
    ------
    ValueError
        It is no such set, an import is missing, or it has no such message.
    """

    def __init__(self, content: bytes, message: str | None) -> None:
        files, pool = descriptor_pb2.FileDescriptorSet(), descriptor_pool.DescriptorPool()
        try:
            files.ParseFromString(content)
            self._maps = {name for file in files.file for name in _open_maps(file.package, file.message_type)}
            for file in files.file:
                pool.Add(file)
            self._file = files.file[-1]
            self._package = f"{self._file.package}." if self._file.package else ""
            self._pool, self._message = pool, message
            if message is not None:
                pool.FindMessageTypeByName(message)
            self._types: dict[tuple[int, ...], type[Message]] = {}
            self._known: dict[str, list[tuple[str, FieldDescriptor]]] = {}
            for top in self._file.message_type:
                pool.FindMessageTypeByName(self._package + top.name)
        except (DecodeError, IndexError):
            raise ValueError("no descriptor set, or an empty one") from None
        except TypeError as error:
            raise ValueError(f"files that it imports are missing (--include_imports): {error!s:.300}") from None
        except KeyError as error:
            raise ValueError(f"no such message: {error.args[0]!s:.200}") from None

    def fields(self, body: memoryview) -> dict[str, Any]:
        """Return the fields of a record that are set.

        A field without presence (proto3's without ``optional``) cannot say that it is not set: numbers, booleans and
        enums then are what they are by default, texts are absent.
        """
        place, rest = _place(body)
        if place not in self._types:
            self._types[place] = message_factory.GetMessageClass(self._at(place))
        found = self._types[place]()
        try:
            found.ParseFromString(bytes(rest))
            return self._set(found)
        except UnicodeDecodeError:
            raise RecordError("not_utf8", "a text of the value is not UTF-8") from None
        except DecodeError as error:
            raise RecordError("bad_protobuf", f"the value is no message of its schema: {error!s:.200}") from None

    def _at(self, place: tuple[int, ...]) -> Descriptor:
        name, siblings = self._package.rstrip("."), list(self._file.message_type)
        try:
            for number in place:
                name = f"{name}.{siblings[number].name}".lstrip(".")
                siblings = [x for x in siblings[number].nested_type if f"{name}.{x.name}" not in self._maps]
        except IndexError:
            raise RecordError("unknown_schema", f"the schema's file has no message at {place[:9]}") from None
        if self._message not in (None, name):
            raise RecordError("unknown_schema", f"the value is a {name}, records.message is {self._message}")
        return self._pool.FindMessageTypeByName(name)

    def _set(self, message: Message) -> dict[str, Any]:
        name = message.DESCRIPTOR.full_name
        if name not in self._known:
            self._known[name] = [(field.name, field) for field in message.DESCRIPTOR.fields]
        return {
            name: self._value(getattr(message, name), field)
            for name, field in self._known[name]
            if _is_set(message, name, field)
        }

    def _value(self, value: Any, field: FieldDescriptor) -> Any:
        """Return what a field holds, as JSON would have it."""
        if field.message_type is not None:
            if field.is_repeated and field.message_type.full_name in self._maps:
                return {pair.key: self._value_of(pair) for pair in value}
            return [self._plain(item) for item in value] if field.is_repeated else self._plain(value)
        if field.enum_type is not None:
            return [_name(item, field) for item in value] if field.is_repeated else _name(value, field)
        return list(value) if field.is_repeated else value

    def _value_of(self, pair: Any) -> Any:
        return self._value(pair.value, pair.DESCRIPTOR.fields_by_name["value"])

    def _plain(self, message: Any) -> Any:
        """Return a message as plain values: its fields, or of a wrapper the wrapped value."""
        kind, fields = message.DESCRIPTOR.full_name, message.DESCRIPTOR.fields
        if kind in _WRAPPERS:
            return message.value
        if kind == "google.protobuf.Timestamp":
            return message.seconds + message.nanos / 1e9
        if len(fields) == 1 and fields[0].is_repeated:  # Struct, ListValue, and what people make like them
            return self._value(getattr(message, fields[0].name), fields[0])
        choice = fields[0].containing_oneof if len(fields) > 1 else None
        if choice is not None and len(choice.fields) == len(fields):  # one of several types, such as Value
            chosen = message.WhichOneof(choice.name)
            return None if chosen is None else self._set(message)[chosen]
        return self._set(message)


def _open_maps(scope: str, messages: Any) -> list[str]:
    """Make maps the lists of pairs that they are; return the full names of the pairs."""
    found = []
    for message in messages:
        name = f"{scope}.{message.name}".lstrip(".")
        if message.options.map_entry:
            message.options.ClearField("map_entry")
            found.append(name)
        found += _open_maps(name, message.nested_type)
    return found


def _is_set(message: Message, name: str, field: FieldDescriptor) -> bool:
    if field.has_presence:
        return bool(message.HasField(name))
    value = getattr(message, name)
    return len(value) > 0 if field.is_repeated else bool(value not in ("", b""))


def _name(number: int, field: FieldDescriptor) -> str | int | None:
    assert field.enum_type is not None
    if field.enum_type.full_name == "google.protobuf.NullValue":
        return None
    named = field.enum_type.values_by_number.get(number)
    return number if named is None else named.name


def _place(body: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """Return the position of a message in its file, and the bytes that follow."""
    count, at = _zigzag(body, 0)
    place = []
    for _ in range(count):
        number, at = _zigzag(body, at)
        place.append(number)
    if count > _DEEPEST or min(place, default=0) < 0:
        raise RecordError("no_header", "the header's place of the message is damaged")
    return tuple(place) or (0,), body[at:]


def _zigzag(body: memoryview, at: int) -> tuple[int, int]:
    """Return a varint of at most five bytes, and the place after it."""
    raw = 0
    for shift, byte in enumerate(body[at : at + 5]):
        raw |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return raw >> 1 ^ -(raw & 1), at + shift + 1
    raise RecordError("no_header", "the header's place of the message is damaged")
