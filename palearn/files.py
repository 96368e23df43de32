"""Files of records: LIBSVM, CSV, JSON lines and Parquet, compressed or not, one record at a time.

``produce``, ``evaluate`` and ``replay`` read files through :func:`read` and nothing else, so a file gives the
same records wherever it is used.

==========  ====================================================================================
format      a line or row
==========  ====================================================================================
LIBSVM      ``label index:value … # comment``; features are named by the index as it is written
CSV         a header line, then one row a record; a field that is a number is a number, an empty
            one is absent, any other is one-hot, ``column=value``
JSON lines  a record as on the wire (:mod:`palearn.records`)
Parquet     a column a feature, or a map or struct column ``features`` (or ``views``)
==========  ====================================================================================

In CSV and Parquet the columns ``id``, ``weight`` and ``time`` are those fields of the record, not features.
A line that cannot be used never ends the reading: it comes out as the :class:`RecordError` that says why.
Only one line, or one batch of Parquet rows, is in memory at a time.
"""

import bz2
import csv
import gzip
import io
import lzma
import re
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Literal, NamedTuple, TypeAlias, TypeVar, cast, get_args

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.records import Label, LabelValue, Record

Format: TypeAlias = Literal["libsvm", "csv", "jsonl", "parquet"]
Row: TypeAlias = tuple[int, Record | RecordError]
_Names: TypeAlias = Sequence[str] | None
_T = TypeVar("_T")

SUFFIXES: dict[str, Format] = {
    ".libsvm": "libsvm",
    ".svm": "libsvm",
    ".csv": "csv",
    ".jsonl": "jsonl",
    ".parquet": "parquet",
}
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

#: A longer line is bad, and is skipped without being held in memory.
MAX_LINE_BYTES = 16 * 2**20

#: Columns that are fields of the record, never features.
_FIELDS = ("id", "weight", "time")


def format_of(path: str | Path, format: str | None = None) -> Format:
    """Return the format of a file: the one given, else what the suffix says.

    Raises
    ------
    FileFormatError
        When the suffix says nothing, or the given name is no format.
    """
    if format is not None:
        if format not in get_args(Format):
            message = f"format must be one of {', '.join(get_args(Format))}, got {format!r}"
            raise FileFormatError(message)
        return cast(Format, format)
    suffixes = ["", *(suffix.lower() for suffix in Path(path).suffixes)]
    if suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    if suffixes[-1] not in SUFFIXES:
        message = (
            f"{path}: the suffix does not say what the file holds (known: {' '.join(SUFFIXES)}, and "
            f"{' '.join(COMPRESSIONS)} of them); say it with --format {'|'.join(get_args(Format))}"
        )
        raise FileFormatError(message)
    return SUFFIXES[suffixes[-1]]


def read(
    path: str | Path,
    *,
    format: str | None = None,
    label: str | None = None,
    names: Sequence[str] | None = None,
    opened: BinaryIO | None = None,
) -> Iterator[Row]:
    """Return an iterator over (line number, record or what is wrong with the line).

    Parameters
    ----------
    path
        The file. Numbers of lines, and of Parquet rows, start at 1.
    format
        ``libsvm``, ``csv``, ``jsonl`` or ``parquet``; by default what the suffix says.
    label
        The label's column in CSV (default ``label``; there must be one) and Parquet (default ``label``, if
        there is one).
    names
        LIBSVM: feature names; index 1 is the first. By default a feature is named by its index.
    opened
        The file, opened in binary by a caller who wants to follow its position; the caller closes it.

    Raises
    ------
    FileFormatError
        At once: no such format. While reading: there is no such file or column, or the file is damaged.
    """
    reader = _READERS[format_of(path, format)]
    if names is not None and len(set(names)) != len(names):
        message = f"{path}: the feature names given for it are not unique"
        raise FileFormatError(message)
    return _guarded(Path(path), opened, lambda stream: reader(Path(path), stream, label, names))


class Line(NamedTuple):
    """A line on its way to a model: its number, its key if one was asked for, and its record.

    JSON lines stay the bytes they are, as if they came from Kafka; whoever decodes them finds their faults.
    """

    number: int
    key: str | None
    value: bytes | Record | RecordError


def lines(
    path: str | Path,
    *,
    key: str | None = None,
    format: str | None = None,
    label: str | None = None,
    names: Sequence[str] | None = None,
    opened: BinaryIO | None = None,
) -> Iterator[Line]:
    """Return an iterator over a file's lines with their keys; parameters and errors as :func:`read`.

    Parameters
    ----------
    key
        The field whose text is the key (:func:`palearn.records.key_of`, :func:`palearn.records.record_key`).
    """
    rows: Iterator[tuple[int, bytes | Record | RecordError]]
    if format_of(path, format) == "jsonl":
        rows = _guarded(Path(path), opened, _raw_lines)
    else:
        rows = read(path, format=format, label=label, names=names, opened=opened)
    for number, value in rows:
        yield Line(number, None if key is None else _key(value, key), value)


