"""One record in Avro and Protobuf, written by their own libraries with Confluent's header."""

import io
import json
import struct
from pathlib import Path
from typing import Any

import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory, struct_pb2, wrappers_pb2

_VALUE = ["null", "double", "string", "boolean", {"type": "array", "items": "string"}]
_FEATURES = {"type": "map", "values": _VALUE}
AVRO: dict[str, Any] = {
    "type": "record",
    "name": "Example",
    "fields": [
        {"name": "label", "type": ["null", "long", "double", "string", "boolean"], "default": None},
        {"name": "features", "type": ["null", _FEATURES], "default": None},
        {"name": "views", "type": ["null", {"type": "map", "values": _FEATURES}], "default": None},
        {"name": "id", "type": ["null", "string", "long"], "default": None},
        {"name": "weight", "type": ["null", "double"], "default": None},
        {"name": "time", "type": ["null", "double", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "user", "type": ["null", "string"], "default": None},
    ],
}
AVRO_ID, PROTOBUF_ID = 3, 70_000


def _field(name: str, number: int, kind: int, **more: Any) -> descriptor_pb2.FieldDescriptorProto:
    return descriptor_pb2.FieldDescriptorProto(name=name, number=number, type=kind, **{"label": 1, **more})


def _optional(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: int, **more: Any) -> None:
    """Add a field as proto3's ``optional`` does."""
    place = len(message.oneof_decl)
    message.oneof_decl.add(name=f"_{name}")
    message.field.append(_field(name, number, kind, proto3_optional=True, oneof_index=place, **more))


def _map(message: descriptor_pb2.DescriptorProto, scope: str, name: str, number: int, kind: int, **more: Any) -> None:
    entry = f"{name.capitalize()}Entry"
    pair = message.nested_type.add(name=entry)
    pair.options.map_entry = True
    text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    pair.field.extend([_field("key", 1, text), _field("value", 2, kind, **more)])
    message.field.append(_field(name, number, 11, label=3, type_name=f"{scope}.{message.name}.{entry}"))


def _descriptors() -> descriptor_pb2.FileDescriptorSet:
    """Return what protoc makes of this file::

    syntax = "proto3";
    package shop;
    import "google/protobuf/struct.proto";
    import "google/protobuf/wrappers.proto";

    message Other { string text = 1; message Inner { map<string, double> features = 1; } }
    message Example {
      message Label { oneof kind { int64 whole = 1; double number = 2; string text = 3; bool flag = 4; } }
      message View { map<string, google.protobuf.Value> features = 1; }
      Label label = 1;
      map<string, google.protobuf.Value> features = 2;
      map<string, View> views = 3;
      optional string id = 4;
      google.protobuf.DoubleValue weight = 5;
      optional double time = 6;
      string user = 7;
    }
    """
    kinds = descriptor_pb2.FieldDescriptorProto
    files = descriptor_pb2.FileDescriptorSet()
    for module in (struct_pb2, wrappers_pb2):
        module.DESCRIPTOR.CopyToProto(files.file.add())
    file = files.file.add(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.extend(["google/protobuf/struct.proto", "google/protobuf/wrappers.proto"])
    other = file.message_type.add(name="Other")
    other.field.append(_field("text", 1, kinds.TYPE_STRING))
    _map(other.nested_type.add(name="Inner"), ".shop.Other", "features", 1, kinds.TYPE_DOUBLE)
    example = file.message_type.add(name="Example")
    label = example.nested_type.add(name="Label")
    label.oneof_decl.add(name="kind")
    types = {"whole": kinds.TYPE_INT64, "number": kinds.TYPE_DOUBLE, "text": kinds.TYPE_STRING, "flag": kinds.TYPE_BOOL}
    label.field.extend(_field(name, i, kind, oneof_index=0) for i, (name, kind) in enumerate(types.items(), 1))
    value = {"type_name": ".google.protobuf.Value"}
    _map(example.nested_type.add(name="View"), ".shop.Example", "features", 1, kinds.TYPE_MESSAGE, **value)
    example.field.append(_field("label", 1, kinds.TYPE_MESSAGE, type_name=".shop.Example.Label"))
    _map(example, ".shop", "features", 2, kinds.TYPE_MESSAGE, **value)
    _map(example, ".shop", "views", 3, kinds.TYPE_MESSAGE, type_name=".shop.Example.View")
    _optional(example, "id", 4, kinds.TYPE_STRING)
    example.field.append(_field("weight", 5, kinds.TYPE_MESSAGE, type_name=".google.protobuf.DoubleValue"))
    _optional(example, "time", 6, kinds.TYPE_DOUBLE)
    example.field.append(_field("user", 7, kinds.TYPE_STRING))
    return files


DESCRIPTORS = _descriptors()
_POOL = descriptor_pool.DescriptorPool()
for _file in DESCRIPTORS.file:
    _POOL.Add(_file)
_LABELS = {bool: "flag", int: "whole", float: "number", str: "text"}


def avro_value(value: dict[str, Any], number: int = AVRO_ID) -> bytes:
    """Return a record, given as JSON has it, in Avro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, AVRO, {"time": None, **value})
    return struct.pack(">bI", 0, number) + out.getvalue()


def protobuf_value(value: dict[str, Any], number: int = PROTOBUF_ID) -> bytes:
    """Return a record, given as JSON has it, in Protobuf; Python's own writer sorts maps when asked for one order."""
    fields = dict(value)
    if "label" in fields:
        fields["label"] = {_LABELS[type(fields["label"])]: fields["label"]}
    if "views" in fields:
        fields["views"] = {name: {"features": view} for name, view in fields["views"].items()}
    message = message_factory.GetMessageClass(_POOL.FindMessageTypeByName("shop.Example"))()
    json_format.ParseDict(fields, message)
    # The second message of its file: one number, 1, both as zigzag varints.
    return struct.pack(">bI", 0, number) + b"\x02\x02" + message.SerializeToString(deterministic=True)


def json_value(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode()


def write(folder: Path) -> dict[str, Any]:
    """Write both schemas' files; return a configuration's records: Avro, but of the topic "shop" Protobuf."""
    (folder / "example.avsc").write_text(json.dumps(AVRO))
    (folder / "shop.binpb").write_bytes(DESCRIPTORS.SerializeToString())
    shop = {"format": "protobuf", "schema": str(folder / "shop.binpb"), "message": "shop.Example"}
    return {"format": "avro", "schema": {AVRO_ID: str(folder / "example.avsc")}, "topics": {"shop": shop}}
