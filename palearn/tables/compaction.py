"""Fewer files in an old output: of a batch's files one, and, if asked for, no rows that newer ones replace.

On a disk the folder ``TABLE/batch_id=N`` is exchanged with its compacted copy in one step, so a reader finds all rows
of a batch whenever it looks. Only one that has listed the old files and comes to open them later is told that they are
gone; :mod:`palearn.tables.reading` looks again then. In a store the compacted file is written beside the others, which
palearn's readers pass over then, and they are deleted. A Delta table is rewritten by commits of its log, and what no
version of the last week has is deleted. The job may run meanwhile: it does not touch old batches.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palearn.errors import ConfigError
from palearn.tables import delta, listing, reading, schemas
from palearn.tables.folder import Folder
from palearn.tables.locks import locked
from palearn.tables.schemas import TABLES
from palearn.tables.store import Store

_WORK = "_compact"
#: Tables with a row a key and learner, the newer replacing the older.
CUMULATIVE = ("models", "metrics")


@dataclass
class Compacted:
    """The old batches' files and rows, before and after."""

    files_before: int = 0
    files_after: int = 0
    rows_dropped: int = 0


def compact(out: str, *, keep: int = 10, latest: Iterable[str] = ()) -> Compacted:
    """Compact the batches of an output folder but the newest ones.

    Parameters
    ----------
    out
        Output folder of a job, on a local disk or in an object store.
    keep
        So many of the newest batches are left as they are.
    latest
        Tables of :data:`CUMULATIVE` of which only the newest row of each key and learner is kept (and the rows over
        all keys): their history is forgotten.

    Raises
    ------
    ConfigError
        This is no output folder, or on a file system that can neither exchange folders nor is a store; or it is being
        compacted.
    """
    folder, chosen = Folder(out), set(latest)
    if unknown := chosen - {*CUMULATIVE}:
        raise ConfigError(f"only {' and '.join(CUMULATIVE)} have newest rows, not {', '.join(sorted(unknown))}")
    if not (folder.is_local or folder.is_store) or not folder.has("_palearn"):
        raise ConfigError(f"{out} is no output folder of a job on a local disk or in an object store")
    # Of two at once one would put files into a folder that the other has just exchanged.
    with locked(folder, "_palearn", "compact", who="palearn compact", way="wait for its end"):
        return _compact(folder, keep, chosen)


def _compact(folder: Folder, keep: int, chosen: set[str]) -> Compacted:
    last = Store(folder.path).last_batch()
    found = Compacted()
    if last is None:
        return found
    folder.discard(_WORK)
    for table in sorted({*TABLES, "batches"}):  # a report may lie beside them
        if delta.is_delta(folder, table):
            _compact_delta(folder, table, last - keep, table in chosen, found)
            continue
        newer: set[tuple[str, str]] | None = set() if table in chosen else None
        for batch in sorted(_batches(folder, table), reverse=True):
            rows = _Batch(folder, table, batch)
            if batch > last - keep:
                if newer is not None:
                    newer |= rows.keys()
                continue
            rows.compact(found, newer)
    folder.discard(_WORK)
    return found


def _compact_delta(folder: Folder, table: str, last: int, forget: bool, found: Compacted) -> None:
    """Compact the batches of a Delta table up to ``last``; ``forget`` drops rows that newer ones replace."""
    known = delta.opened(folder, table)
    batches = delta.by_batch(known)
    old = sorted((number for number in batches if number <= last), reverse=True)
    found.files_before += sum(len(batches[number]) for number in old)
    if forget:
        newer: set[tuple[str, str]] = set()
        for number in sorted(batches, reverse=True):
            rows = reading.columns(folder.path, table, schemas.TABLES[table], batch=number)
            kept = rows.filter(pa.array(_not_in(newer, rows), pa.bool_()))
            newer |= set(_pairs(kept if number <= last else rows))
            if number <= last and kept.num_rows < rows.num_rows:
                found.rows_dropped += rows.num_rows - kept.num_rows
                delta.rewrite(folder, table, number, kept)
        known = delta.opened(folder, table)
    files = delta.compact(known, old)
    found.files_after += sum(len(files.get(number, ())) for number in old)


class _Batch:
    """A table's folder of one batch."""

    def __init__(self, folder: Folder, table: str, batch: int) -> None:
        self._folder, self._place = folder, (table, f"batch_id={batch}")
        names = sorted(name for name in folder.names(*self._place) if name[0] not in "_.")
        self._files = listing.valid(folder, names)
        self._stale = sorted({*names} - {*self._files})  # a compaction that was killed has replaced them

    def keys(self) -> set[tuple[str, str]]:
        """Return the keys and learners that have a row."""
        return {pair for table in self._tables(["key", "learner"]) for pair in _pairs(table)}

    def compact(self, found: Compacted, newer: set[tuple[str, str]] | None) -> None:
        """Exchange the folder with one file of its rows but those in ``newer``, which learns of those that stay."""
        found.files_before += len(self._files)
        tables = list(self._tables())
        before = sum(table.num_rows for table in tables)
        if newer is not None:
            tables = [table.filter(pa.array(_not_in(newer, table))) for table in tables]
            newer |= {pair for table in tables for pair in _pairs(table)}
        rows = sum(table.num_rows for table in tables)
        found.rows_dropped += before - rows
        found.files_after += min(rows, 1)
        if rows and len(self._files) == 1 and rows == before:
            self._delete(self._stale)
        elif self._folder.is_store:
            self._replace(tables, rows)
        else:
            self._exchange(tables, rows)

    def _replace(self, tables: list[pa.Table], rows: int) -> None:
        if rows:
            file = self._folder.table_file(tables[0].schema, *self._place, listing.COMPACTED)
            for table in tables:
                file.add(table)
            file.close()
        self._delete([*self._stale, *(name for name in self._files if name != listing.COMPACTED or not rows)])

    def _delete(self, names: list[str]) -> None:
        for name in names:
            self._folder.fs.delete_file(self._folder.at(*self._place, name))

    def _exchange(self, tables: list[pa.Table], rows: int) -> None:
        if rows:
            file = self._folder.table_file(tables[0].schema, _WORK, *self._place, "compacted.parquet")
            for table in tables:
                file.add(table)
            file.close()
            try:
                self._folder.exchange((_WORK, *self._place), self._place)
            except OSError as error:
                place = self._folder.at(*self._place)
                raise ConfigError(f"{place} cannot be exchanged for its compacted copy: {error.strerror}") from None
        self._folder.discard(*((_WORK, *self._place) if rows else self._place))

    def _tables(self, columns: list[str] | None = None) -> Iterator[pa.Table]:
        for name in self._files:
            with self._folder.fs.open_input_file(self._folder.at(*self._place, name)) as file:
                yield pq.ParquetFile(file).read(columns)


def _batches(folder: Folder, table: str) -> list[int]:
    return [int(name.removeprefix("batch_id=")) for name in folder.names(table) if name.startswith("batch_id=")]


def _pairs(table: pa.Table) -> Iterator[tuple[str, str]]:
    """Yield key and learner of the rows that are of one key."""
    keys = table.filter(pc.is_valid(table["key"]))
    return zip(keys["key"].to_pylist(), keys["learner"].to_pylist(), strict=True)


def _not_in(newer: set[tuple[str, str]], table: pa.Table) -> list[bool]:
    pairs = zip(table["key"].to_pylist(), table["learner"].to_pylist(), strict=True)
    return [pair[0] is None or pair not in newer for pair in pairs]
