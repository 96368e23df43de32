"""Plain JSON records to columns, many at once (:mod:`palearn.engine.json_kernel`)."""

from collections.abc import Sequence
from itertools import chain

import msgspec
import numpy as np

from palearn.engine import json_kernel
from palearn.errors import RecordError
from palearn.models.columns import Columns, LabelCodes
from palearn.models.vectorize import Flat, Vocabulary
from palearn.records import Label, Record, check_label
from palearn.types import BoolArray, Int32Array

#: Places of the tables to begin with.
_PLACES = 1024
#: The least bytes of a feature: ``"":1,``.
_FEATURE_BYTES = 5
_label = msgspec.json.Decoder(Record.__annotations__["label"]).decode


def scan(values: Sequence[bytes], vocabulary: Vocabulary, limit: int, labels: LabelCodes) -> tuple[Columns, BoolArray]:
    """Return records as columns, and which of them are plain; the others have no features and no label here.

    Parameters
    ----------
    values
        Records, or what may be some.
    vocabulary
        Numbers the features; it has no views.
    limit
        The most features of a plain record.
    labels
        Numbers the labels.
    """
    n = len(values)
    text = b"\n".join(chain(values, (b"",)))
    data = np.frombuffer(text, np.uint8)
    stop = np.cumsum(np.fromiter(map(len, values), np.int64, n) + 1) - 1
    begin = np.concatenate([np.zeros(min(n, 1), np.int64), stop[:-1] + 1])
    most = data.size // _FEATURE_BYTES + 1
    rows = json_kernel.Rows(
        np.zeros(n, np.int32),
        np.empty(n, np.int32),
        np.zeros(n + 1, np.int64),
        np.empty(most, np.int32),
        np.empty(most),
    )
    names, words = json_kernel.texts(_PLACES), json_kernel.texts(_PLACES)
    row = n_names = n_words = 0
    while True:
        row, n_names, n_words = json_kernel.scan(data, begin, stop, row, limit, names, n_names, words, n_words, rows)
        if row == n:
            break
        names, words = _roomier(names, n_names), _roomier(words, n_words)
    code, refused = _codes(_read(text, words, n_words), labels)
    plain = rows.plain.astype(np.bool_) & ~refused[rows.label]
    found = _read(text, names, n_names)
    number = np.fromiter(map(vocabulary.tables[0].__getitem__, map(bytes.decode, found)), np.int32, n_names)
    entries = int(rows.bounds[-1])
    flat = Flat(1, rows.bounds, number[rows.feature[:entries]], rows.value[:entries])
    return Columns(labels.values, code[rows.label], flat), plain


def _roomier(table: json_kernel.Texts, count: int) -> json_kernel.Texts:
    """Return a table with room for more texts, or the same one if it has some."""
    if 2 * (count + 1) <= table.place.size:
        return table
    larger = json_kernel.texts(4 * table.place.size)
    json_kernel.enlarge(table, larger, count)
    return larger


def _read(text: bytes, table: json_kernel.Texts, count: int) -> list[bytes]:
    """Return the texts of a table."""
    begin, size = table.begin[:count].tolist(), table.size[:count].tolist()
    return [text[at : at + n] for at, n in zip(begin, size, strict=True)]


def _codes(words: list[bytes], labels: LabelCodes) -> tuple[Int32Array, BoolArray]:
    """Return the codes of labels, as they are written, and which of them are none; the last is that of no label."""
    code, refused = np.full(len(words) + 1, -1, np.int32), np.zeros(len(words) + 1, np.bool_)
    for i, word in enumerate(words):
        try:
            label: Label = _label(word)
            check_label(label)
            code[i] = labels.code(label)
        except (msgspec.MsgspecError, RecordError):
            refused[i] = True
    return code, refused
