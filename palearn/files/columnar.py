"""Rows of tables, as Parquet and Arrow files hold them: a column a feature, or columns ``features`` or ``views``."""

import json
import re
from collections.abc import Iterable, Iterator
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from palearn import records
from palearn.errors import FileFormatError, RecordError
from palearn.files import text_lines
from palearn.files.first_look import column_notes
from palearn.files.options import (
    FIELDS,
    NO_FEATURES,
    ReadOptions,
    check_columns,
    kinds_of,
    listed,
    no_label,
    row_record,
)
from palearn.records import KINDS, Label, LabelValue, Record, label_text, record_key

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows read at a time, of numbers and of what may be of any length.
FIXED_ROWS, LARGE_ROWS = 1024, 256
#: So many rows are looked at for warnings.
SAMPLE_ROWS = 1000
#: Columns that hold features by their names, where they are maps or structs.
NESTED = ("features", "views")
_INDEX = re.compile(r"__index_level_\d+__")


def rows_at_once(schema: "pa.Schema") -> int:
    """Return how many rows are made Python's at a time."""
    import pyarrow as pa

    types = pa.types
    fixed = all(types.is_primitive(field.type) or types.is_boolean(field.type) for field in schema)
    return FIXED_ROWS if fixed else LARGE_ROWS


class Layout:
    """What the columns of a file are.

    Parameters
    ----------
    path
        The file, for messages.
    schema
        Its columns' names and types, and perhaps pandas' metadata.
    options
        How it is read.

    Raises
    ------
    FileFormatError
        The options name a column that is not there, or a column can be no feature and is not left out.
    """

    def __init__(self, path: object, schema: "pa.Schema", options: ReadOptions) -> None:
        columns = schema.names
        if options.label is not None and options.label not in columns:
            raise no_label(path, options.label, columns)
        self._options = options
        self.label = options.label or "label"
        check_columns(path, options, columns, self.label)
        #: Columns that hold the features, each with its name.
        self.nested = [name for name in NESTED if name in columns and _holds_names(schema.field(name).type)]
        #: Columns that pandas says are its index.
        self.index = [name for name in _pandas_index(schema) if name in columns and name not in options.columns]
        shown = {field.name: _shown(field.type) for field in schema}
        shown |= dict.fromkeys(self.index, "ignore")
        #: Each column's kind, ``label``, ``key``, or the field of the record that it is.
        self.kinds = kinds_of(shown, options, self.label) | dict.fromkeys(self.nested, "features")
        #: Columns beside those that hold the features.
        self.beside = [n for n, kind in self.kinds.items() if self.nested and kind not in (*NO_FEATURES, "features")]
        #: Columns that are read.
        self.taken = [name for name, kind in self.kinds.items() if kind not in ("ignore", "unknown")]
        self.taken = [name for name in self.taken if name not in self.beside]
        for name in self.taken:
            if self.kinds[name] not in (*NO_FEATURES, "features") and shown[name] not in KINDS:
                raise FileFormatError(
                    f"{path}: column {name!r:.80} is of type {shown[name]}, which can be no feature: leave it out "
                    f"(--column '{name}=ignore'), or make it numbers, texts or lists of texts"
                )
        if not self.taken:
            raise FileFormatError(f"{path}: none of its columns is left: {listed(columns)}")

    def notes(self, sample: "pa.RecordBatch | None") -> list[str]:
        """Return what is worth a warning; ``sample`` are the first rows."""
        notes = []
        left = [name for name in self.index if self.kinds[name] == "ignore"]
        if left:
            notes.append(f"{listed(left)}: pandas' index, left out (--column '{left[0]}=number' takes it)")
        if self.beside:
            notes.append(f"{listed(self.nested)} hold the features, and {listed(self.beside)} are left out")
        if sample is None or self.nested:
            return notes
        texts = {name: _texts(sample.column(name)) for name, kind in self.kinds.items() if kind == "text"}
        return notes + column_notes(texts, self.kinds)

    def record(self, cells: dict[str, Any]) -> tuple[str | None, Record]:
        """Return the key and the record of a row, or raise a RecordError."""
        label, key = _label(cells.get(self.label)), self._options.key
        record = self._nested_record(label, cells) if self.nested else row_record(label, cells, self.kinds)
        if key is None or key in self.kinds:
            return _key_text(cells.get(key or "")), record
        return record_key(record, key), record

    def _nested_record(self, label: Label, cells: dict[str, Any]) -> Record:
        held = {name: cells.get(name) if name in self.nested else None for name in NESTED}
        if held["features"] is None and held["views"] is None:
            raise RecordError("no_features", "the row's 'features' and 'views' are null")
        own = {name: cell for name, cell in cells.items() if self.kinds.get(name) in FIELDS}
        record = row_record(label, own, self.kinds)
        record.features, record.views = None, None
        if held["features"] is not None:
            record.features = records.numbers("features", _mapping(held["features"]))
        if held["views"] is not None:
            views = _mapping(held["views"]).items()
            record.views = {v: records.numbers(f"view {v!r}", _mapping(x)) for v, x in views if x is not None}
        return record


def _shown(type: "pa.DataType") -> str:
    """Return the kind that a column of a type has, or the type's name where it can have none."""
    import pyarrow as pa

    types = pa.types
    inner = type.value_type if types.is_dictionary(type) else type
    if types.is_boolean(inner):
        return "boolean"
    if types.is_integer(inner) or types.is_floating(inner) or types.is_decimal(inner) or types.is_null(inner):
        return "number"
    if types.is_temporal(inner) or _is_string(inner):
        return "text"
    if (types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type)) and _is_string(
        type.value_type
    ):
        return "bag"
    return f"{type!s:.60}"


def _is_string(type: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type))


def _holds_names(type: "pa.DataType") -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(type) or pa.types.is_map(type))


def _pandas_index(schema: "pa.Schema") -> list[str]:
    """Return the columns that are an index of pandas: by its metadata, or by the names that it gives them."""
    try:
        said = json.loads((schema.metadata or {}).get(b"pandas", b"{}"))["index_columns"]
    except (ValueError, KeyError, TypeError):
        said = []
    named = [name for name in said if isinstance(name, str)] if isinstance(said, list) else []
    return named + [name for name in schema.names if _INDEX.fullmatch(name) and name not in named]


def _texts(column: "pa.Array") -> list[str]:
    try:
        return [str(cell) for cell in column.to_pylist() if cell is not None]
    except (ValueError, OverflowError):  # not UTF-8, or a time that Python has none for: reading says which row it is
        return []


def _key_text(cell: Any) -> str | None:
    """Return the text of a cell that is a key: as it stands; of a number, as labels are shown."""
    if cell is None:
        return None
    return (label_text(cell) if isinstance(cell, LabelValue) else str(cell)) or None


def read_rows(batches: "Iterable[pa.RecordBatch]", layout: Layout) -> Iterator[tuple[str | None, Record | RecordError]]:
    """Yield the key and the record of every row, or what is wrong with it."""
    for cells in rows_of(batches):
        try:
            if isinstance(cells, RecordError):
                raise cells
            found = layout.record(cells)
        except RecordError as error:
            yield None, error
        else:
            yield found


def _is_text(type: "pa.DataType") -> bool:
    import pyarrow as pa

    types = pa.types
    return any(
        is_one(type) for is_one in (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    )


def _label(label: Any) -> Label:
    if isinstance(label, Decimal):
        label = float(label)
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
