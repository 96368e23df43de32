"""Models to bytes and back: what the stream keeps in state, ``to_bytes`` returns and golden files hold.

Byte layout (version 1)::

    0..3    magic  b"PALN"
    4..5    format version, unsigned, little-endian
    6..n-5  one Arrow IPC stream: a schema and one batch with a row a key; buffers LZ4 (or as they are)
    n-4..   CRC-32 of all bytes before it, unsigned, little-endian

The schema's metadata has one entry ``palearn``: JSON of settings, learners and the records' clock. Columns:

=================  ============================  =====================================================
key, last_topic    string
labels             list<string>                  each label as JSON, in class order (null: not yet named)
counts             fixed_size_list<int64>        :data:`palearn.models.counters.KEY_COUNTS`
features           list<dictionary<string>>      names; one dictionary for all keys
label_counts       list<int64>                   examples a class
room               binary                        :class:`palearn.engine.join_buffer.KeyBuffer`; only where a key has one
I.counts, I.sums   fixed_size_list               :data:`LEARNER_COUNTS`, :data:`LEARNER_SUMS`, learner I
I.hits             list<int64>                   right predictions a class
I.predictions      list<int64>                   predictions a class
I.ring             list<uint8>                   mistakes of the last ``window`` examples, a bit each
I.ARRAY            list<double>                  the learner's arrays (:class:`palearn.learners.ArraySpec`)
=================  ============================  =====================================================

Rules for later versions: columns may be added (absent means zero), never retyped or reordered in meaning;
a change that breaks this raises the version and adds an upgrade here. Nothing is ever unpickled.

Bytes may be anyone's: nothing is allocated that LZ4 could not have made of them (:mod:`palearn.arrow_limits`), and no
array reaches a kernel, which looks at no index, before Arrow and :func:`_check` have looked at all of them.
"""

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numba import njit

from palearn.arrow_limits import check_claims
from palearn.errors import NewerFormatError, StateFormatError
from palearn.learners import TASKS, Learner, layout_of, pointers
from palearn.models import counters
from palearn.models.keyed import Models
from palearn.models.labels import Known, as_texts
from palearn.models.state import LearnerState, Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import Label, check_label
from palearn.types import FloatArray, Int32Array, IntArray

MAGIC = b"PALN"
VERSION = 2
_HEAD = struct.Struct("<4sH")
_TAIL = struct.Struct("<I")
_META = b"palearn"
#: Types of the numbers of names, the most that an Arrow list or an int32 numbers, and the most that is counted to.
_PLACES, _MOST_NUMBERS, _MOST_COUNT = (pa.int16(), pa.int32()), 2**31 - 1, 2**62
#: Counts and places shrink to a tenth, weights of seldom seen keys too; what does not shrink stays as it is. A bucket
#: of mostly idle keys goes through Spark in half of the time.
_WRITING = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)


def encode(models: Models) -> bytes:
    """Return the models' bytes; the same models give the same bytes."""
    dictionary, feature = _used_names(models)
    names = ["key", "last_topic", "labels", "counts", "features", "label_counts"]
    columns: list[pa.Array] = [
        pa.array(models.keys, pa.string()),
        pa.array(models.topics, pa.string()),
        _labels(models),
        _fixed(models.counts),
        _lists(models.feature_ptr, pa.DictionaryArray.from_arrays(pa.array(_narrow(feature)), dictionary)),
        _lists(models.class_ptr, models.label_counts),
    ]
    if any(models.join_buffers):
        names.append("room")
        columns.append(_buffers(models.join_buffers))
    for i, (learner, state) in enumerate(zip(models.learners, models.states, strict=True)):
        parts = {
            "counts": _fixed(state.counts),
            "sums": _fixed(state.sums),
            "hits": _lists(models.class_ptr, state.hits),
            "predictions": _lists(models.class_ptr, state.predictions),
            "ring": _lists(models.ring_ptr, state.ring),
        }
        for spec in learner.arrays:
            parts[spec.name] = _lists(spec.runs(models.layout), state.arrays[spec.name])
        names += [f"{i}.{name}" for name in parts]
        columns += parts.values()
    meta = {
        "settings": _settings(models.settings),
        "learners": [x.spec for x in models.learners],
        "ties": _ties(models),
    }
    described = msgspec.json.encode({**meta, "clock": models.clock})
    batch = pa.record_batch(columns, names=names).replace_schema_metadata({_META: described})
    sink = pa.BufferOutputStream()
    sink.write(_HEAD.pack(MAGIC, VERSION))
    with pa.ipc.new_stream(sink, batch.schema, options=_WRITING) as writer:
        writer.write_batch(batch)
    body = sink.getvalue()
    return b"".join((body, _TAIL.pack(zlib.crc32(body))))


