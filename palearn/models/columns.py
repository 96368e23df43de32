"""Examples as columns: the one description of a batch between records and learners, and the one way from it to rows.

Records become columns (:func:`of_records`; readers of whole files and the scanner of JSON make columns without a record
in between), and columns of known keys become examples (:func:`prepare`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import NamedTuple

import numpy as np

from palearn.errors import RecordError
from palearn.models.keyed import Examples, Models
from palearn.models.labels import Known, classify_codes
from palearn.models.vectorize import Flat, Vocabulary, concatenate, flatten
from palearn.records import Label, Record
from palearn.types import FloatArray, Int32Array, IntArray


class LabelCodes:
    """Labels as they are written, each once: 1, 1.0, true and "1" are four."""

    def __init__(self) -> None:
        self.values: list[Label] = []
        self._codes: dict[tuple[type, str], int] = {}

    def code(self, label: Label) -> int:
        """Return a label's place in ``values``, where it is put if it is new; -1 for None."""
        if label is None:
            return -1
        written = (type(label), str(label))
        code = self._codes.get(written)
        if code is None:
            code = self._codes[written] = len(self.values)
            self.values.append(label)
        return code

    def codes(self, labels: Sequence[Label]) -> Int32Array:
        """Return each label's code."""
        if len({*map(type, labels)} - {NoneType}) <= 1:  # labels that are equal are written alike
            of: dict[Label, int] = {label: self.code(label) for label in dict.fromkeys(labels)}
            if 0.0 not in of or not isinstance(next(x for x in of if x is not None), float):
                return np.fromiter(map(of.__getitem__, labels), np.int32, len(labels))
        return np.fromiter(map(self.code, labels), np.int32, len(labels))


@dataclass
class Columns:
    """n examples, or what may become some.

    Parameters
    ----------
    labels
        Labels as they are written, each once; shared, and it may grow.
    code
        Each one's label, a place in ``labels``; -1: it has none.
    flat
        Their features, numbered by a vocabulary.
    weight
        Their weights; None: all have weight 1.
    """

    labels: list[Label]
    code: Int32Array
    flat: Flat
    weight: FloatArray | None = None

    def take(self, rows: IntArray) -> "Columns":
        """Return the examples in the order of ``rows``."""
        if rows.size == self.code.size and np.array_equal(rows, np.arange(rows.size)):
            return self
        weight = None if self.weight is None else self.weight[rows]
        return Columns(self.labels, self.code[rows], self.flat.take(rows), weight)


def joined(parts: Sequence[Columns], views: int) -> Columns:
    """Return the examples of parts that share labels and vocabulary, one part after the other."""
    if len(parts) == 1:
        return parts[0]
    weight = None
    if any(part.weight is not None for part in parts):
        weight = np.concatenate([np.ones(part.code.size) if part.weight is None else part.weight for part in parts])
    return Columns(
        parts[0].labels if parts else [],
        np.concatenate([np.zeros(0, np.int32), *(part.code for part in parts)]),
        concatenate([part.flat for part in parts], views),
        weight,
    )


def of_records(
    records: Sequence[Record], labels: LabelCodes, vocabulary: Vocabulary, limit: int
) -> tuple[Columns, dict[int, RecordError]]:
    """Return records as columns, and the faults of those that cannot be used (:func:`flatten`, ``limit`` too)."""
    flat, faults = flatten(records, vocabulary, limit)
    weight = None
    if any(record.weight is not None for record in records):
        weight = np.array([1.0 if record.weight is None else record.weight for record in records])
    return Columns(labels.values, labels.codes([record.label for record in records]), flat, weight), faults


class Classes(NamedTuple):
    """Class numbers, and what each key knew before: ``y`` and ``before`` of :func:`palearn.models.labels.classify`."""

    y: IntArray
    known: IntArray


class Prepared(NamedTuple):
    """Examples, grouped by key; which of the columns' rows each is; and the rows whose label contradicts their key."""

    examples: Examples
    order: IntArray
    faults: dict[int, RecordError]


def prepare(
    models: Models,
    key: IntArray,
    columns: Columns,
    classes: Classes | None = None,
    known: list[Known] | None = None,
) -> Prepared:
    """Return columns as examples that models can learn.

    Parameters
    ----------
    key
        The number of each row's key; a key's rows are in their order.
    classes
        What the rows' labels are, if that is known; else they are classified.
    known
        What the keys know, which classifying changes; None: ``models.labels``.
    """
    alone = key.size == 0 or (key[0] == key[-1] and (key == key[0]).all())
    order = np.arange(key.size) if alone else np.argsort(key, kind="stable")
    faults: dict[int, RecordError] = {}
    key = key[order]
    if classes is not None:
        y, before = classes.y[order], classes.known[order]
    else:
        known = models.labels if known is None else known
        codes = columns.code[order]
        y, before, wrong = classify_codes(key, codes, columns.labels, known, models.settings, models.max_labels)
        if wrong:
            faults = {int(order[i]): fault for i, fault in wrong.items()}
            fine = np.setdiff1d(np.arange(order.size), list(wrong))
            order, key, y, before = order[fine], key[fine], y[fine], before[fine]
    columns = columns.take(order)
    weight = np.ones(key.size) if columns.weight is None else columns.weight
    return Prepared(Examples(columns.flat, key, y, before, weight), order, faults)
