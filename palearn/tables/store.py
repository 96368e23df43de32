"""The output folder: which batches it holds whole, and how a batch gets there.

A batch is written under ``_staging`` and each table moved to ``TABLE/batch_id=N`` when all files are there, so a
reader sees a table's batch whole or not at all, and a batch that is written twice stands there once. What
begins with ``_`` is not read by Spark, DuckDB or pyarrow.

::

    OUT/_palearn/owner.json        id of the checkpoint that owns this folder, format of the tables
    OUT/_palearn/batches/N.json    batch N is whole; totals of all batches up to N, its offsets and seconds
    OUT/_staging/N-RUN/TABLE/…     batch N on its way, of one run of the job
    OUT/TABLE/batch_id=N/*.parquet
"""

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from palearn.errors import StreamError
from palearn.tables.folder import Folder

#: Version of the tables and of what stands beside them; raised when an older palearn could not go on with them.
FORMAT = 1
#: This many records of whole batches are kept; Spark itself retries only the last one.
_KEPT_BATCHES = 100

#: What a batch takes of the topics (:func:`palearn.spark.checkpoint.batch_offsets`); None: it is no batch of a stream.
Offsets = list[dict[str, Any]] | None


class Store:
    """The driver's side of an output folder, in one run of a job."""

    def __init__(self, path: str) -> None:
        self.folder = Folder(path)
        # Two jobs on one shared file system must not mix their files, even if only one of them is meant to run.
        self._run = uuid.uuid4().hex

    def totals(self, before: int) -> dict[str, dict[str, int]]:
        """Return each learner's n and mistakes over all batches before ``before``.

        Raises
        ------
        StreamError
            The batch before is not recorded as whole: this is not the output that the checkpoint wrote.
        """
        if before == 0:
            return {}
        last = self._batch(before - 1)
        if last is None:
            raise StreamError(
                f"{self.folder.path} has no record of batch {before - 1}, which the checkpoint says is done; "
                "restore the folder, or start over with a new checkpoint and a new output"
            )
        totals: dict[str, dict[str, int]] = last["totals"]
        return totals

    def is_whole(self, batch_id: int, offsets: Offsets = None) -> bool:
        """Whether all tables of a batch, which takes these offsets, are in place.

        Raises
        ------
        StreamError
            They are, but of other offsets.
        """
        found = self._batch(batch_id)
        if found is not None and found["offsets"] != offsets:
            raise StreamError(
                f"batch {batch_id} is in {self.folder.path} already, of other records than this checkpoint has for it: "
                "a copy of the checkpoint went on there. Go on with that copy, or start over with a new checkpoint "
                "and a new output"
            )
        return found is not None

    def staging(self, batch_id: int) -> tuple[str, str]:
        """Return the folder in which a batch's tables are while they are written."""
        return "_staging", f"{batch_id}-{self._run}"

    def begin(self) -> None:
        """Clear what crashed attempts left."""
        self.folder.discard("_staging")

    def commit(
        self,
        batch_id: int,
        totals: dict[str, dict[str, int]],
        files: Mapping[str, int],
        offsets: Offsets = None,
        seconds: float | None = None,
    ) -> None:
        """Move a batch's tables into place, then record that it is whole.

        ``files`` are the paths (``TABLE/FILE``) and sizes that were written, ``offsets`` what the batch took of the
        topics, ``seconds`` what of time: for people to look at, no table has it.

        Raises
        ------
        StreamError
            Files are missing.
        """
        folder = self.folder
        self._require(batch_id, files)
        for table in _tables(files):
            # A crashed attempt may have come so far. Its rows are the same, and a reader may be at them.
            if not folder.has(table, f"batch_id={batch_id}"):
                place(folder, (*self.staging(batch_id), table), table, batch_id)
        batch = {"batch_id": batch_id, "totals": totals, "offsets": offsets, "seconds": seconds}
        folder.write(batch, "_palearn", "batches", f"{batch_id}.json")
        folder.discard("_staging")
        old = ("_palearn", "batches", f"{batch_id - _KEPT_BATCHES}.json")
        if folder.has(*old):
            folder.fs.delete_file(folder.at(*old))

    def seconds(self, batch_id: int) -> float | None:
        """Return how long a batch took, if that is written down: of the newest ones it is."""
        found = self._batch(batch_id)
        return None if found is None else found.get("seconds")

    def last_batch(self) -> int | None:
        """Return the number of the newest whole batch."""
        names = self.folder.names("_palearn", "batches")
        return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=None)

    def add(self, batch_id: int, files: Mapping[str, int]) -> None:
        """Add files that were staged later to a batch that is whole: all at once, if folders can be exchanged."""
        folder = self.folder
        self._require(batch_id, files)
        for table in _tables(files):
            there, staged = (table, f"batch_id={batch_id}"), (*self.staging(batch_id), table)
            if not folder.has(*there):
                place(folder, staged, table, batch_id)
                continue
            added, old = folder.names(*staged), folder.names(*there)  # rows of other keys
            for name in old:
                folder.fs.copy_file(folder.at(*there, name), folder.at(*staged, name))
            try:
                folder.exchange(staged, there)
            except OSError:
                for name in sorted(added):
                    folder.fs.move(folder.at(*staged, name), folder.at(*there, name))
        folder.discard("_staging")

    def _batch(self, batch_id: int) -> dict[str, Any] | None:
        return self.folder.read("_palearn", "batches", f"{batch_id}.json")

    def _require(self, batch_id: int, files: Mapping[str, int]) -> None:
        """Check that a batch's staged files are all there, and no others: what killed tasks left is deleted."""
        staging = self.staging(batch_id)
        found = self.folder.sizes(*staging)
        for path in found.keys() - files.keys():
            self.folder.fs.delete_file(self.folder.at(*staging, path))
        missing = sorted(path for path, size in files.items() if found.get(path) != size)
        if missing:
            raise StreamError(
                f"{len(missing)} of the {len(files)} files of batch {batch_id} (the first: {missing[0]}) were written, "
                f"but are not in {self.folder.path} as the driver sees it: output.path must be on a file system that "
                "all machines share, and no other job may write to it"
            )


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


def require_there(folder: Folder, parts: tuple[str, ...], files: Iterable[str]) -> None:
    """Raise a StreamError if files that tasks wrote are not there."""
    missing = sorted({*files} - {*folder.names(*parts)})
    if missing:
        raise StreamError(
            f"{missing[0]} was written, but is not in {folder.at(*parts)} as the driver sees it: the folder must be on "
            "a file system that all machines share"
        )


def _tables(files: Mapping[str, int]) -> list[str]:
    return sorted({path.partition("/")[0] for path in files})
