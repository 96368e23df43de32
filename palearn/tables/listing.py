"""Which files of an output folder a reader takes: those of a Delta table's log, in a store those of whole batches."""

import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from palearn.tables import object_stores
from palearn.tables.folder import Folder

#: How often a table is listed again while files go away.
_ATTEMPTS = 10
#: What replaces all other files of a batch in a store, where a folder cannot be exchanged for its compacted copy.
COMPACTED = "compacted.parquet"


class Tables:
    """The tables of an output folder; what was listed of them is kept until files are found to be gone.

    Parameters
    ----------
    path
        Output folder of a job; it need not be there yet.
    """

    def __init__(self, path: str | Path) -> None:
        self.folder = Folder(str(path))
        self.forget()

    def forget(self) -> None:
        """List everything anew when it is next asked for."""
        self._logs: dict[str, dict[int, list[str]] | None] = {}
        self._last: int | None = None

    def has(self, *parts: str) -> bool:
        """Whether there is a file or folder of that name."""
        return self.folder.has(*parts)

    def last_batch(self) -> int | None:
        """Return the number of the newest batch that is recorded as whole."""
        names = self.folder.names("_palearn", "batches")
        return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=None)

    def batches(self, table: str) -> list[int]:
        """Return the numbers of a table's batches, in their order; none if there is no such table."""
        log = self._log(table)
        if log is not None:
            return sorted(number for number in log if number >= 0)
        names = self.folder.names(table)
        found = sorted(int(found[1]) for name in names if (found := re.fullmatch(r"batch_id=(\d+)", name)))
        return [number for number in found if self._is_whole(number)]

    def files(self, table: str, batch: int | None = None) -> list[str]:
        """Return the paths below the output of a table's files, of one batch or of all."""
        log = self._log(table)
        if log is not None:
            chosen = log if batch is None else {batch: log.get(batch, [])}
            return [f"{table}/{name}" for names in chosen.values() for name in names]
        if batch is None and not self.folder.is_store:
            return sorted(f"{table}/{name}" for name in self.folder.sizes(table) if _is_data(name))
        found = []
        for number in self.batches(table) if batch is None else [batch]:
            place = (table, f"batch_id={number}")
            names = valid(self.folder, [name for name in self.folder.names(*place) if _is_data(name)])
            found += ["/".join((*place, name)) for name in sorted(names)]
        return found

    def dataset(self, table: str, schema: pa.Schema | None = None, batch: int | None = None) -> ds.Dataset | None:
        """Return a table's rows as a dataset, with their ``batch_id``; None: there is no file of it."""
        files = [self.folder.at(name) for name in self.files(table, batch)]
        if not files:
            return None
        # The number of a batch is as wide as it must be, unless a schema says how wide it is.
        named = pa.schema([("batch_id", pa.int64())]) if schema is not None else None
        parts = ds.partitioning(named, flavor="hive")
        # A table that is written while it is read: the first file may lack what was added later.
        return ds.dataset(files, schema, format="parquet", filesystem=self.folder.fs, partitioning=parts)

    def columns(
        self, table: str, schema: pa.Schema, *, batch: int | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """Return some columns of a table, of one batch or of all; see :func:`columns`."""

        def attempt() -> pa.Table:
            found = self.dataset(table, schema, batch)
            return schema.empty_table() if found is None else found.to_table(filter=where)

        return self.patiently(attempt)

    def patiently(self, read: Callable[[], pa.Table]) -> pa.Table:
        """Read, and look again if files go away: ``palearn compact`` has put others in their place."""
        with object_stores.told(self.folder.path):
            for _ in range(_ATTEMPTS - 1):
                try:
                    return read()
                except FileNotFoundError:
                    self.forget()
            return read()

    def _log(self, table: str) -> dict[int, list[str]] | None:
        """Return the files of a Delta table; None: it is none."""
        if table not in self._logs:
            from palearn.tables import delta

            self._logs[table] = delta.files(self.folder, table) if delta.is_delta(self.folder, table) else None
        return self._logs[table]

    def _is_whole(self, number: int) -> bool:
        """Whether a batch whose folder is there is recorded as whole, where that is not the same."""
        if not self.folder.is_store or number < 0 or not self.folder.has("_palearn"):
            return True
        if self._last is None or number > self._last:
            self._last = self.last_batch()
        return self._last is not None and number <= self._last


def valid(folder: Folder, names: list[str]) -> list[str]:
    """Return those of a batch's files that count: a compacted one, in a store, replaces the others."""
    return [COMPACTED] if folder.is_store and COMPACTED in names else names


def _is_data(path: str) -> bool:
    """Whether a path below a table is that of a file with rows: nothing in it begins with what Spark passes over."""
    return not any(part[0] in "_." for part in path.split("/"))