def _settings(settings: Settings) -> dict[str, Any]:
    """Return the settings as they are written: without what they seldom have."""
    described: dict[str, Any] = msgspec.to_builtins(settings)
    if not settings.columns:
        del described["columns"]
    return described


def decode(blob: bytes) -> Models:
    """Return the models in ``blob``.

    Raises
    ------
    StateFormatError
        The bytes are no models, are damaged, or were written by a newer version.
    """
    body = _checked(blob).slice(_HEAD.size)
    try:
        check_claims(body)
        with pa.ipc.open_stream(body) as reader:
            batch = reader.read_next_batch()
        batch.validate(full=True)
        meta = msgspec.json.decode(batch.schema.metadata[_META])
        settings = msgspec.convert({"max_bytes": None} | meta["settings"], Settings)
        learners = [
            Learner(
                x["name"], x["algorithm"], task=settings.task, tie=tie, view=x["view"], options=x["params"],
                drift=x.get("drift"),
            )
            for x, tie in zip(meta["learners"], meta["ties"], strict=True)
        ]  # fmt: skip
        models = _read(Models(settings, learners), batch)
        models.clock = int(meta["clock"])
        _check(models)
    except Exception as error:  # Arrow, msgspec and numpy each have their own for bytes that were made up
        raise StateFormatError(f"the state's content is not what its checksum promises: {error!r:.300}") from error
    return models


def _checked(blob: bytes) -> pa.Buffer:
    if len(blob) < _HEAD.size + _TAIL.size or blob[:4] != MAGIC:
        raise StateFormatError(f"these {len(blob)} bytes are no palearn models (they do not begin with {MAGIC!r})")
    version = _HEAD.unpack_from(blob)[1]
    if version == 0:
        raise StateFormatError("format version 0 does not exist: the bytes are damaged")
    if version > VERSION:
        raise NewerFormatError(f"format version {version} is newer than this palearn reads ({VERSION}): upgrade it")
    body = pa.py_buffer(blob).slice(0, len(blob) - _TAIL.size)
    if zlib.crc32(body) != _TAIL.unpack_from(blob, len(blob) - _TAIL.size)[0]:
        raise StateFormatError(f"the checksum of {len(blob)} bytes of models does not match: they are damaged")
    return body


def _read(models: Models, batch: pa.RecordBatch) -> Models:
    models.keys = _column(batch, "key", pa.string()).to_pylist()
    models.index = {name: k for k, name in enumerate(models.keys)}
    models.topics = _column(batch, "last_topic", pa.string()).to_pylist()
    models.labels = _read_labels(*_runs(batch, "labels", pa.string(), nulls=True))
    has_rooms = "room" in batch.schema.names
    models.join_buffers = _column(batch, "room", pa.binary()).to_pylist() if has_rooms else [b""] * len(models.keys)
    models.counts = _table(batch, "counts", pa.int64(), len(counters.KEY_COUNTS))
    models.feature_ptr, features = _runs(batch, "features", *(pa.dictionary(x, pa.string()) for x in _PLACES))
    settings = models.settings
    stored = features.dictionary.to_pylist()
    models.vocabulary = vocabulary = Vocabulary(settings.views, bias=settings.bias)
    vocabulary.load(stored[vocabulary.biases :])
    models.feature = np.array(features.indices, np.int32)
    models.class_ptr, models.label_counts = _numbers(batch, "label_counts", pa.int64())
    multiclass = settings.task == "multiclass"
    blocks = np.diff(models.class_ptr) if multiclass else np.ones(len(models.keys), np.int64)
    if np.dot(np.diff(models.feature_ptr), blocks.astype(float)) > _MOST_NUMBERS:
        raise ValueError("the keys have more weights than an array holds")
    models.layout = layout_of(np.diff(models.feature_ptr), blocks)
    models.states = [_read_learner(batch, i, learner, models) for i, learner in enumerate(models.learners)]
    return models


