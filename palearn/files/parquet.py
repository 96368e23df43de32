"""Parquet: a column a feature, or a map or struct column ``features`` (or ``views``)."""

import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO, cast

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files import text
from palearn.files.csv import FIELDS, no_label, row_record
from palearn.files.libsvm import Names
from palearn.files.text import COMPRESSIONS, Row
from palearn.records import LabelValue, Record

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

#: A compressed file may grow so many times, and by a constant, when it is put on disk to be read.
_MOST_GROWTH, _FREE_GROWTH = 100, 64 * 2**20
#: Rows read at a time, of numbers and of what may be of any length; bytes that are copied at a time.
_ROWS, _LARGE_ROWS, _PART_BYTES = 1024, 256, 2**16


def read_parquet(path: Path, stream: BinaryIO, label: str | None, names: Names) -> Iterator[Row]:
    """Yield the rows of a file; ``names`` are not for this format."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    label_column = label or "label"
    with tempfile.TemporaryFile() as whole:
        if path.suffix.lower() in COMPRESSIONS:
            _unpack(path, stream, whole)  # Parquet is read from its end: it has to be on disk
            stream = cast(BinaryIO, whole)
        number = 0
        try:
            file = pq.ParquetFile(stream)
            if label is not None and label not in file.schema_arrow.names:
                raise no_label(path, label, file.schema_arrow.names)
            for cells in _rows(file):
                number += 1
                try:
                    record = _parquet_record(cells, label_column)
                except RecordError as error:
                    yield number, error
                else:
                    yield number, record
        except (pa.ArrowException, UnicodeDecodeError) as error:  # names of columns are text too
            message = f"{path}: no Parquet file, or a damaged one, after row {number}: {error}"
            raise FileFormatError(message) from error


def _unpack(path: Path, stream: BinaryIO, to: IO[bytes]) -> None:
    """Copy the plain bytes of a compressed file, unless they are so many that they must be made up."""
    size = 0
    while part := stream.read(_PART_BYTES):
        size += to.write(part)
        if size > _MOST_GROWTH * path.stat().st_size + _FREE_GROWTH:
            raise FileFormatError(f"{path}: more than {_MOST_GROWTH} times as large when unpacked; unpack it first")


def _rows(file: "pq.ParquetFile") -> Iterator[dict[str, Any] | RecordError]:
    """Yield the rows, or why one cannot be used: it is no text, or larger than a line of text may be.

    Parquet says in a few bytes that a value comes a million times: only what Arrow has read tells how large a row is,
    so few are read at a time where they may be large. (The file's own description has counts of values, but Arrow ends
    the process where they are asked for and it is damaged.)
    """
    import pyarrow as pa

    types = pa.types
    fixed = all(types.is_primitive(field.type) or types.is_boolean(field.type) for field in file.schema_arrow)
    for batch in file.iter_batches(_ROWS if fixed else _LARGE_ROWS):
        if batch.nbytes <= text.MAX_LINE_BYTES:
            try:
                yield from batch.to_pylist()
                continue
            except (ValueError, OverflowError):  # not UTF-8, or a time that Python has none for: which row is it?
                pass
        yield from map(_row, (batch.slice(i, 1) for i in range(batch.num_rows)))


def _row(batch: "pa.RecordBatch") -> dict[str, Any] | RecordError:
    if batch.nbytes > text.MAX_LINE_BYTES:
        return RecordError("too_large", f"the row has more than {text.MAX_LINE_BYTES} bytes")
    try:
        (cells,) = batch.to_pylist()
    except UnicodeDecodeError as error:
        return RecordError("not_utf8", f"the row is not UTF-8: {error}")
    except (ValueError, OverflowError) as error:
        return RecordError("bad_line", f"a value is none of Python's: {error!s:.200}")
    return cast(dict[str, Any], cells)


def _parquet_record(cells: dict[str, Any] | RecordError, label_column: str) -> Record:
    if isinstance(cells, RecordError):
        raise cells
    label = cells.pop(label_column, None)
    if isinstance(label, float):
        label = records.number("label", label)
    elif label is not None and not isinstance(label, LabelValue):
        raise RecordError("bad_label", f"label must be text, a number or a boolean, got {label!r:.60}")
    if isinstance(cells.get("time"), datetime):
        cells["time"] = cells["time"].isoformat()
    if "features" not in cells and "views" not in cells:
        return row_record(label, cells)
    if cells.get("features") is None and cells.get("views") is None:
        raise RecordError("no_features", "the row's 'features' and 'views' are null")
    record = row_record(label, {name: cells.get(name) for name in FIELDS})
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
