"""LIBSVM files many lines at once: plain lines by the kernel, every other by the reader of single lines."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

from palearn.errors import RecordError
from palearn.evaluate import libsvm_kernel
from palearn.evaluate.passes import Lines
from palearn.files import require_unique, text_lines
from palearn.files.libsvm import Names, line_parser
from palearn.files.text_lines import guarded
from palearn.models.columns import Columns
from palearn.models.labels import label_fault
from palearn.models.state import Settings
from palearn.models.vectorize import Flat, Vocabulary, flatten
from palearn.records import Label, Record
from palearn.records.libsvm import as_label

#: Places of a table to begin with; at most half of them are taken.
_PLACES = 1024


def columns(
    path: str | Path, vocabulary: Vocabulary, settings: Settings, *, limit: int, names: Sequence[str] | None = None
) -> Iterator[Lines]:
    """Return an iterator over the rows of a LIBSVM file, many at once; in order, those of :func:`palearn.files.read`.

    Parameters
    ----------
    vocabulary, limit
        Numbers the features; the most that a row may have (:func:`palearn.models.vectorize.flatten`).
    settings
        The labels of the task (:func:`palearn.models.labels.label_fault`).
    path, names
        As in :func:`palearn.files.read`, and the errors too.
    """
    require_unique(path, names)
    bulk = Bulk(vocabulary, settings, limit, names=names)
    return (block for _, block in guarded(Path(path), None, bulk.read))


class Bulk:
    """A reader of LIBSVM text, with the labels and indices that it has met.

    Parameters
    ----------
    vocabulary, settings, limit, names
        As of :func:`columns`.
    """

    def __init__(self, vocabulary: Vocabulary, settings: Settings, limit: int, *, names: Names) -> None:
        self._vocabulary, self._limit, self._settings = vocabulary, limit, settings
        self._parse, self._add = line_parser(names), names is None
        self._labels: list[Label] = []
        self._codes: dict[str, int] = {}
        self._label_table, self._index_table = libsvm_kernel.table(_PLACES), libsvm_kernel.table(_PLACES)
        self._attempt = 0
        if names is None:
            self._enter(vocabulary.names)
        else:
            self._enter_named(names)

    def read(self, stream: BinaryIO) -> Iterator[tuple[int, Lines]]:
        """Yield the rows many at once, with the number of their last line."""
        number = 0
        for data in text_lines.blocks(stream):
            block = _Block(text_lines.without_mark(data) if number == 0 else data, self._attempt)
            while block.here.at < block.size:
                self._advance(block)
            self._attempt = block.here.attempt
            if block.here.row:
                yield number + block.last_line, block.lines(self._labels)
            number += block.here.line

    def _advance(self, block: "_Block") -> None:
        """Read plain lines, and what stops the kernel."""
        names, before = self._vocabulary.names, block.here.row
        known = len(names)
        how, here = libsvm_kernel.scan(
            block.data, block.size, block.here._replace(late=0, new=0), text_lines.MAX_LINE_BYTES, self._limit,
            self._add, self._label_table, self._index_table, block.fresh, known, block.rows,
        )  # fmt: skip
        for index in block.fresh[: here.new].tolist():
            self._vocabulary.tables[0][str(index)]
        block.fill_late(here.late)
        block.here = here
        if here.row > before:
            block.last_line = here.line
        if how == libsvm_kernel.CROWDED:
            self._index_table = _enlarged(self._index_table, len(names))
        elif how == libsvm_kernel.REFUSED:
            self._read_carefully(block)

    def _read_carefully(self, block: "_Block") -> None:
        line = block.next_line()
        row = text_lines.parsed(line, self._parse)
        if row is None:
            block.skip(len(line))
            return
        if isinstance(row, Record):
            row = label_fault(row.label, self._settings) or row
        if isinstance(row, Record):
            known = len(self._vocabulary.names)
            flat, faults = flatten([row], self._vocabulary, self._limit)
            self._enter(self._vocabulary.names[known:])
            if not faults:
                block.add(len(line), self._code(line.decode()), flat)
                return
            row = faults[0]
        block.add_fault(len(line), row)

    def _code(self, line: str) -> int:
        """Return the number of a line's label; what it is written as is what tells it apart."""
        word = line.partition("#")[0].split()[0]
        if word not in self._codes:
            code = self._codes[word] = len(self._labels)
            self._labels.append(as_label(word))
            raw = word.encode()
            # The kernel reads no other: zero bytes before a label would not change the integer that it is.
            if len(raw) <= libsvm_kernel.LABEL_BYTES and word.isascii() and word.isprintable():
                self._label_table = _enlarged(self._label_table, code)
                libsvm_kernel.insert(self._label_table, int.from_bytes(raw), code)
        return self._codes[word]

    def _enter(self, names: Sequence[str]) -> None:
        """Let the kernel know the last names of the vocabulary, those that it may meet."""
        first = len(self._vocabulary.names) - len(names)
        for number, name in enumerate(names, first):
            digits = name.isascii() and name.isdigit() and len(name) <= libsvm_kernel.INDEX_DIGITS
            if self._add and digits and str(int(name)) == name:
                self._index_table = _enlarged(self._index_table, number)
                libsvm_kernel.insert(self._index_table, int(name), number)

    def _enter_named(self, names: Sequence[str]) -> None:
        """Let the kernel know the indices that have a name, except where a record may not use it."""
        for index, name in enumerate(names, 1):
            number = self._vocabulary.tables[0][name]
            if number not in self._vocabulary.refused:
                self._index_table = _enlarged(self._index_table, number)
                libsvm_kernel.insert(self._index_table, index, number)