def _read_learner(batch: pa.RecordBatch, i: int, learner: Learner, models: Models) -> LearnerState:
    models.ring_ptr, ring = _numbers(batch, f"{i}.ring", pa.uint8())
    arrays: dict[str, FloatArray] = {}
    for spec in learner.arrays:
        _, arrays[spec.name] = _numbers(batch, f"{i}.{spec.name}", pa.float64())
        if spec.width > _MOST_NUMBERS or arrays[spec.name].size != spec.runs(models.layout)[-1]:
            raise ValueError(f"array {spec.name!r} of learner {learner.name!r} has the wrong size")
    state = LearnerState(
        arrays,
        _table(batch, f"{i}.counts", pa.int64(), len(counters.LEARNER_COUNTS)),
        _table(batch, f"{i}.sums", pa.float64(), len(counters.LEARNER_SUMS)),
        _numbers(batch, f"{i}.hits", pa.int64())[1],
        _numbers(batch, f"{i}.predictions", pa.int64())[1],
        ring,
    )
    classes, places = models.label_counts.size, _ring_runs(models)
    if not (state.hits.size == state.predictions.size == classes and np.array_equal(models.ring_ptr, places)):
        raise ValueError(f"the counts of learner {learner.name!r} have the wrong size")
    return state


def _ring_runs(models: Models) -> IntArray:
    """Return where each key's window of mistakes begins: it has a bit an example, as long as it grows."""
    seen = np.clip(models.counts[:, counters.N], 0, models.settings.window)
    return pointers((seen + 7) // 8)


def _check(models: Models) -> None:
    """Raise ValueError where a kernel, or anything else, could not use what was read."""
    settings, counts, classes = models.settings, models.counts, np.diff(models.class_ptr)
    binary, views, most = settings.task == "binary", settings.views, settings.max_features
    biases, labels = np.arange(models.vocabulary.biases), list(map(len, models.labels))
    n, last = counts[:, counters.N], counts[:, counters.LAST_LABEL]
    for what, can_be in {
        "task": settings.task in TASKS,
        "window": 0 < settings.window <= _MOST_NUMBERS,
        "max_features": most is None or 0 < most <= _MOST_NUMBERS,
        "views": all(view and ":" not in view for view in views) and len({*views}) == len(views),
        "learners": all(_fits(learner, views) or not models.keys for learner in models.learners),
        "clock": 0 <= models.clock < _MOST_COUNT,
        "keys": len(models.index) == len(models.keys),
        "labels": np.array_equal(classes, labels) and (not binary or (classes == 2).all()),
        "classes": binary or not any(None in known for known in set(models.labels)),
        "biases": (models.feature[models.feature_ptr[:-1, None] + biases] == biases).all()
        and np.diff(models.feature_ptr).min(initial=biases.size) >= biases.size,
        "counts": ((n >= 0) & (n < _MOST_COUNT) & (last >= -1) & (last < classes)).all(),
    }.items():
        if not can_be:
            raise ValueError(f"its {what} cannot be")
    check_label(settings.positive)


def _fits(learner: Learner, views: Sequence[str]) -> bool:
    if learner.row.views:
        return len(views) == 2 or (len(views) > 2 and not learner.params.get("as_printed"))
    return learner.view is None or learner.view in views


def _used_names(models: Models) -> tuple[pa.Array, Int32Array]:
    """Return the names that some key has, biases first, and the features renumbered to them.

    The others stand in the order in which the keys have them: names that were only scored, or refused, leave
    no trace in the bytes.
    """
    vocabulary = models.vocabulary
    order, feature = _first_seen(models.feature, len(vocabulary.names), vocabulary.biases)
    return pa.array([vocabulary.names[j] for j in order.tolist()], pa.string()), feature


def _narrow(feature: Int32Array) -> Any:
    """Return the numbers of names in two bytes each where they fit: a tenth less state for a diagonal learner."""
    return feature.astype(np.int16) if feature.max(initial=0) <= np.iinfo(np.int16).max else feature


@njit(cache=True)
def _first_seen(feature, names, biases):  # type: ignore[no-untyped-def]
    """Return the names in order of first appearance after the biases, and the features' places in it."""
    place = np.full(names, -1, np.int32)
    order = np.empty(names, np.int64)
    for j in range(biases):
        place[j] = order[j] = j
    count = biases
    out = np.empty(feature.size, np.int32)
    for i in range(feature.size):
        if place[feature[i]] < 0:
            place[feature[i]] = count
            order[count] = feature[i]
            count += 1
        out[i] = place[feature[i]]
    return order[:count], out


def _labels(models: Models) -> pa.Array:
    ptr, texts = as_texts(models.labels, _json)
    return _lists(ptr, pa.array(texts, pa.string()))


def _json(known: Known) -> list[str | None]:
    return [None if label is None else msgspec.json.encode(label).decode() for label in known]


def _read_labels(ptr: IntArray, items: pa.Array) -> list[Known]:
    coded = items.dictionary_encode(null_encoding="encode")
    texts = coded.dictionary.to_pylist()
    meaning: list[Label] = [None if text is None else msgspec.json.decode(text, type=Label) for text in texts]
    for label in meaning:
        check_label(label)
    codes, ends = coded.indices.to_pylist(), ptr.tolist()
    if (np.diff(ptr) == 2).all():  # binary, quicker
        rows = list(zip(codes[::2], codes[1::2], strict=True))
    else:
        rows = [tuple(codes[first:stop]) for first, stop in pairwise(ends)]
    shared = {row: tuple(meaning[code] for code in row) for row in set(rows)}
    return list(map(shared.__getitem__, rows))


def _ties(models: Models) -> Sequence[str]:
    return [learner.tie for learner in models.learners]


def _lists(ptr: IntArray, values: Any) -> pa.Array:
    items = values if isinstance(values, pa.Array) else pa.array(values)
    if ptr[-1] > _MOST_NUMBERS:
        raise StateFormatError(f"a bucket has {ptr[-1]} numbers in one array; use more buckets (state.buckets)")
    return pa.ListArray.from_arrays(pa.array(ptr.astype(np.int32)), items)


def _buffers(rooms: Sequence[bytes]) -> pa.Array:
    size = sum(map(len, rooms))
    if size > _MOST_NUMBERS:
        raise StateFormatError(
            f"the pending fragments and remembered ids of a bucket have {size} bytes, more than 2 GiB; lower "
            "join.max_pending or join.remember_ids, or use more buckets (state.buckets)"
        )
    return pa.array(rooms, pa.binary())


def _fixed(table: Any) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(table.ravel()), table.shape[1])


