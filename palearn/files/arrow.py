"""Arrow IPC: files (Feather version 2) and streams, read from the first batch to the last, as Parquet's rows are.

The footer of a file is not needed: what stands before it is a stream. Each message is looked at before Arrow reads it:
bodies are as long as the bytes that are there, and compressed buffers claim no more than compression can make of them.
"""

import io
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from palearn.arrow_limits import body_size, check_claims
from palearn.errors import FileFormatError
from palearn.files import columnar
from palearn.files.options import Look, ReadOptions
from palearn.files.parquet import FREE_GROWTH, MOST_GROWTH
from palearn.files.text_lines import MAX_LINE_BYTES, Keyed

if TYPE_CHECKING:
    import pyarrow as pa

#: A message's body is held whole: a batch of rows may be so large.
MAX_BATCH_BYTES = 2**30
_FILE, _FEATHER_1 = b"ARROW1\0\0", b"FEA1"
_PART_BYTES = 2**20
_CONTINUES = b"\xff" * 4


def read_arrow(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Keyed]:
    """Yield the rows of a file."""
    import pyarrow as pa

    number = 0
    try:
        reader = _opened(path, stream)
        layout = columnar.Layout(path, reader.schema, options)
        for number, row in enumerate(columnar.read_rows(_batches(path, reader, layout), layout), 1):
            yield number, row
    except FileFormatError:
        raise
    except (pa.ArrowException, ValueError, struct.error) as error:  # not UTF-8 is a ValueError
        raise _damaged(path, number, error) from error


def arrow_look(path: Path, stream: BinaryIO, options: ReadOptions) -> Look:
    """Return what the columns of a file are, and what is worth a warning."""
    import pyarrow as pa

    try:
        reader = _opened(path, stream)
        layout = columnar.Layout(path, reader.schema, options)
        return Look(layout.kinds, layout.notes(next(_batches(path, reader, layout), None)))
    except FileFormatError:
        raise
    except (pa.ArrowException, ValueError, struct.error) as error:
        raise _damaged(path, 0, error) from error


def _damaged(path: Path, number: int, error: Exception) -> FileFormatError:
    return FileFormatError(f"{path}: no Arrow file, or a damaged one, after row {number}: {error!s:.300}")


def _opened(path: Path, stream: BinaryIO) -> "pa.ipc.RecordBatchStreamReader":
    import pyarrow as pa

    head = stream.read(len(_FILE))
    if head.startswith(_FEATHER_1):
        raise FileFormatError(
            f"{path}: Feather version 1 is not read; write the file again with pyarrow.feather (version 2)"
        )
    messages = _Messages(stream, None if head == _FILE else head)
    reader = pa.ipc.open_stream(pa.PythonFile(io.BufferedReader(messages, _PART_BYTES), mode="r"))
    return reader


def _batches(
    path: Path, reader: "pa.ipc.RecordBatchStreamReader", layout: columnar.Layout
) -> "Iterator[pa.RecordBatch]":
    for field in map(reader.schema.field, layout.taken):
        if not _is_read(field.type, top=True):
            raise FileFormatError(
                f"{path}: column {field.name!r:.80} is of type {field.type!s:.80}, which is not read; make it numbers, "
                f"text, lists or maps of these, or leave it out (--column '{field.name:.80}=ignore')"
            )
    size = columnar.rows_at_once(reader.schema)
    for whole in reader:
        batch = whole.select(layout.taken)
        batch.validate(full=True)
        if batch.num_rows > 8 * batch.get_total_buffer_size() + size:
            raise FileFormatError(f"{path}: a batch says that it has {batch.num_rows} rows, which hold nothing")
        for first in range(0, batch.num_rows, size):
            yield batch.slice(first, size)


def _is_read(type: "pa.DataType", *, top: bool = False) -> bool:
    """Whether the bytes of a value bound what becomes of it.

    In lists no item may take no bytes, or share them with others; of whole columns :mod:`palearn.files.columnar` knows.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_null(type) or types.is_boolean(type):
        return top
    if types.is_dictionary(type):
        return top and _is_read(type.value_type) and type.value_type.num_fields == 0
    if types.is_struct(type):
        return type.num_fields > 0 and all(_is_read(field.type, top=top) for field in type)
    if types.is_map(type):
        return _is_read(type.key_type) and _is_read(type.item_type, top=True)
    if types.is_list(type) or types.is_large_list(type) or types.is_fixed_size_list(type):
        return _is_read(type.value_type)
    if types.is_string_view(type):
        return top
    wide = types.is_primitive(type) or types.is_string(type) or types.is_large_string(type)
    return bool(wide or types.is_binary(type) or types.is_large_binary(type))


class _Messages(io.RawIOBase):
    """The messages of a stream, one after the other, each as it is once it has been looked at.

    Parameters
    ----------
    stream
        Stands after the beginning.
    head
        The beginning of a stream; None: that of a file has been read.
    """

    def __init__(self, stream: BinaryIO, head: bytes | None) -> None:
        self._stream, self._file, self._head, self._left = stream, head is None, head or b"", memoryview(b"")

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any) -> int:
        """Read some bytes; 0 is the end."""
        if not self._left:
            self._left = memoryview(self._next())
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def _next(self) -> bytes:
        import pyarrow as pa

        begin = self._read(4)
        if begin == _CONTINUES:
            begin = self._read(4)
        size = int.from_bytes(begin, "little", signed=True)
        if len(begin) < 4 or size == 0:
            self._finish()
            return b""
        if not 0 < size <= MAX_LINE_BYTES:
            raise ValueError(f"a message says that its description has {size} bytes")
        described = self._read(size)
        length = body_size(memoryview(described))
        if not 0 <= length <= MAX_BATCH_BYTES:
            raise ValueError(f"a batch of {length} bytes, at most {MAX_BATCH_BYTES} are read; write smaller ones")
        message = b"".join((_CONTINUES, struct.pack("<i", size), described, self._read(length)))
        check_claims(pa.py_buffer(message), MOST_GROWTH * len(message) + FREE_GROWTH)
        return message

    def _finish(self) -> None:
        """Raise where a file ends before its last bytes; a stream may end after any message."""
        last = b""
        while part := self._stream.read(_PART_BYTES):
            last = (last + part)[-len(_FILE) :]
        if self._file and not last.endswith(_FILE.rstrip(b"\0")):
            raise ValueError("the file ends too early")
        self._file = False

    def _read(self, size: int) -> bytes:
        """Read so many bytes, fewer at the end; what is only claimed is not allocated."""
        parts = [self._head[:size]]
        self._head, size = self._head[size:], size - len(parts[0])
        while size and (part := self._stream.read(min(size, _PART_BYTES))):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
