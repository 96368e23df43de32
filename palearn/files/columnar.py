"""Rows of tables, as Parquet and Arrow files hold them: a column a feature, or columns ``features`` or ``views``."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from palearn import records
from palearn.errors import RecordError
from palearn.files import text_lines
from palearn.files.options import FIELDS, ReadOptions, check_columns, no_label, row_record
from palearn.records import Label, LabelValue, Record

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows read at a time, of numbers and of what may be of any length.
FIXED_ROWS, LARGE_ROWS = 1024, 256


def rows_at_once(schema: "pa.Schema") -> int:
    """Return how many rows are made Python's at a time."""
    import pyarrow as pa

    types = pa.types
    fixed = all(types.is_primitive(field.type) or types.is_boolean(field.type) for field in schema)
    return FIXED_ROWS if fixed else LARGE_ROWS


class Layout:
    """What the columns of a file are.

    Raises
    ------
    FileFormatError
        The options name a column that is not there.
    """

    def __init__(self, path: object, columns: Sequence[str], options: ReadOptions) -> None:
        if options.label is not None and options.label not in columns:
            raise no_label(path, options.label, columns)
        self.label = options.label or "label"
        check_columns(path, options, columns, self.label)
        fields = {name: name for name in FIELDS if name in columns}
        #: Each column's kind where one is given, ``label``, or the field of the record that it is.
        self.kinds: dict[str, str] = {**fields, **options.columns, self.label: "label"}

    def record(self, cells: dict[str, Any]) -> Record:
        """Return the record of a row, or raise a RecordError."""
        label = _label(cells.get(self.label))
        if "features" not in cells and "views" not in cells:
            return row_record(label, cells, self.kinds)
        if cells.get("features") is None and cells.get("views") is None:
            raise RecordError("no_features", "the row's 'features' and 'views' are null")
        record = row_record(label, {name: cells[name] for name in cells if self.kinds.get(name) in FIELDS}, self.kinds)
        record.features, record.views = None, None
        if cells.get("features") is not None:
            record.features = records.numbers("features", _mapping(cells["features"]))
        if cells.get("views") is not None:
            views = _mapping(cells["views"]).items()
            record.views = {v: records.numbers(f"view {v!r}", _mapping(x)) for v, x in views if x is not None}
        return record


def shown_kinds(schema: "pa.Schema", layout: Layout) -> dict[str, str]:
    """Return each column's kind, ``label``, or the field of the record that it is; other types by their names."""
    import pyarrow as pa

    def kind(type: "pa.DataType") -> str:
        types = pa.types
        if types.is_boolean(type):
            return "boolean"
        if types.is_integer(type) or types.is_floating(type):
            return "number"
        inner = type.value_type if types.is_dictionary(type) else type
        is_text = types.is_string(inner) or types.is_large_string(inner) or types.is_string_view(inner)
        return "text" if is_text else f"{type!s:.60}"

    return {field.name: layout.kinds.get(field.name) or kind(field.type) for field in schema}


def read_rows(batches: "Iterable[pa.RecordBatch]", layout: Layout) -> Iterator[Record | RecordError]:
    """Yield the record of every row, or what is wrong with it."""
    for cells in rows_of(batches):
        try:
            if isinstance(cells, RecordError):
                raise cells
            record = layout.record(cells)
        except RecordError as error:
            yield error
        else:
            yield record


def _is_text(type: "pa.DataType") -> bool:
    import pyarrow as pa

    types = pa.types
    return any(
        is_one(type) for is_one in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _label(label: Any) -> Label:
    if isinstance(label, float):
        return records.number("label", label)
    if label is not None and not isinstance(label, LabelValue):
        raise RecordError("bad_label", f"label must be text, a number or a boolean, got {label!r:.60}")
    return label


def rows_of(batches: "Iterable[pa.RecordBatch]") -> Iterator[dict[str, Any] | RecordError]:
    """Yield the rows, or why one cannot be used: it is no text, or larger than a line of text may be.

    A few bytes of a file can say that a value comes a million times: only what Arrow has read tells how large a row is,
    so batches are small where they may be large (:func:`rows_at_once`).
    """
    for batch in batches:
        if _bytes(batch) <= text_lines.MAX_LINE_BYTES:
            try:
                yield from batch.to_pylist()
                continue
            except (ValueError, OverflowError):  # not UTF-8, or a time that Python has none for: which row is it?
                pass
        yield from map(_row, (batch.slice(i, 1) for i in range(batch.num_rows)))


def _bytes(batch: "pa.RecordBatch") -> int:
    """Return the bytes of all values; a text that a column keeps once for many rows counts as often as it comes."""
    return sum(map(_column_bytes, batch.columns))


def _column_bytes(column: "pa.Array") -> int:
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_dictionary(column.type) and _is_text(column.type.value_type):
        sizes = pc.take(pc.binary_length(column.dictionary), column.indices)
        return int(column.indices.nbytes + (pc.sum(sizes).as_py() or 0))
    if types.is_string_view(column.type):
        views = np.frombuffer(column.buffers()[1], np.int32).reshape(-1, 4)[column.offset :][: len(column)]
        sizes = views[column.is_valid().to_numpy(zero_copy_only=False), 0]
        return int(views.nbytes + sizes.sum(dtype=np.int64))
    return int(column.nbytes)


def _row(batch: "pa.RecordBatch") -> dict[str, Any] | RecordError:
    if _bytes(batch) > text_lines.MAX_LINE_BYTES:
        return RecordError("too_large", f"the row has more than {text_lines.MAX_LINE_BYTES} bytes")
    try:
        (cells,) = batch.to_pylist()
    except UnicodeDecodeError as error:
        return RecordError("not_utf8", f"the row is not UTF-8: {error}")
    except (ValueError, OverflowError) as error:
        return RecordError("bad_line", f"a value is none of Python's: {error!s:.200}")
    return cast(dict[str, Any], cells)


def _mapping(cell: Any) -> dict[str, Any]:
    """Return the dict that a struct's or a map's cell is; pyarrow gives a map as a list of pairs."""
    if isinstance(cell, list) and all(isinstance(pair, tuple) for pair in cell):
        return {str(name): value for name, value in cell}
    if not isinstance(cell, dict):
        raise RecordError("bad_features", f"'features' and 'views' must be maps or structs, got {cell!r:.60}")
    return cell
