"""The models table by key: the newest row of chosen keys, without reading the rows of the others.

Of all files only the keys are read, once; which batch a key's newest rows are of is kept, and of the files of that
batch only the row groups that hold the key.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palearn.errors import FileFormatError
from palearn.tables.folder import Folder
from palearn.tables.forgotten import forgotten
from palearn.tables.listing import Tables
from palearn.tables.schemas import MODELS

T = TypeVar("T")

#: How often a batch is listed anew while ``palearn compact`` exchanges its files.
_ATTEMPTS = 10


class ModelsByKey:
    """The models table of an output folder.

    Parameters
    ----------
    path
        A job's output folder or its ``models/``: a path, or a URI of a file system that pyarrow knows.
    columns
        What is read of the rows; a file without one of them has nulls there.
    batch
        As of this batch: later ones are not looked at. None: all.

    Raises
    ------
    FileFormatError
        There is no models table, or it has no batch up to that one.
    """

    def __init__(self, path: str, columns: Sequence[str], batch: int | None = None) -> None:
        try:
            folder = Folder(path)
            self._output = folder if folder.has("models") else None
            head, _, tail = folder.path.rpartition("/")
            # A copy of the table alone may have any name.
            alone = (head, "models") if tail == "models" else (folder.path, ".")
            whole, self._table = (folder.path, "models") if self._output is not None else alone
            self._tables = Tables(whole)
        except (pa.ArrowInvalid, OSError) as error:
            raise FileFormatError(f"{path} cannot be read: {error}") from None
        self._schema = pa.schema([MODELS.field(name) for name in columns])
        self._last = batch
        self._batch_of: dict[str, int] = {}
        self.batches: list[int] = []
        self._read = False
        self._update()
        if not self.batches:
            has = bool(self._tables.batches(self._table))
            raise FileFormatError(
                f"{path} has no models up to batch {batch}" if has else f"{path} has no models: is it a job's output?"
            )

    @property
    def batch_id(self) -> int:
        """The newest batch that is known."""
        return self.batches[-1]

    def keys(self) -> Collection[str]:
        """Return the keys that have models."""
        self._know_keys()
        return self._batch_of.keys()

    def refresh(self) -> list[int]:
        """Look for batches that are new, and return them."""
        new = self._update()
        if self._read:
            for batch in new:
                self._batch_of |= dict.fromkeys(self._keys(batch), batch)
            self._forget()
        return new

    def rows(self, keys: Iterable[str]) -> pa.Table:
        """Return the newest rows of some keys, those that there are."""
        self._know_keys()
        wanted: dict[int, list[str]] = {}
        for key in keys:
            if key in self._batch_of:
                wanted.setdefault(self._batch_of[key], []).append(key)
        found = [part for batch, names in wanted.items() for part in self._rows(batch, pa.array(names, pa.string()))]
        return pa.concat_tables([self._schema.empty_table(), *found])

    def batch(self, number: int) -> pa.Table:
        """Return all rows of a batch."""
        return pa.concat_tables([self._schema.empty_table(), *self._rows(number, None)])

    def newest(self) -> Iterator[pa.Table]:
        """Yield the newest rows of all keys, a batch at a time, newest first."""
        seen: set[str] = set()
        gone = self._forgotten()
        for number in reversed(self.batches):
            rows = self.batch(number)
            keys = rows.column("key").unique().to_pylist()
            new = [key for key in keys if key not in seen and gone.get(key, number) <= number]
            seen.update(new)
            yield (
                rows if len(new) == len(keys) else rows.filter(pc.is_in(rows.column("key"), pa.array(new, pa.string())))
            )

    def _know_keys(self) -> None:
        if not self._read:
            for batch in self.batches:
                self._batch_of |= dict.fromkeys(self._keys(batch), batch)
            self._forget()
            self._read = True

    def _forgotten(self) -> dict[str, int]:
        return {} if self._output is None else forgotten(self._output, self._last)

    def _forget(self) -> None:
        """Leave out the keys that were forgotten since their newest rows."""
        for key, batch in self._forgotten().items():
            if self._batch_of.get(key, batch) < batch:
                del self._batch_of[key]

    def _update(self) -> list[int]:
        self._tables.forget()
        found = self._tables.batches(self._table)
        known = set(self.batches)
        new = [number for number in found if number not in known and (self._last is None or number <= self._last)]
        self.batches = sorted(known | set(new))
        return new

    def _keys(self, batch: int) -> list[str]:
        """Return the keys that have rows in a batch."""
        found = self._patiently(batch, lambda file: file.read(["key"]).column("key").unique().to_pylist())
        return list(chain.from_iterable(found))

    def _rows(self, batch: int, keys: pa.Array | None) -> list[pa.Table]:
        """Return the rows of a batch, or those of some keys: a table a file, or a row group that holds one."""

        def of_file(file: pq.ParquetFile) -> list[pa.Table]:
            columns = [name for name in self._schema.names if name in file.schema_arrow.names]
            if keys is None:
                return [self._whole(file.read(columns))]
            found = []
            for group in range(file.num_row_groups):
                there = pc.is_in(file.read_row_group(group, ["key"]).column("key"), keys)
                if pc.any(there).as_py():
                    found.append(self._whole(file.read_row_group(group, columns).filter(there)))
            return found

        return list(chain.from_iterable(self._patiently(batch, of_file)))

    def _whole(self, rows: pa.Table) -> pa.Table:
        """Return rows with all columns, those that their file lacks null."""
        missing = [field for field in self._schema if field.name not in rows.schema.names]
        for field in missing:
            rows = rows.append_column(field, pa.nulls(rows.num_rows, field.type))
        return rows.select(self._schema.names).cast(self._schema)

    def _patiently(self, batch: int, read: Callable[[pq.ParquetFile], T]) -> list[T]:
        """Read all files of a batch; list them anew where they are exchanged meanwhile."""
        for attempt in range(_ATTEMPTS):
            with suppress(*([FileNotFoundError] if attempt < _ATTEMPTS - 1 else [])):
                return [read(file) for file in self._files(batch)]
            self._tables.forget()
        raise AssertionError

    def _files(self, batch: int) -> Iterator[pq.ParquetFile]:
        folder = self._tables.folder
        for name in self._tables.files(self._table, batch):
            with pq.ParquetFile(folder.at(name), filesystem=folder.fs) as file:
                yield file
