"""Validation of a bucket's raw records: sort, read as columns, and reject what is not a record."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from palearn.engine.join_buffer import Part
from palearn.engine.reading import Rules, Value, read
from palearn.errors import RecordError
from palearn.models.columns import Columns, LabelCodes
from palearn.models.labels import label_fault
from palearn.models.state import MAX_BYTES, Settings
from palearn.models.vectorize import Vocabulary
from palearn.records import Record, ValueFormat, encode, keys
from palearn.types import Int32Array, IntArray

__all__ = ["Accepted", "Chunk", "Fault", "Value", "accept", "key_text", "order"]


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

    def part(self, row: int) -> Part:
        """Return a record as it came, with its position; a line that no reader could read has no value."""
        value = self.value[row]
        if isinstance(value, Record | RecordError):
            value = encode(value) if isinstance(value, Record) else None
        return Part(value, self.topic[row], int(self.partition[row]), int(self.offset[row]))


@dataclass
class Accepted:
    """Records that can be used, in their order.

    Parameters
    ----------
    chunk, row
        Where they come from, and their places there.
    key
        Their keys, as places in ``names``.
    names
        Keys, each once.
    labels
        The labels of ``columns``.
    columns
        Features, labels and weights.
    record
        The records themselves, by their place here; those that are missing are plain: features and perhaps a label, and
        neither views nor an id, a weight or a time.
    """

    chunk: Chunk
    row: IntArray
    key: IntArray
    names: list[str]
    labels: LabelCodes
    columns: Columns
    record: Mapping[int, Record]

    def take(self, rows: IntArray) -> "Accepted":
        """Return the records in the order of ``rows``."""
        number = {int(i): j for j, i in enumerate(rows.tolist())}
        record = {number[i]: record for i, record in self.record.items() if i in number}
        columns = self.columns.take(rows)
        return Accepted(self.chunk, self.row[rows], self.key[rows], self.names, self.labels, columns, record)


class Fault(NamedTuple):
    """A record that cannot be used: its place in the chunk, and why."""

    row: int
    error: RecordError


def accept(
    chunk: Chunk,
    vocabulary: Vocabulary,
    features: int,
    settings: Settings,
    *,
    forms: Mapping[str, ValueFormat] | None = None,
    key_form: keys.Form = "text",
) -> tuple[Accepted, list[Fault]]:
    """Return the records that can be used, in the order of (topic, partition, offset), and the others.

    Parameters
    ----------
    chunk
        Records in any order.
    vocabulary
        Numbers the features.
    features
        The most features of a record.
    settings
        The longest value allowed, and the labels of the task.
    forms
        Topics whose values differ from the format.
    key_form
        How producers write keys (:mod:`palearn.records.keys`).
    """
    row = order(chunk)
    labels = LabelCodes()
    found = read(
        [chunk.value[i] for i in row.tolist()],
        [chunk.topic[i] for i in row.tolist()] if forms else [],
        Rules(vocabulary, features, settings.max_bytes or MAX_BYTES, forms or {}, labels),
    )
    faults = found.refused
    code, names = _keys([chunk.key[i] for i in row.tolist()], key_form, faults)
    _refuse_labels(found.columns, settings, faults)
    faults = found.unusable | faults
    accepted = Accepted(chunk, row, code, names, labels, found.columns, found.record)
    if faults:
        accepted = accepted.take(np.setdiff1d(np.arange(row.size), list(faults)))
    return accepted, [Fault(int(row[i]), faults[i]) for i in sorted(faults)]


def _keys(raw: list[bytes | None], form: keys.Form, faults: dict[int, RecordError]) -> tuple[IntArray, list[str]]:
    """Return keys as places in a list of names; note those that are none in ``faults``."""
    names: list[str] = []
    number: dict[bytes | None, int] = {}
    wrong: dict[bytes | None, RecordError] = {}
    for key in dict.fromkeys(raw):
        number[key] = len(names)
        text = key_text(key, form)
        if isinstance(text, RecordError):
            wrong[key] = text
        names.append("" if isinstance(text, RecordError) else text)
    if wrong:
        for i, key in enumerate(raw):
            if key in wrong:
                faults.setdefault(i, wrong[key])
    return np.fromiter(map(number.__getitem__, raw), np.int64, len(raw)), names


def _refuse_labels(columns: Columns, settings: Settings, faults: dict[int, RecordError]) -> None:
    """Note the records whose label is none of the task's, whatever their key knows, in ``faults``."""
    wrong = {c: fault for c, label in enumerate(columns.labels) if (fault := label_fault(label, settings))}
    if wrong:
        for i in np.flatnonzero(np.isin(columns.code, list(wrong))).tolist():
            faults.setdefault(i, wrong[int(columns.code[i])])


def order(chunk: Chunk) -> IntArray:
    """Return the rows in the order of (topic, partition, offset)."""
    ranks = {topic: rank for rank, topic in enumerate(sorted(set(chunk.topic)))}
    topic: Int32Array = np.fromiter(map(ranks.__getitem__, chunk.topic), np.int32, len(chunk.topic))
    return np.lexsort((chunk.offset, chunk.partition, topic))


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
