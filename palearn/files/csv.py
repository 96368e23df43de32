"""CSV: a header line, then one row a record; empty is absent.

A column is what its first rows show: numbers (at least half of the cells are), booleans (all are ``true`` or
``false``), or text, which is one-hot, ``column=value``. A cell of a column of numbers or booleans that is none is
one-hot too, so no cell is lost.
"""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from palearn.errors import FileFormatError, RecordError
from palearn.files.options import FIELDS, Kind, ReadOptions, check_columns, no_label, row_record
from palearn.files.text_lines import DAMAGE, Row, decoded, numbered
from palearn.records import Record
from palearn.records.libsvm import as_label, as_number

#: The rows, and their bytes, that a column's kind is guessed from.
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 2**20
_Cells: TypeAlias = list[str] | RecordError


class _CsvLines:
    """Lines of text for csv.reader, which may take several for a row; keeps their number and any fault."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = numbered(stream)
        self.number = 0
        self.bytes = 0
        self.fault: RecordError | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            self.number = number
            self.bytes += len(line)
            try:
                yield decoded(line)
            except RecordError as error:
                self.fault = error
                yield "\n"


class _Table:
    """A file whose header and first rows are read, and with them what its columns are."""

    def __init__(self, path: Path, stream: BinaryIO, options: ReadOptions) -> None:
        self._lines = _CsvLines(stream)
        self._rows = csv.reader(self._lines, skipinitialspace=True, strict=True)
        self.label = options.label or "label"
        self.header = _csv_header(path, self._rows, self._lines)
        if self.label not in self.header and not (options.unlabelled and options.label is None):
            raise no_label(path, self.label, self.header)
        check_columns(path, options, self.header, self.label)
        self._held: list[tuple[int, _Cells]] = []
        self._damage: Exception | None = None
        self._begin()
        guessed = _guessed(self.header, [row for _, row in self._held if isinstance(row, list)])
        fields = {name: name for name in FIELDS if name in guessed}
        #: Each column's kind, ``label``, or the field of the record that it is.
        self.kinds: dict[str, str] = {**guessed, **fields, **options.columns}
        if self.label in guessed:
            self.kinds[self.label] = "label"

    def _begin(self) -> None:
        """Hold the first rows; what comes before a damaged place is read before the damage is told."""
        try:
            for row in self._read():
                self._held.append(row)
                if len(self._held) >= SAMPLE_ROWS or self._lines.bytes >= SAMPLE_BYTES:
                    return
        except DAMAGE as error:
            self._damage = error

    def _read(self) -> Iterator[tuple[int, _Cells]]:
        while True:
            number = self._lines.number + 1
            try:
                row = next(self._rows, None)
                if self._lines.fault is not None:
                    yield number, self._lines.fault
                    self._lines.fault = None
                elif row is None:
                    return
                elif row:
                    yield number, row
            except csv.Error as error:
                yield number, RecordError("bad_line", f"not CSV: {error}; is a quote left open?")

    def rows(self) -> Iterator[tuple[int, _Cells]]:
        """Yield every row with the number of its first line."""
        yield from self._held
        self._held = []
        if self._damage is not None:
            raise self._damage
        yield from self._read()


def read_csv(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Row]:
    """Yield the rows of a file."""
    table = _Table(path, stream, options)
    for number, row in table.rows():
        try:
            if isinstance(row, RecordError):
                raise row
            record = _csv_record(table.header, table.kinds, row, table.label)
        except RecordError as error:
            yield number, error
        else:
            yield number, record


def csv_kinds(path: Path, stream: BinaryIO, options: ReadOptions) -> dict[str, str]:
    """Return each column's kind, ``label``, or the field of the record that it is."""
    return _Table(path, stream, options).kinds


def _guessed(header: Sequence[str], rows: Sequence[list[str]]) -> dict[str, Kind]:
    """Return the kind that each column's cells have."""
    cells: list[list[str]] = [[] for _ in header]
    for row in rows:
        if len(row) == len(header):
            for column, cell in zip(cells, row, strict=True):
                if text := cell.strip():
                    column.append(text)
    return dict(zip(header, map(_kind, cells), strict=True))


def _kind(cells: list[str]) -> Kind:
    if cells and {cell.lower() for cell in cells} <= {"true", "false"}:
        return "boolean"
    numbers = sum(as_number(cell) is not None for cell in cells)
    return "number" if 2 * numbers >= len(cells) else "text"


def _csv_header(path: Path, rows: Iterator[list[str]], lines: _CsvLines) -> list[str]:
    try:
        header = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        message = f"{path}: the first line is no CSV header: {error}"
        raise FileFormatError(message) from None
    if lines.fault is not None or not header or not all(header):
        problem = lines.fault.detail if lines.fault else f"got {header[:30]!s:.300}"
        message = f"{path}: the first line must name every column; {problem}"
        raise FileFormatError(message)
    return header


def _csv_record(header: list[str], kinds: dict[str, str], row: list[str], label: str) -> Record:
    if len(row) != len(header):
        raise RecordError("bad_line", f"expected {len(header)} fields, as in the header, got {len(row)}")
    texts = ((name, cell.strip()) for name, cell in zip(header, row, strict=True))
    cells: dict[str, Any] = {name: text for name, text in texts if text}
    return row_record(as_label(cells[label]) if label in cells else None, cells, kinds)
