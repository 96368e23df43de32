"""Hostile inputs: valid records, states and files, how they are changed, and what reads them."""

import bz2
import gzip
import io
import json
import lzma
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from google.protobuf import descriptor_pb2, struct_pb2

import palearn
from palearn import files
from palearn.engine.bucket import Bucket, BucketConfig
from palearn.engine.join import Limits
from palearn.engine.validation import Chunk, accept
from palearn.errors import RecordError
from palearn.evaluate.libsvm_blocks import Bulk
from palearn.files.text_lines import guarded
from palearn.learners import LEARNERS, Learner
from palearn.models import codec
from palearn.models.state import Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import PLAIN, Encoding, Record, ValueFormat, key_of

MB = 2**20
#: Values that lengths, offsets and places are overwritten with.
_INTEGERS = (
    0,
    1,
    -1,
    2,
    127,
    128,
    255,
    2**15,
    2**16 - 1,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**40,
    2**62,
    2**63 - 1,
    -(2**63),
)
_WORDS = [
    b"1e999", b"-1e-999", b"NaN", b"-Infinity", b"1" * 400, b"0.1" * 99, b"null", b"true", b"\\ud800", b"\xff", b"\0",
    b"\n",
    b'"', b"'", b"{", b"}", b"[" * 3000, b'{"a":' * 2000, b":", b",", b"#", b"\xef\xbb\xbf", b"\xc2\xa0", b"\xd9\xa1",
    b"9223372036854775808", b'"features":', b'"views":{', b'"x":[1,2', b'"id":', b'"time":', b'"weight":', b"(bias)",
    b"a=" * 400, b"1:1 ", b" 2:-.5e+3", b"-0", b"\r", b"../../x", b"<script>", b"$(rm)",
]  # fmt: skip


#: Few parts wait, and few ids are remembered: every bound is met.
_LIMITS = Limits(max_pending=3, max_age_records=50, max_age=9.0, remember_ids=4)


class Kind(NamedTuple):
    """A kind of inputs.

    Parameters
    ----------
    valid
        Makes the inputs that are mutated.
    use
        Uses one; raises only what its caller must expect.
    share
        Its part of all inputs.
    times, constant_mb
        The resident memory that an input may cost: so many times its bytes, and a constant.
    sealed
        Whether the last four bytes are a checksum, made right again.
    """

    valid: Callable[[], list[bytes]]
    use: Callable[[bytes], str]
    share: float
    times: int = 100
    constant_mb: int = 64
    sealed: bool = False


# -- mutations -------------------------------------------------------------------------------------------


def mutated(valid: list[bytes], seed: int, *, sealed: bool) -> bytes:
    """Return the input of a seed: a valid one with up to four changes, and the right checksum if it has one."""
    draw = random.Random(seed)
    data = bytearray(draw.choice(valid))
    if sealed:
        del data[-4:]
    for _ in range(draw.choice((1, 1, 2, 4))):
        draw.choice(_CHANGES)(draw, data, valid)
    if sealed:
        data += struct.pack("<I", zlib.crc32(data))
    return bytes(data)


def _flip(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    for _ in range(draw.choice((1, 1, 3, 20)) if data else 0):
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)