class _Block:
    """Lines of text and the rows that they become."""

    def __init__(self, data: bytes, attempt: int) -> None:
        self.size = len(data)
        self._bytes = data if data.endswith(b"\n") else data + b"\n"
        self.data = np.frombuffer(self._bytes, np.uint8)
        # At most: a row is a label and a newline, a feature a space and three more. What is not used costs nothing.
        rows, entries = self.size // 2 + 1, self.size // 4 + 1
        self.rows = libsvm_kernel.Rows(
            np.empty(rows, np.int32),
            np.empty(rows + 1, np.int64),
            np.empty(entries, np.int32),
            np.empty(entries),
            np.empty(3 * entries, np.int64),
        )
        self.rows.bounds[0] = 0
        self.fresh = np.empty(entries, np.int64)
        self.faults: dict[int, RecordError] = {}
        self.here = libsvm_kernel.Place(0, attempt, 0, 0, 0, 0, 0)
        #: The last line, of this block's, that is a row.
        self.last_line = 0

    def lines(self, labels: list[Label]) -> Lines:
        """Return the rows."""
        rows, row, entry = self.rows, self.here.row, self.here.entry
        flat = Flat(1, rows.bounds[: row + 1], rows.feature[:entry], rows.value[:entry])
        return Lines(Columns(labels, rows.code[:row], flat), self.faults)

    def fill_late(self, count: int) -> None:
        """Read the numbers that the kernel has left to Python's ``float``."""
        entries, firsts, stops = self.rows.late[: 3 * count].reshape(count, 3).T.tolist()
        raw = self._bytes
        self.rows.value[entries] = [float(raw[first:stop]) for first, stop in zip(firsts, stops, strict=True)]

    def next_line(self) -> bytes:
        """Return the line that is next."""
        return self._bytes[self.here.at : min(self._bytes.index(b"\n", self.here.at) + 1, self.size)]

    def skip(self, size: int) -> None:
        """Leave out the next line."""
        self.here = self.here._replace(at=self.here.at + size, line=self.here.line + 1)

    def add(self, size: int, code: int, flat: Flat) -> None:
        """Add the row that the next line, of so many bytes, is."""
        row, entry = self.here.row, self.here.entry
        stop = entry + flat.feature.size
        self.rows.code[row], self.rows.bounds[row + 1] = code, stop
        self.rows.feature[entry:stop], self.rows.value[entry:stop] = flat.feature, flat.value
        self.here = self.here._replace(row=row + 1, entry=stop)
        self.skip(size)
        self.last_line = self.here.line

    def add_fault(self, size: int, fault: RecordError) -> None:
        """Add the faulty row that the next line is."""
        self.faults[self.here.row] = fault
        self.add(size, -1, Flat(1, np.zeros(2, np.int64), np.zeros(0, np.int32), np.zeros(0)))


def _enlarged(table: libsvm_kernel.Table, names: int) -> libsvm_kernel.Table:
    """Return a table with room for one more than so many names."""
    if 2 * (names + 1) <= table.number.size:
        return table
    larger = libsvm_kernel.table(4 * table.number.size)
    taken = np.flatnonzero(table.number >= 0)
    for key, number in zip(table.key[taken].tolist(), table.number[taken].tolist(), strict=True):
        libsvm_kernel.insert(larger, key, number)
    return _enlarged(larger, names)
