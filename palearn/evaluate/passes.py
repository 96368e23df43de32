"""Lines of a file as columns, without an object a line, and the passes over them."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from palearn.engine.validation import Accepted, Chunk, Fault
from palearn.errors import RecordError
from palearn.models.columns import Columns, LabelCodes, joined
from palearn.types import IntArray


class Lines(NamedTuple):
    """Lines as columns, the faulty ones too; a faulty one has no features, no label, and an entry in ``faults``."""

    columns: Columns
    faults: dict[int, RecordError]

    def take(self, rows: IntArray) -> "Lines":
        """Return the lines in the order of ``rows``."""
        faults = self.faults
        if faults:
            faults = {i: faults[row] for i, row in enumerate(rows.tolist()) if row in faults}
        return Lines(self.columns.take(rows), faults)

    def accepted(self, key: str, first: int) -> tuple[Accepted, list[Fault]]:
        """Return the lines as a bucket takes them, all of one key; they stand at ``first`` and on."""
        n = self.columns.code.size
        chunk = Chunk([None] * n, [None] * n, [""] * n, np.zeros(n, np.int64), np.arange(first, first + n))
        fine = np.setdiff1d(np.arange(n), list(self.faults)) if self.faults else np.arange(n)
        columns, code = self.columns.take(fine), np.zeros(fine.size, np.int64)
        faults = [Fault(i, fault) for i, fault in self.faults.items()]
        return Accepted(chunk, fine, code, [key], LabelCodes(), columns, {}), faults


def join(parts: Sequence[Lines]) -> Lines:
    """Return the lines of parts of the same labels and vocabulary, one part after the other."""
    first = np.cumsum([0, *(part.columns.code.size for part in parts)])
    faults = {
        at + i: fault for part, at in zip(parts, first.tolist(), strict=False) for i, fault in part.faults.items()
    }
    return Lines(joined([part.columns for part in parts], 1), faults)


def passes(parts: Iterator[Lines], epochs: int, seed: int | None, piece: int) -> Iterator[Lines]:
    """Yield the lines of every epoch, in :func:`orders`; where they are held, ``piece`` lines at a time."""
    if epochs == 1 and seed is None:
        yield from parts
        return
    whole = join(list(parts))
    for order in orders(whole.columns.code.size, epochs, seed):
        for first in range(0, order.size, piece):
            yield whole.take(order[first : first + piece])


def orders(rows: int, epochs: int, seed: int | None) -> Iterator[IntArray]:
    """Yield the order of the rows in each epoch: another permutation each, or without a seed as they stand."""
    random = np.random.default_rng(seed)
    for _ in range(epochs):
        yield np.arange(rows) if seed is None else random.permutation(rows)