def _cut(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    first = draw.randrange(len(data) + 1)
    del data[first : draw.choice((len(data), first + draw.randrange(1, 40)))]


def _insert(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = draw.choice((draw.randbytes(draw.randrange(1, 30)), draw.choice(_WORDS), draw.choice(_WORDS)))


def _overwrite(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    word = draw.choice(_WORDS)[:12]
    at = draw.randrange(len(data) + 1)
    data[at : at + len(word)] = word


def _integer(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    size = draw.choice((1, 2, 4, 8))
    at = draw.randrange(len(data) + 1) // size * size
    value = draw.choice((*_INTEGERS, draw.getrandbits(64), len(data), 256 * len(data)))
    data[at : at + size] = (value % 2**64).to_bytes(8, "little")[:size]


def _splice(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    other = draw.choice(valid)
    first, at = draw.randrange(len(other) + 1), draw.randrange(len(data) + 1)
    size = draw.randrange(1, 200)
    data[at : at + draw.choice((0, size))] = other[first : first + size]


def _repeat(draw: random.Random, data: bytearray, valid: list[bytes]) -> None:
    at = draw.randrange(len(data) + 1)
    data[at:at] = data[at : at + draw.randrange(1, 60)] * draw.choice((1, 3, 50))


_CHANGES = (_flip, _flip, _cut, _insert, _insert, _overwrite, _integer, _integer, _splice, _repeat)


# -- records ---------------------------------------------------------------------------------------------

_RECORDS = [
    {"label": "spam", "features": {"free": 1, "len": 0.3, "lang": "en", "urgent": True, "words": ["a", "b", "a"]}},
    {"id": "42", "label": -1, "views": {"page": {"exam": 2}, "link": {"cs101": 1}}, "time": "2026-01-01T00:00:00Z"},
    {"label": 1, "features": "3:1 11:0.5 7:-2e3"},
    {"label": 1, "x": [0.1, 0, 2.3, -4e-5], "weight": 2.5},
    {"id": 43, "label": "ham"},
    {"id": "44", "features": {"ключ": 1, "b\u2028": None}, "time": 17.5, "other": {"deep": [[[{}]]]}},
]


def _records() -> list[bytes]:
    return [json.dumps(x, ensure_ascii=draw).encode() for x in _RECORDS for draw in (True, False)]


def _avros() -> list[bytes]:
    out = []
    for value in _RECORDS[:2]:
        sink = io.BytesIO(b"\0\0\0\0\7")
        sink.seek(5)
        fastavro.schemaless_writer(sink, _AVRO, value)
        out.append(sink.getvalue())
    return out


def _protobufs() -> list[bytes]:
    found = struct_pb2.Struct()
    found.update({"free": 1, "len": 0.3, "lang": "en", "urgent": True, "words": ["a", "b"], "none": None})
    return [b"\0\0\0\0\7" + place + found.SerializeToString(deterministic=True) for place in (b"\0", b"\2\0")]


_FEATURES = {"type": "map", "values": ["null", "double", "string", "boolean", {"type": "array", "items": "string"}]}
_AVRO = {
    "type": "record",
    "name": "Example",
    "fields": [
        {"name": "label", "type": ["null", "string", "long"], "default": None},
        {"name": "features", "type": ["null", _FEATURES], "default": None},
        {"name": "views", "type": ["null", {"type": "map", "values": _FEATURES}], "default": None},
        {"name": "id", "type": ["null", "string"], "default": None},
    ],
}


def _form(format: Encoding) -> ValueFormat:
    if format == "avro":
        return ValueFormat(format=format, schemas=((7, json.dumps(_AVRO).encode()),))
    file = descriptor_pb2.FileDescriptorProto()
    struct_pb2.DESCRIPTOR.CopyToProto(file)
    schema = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    return ValueFormat(format=format, schemas=((7, schema),), fields={"features": "fields"})


def _use_record(data: bytes, form: ValueFormat = PLAIN) -> str:
    """Take in a value, and its beginning as a key, as a bucket does; say its reason."""
    forms = {"t": form}
    chunk = Chunk([data[:20]], [data], ["t"], np.zeros(1, np.int64), np.zeros(1, np.int64))
    for settings in (Settings(max_bytes=MB), Settings("multiclass", max_bytes=MB)):
        accept(chunk, Vocabulary(), 10_000, settings, forms=forms)
    key_of(data, "features", form)
    for views in (("page", "link"), ()):
        _, faults = accept(chunk._replace(key=[b"k"]), Vocabulary(views), 10_000, settings, forms=forms)
    return str(faults[0].error.reason) if faults else "used"


# -- states ----------------------------------------------------------------------------------------------


def _models() -> list[bytes]:
    """Return a model of every learner, compressed and as it is."""
    x = {"free": 1.0, "len": 0.3, "b": -2.0}
    out = []
    for name, row in LEARNERS.items():
        for task in row.tasks:
            model = palearn.make(name, task=task)
            for label in (1, -1, 1, 1):
                model.learn_one({"page": x, "link": {"cs": 1}} if row.views else x, label)
            out.append(model.to_bytes())
    full = palearn.make("arow", covariance="full", positive="spam").learn_one(x, "spam")
    joint = palearn.make("arow", covariance="joint", task="multiclass").learn_one(x, "a").learn_one(x, 2)
    queue = palearn.make("pa_mean1", queue=3, bias=False).learn_one(x, 1)
    return _as_they_are([*out, *(model.to_bytes() for model in (full, joint, queue))])


def _buckets() -> list[bytes]:
    """Return buckets of several keys, with views and parts that wait, compressed and as they are."""
    arow, pam = Learner("arow", "arow"), Learner("pam", "pam1", view="link")
    many = [Learner(x, x, task="multiclass") for x in ("arow", "pam1")]
    plans = [
        BucketConfig(Settings(), (arow, Learner("mean", "pa_mean1"))),
        BucketConfig(Settings(task="multiclass", window=9), tuple(many)),
        BucketConfig(Settings(views=("page", "link")), (arow, pam, Learner("two", "two_view_pa")), limits=_LIMITS),
    ]
    return _as_they_are([_bucket(plan, None, 40).to_bytes() for plan in plans])


def _as_they_are(blobs: list[bytes]) -> list[bytes]:
    """Return the states, and each without LZ4: there a changed byte changes one number."""
    out = []
    for blob in blobs:
        with pa.ipc.open_stream(pa.py_buffer(blob)[6:-4]) as reader:
            batch = reader.read_next_batch()
        sink = pa.BufferOutputStream()
        sink.write(blob[:6])
        with pa.ipc.new_stream(sink, batch.schema) as writer:
            writer.write_batch(batch)
        plain = sink.getvalue().to_pybytes()
        out += [blob, plain + struct.pack("<I", zlib.crc32(plain))]
    return out


def _bucket(plan: BucketConfig, blob: bytes | None, records: int) -> Bucket:
    """Return a bucket that took in records of its kind: whole ones, parts, labels and features that are new."""
    bucket, values = Bucket(plan, blob), []
    for i in range(records):
        label: Any = None if i % 5 == 0 else ("x", "y", "z", 4)[i % 4] if plan.settings.task == "multiclass" else i % 2
        x = {f"f{(i * 7) % 13}": 0.5 * i, f"g{i % 3}": -1.0}
        value: dict[str, Any] = {"label": label, "features": x, "time": i}
        if plan.settings.views:
            del value["features"]
            part = {"page": x} if i % 3 == 0 else {"link": x} if i % 3 == 1 else {"page": x, "link": {}}
            value |= {"views": part, "id": i // 3}
        values.append(json.dumps(value).encode())
    keys, places = [b"key %d" % (i % 4) for i in range(records)], np.arange(records)
    bucket.learn(Chunk(keys, values, ["t"] * records, np.zeros(records, np.int64), places))
    return bucket


def _use_model(data: bytes) -> str:
    """Read a model, look into it, and go on with it."""
    model = palearn.from_bytes(data)
    x: dict[str, Any] = {"free": 1.0, "len": 0.3, "new": 1.0}
    views = model._settings.views
    if views:
        x = {view: x for view in views}
    model.weights(), model.variances(), model.labels, repr(model)
    model.to_bytes()
    model.predict_one(x), model.score_one(x)
    label = model.known_labels[-1] if model.known_labels else None
    model.learn_one(x, 1 if label is None else label)
    model.to_bytes()
    return "used"


def _use_bucket(data: bytes) -> str:
    """Read a bucket, and go on with it."""
    models = codec.decode(data)
    bucket = _bucket(BucketConfig(models.settings, models.learners, limits=_LIMITS), data, 12)
    bucket.results()
    codec.decode(bucket.to_bytes())
    return "used"


@cache
def _state_with_rooms() -> bytes:
    return _buckets()[-1]


def _buffers() -> list[bytes]:
    return [room for room in codec.decode(_state_with_rooms()).join_buffers if room]


def _use_room(data: bytes) -> str:
    """Put a room into a bucket, and go on with it."""
    models = codec.decode(_state_with_rooms())
    models.join_buffers = [data] * len(models.join_buffers)
    return _use_bucket(codec.encode(models))


# -- files -----------------------------------------------------------------------------------------------

_LIBSVM = "+1 3:1 11:0.5 # a comment\n-1 1:-2e-3 7:.5\n\n2 1:1\nham 5:1\n1\n"
_VW = "1 2 'tag|f:0.5 a:2 b city:paris | c:1e-3\n-1 |f a\n|g é:.5\nspam |f a a\n"
_CSV = 'age,job,label,id,weight,time\n39,clerk,1,007,2,2024-01-01\n4.5,"a, ""b""",spam,,,\n,"x\ny",0,,1e3,17\n'
_SHRINKING: dict[str, Callable[[bytes], bytes]] = {
    ".gz": lambda data: gzip.compress(data, mtime=0),
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def _texts(suffix: str) -> list[bytes]:
    """Return text files, some with many lines."""
    if suffix == ".csv":
        head, rows = _CSV.encode().split(b"\n", 1)
        return [_CSV.encode(), head + b"\n" + rows * 30, b"\xef\xbb\xbf" + _CSV.encode()]
    text = {".jsonl": b"\n".join(_records()), ".vw": _VW.encode()}.get(suffix, _LIBSVM.encode())
    return [text, text * 30]


def _tables(suffix: str) -> list[bytes]:
    """Return Parquet or Arrow files of every layout of records, some compressed inside."""
    pairs = pa.array([[("a", 1.0), ("b", 2.0)], None, [("c", 0.5)]], pa.map_(pa.string(), pa.float64()))
    flat = {"label": [1, -1, 1], "x": [0.5, None, 2.0], "job": ["clerk", "x", None], "bag": [["a", "b"], [], None]}
    views = [{"page": {"a": 1.0}, "link": {"b": 2.0}}, {"page": {"a": None}, "link": {}}, None]
    tables = [
        pa.table({**flat, "id": ["1", "2", None], "weight": [1.0, 2.0, 3.0]}),
        pa.table({"label": ["a", "b", None], "features": pairs}),
        pa.table({"label": [True, False, None], "views": views}),
        pa.table({"label": [1] * 3000, "x": [0.5] * 3000}),
    ]
    out = []
    for i, (table, compression) in enumerate(zip(tables, ("none", "snappy", "zstd", "gzip"), strict=True)):
        sink = io.BytesIO()
        if suffix == ".arrow":
            options = pa.ipc.IpcWriteOptions(compression=(None, "lz4", "zstd", None)[i])
            new = pa.ipc.new_stream if i % 2 else pa.ipc.new_file
            with new(sink, table.schema, options=options) as writer:
                writer.write_table(table, max_chunksize=2000)
        else:
            pq.write_table(table, sink, compression=compression, row_group_size=2000)
        out.append(sink.getvalue())
    return out


def _file(suffix: str, *, packed: str = "") -> Kind:
    """Return the kind of files of a suffix, perhaps compressed: half the share of the plain ones."""

    def valid() -> list[bytes]:
        found = _tables(suffix) if suffix in (".parquet", ".arrow") else _texts(suffix)
        return [_SHRINKING[packed](data) for data in found] if packed else found

    def use(data: bytes) -> str:
        with tempfile.NamedTemporaryFile(suffix=suffix + packed) as file:
            file.write(data)
            file.flush()
            return _told(row for _, row in files.read(file.name))

    share = {".parquet": 1.0, ".arrow": 1.0}.get(suffix, 2.0)
    return Kind(valid, use, share / 4 if packed else share, times=2000 if packed else 100, constant_mb=160)


def _told(rows: Iterator[Any]) -> str:
    """Take in rows; say whether all were used."""
    kinds = {type(row) for row in rows}
    if not kinds <= {Record, RecordError}:
        raise AssertionError(f"rows are {kinds}")
    return "bad rows" if RecordError in kinds else "used"


def _use_bulk(data: bytes) -> str:
    """Read LIBSVM text many lines at once; the rows must be those of the careful reader."""
    bulk = Bulk(Vocabulary(), Settings("multiclass"), 10_000, names=None)
    path = Path("mutated.libsvm")
    found = [block for _, block in guarded(path, io.BytesIO(data), bulk.read)]
    careful = [row for _, row in files.read(path, opened=io.BytesIO(data))]
    rows = sum(block.columns.code.size for block in found)
    if rows != len(careful):
        raise AssertionError(f"{rows} rows at once, {len(careful)} one by one")
    return "bad rows" if any(block.faults for block in found) else "used"


_SUFFIXES = (".libsvm", ".csv", ".jsonl", ".vw", ".parquet", ".arrow")
KINDS = {
    "record": Kind(_records, _use_record, 6.0, times=200),
    "avro": Kind(_avros, partial(_use_record, form=_form("avro")), 2.0, times=200),
    "protobuf": Kind(_protobufs, partial(_use_record, form=_form("protobuf")), 2.0, times=200),
    "model": Kind(_models, _use_model, 4.0, times=4000, sealed=True),
    "bucket": Kind(_buckets, _use_bucket, 1.0, times=4000, sealed=True),
    "room": Kind(_buffers, _use_room, 0.5, times=4000),
    "bulk": Kind(lambda: _texts(".libsvm"), _use_bulk, 2.0),
    **{f"{suffix[1:]}": _file(suffix) for suffix in _SUFFIXES},
    **{f"{suffix[1:]}{packed}": _file(suffix, packed=packed) for suffix in _SUFFIXES for packed in _SHRINKING},
}