def _column(batch: pa.RecordBatch, name: str, *kinds: pa.DataType) -> pa.Array:
    """Return a column of one of these types, without nulls."""
    column = batch.column(name)
    if column.type not in kinds or column.null_count:
        raise ValueError(f"column {name!r} is {column.type}, with {column.null_count} nulls")
    return column


def _runs(batch: pa.RecordBatch, name: str, *kinds: pa.DataType, nulls: bool = False) -> tuple[IntArray, pa.Array]:
    """Return a column of lists as one array, and where each list begins."""
    column = _column(batch, name, *(pa.list_(pa.field(batch.schema.field(name).type.field(0).name, x)) for x in kinds))
    ptr, values = np.asarray(column.offsets).astype(np.int64), column.values
    if ptr[0] != 0 or ptr[-1] != len(values) or (values.null_count and not nulls):
        raise ValueError(f"the lists of column {name!r} are not its numbers")
    return ptr, values


def _numbers(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> tuple[IntArray, Any]:
    """Return a column of lists of numbers as one array of its own, and where each list begins."""
    ptr, values = _runs(batch, name, kind)
    return ptr, np.array(values)


def _table(batch: pa.RecordBatch, name: str, kind: pa.DataType, columns: int) -> Any:
    """Return a fixed-size-list column as a table; columns that were added since it was written are 0."""
    column = batch.column(name)
    if not (pa.types.is_fixed_size_list(column.type) and column.type.value_type == kind) or column.null_count:
        raise ValueError(f"column {name!r} is {column.type}, with {column.null_count} nulls")
    items = column.flatten()
    if items.null_count:
        raise ValueError(f"column {name!r} has nulls")
    stored = np.asarray(items).reshape(len(column), column.type.list_size)
    out = np.zeros((len(column), columns), stored.dtype)
    out[:, : stored.shape[1]] = stored
    return out
