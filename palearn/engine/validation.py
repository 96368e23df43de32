"""Validation of a bucket's raw records: sort, decode, and reject what is not a record."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

import numpy as np

from palearn.errors import RecordError
from palearn.models.labels import text_label
from palearn.records import PLAIN, Record, ValueFormat, decode_values, keys
from palearn.records import check as check_record
from palearn.types import Int32Array, IntArray

#: A record's value: wire bytes, or what a file reader made of a line.
Value = bytes | Record | RecordError | None


class Chunk(NamedTuple):
    """Records of a bucket, any order: Kafka's key and value, with topic, partition and offset.

    ``time`` is when the records were written, in milliseconds since 1970; only that of tombstones is looked at.
    """

    key: Sequence[bytes | None]
    value: Sequence[Value]
    topic: Sequence[str]
    partition: IntArray
    offset: IntArray
    time: IntArray | None = None

    def rows(self, chosen: Sequence[int]) -> "Chunk":
        """Return some of the records."""
        key, value = [self.key[i] for i in chosen], [self.value[i] for i in chosen]
        topic = [self.topic[i] for i in chosen]
        at = np.array(chosen, np.int64)
        time = None if self.time is None else self.time[at]
        return Chunk(key, value, topic, self.partition[at], self.offset[at], time)


class Accepted(NamedTuple):
    """Decoded records with a key, in order; ``row`` is their place in the chunk."""

    row: list[int]
    key: list[str]
    record: list[Record]

    def part(self, first: int, stop: int) -> "Accepted":
        """Return the records from ``first`` to ``stop``."""
        return Accepted(self.row[first:stop], self.key[first:stop], self.record[first:stop])


class Fault(NamedTuple):
    """A record that cannot be used: its place in the chunk, and why."""

    row: int
    error: RecordError


def check(
    chunk: Chunk,
    most: int,
    *,
    signed: bool,
    forms: Mapping[str, ValueFormat] | None = None,
    features: int = 2**31,
    key_form: keys.Form = "text",
) -> tuple[Accepted, list[Fault]]:
    """Return the records that are well formed and have a key, in the order of (topic, partition, offset).

    Parameters
    ----------
    chunk
        Records in any order.
    most
        The longest value allowed, in bytes.
    signed
        Whether labels must be numbers or booleans (binary without ``positive``).
    forms
        Topics whose values differ from the format.
    features
        The most features of a value that is read here.
    key_form
        How producers write keys (:mod:`palearn.records.keys`).
    """
    rows = order(chunk)
    values = [chunk.value[row] for row in rows]
    records = (
        _records_of_topics(values, [chunk.topic[row] for row in rows], most, features, forms)
        if forms
        else _records(values, most, features)
    )
    raw = [chunk.key[row] for row in rows]
    texts = {key: key_text(key, key_form) for key in set(raw)}
    names = [texts[key] for key in raw]
    kinds = {*map(type, records), *map(type, texts.values())}
    if RecordError not in kinds and not (signed and str in {type(r.label) for r in records}):  # type: ignore[union-attr]
        return Accepted(rows, names, records), []  # type: ignore[arg-type]
    accepted, faults = Accepted([], [], []), []
    for row, key, record in zip(rows, names, records, strict=True):
        if isinstance(record, RecordError):
            faults.append(Fault(row, record))
        elif isinstance(key, RecordError):
            faults.append(Fault(row, key))
        elif signed and isinstance(record.label, str):
            faults.append(Fault(row, text_label(record.label)))
        else:
            accepted.row.append(row)
            accepted.key.append(key)
            accepted.record.append(record)
    return accepted, faults


def _records(values: list[Value], most: int, features: int, form: ValueFormat = PLAIN) -> list[Record | RecordError]:
    if not {Record, RecordError}.isdisjoint(map(type, values)):
        return [
            _checked(v) if isinstance(v, Record | RecordError) else decode_values([v], most, form, features)[0]
            for v in values
        ]
    return decode_values(values, most, form, features)  # type: ignore[arg-type]


def _records_of_topics(
    values: list[Value], topics: list[str], most: int, features: int, forms: Mapping[str, ValueFormat]
) -> list[Record | RecordError]:
    """Decode the values topic by topic; they are in the order of their topics."""
    out: list[Record | RecordError] = []
    for topic, run in groupby(topics):
        stop = len(out) + sum(1 for _ in run)
        out += _records(values[len(out) : stop], most, features, forms.get(topic, PLAIN))
    return out


def _checked(value: Record | RecordError) -> Record | RecordError:
    try:
        return value if isinstance(value, RecordError) else check_record(value)
    except RecordError as fault:
        return fault


def order(chunk: Chunk) -> list[int]:
    """Return the rows in the order of (topic, partition, offset)."""
    ranks = {topic: rank for rank, topic in enumerate(sorted(set(chunk.topic)))}
    topic: Int32Array = np.fromiter(map(ranks.__getitem__, chunk.topic), np.int32, len(chunk.topic))
    order: list[int] = np.lexsort((chunk.offset, chunk.partition, topic)).tolist()
    return order


def key_text(raw: bytes | None, form: keys.Form = "text") -> str | RecordError:
    """Return the model's key of a record, or why it has none."""
    if not raw:
        return RecordError(
            "no_key",
            "the record has no key; see records.key (evaluate, search: --key) for other places to take it from",
        )
    try:
        return bytes(raw).decode()
    except UnicodeDecodeError:
        return RecordError("not_utf8", "the record's key is not UTF-8 text") if form == "text" else keys.misfit(form)
