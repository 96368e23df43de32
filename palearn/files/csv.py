"""CSV: a header line, then one row a record; empty is absent.

A column is what its first rows show: numbers (at least half of the cells are), booleans (all are ``true`` or
``false``), or text, which is one-hot, ``column=value``. A cell of a column of numbers or booleans that is none is
one-hot too, so no cell is lost.

A column without a name, such as the index that pandas writes first, is left out unless ``columns`` says what it is, by
the name that pandas gives it: ``Unnamed: 0`` is the first.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from palearn.errors import FileFormatError, RecordError
from palearn.files.csv_rows import CsvRow, CsvRows, spans
from palearn.files.first_look import column_notes
from palearn.files.options import Look, ReadOptions, check_columns, kinds_of, no_label, row_record
from palearn.files.text_lines import DAMAGE, Keyed, opened_text
from palearn.records import Kind, Record, record_key
from palearn.records.libsvm import as_label, as_number

#: The rows, and their bytes, that a column's kind is guessed from.
SAMPLE_ROWS, SAMPLE_BYTES = 1000, 2**20


class _Table:
    """A file whose header and first rows are read, and with them what its columns are."""

    def __init__(self, path: Path, stream: BinaryIO, options: ReadOptions) -> None:
        self._options = options
        self.source = CsvRows(opened_text(stream, options.encoding), options.delimiter)
        self._rows = iter(self.source)
        self.label = options.label or "label"
        self.header = _named(options.header or _header(path, self._rows))
        if self.label not in self.header and not (options.unlabelled and options.label is None):
            raise no_label(path, self.label, self.header)
        check_columns(path, options, self.header, self.label)
        self._held: list[CsvRow] = []
        self._damage: Exception | None = None
        self._begin()
        #: The first cells of each column that are not empty.
        self.sample = _columns(self.header, [row.cells for row in self._held if isinstance(row.cells, list)])
        self.guessed = {name: _kind(name, cells, options.decimal) for name, cells in self.sample.items()}
        #: Each column's kind, ``label``, or the field of the record that it is.
        self.kinds = kinds_of(self.guessed, options, self.label)

    def _begin(self) -> None:
        """Hold the first rows; what comes before a damaged place is read before the damage is told."""
        try:
            for row in self._rows:
                self._held.append(row)
                if len(self._held) >= SAMPLE_ROWS or self.source.bytes >= SAMPLE_BYTES:
                    return
        except DAMAGE as error:
            self._damage = error

    def rows(self) -> Iterator[CsvRow]:
        """Yield every row."""
        yield from self._held
        self._held = []
        if self._damage is not None:
            raise self._damage
        yield from self._rows

    def record(self, row: CsvRow) -> tuple[str | None, Record]:
        """Return a row's key and record, or raise a RecordError."""
        if isinstance(row.cells, RecordError):
            raise row.cells
        header, options = self.header, self._options
        texts = list(map(str.strip, row.cells))
        if len(texts) != len(header):
            texts = self._fitted(texts, row)
        cells: dict[str, Any] = {name: text for name, text in zip(header, texts, strict=True) if text}
        label = as_label(cells[self.label]) if self.label in cells else None
        record = row_record(label, cells, self.kinds, options.decimal)
        if options.key is None or options.key in self.kinds:
            return cells.get(options.key or ""), record
        return record_key(record, options.key), record

    def _fitted(self, texts: list[str], row: CsvRow) -> list[str]:
        """Return a row of another length as one that fits, if all that is too much or too little is empty."""
        header = self.header
        if len(texts) > len(header) and not any(texts[len(header) :]):
            return texts[: len(header)]
        if len(texts) < len(header) and all(map(_is_nameless, header[len(texts) :])):
            return texts + [""] * (len(header) - len(texts))
        raise RecordError(
            "bad_line",
            f"expected {len(header)} fields, as in the header, got {len(texts)}{spans(row.first, row.last)}",
        )


def read_csv(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Keyed]:
    """Yield the rows of a file."""
    table = _Table(path, stream, options)
    for row in table.rows():
        try:
            key, record = table.record(row)
        except RecordError as error:
            yield row.first, (None, error)
        else:
            yield row.first, (key, record)


def csv_look(path: Path, stream: BinaryIO, options: ReadOptions) -> Look:
    """Return each column's kind, ``label``, or the field of the record that it is; and what is worth a warning."""
    table = _Table(path, stream, options)
    notes = []
    if options.delimiter is None and table.source.delimiter != ",":
        notes.append(f"cells are taken to be separated by {table.source.delimiter!r} (--delimiter says otherwise)")
    nameless = [name for name in table.header if _is_nameless(name) and table.sample[name]]
    if left := [name for name in nameless if table.kinds[name] == "ignore" and name not in options.columns]:
        notes.append(f"the column without a name is left out (--column '{left[0]}=number' takes it)")
    return Look(table.kinds, notes + column_notes(table.sample, table.kinds))


def _columns(header: Sequence[str], rows: Sequence[list[str]]) -> dict[str, list[str]]:
    cells: list[list[str]] = [[] for _ in header]
    for row in rows:
        if len(row) == len(header):
            for column, cell in zip(cells, row, strict=True):
                if text := cell.strip():
                    column.append(text)
    return dict(zip(header, cells, strict=True))


def _kind(name: str, cells: list[str], decimal: str | None) -> Kind:
    """Return the kind that a column's cells have."""
    if _is_nameless(name):
        return "ignore"
    if cells and {cell.lower() for cell in cells} <= {"true", "false"}:
        return "boolean"
    if decimal == ",":
        cells = ["" if "." in cell else cell.replace(",", ".") for cell in cells]
    numbers = sum(as_number(cell) is not None for cell in cells)
    return "number" if 2 * numbers >= len(cells) else "text"


def _named(header: Sequence[str]) -> list[str]:
    """Return the columns' names; a column without one has the name that pandas would give it."""
    return [name.strip() or f"{_NAMELESS}{place}" for place, name in enumerate(header)]


_NAMELESS = "Unnamed: "


def _is_nameless(name: str) -> bool:
    return name.startswith(_NAMELESS) and name.removeprefix(_NAMELESS).isdigit()


def _header(path: Path, rows: Iterator[CsvRow]) -> list[str]:
    row = next(rows, None)
    problem = "the file is empty" if row is None else ""
    if row is not None:
        if isinstance(row.cells, list) and any(cell.strip() for cell in row.cells):
            return row.cells
        problem = row.cells.detail if isinstance(row.cells, RecordError) else f"got {row.cells[:30]!s:.300}"
        if isinstance(row.cells, RecordError) and row.cells.reason == "not_utf8":
            problem += "; say the file's encoding: --encoding cp1252 (or utf-16, …)"
    raise FileFormatError(f"{path}: the first line must name the columns, as a CSV header does; {problem}")
