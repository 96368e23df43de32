"""How the values of topics are written, as a configuration says it, and the files of schemas that it names."""

from pathlib import Path
from typing import TypeAlias

import msgspec

from palearn.config.section import Text
from palearn.errors import ConfigError
from palearn.records import WITH_SCHEMA, Encoding, Record, ValueFormat, decoder
from palearn.records.confluent_wire import compiled

#: The file of the one schema, or a file for each schema's id.
Schema: TypeAlias = Text | dict[int, Text]


class TopicFormat(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How the values of one topic differ from the others (:class:`palearn.records.ValueFormat`).

    ``format`` None: that of all records, and then their ``schema`` and ``message`` too, where it gives none.
    """

    view: str | None = None
    fields: dict[str, str] = msgspec.field(default_factory=dict)
    format: Encoding | None = None
    schema: Schema | None = None
    message: Text | None = None


def form_of(topic: TopicFormat | None, format: Encoding, schema: Schema | None, message: str | None) -> ValueFormat:
    """Return what a worker needs to read a topic's values, with the content of its schemas' files.

    Parameters
    ----------
    topic
        What the topic says itself.
    format, schema, message
        What holds for all records.

    Raises
    ------
    ConfigError
        A file cannot be read.
    """
    own = TopicFormat() if topic is None else topic
    format, schema, message = _chosen(own, format, schema, message)
    return ValueFormat(view=own.view, fields=own.fields, format=format, schemas=_contents(schema), message=message)


def _chosen(
    own: TopicFormat, format: Encoding, schema: Schema | None, message: str | None
) -> tuple[Encoding, Schema | None, str | None]:
    if own.format is not None:
        return own.format, own.schema, own.message
    return format, own.schema or schema, own.message or message


def topic_faults(topic: TopicFormat, format: Encoding, schema: Schema | None, message: str | None) -> list[str]:
    """Return what is wrong with a topic's form, each with the field it is about; parameters as of :func:`form_of`."""
    known = ", ".join(Record.__struct_fields__)
    faults = [
        f"fields.{name}: a record has the fields {known}" for name in topic.fields.keys() - {*Record.__struct_fields__}
    ]
    try:
        decoder(ValueFormat(fields=topic.fields))
    except ValueError as error:
        faults.append(f"fields: {error}; each needs a plain name of its own")
    if (topic.format or format) == "libsvm" and topic.fields:
        faults.append("fields: LIBSVM has no names of fields")
    if (topic.format, topic.schema, topic.message) == (None, None, None):
        return faults  # what holds for all records is looked at once
    return faults + form_faults(*_chosen(topic, format, schema, message))


def form_faults(format: Encoding, schema: Schema | None, message: str | None) -> list[str]:
    """Return what is wrong with a format and its schemas, each with the field it is about."""
    if format not in WITH_SCHEMA:
        given = {"schema": schema, "message": message}
        return [f"{name}: {format} has none" for name, value in given.items() if value is not None]
    if message is not None and format != "protobuf":
        return ["message: only Protobuf has messages"]
    if not schema:
        return [f"schema: {format} needs the file of its schema, or {{ID: FILE, …}}"]
    try:
        compiled(ValueFormat(format=format, schemas=_contents(schema), message=message))
    except ImportError:
        return [f"format: {format} is read by a package that is not installed: pip install 'palearn[{format}]'"]
    except ValueError as error:  # a ConfigError is one
        return [f"schema: {error}"]
    return []


def _contents(schema: Schema | None) -> tuple[tuple[int | None, bytes], ...]:
    if schema is None:
        return ()
    return tuple(
        (number, read_schema(path)) for number, path in ({None: schema} if isinstance(schema, str) else schema).items()
    )


def read_schema(path: str) -> bytes:
    """Return the content of a schema's file, or raise a ConfigError."""
    if path.endswith(".proto"):
        raise ConfigError(
            f"{path} must be compiled: protoc --include_imports --descriptor_set_out=FILE {path} (pip install "
            "grpcio-tools brings it, as python -m grpc_tools.protoc)"
        )
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
