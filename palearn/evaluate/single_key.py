"""Rows of one key as flat arrays, from a file to its figures, without an object a row.

A :class:`palearn.engine.bucket.Bucket` of one key ends with bit-identical models: order, labels, counts and
the status of every record are the same, and so are the numerics, :class:`palearn.models.keyed.Models`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from palearn.errors import RecordError
from palearn.learners import Learner
from palearn.models.counters import CHANGED, LAST_OFFSET, LAST_SEEN
from palearn.models.keyed import Examples, Models
from palearn.models.labels import classify
from palearn.models.state import Settings
from palearn.models.vectorize import Flat, concatenate
from palearn.records import Label
from palearn.types import BoolArray, Int32Array, IntArray


@dataclass
class Columns:
    """Rows of one view, the faulty ones too.

    Parameters
    ----------
    labels
        The labels as they are written, each once; shared, and it may grow.
    code
        Each row's label, a place in ``labels``; -1 where the row is faulty.
    flat
        The rows' features, numbered by a vocabulary; a faulty row has none.
    faults
        What is wrong with each faulty row.
    """

    labels: list[Label]
    code: Int32Array
    flat: Flat
    faults: dict[int, RecordError]

    def take(self, rows: IntArray) -> "Columns":
        """Return the rows in the order of ``rows``."""
        code = self.code[rows]
        faults = {i: self.faults[int(rows[i])] for i in np.flatnonzero(code < 0).tolist()}
        return Columns(self.labels, code, self.flat.take(rows), faults)


def join(parts: Sequence[Columns]) -> Columns:
    """Return the rows of parts of the same labels and vocabulary, one part after the other."""
    first = np.cumsum([0, *(part.code.size for part in parts)])
    flat = concatenate([part.flat for part in parts], 1)
    faults = {
        at + i: fault for part, at in zip(parts, first.tolist(), strict=False) for i, fault in part.faults.items()
    }
    code = np.concatenate([np.zeros(0, np.int32), *(part.code for part in parts)])
    return Columns(parts[0].labels if parts else [], code, flat, faults)


class OneKey:
    """The models of one key, learned from columns.

    Parameters
    ----------
    settings, learners
        As of :class:`palearn.models.keyed.Models`; no views.
    key
        The key's name.
    """

    def __init__(self, settings: Settings, learners: Sequence[Learner], key: str) -> None:
        self.models = Models(settings, learners)
        self.reasons: dict[str, int] = {}
        self._key = key
        self._taken = 0

    def learn(self, columns: Columns) -> None:
        """Score, learn and count rows, in their order."""
        models, first = self.models, self._taken
        self._taken += columns.code.size
        for fault in columns.faults.values():
            self._reject(fault, 1)
        rows = np.flatnonzero(columns.code >= 0)
        if not rows.size:
            return
        if not models.keys:
            models.add_keys([self._key])
        seen = models.clock + np.arange(rows.size)
        models.clock += rows.size
        y, known, fine = self._classify(columns.code[rows], columns.labels)
        if fine is not None:
            rows, seen, y, known = rows[fine], seen[fine], y[fine], known[fine]
            if not rows.size:
                return
        n = rows.size
        flat = columns.flat if n == columns.code.size else columns.flat.take(rows)
        models.learn(Examples(flat, np.zeros(n, np.int64), y, known, np.ones(n)))
        models.counts[0, [LAST_SEEN, LAST_OFFSET, CHANGED]] = seen[-1], first + rows[-1], 1

    def _reject(self, fault: RecordError, rows: int) -> None:
        self.reasons[fault.reason] = self.reasons.get(fault.reason, 0) + rows

    def _classify(self, code: Int32Array, labels: Sequence[Label]) -> tuple[IntArray, IntArray, BoolArray | None]:
        """Number the rows' classes as :func:`palearn.models.labels.classify` does, asking it once a label.

        Only the first row of a label can change what the key knows, or contradict it; the others follow.
        Returns the classes, what the key knew before each row, and which rows are fine, None for all.
        """
        models, n = self.models, code.size
        at = np.full(len(labels), n)
        at[code[::-1]] = np.arange(n - 1, -1, -1)  # of several rows of a label the last one stays: the first
        codes = np.argsort(at, kind="stable")[: np.count_nonzero(at < n)]
        asked = [*(labels[c] for c in codes.tolist()), None]  # the last one asks what is known in the end
        settings = models.settings
        y, known, faults = classify(
            np.zeros(len(asked), np.int64), asked, models.labels, settings.task, settings.positive, models.max_labels
        )
        number = np.full(len(labels), -1, np.int64)
        number[codes] = y[:-1]
        before = np.repeat(known, np.diff(at[codes], prepend=-1, append=n - 1))
        if not faults:
            return number[code], before, None
        fine = np.ones(n, np.bool_)
        for i, fault in faults.items():
            same = code == codes[i]
            self._reject(fault, int(np.count_nonzero(same)))
            fine &= ~same
        return number[code], before, fine


def passes(parts: Iterator[Columns], epochs: int, seed: int | None, piece: int) -> Iterator[Columns]:
    """Yield the rows of every epoch, in :func:`orders`; where they are held, ``piece`` rows at a time."""
    if epochs == 1 and seed is None:
        yield from parts
        return
    whole = join(list(parts))
    for order in orders(whole.code.size, epochs, seed):
        for first in range(0, order.size, piece):
            yield whole.take(order[first : first + piece])


def orders(rows: int, epochs: int, seed: int | None) -> Iterator[IntArray]:
    """Yield the order of the rows in each epoch: another permutation each, or without a seed as they stand."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        yield np.arange(rows) if seed is None else random.permutation(rows)
