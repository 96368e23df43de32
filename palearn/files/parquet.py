"""Parquet: a column a feature, or a map or struct column ``features`` (or ``views``)."""

import math
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, BinaryIO, cast

from palearn.errors import FileFormatError
from palearn.files import columnar
from palearn.files.options import Look, ReadOptions
from palearn.files.text_lines import COMPRESSIONS, STDIN, Keyed

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: A compressed file may grow so many times, and by a constant, when it is read.
MOST_GROWTH, FREE_GROWTH = 100, 64 * 2**20
#: Bytes that are copied at a time.
_PART_BYTES = 2**16


def read_parquet(path: Path, stream: BinaryIO, options: ReadOptions) -> Iterator[Keyed]:
    """Yield the rows of a file."""
    import pyarrow as pa

    number = 0
    try:
        with _opened(path, stream) as file:
            layout = columnar.Layout(path, file.schema_arrow, options)
            # The file's own description has counts of values, but Arrow ends the process where they are asked for and
            # it is damaged.
            batches = file.iter_batches(columnar.rows_at_once(file.schema_arrow), columns=layout.taken)
            for number, row in enumerate(columnar.read_rows(batches, layout), 1):
                yield number, row
    except (pa.ArrowException, UnicodeDecodeError) as error:  # names of columns are text too
        raise _damaged(path, number, error) from error


def parquet_look(path: Path, stream: BinaryIO, options: ReadOptions) -> Look:
    """Return what the columns of a file are, and what is worth a warning."""
    import pyarrow as pa

    try:
        with _opened(path, stream) as file:
            layout = columnar.Layout(path, file.schema_arrow, options)
            return Look(
                layout.kinds, layout.notes(next(file.iter_batches(columnar.SAMPLE_ROWS, columns=layout.taken), None))
            )
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(path, 0, error) from error


def _damaged(path: Path, number: int, error: Exception) -> FileFormatError:
    return FileFormatError(f"{path}: no Parquet file, or a damaged one, after row {number}: {error}")


@contextmanager
def _opened(path: Path, stream: BinaryIO) -> "Iterator[pq.ParquetFile]":
    """Parquet is read from its end: what is compressed, or comes through a pipe, has to be on disk."""
    import pyarrow.parquet as pq

    with tempfile.TemporaryFile() as whole:
        if path == STDIN or path.suffix.lower() in COMPRESSIONS:
            _unpack(path, stream, whole)
            stream = cast(BinaryIO, whole)
        yield pq.ParquetFile(stream)


def _unpack(path: Path, stream: BinaryIO, to: IO[bytes]) -> None:
    """Copy the plain bytes of a compressed file, unless they are so many that they must be made up."""
    size, most = 0, growth(path)
    while part := stream.read(_PART_BYTES):
        size += to.write(part)
        if size > most:
            raise FileFormatError(f"{path}: more than {MOST_GROWTH} times as large when unpacked; unpack it first")


def growth(path: Path) -> float:
    """Return the most bytes that a file may have when it is unpacked."""
    return math.inf if path == STDIN else MOST_GROWTH * path.stat().st_size + FREE_GROWTH
