"""How a batch's files become its tables'.

:class:`Staged`
    On a disk: files are written under ``_staging``, and each table's folder is renamed when all are there.
:class:`Direct`
    Plain Parquet in an object store, where nothing is renamed: files are written where they stay, under names that do
    not depend on the run, so that a batch that is done again writes the same ones. Whole is what the record of batches
    says (:mod:`palearn.tables.store`), and palearn's readers go by it.
:class:`palearn.tables.delta.Delta`
    A Delta table: files are written where they stay, under names of their own, and one commit a table makes them its.
"""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from palearn.errors import StreamError
from palearn.tables.folder import Folder
from palearn.tables.schemas import TABLES

#: Every table that a job may write.
ALL_TABLES = (*TABLES, "batches")


@dataclass(frozen=True)
class Target:
    """Where the files of a batch go; it travels to the workers.

    Attributes
    ----------
    path
        The output folder.
    batch_id
        The batch's number.
    staging
        The folder in it where tables are while they are written; None: files are written where they stay.
    run
        What makes names of files those of one run of the job; empty: they are the same in every run.
    """

    path: str
    batch_id: int
    staging: tuple[str, ...] | None
    run: str = ""

    def place(self, table: str) -> tuple[str, ...]:
        """Return the folder of a table's files."""
        return (table, f"batch_id={self.batch_id}") if self.staging is None else (*self.staging, table)

    def name(self, stem: str, attempt: int = 0) -> str:
        """Return the name of a file; ``attempt`` tells apart the tries of one task."""
        return f"{stem}-{self.run}-{attempt}.parquet" if self.run else f"{stem}.parquet"


#: Path (``TABLE/FILE``) and size of files that were written.
Written = Mapping[str, int]


class Layout(Protocol):
    """How a batch's files become its tables'."""

    def target(self, batch_id: int) -> Target:
        """Return where the files of a batch go."""

    def put(self, target: Target, files: Written) -> None:
        """Make files those of their tables' batch; again what was put before stands there once."""

    def replace(self, target: Target, files: Written) -> None:
        """Make files all that their tables have of a batch."""

    def add(self, target: Target, files: Written) -> None:
        """Add files, of other keys, to a batch that is whole."""

    def clean(self, target: Target, files: Written) -> None:
        """Remove what runs that were killed left of a batch that is put."""


class Staged:
    """Folders are renamed, on a disk or HDFS."""

    def __init__(self, folder: Folder, run: str) -> None:
        self._folder, self._run = folder, run

    def target(self, batch_id: int) -> Target:
        """Return where the files of a batch go."""
        return staged(self._folder, batch_id, self._run)

    def put(self, target: Target, files: Written) -> None:
        """Move each table's files into place."""
        require(self._folder, target, files)
        for table in tables_of(files):
            # A crashed attempt may have come so far. Its rows are the same, and a reader may be at them.
            if not self._folder.has(table, f"batch_id={target.batch_id}"):
                place(self._folder, target.place(table), table, target.batch_id)

    def replace(self, target: Target, files: Written) -> None:
        """Move each table's files into place, after what was there is gone."""
        for table in tables_of(files):
            self._folder.discard(table, f"batch_id={target.batch_id}")
        self.put(target, files)

    def add(self, target: Target, files: Written) -> None:
        """Add files: all at once, if folders can be exchanged."""
        folder = self._folder
        require(folder, target, files)
        for table in tables_of(files):
            there, staged = (table, f"batch_id={target.batch_id}"), target.place(table)
            if not folder.has(*there):
                place(folder, staged, table, target.batch_id)
                continue
            added, old = folder.names(*staged), folder.names(*there)
            for name in old:
                folder.fs.copy_file(folder.at(*there, name), folder.at(*staged, name))
            try:
                folder.exchange(staged, there)
            except OSError:
                for name in sorted(added):
                    folder.fs.move(folder.at(*staged, name), folder.at(*there, name))

    def clean(self, target: Target, files: Written) -> None:
        """Do nothing: what killed runs left is in ``_staging``."""


class Direct:
    """Plain Parquet where nothing is renamed."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder

    def target(self, batch_id: int) -> Target:
        """Return where the files of a batch go."""
        return Target(self._folder.path, batch_id, None)

    def put(self, target: Target, files: Written) -> None:
        """Do nothing: the files are where they stay, and the record of batches makes them whole."""

    def replace(self, target: Target, files: Written) -> None:
        """Remove what else is there."""
        self.clean(target, files)

    def add(self, target: Target, files: Written) -> None:
        """Do nothing: each file has rows of other keys, and is whole by itself."""

    def clean(self, target: Target, files: Written) -> None:
        """Remove files that this run did not write: of tables that are switched off now."""
        remove_others(self._folder, target, {path.replace("/", f"/batch_id={target.batch_id}/", 1) for path in files})


def staged(folder: Folder, batch_id: int, run: str) -> Target:
    """Return a folder in which a batch's tables are apart from those that readers see."""
    return Target(folder.path, batch_id, ("_staging", f"{batch_id}-{run}"))


def remove_others(folder: Folder, target: Target, known: Iterable[str]) -> None:
    """Delete the files of a batch but those that are known, by their paths in the output."""
    kept = set(known)
    for table in ALL_TABLES:
        place = (table, f"batch_id={target.batch_id}")
        for name in folder.names(*place):
            if "/".join((*place, name)) not in kept:
                with suppress(FileNotFoundError):
                    folder.fs.delete_file(folder.at(*place, name))


def place(folder: Folder, staged: tuple[str, ...], table: str, batch_id: int) -> None:
    """Move a table's staged rows of a batch to where readers see them, in one step; no reader finds an empty table."""
    name = f"batch_id={batch_id}"
    if folder.has(table):
        folder.fs.move(folder.at(*staged), folder.at(table, name))
        return
    first = ("_staging", "first", table)
    folder.fs.create_dir(folder.at(*first), recursive=True)
    folder.fs.move(folder.at(*staged), folder.at(*first, name))
    folder.fs.move(folder.at(*first), folder.at(table))


def require(folder: Folder, target: Target, files: Written) -> None:
    """Check that a batch's staged files are all there, and no others: what killed tasks left is deleted."""
    assert target.staging is not None
    found = folder.sizes(*target.staging)
    for path in found.keys() - files.keys():
        folder.fs.delete_file(folder.at(*target.staging, path))
    missing = sorted(path for path, size in files.items() if found.get(path) != size)
    if missing:
        raise StreamError(
            f"{len(missing)} of the {len(files)} files of batch {target.batch_id} (the first: {missing[0]}) were "
            f"written, but are not in {folder.path} as the driver sees it: output.path must be on a file system that "
            "all machines share, and no other job may write to it"
        )


def require_there(folder: Folder, parts: tuple[str, ...], files: Iterable[str]) -> None:
    """Raise a StreamError if files that tasks wrote are not there."""
    missing = sorted({*files} - {*folder.names(*parts)})
    if missing:
        raise StreamError(
            f"{missing[0]} was written, but is not in {folder.at(*parts)} as the driver sees it: the folder must be on "
            "a file system that all machines share"
        )


def tables_of(files: Iterable[str]) -> list[str]:
    """Return the tables that files are of."""
    return sorted({path.partition("/")[0] for path in files})