def _key(value: bytes | Record | RecordError, field: str) -> str | None:
    if isinstance(value, bytes):
        found = records.key_of(value, field)
        return None if found is None else found.decode()
    return records.record_key(value, field) if isinstance(value, Record) else None


def _raw_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes | RecordError]]:
    for number, line in _lines(stream):
        if len(line) > MAX_LINE_BYTES:
            yield number, _too_long()
        elif stripped := line.strip():
            yield number, stripped


def _guarded(
    path: Path, opened: BinaryIO | None, rows: Callable[[BinaryIO], Iterator[tuple[int, _T]]]
) -> Iterator[tuple[int, _T]]:
    """Yield the rows; a file that turns out to be damaged is named, with the last line that was whole."""
    number = 0
    try:
        with nullcontext(opened) if opened else path.open("rb") as raw, _decompressed(path, raw) as stream:
            for number, row in rows(stream):
                yield number, row
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        what = "damaged, or not what its suffix says," if number else "cannot be read"
        message = f"{path}: {what} after line {number}: {error}"
        raise FileFormatError(message) from error


def _decompressed(path: Path, raw: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """Return a stream of the file's plain bytes; to close it leaves ``raw`` open."""
    match path.suffix.lower():
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        case ".bz2":
            return cast(BinaryIO, bz2.BZ2File(raw))
        case ".xz":
            return cast(BinaryIO, lzma.LZMAFile(raw))
        case ".zst":
            import pyarrow as pa  # not needed, and slow to import, for anything else but Parquet

            return io.BufferedReader(pa.input_stream(raw, compression="zstd"))
    return nullcontext(raw)


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines; of one that is too long only the beginning, MAX_LINE_BYTES + 1 bytes."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        rest = line
        while len(rest) > MAX_LINE_BYTES and not rest.endswith(b"\n"):
            rest = stream.readline(MAX_LINE_BYTES + 1)
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")
        yield number, line


def _too_long() -> RecordError:
    return RecordError("too_large", f"the line has more than {MAX_LINE_BYTES} bytes")


def _text(line: bytes) -> str:
    if len(line) > MAX_LINE_BYTES:
        raise _too_long()
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RecordError("not_utf8", f"the line is not UTF-8 at byte {error.start}") from None


def _each_line(stream: BinaryIO, parse: Callable[[str], Record | None]) -> Iterator[Row]:
    """Yield what ``parse`` makes of every line; blank lines, and those it gives None for, are no records."""
    for number, line in _lines(stream):
        try:
            text = _text(line).strip()
            record = parse(text) if text else None
        except RecordError as error:
            yield number, error
        else:
            if record is not None:
                yield number, record


def _read_libsvm(path: Path, stream: BinaryIO, label: str | None, names: _Names) -> Iterator[Row]:
    named = None if names is None else {str(index): name for index, name in enumerate(names, 1)}

    def parse(text: str) -> Record | None:
        items = text.partition("#")[0].split()
        if not items:
            return None
        if ":" in items[0]:
            raise RecordError("bad_line", f"the line must begin with a label, got {items[0][:60]!r}")
        features = records.parse_libsvm(items[1:])
        if named is not None:
            if unnamed := features.keys() - named.keys():
                raise RecordError("bad_line", f"no names for {sorted(unnamed)[:5]}; there are {len(named)}")
            features = {named[index]: value for index, value in features.items()}
        return Record(label=_label(items[0]), features=features)

    return _each_line(stream, parse)


_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


def _label(text: str) -> Label:
    """Return a label as it is meant: a number where the text is one (``+1`` is 1), else the text."""
    if _INTEGER.fullmatch(text):
        return int(text)
    value = _number(text)
    return text if value is None else records.number("label", value)


def _number(text: str) -> float | None:
    """Return the number that a text is, NaN and infinity too, or None; Python's ``1_000`` is none."""
    if "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None


class _CsvLines:
    """Lines of text for csv.reader, which may take several for a row; keeps their number and any fault."""

    def __init__(self, stream: BinaryIO) -> None:
        self._lines = _lines(stream)
        self.number = 0
        self.fault: RecordError | None = None

    def __iter__(self) -> Iterator[str]:
        for number, line in self._lines:
            self.number = number
            try:
                yield _text(line)
            except RecordError as error:
                self.fault = error
                yield "\n"


def _read_csv(path: Path, stream: BinaryIO, label: str | None, names: _Names) -> Iterator[Row]:
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
        problem = lines.fault.detail if lines.fault else f"got {header[:30]}"
        message = f"{path}: the first line must name every column; {problem}"
        raise FileFormatError(message)
    if len(set(header)) != len(header):
        twice = next(name for name in header if header.count(name) > 1)
        message = f"{path}: column {twice!r} stands twice in the header"
        raise FileFormatError(message)
    if label not in header:
        raise _no_label(path, label, header)
    return header


def _no_label(path: Path, label: str, columns: list[str]) -> FileFormatError:
    shown = ", ".join(columns[:30]) + (", …" if len(columns) > 30 else "")
    message = f"{path}: no label column {label!r}; the columns are: {shown}; choose one with --label"
    return FileFormatError(message)


def _csv_record(header: list[str], row: list[str], label: str) -> Record:
    if len(row) != len(header):
        raise RecordError("bad_line", f"expected {len(header)} fields, as in the header, got {len(row)}")
    cells: dict[str, Any] = {}
    for name, cell in zip(header, row, strict=True):
        text = cell.strip()
        if text and name != label:
            number = None if name == "id" else _number(text)
            cells[name] = text if number is None else number
    text = row[header.index(label)].strip()
    return _record(_label(text) if text else None, cells)


def _record(label: Label, cells: dict[str, Any]) -> Record:
    """Return the record of a row; all that is no field of a record is a feature."""
    identity, weight, time = (cells.pop(name, None) for name in _FIELDS)
    if weight is not None and (not isinstance(weight, int | float) or records.number("weight", weight) <= 0):
        raise RecordError("bad_weight", f"weight must be a finite number > 0, got {weight!r}")
    return Record(label=label, features=records.numbers("row", cells), id=identity, weight=weight, time=time)


def _read_jsonl(path: Path, stream: BinaryIO, label: str | None, names: _Names) -> Iterator[Row]:
    return _each_line(stream, lambda text: records.decode_value(text.encode()))


def _read_parquet(path: Path, stream: BinaryIO, label: str | None, names: _Names) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    label_column = label or "label"
    with tempfile.TemporaryFile() as whole:
        if path.suffix.lower() in COMPRESSIONS:
            shutil.copyfileobj(stream, whole)  # Parquet is read from its end: it has to be on disk
            stream = cast(BinaryIO, whole)
        number = 0
        try:
            file = pq.ParquetFile(stream)
            if label is not None and label not in file.schema_arrow.names:
                raise _no_label(path, label, file.schema_arrow.names)
            for batch in file.iter_batches(1024):  # rows turned into Python objects at a time
                for cells in batch.to_pylist():
                    number += 1
                    try:
                        record = _parquet_record(cells, label_column)
                    except RecordError as error:
                        yield number, error
                    else:
                        yield number, record
        except pa.ArrowException as error:
            message = f"{path}: no Parquet file, or a damaged one, after row {number}: {error}"
            raise FileFormatError(message) from error


def _parquet_record(cells: dict[str, Any], label_column: str) -> Record:
    label = cells.pop(label_column, None)
    if isinstance(label, float):
        label = records.number("label", label)
    elif label is not None and not isinstance(label, LabelValue):
        raise RecordError("bad_label", f"label must be text, a number or a boolean, got {label!r:.60}")
    if isinstance(cells.get("time"), datetime):
        cells["time"] = cells["time"].isoformat()
    if "features" not in cells and "views" not in cells:
        return _record(label, cells)
    if cells.get("features") is None and cells.get("views") is None:
        raise RecordError("no_features", "the row's 'features' and 'views' are null")
    record = _record(label, {name: cells.get(name) for name in _FIELDS})
    record.features, record.views = None, None
    if cells.get("features") is not None:
        record.features = records.numbers("features", _mapping(cells["features"]))
    if cells.get("views") is not None:
        views = _mapping(cells["views"]).items()
        record.views = {v: records.numbers(f"view {v!r}", _mapping(x)) for v, x in views if x is not None}
    return record


def _mapping(cell: Any) -> dict[str, Any]:
    """Return the dict that a struct's or a map's cell is; pyarrow gives a map as a list of pairs."""
    if isinstance(cell, list) and all(isinstance(pair, tuple) for pair in cell):
        return {str(name): value for name, value in cell}
    if not isinstance(cell, dict):
        raise RecordError("bad_features", f"'features' and 'views' must be maps or structs, got {cell!r:.60}")
    return cell


_READERS = {"libsvm": _read_libsvm, "csv": _read_csv, "jsonl": _read_jsonl, "parquet": _read_parquet}
