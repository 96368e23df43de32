"""CSV: a header line, then one row a record; a number is a number, empty is absent, any other text is one-hot."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files.libsvm import Names
from palearn.files.text import Row, decoded, numbered
from palearn.records import Label, Record
from palearn.records.libsvm import as_label, as_number

#: Columns that are fields of the record, never features.
FIELDS = ("id", "weight", "time")


class _CsvLines:
    """Lines of text for csv.reader, which may take several for a row; keeps their number and any fault."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = numbered(stream)
        self.number = 0
        self.fault: RecordError | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            self.number = number
            try:
                yield decoded(line)
            except RecordError as error:
                self.fault = error
                yield "\n"


def read_csv(path: Path, stream: BinaryIO, label: str | None, names: Names) -> Iterator[Row]:
    """Yield the rows of a file; ``names`` are not for this format."""
    lines = _CsvLines(stream)
    rows = csv.reader(lines, skipinitialspace=True, strict=True)
    label = label or "label"
    header = _csv_header(path, rows, lines, label)
    while True:
        number = lines.number + 1
        try:
            row = next(rows, None)
            if lines.fault is not None:
                fault, lines.fault = lines.fault, None
                raise fault
            if row is None:
                return
            if row:
                yield number, _csv_record(header, row, label)
        except csv.Error as error:
            yield number, RecordError("bad_line", f"not CSV: {error}; is a quote left open?")
        except RecordError as error:
            yield number, error


def _csv_header(path: Path, rows: Iterator[list[str]], lines: _CsvLines, label: str) -> list[str]:
    try:
        header = [name.strip() for name in next(rows, [])]
    except csv.Error as error:
        message = f"{path}: the first line is no CSV header: {error}"
        raise FileFormatError(message) from None
    if lines.fault is not None or not header or not all(header):
        problem = lines.fault.detail if lines.fault else f"got {header[:30]!s:.300}"
        message = f"{path}: the first line must name every column; {problem}"
        raise FileFormatError(message)
    if len(set(header)) != len(header):
        twice = Counter(header).most_common(1)[0][0]
        message = f"{path}: column {twice!r:.80} stands twice in the header"
        raise FileFormatError(message)
    if label not in header:
        raise no_label(path, label, header)
    return header


def no_label(path: Path, label: str, columns: list[str]) -> FileFormatError:
    """Return what is wrong with a file whose columns do not have the label's."""
    shown = f"{', '.join(columns[:30]):.2000}" + (", …" if len(columns) > 30 else "")
    message = f"{path}: no label column {label!r}; the columns are: {shown}; choose one with --label"
    return FileFormatError(message)


def _csv_record(header: list[str], row: list[str], label: str) -> Record:
    if len(row) != len(header):
        raise RecordError("bad_line", f"expected {len(header)} fields, as in the header, got {len(row)}")
    cells: dict[str, Any] = {}
    for name, cell in zip(header, row, strict=True):
        text = cell.strip()
        if text and name != label:
            number = None if name == "id" else as_number(text)
            cells[name] = text if number is None else number
    text = row[header.index(label)].strip()
    return row_record(as_label(text) if text else None, cells)


def row_record(label: Label, cells: dict[str, Any]) -> Record:
    """Return the record of a row; all that is no field of a record is a feature."""
    identity, weight, time = (cells.pop(name, None) for name in FIELDS)
    if weight is not None and (not isinstance(weight, int | float) or records.number("weight", weight) <= 0):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {weight!r}")
    return Record(label=label, features=records.numbers("row", cells), id=identity, weight=weight, time=time)
