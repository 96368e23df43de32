"""Parquet: a column a feature, or a map or struct column ``features`` (or ``views``)."""

import shutil
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files.csv import FIELDS, no_label, row_record
from palearn.files.libsvm import Names
from palearn.files.text import COMPRESSIONS, Row
from palearn.records import LabelValue, Record


def read_parquet(path: Path, stream: BinaryIO, label: str | None, names: Names) -> Iterator[Row]:
    """Yield the rows of a file; ``names`` are not for this format."""
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
                raise no_label(path, label, file.schema_arrow.names)
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
