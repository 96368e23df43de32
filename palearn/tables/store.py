"""The output folder: which batches it holds whole, and how a batch gets there.

On a disk a batch is written under ``_staging`` and each table moved to ``TABLE/batch_id=N`` when all files are there,
so a reader sees a table's batch whole or not at all, and a batch that is written twice stands there once. In an object
store, and for Delta tables, files are written where they stay (:mod:`palearn.tables.layouts`). What begins with ``_``
is not read by Spark, DuckDB or pyarrow.

::

    OUT/_palearn/owner.json        id of the checkpoint that owns this folder, format of the tables
    OUT/_palearn/run.json          in a store, the run of the job that wrote last
    OUT/_palearn/batches/N.json    batch N is whole; totals of all batches up to N, its offsets and seconds
    OUT/_staging/N-RUN/TABLE/…     batch N on its way, of one run of the job
    OUT/TABLE/batch_id=N/*.parquet
    OUT/TABLE/_delta_log/*         of a Delta table, which files are the table's
"""

import uuid
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

from palearn.errors import StreamError
from palearn.tables.folder import Folder
from palearn.tables.layouts import Direct, Layout, Staged, Target, staged

#: Version of the tables and of what stands beside them; raised when an older palearn could not go on with them.
FORMAT = 2
#: The format of what an older palearn can go on with: plain Parquet where folders are renamed.
_OLDEST_FORMAT = 1
#: What tables are written as.
TableFormat = Literal["parquet", "delta"]
#: This many records of whole batches are kept; Spark itself retries only the last one.
_KEPT_BATCHES = 100

#: What a batch takes of the topics (:func:`palearn.spark.checkpoint.batch_offsets`); None: it is no batch of a stream.
Offsets = list[dict[str, Any]] | None


class Store:
    """The driver's side of an output folder, in one run of a job.

    Parameters
    ----------
    path
        The folder.
    format
        What its tables are written as.
    owner
        Id of the checkpoint whose batches are written; Delta's logs have it.
    """

    def __init__(self, path: str, format: TableFormat = "parquet", owner: str = "") -> None:
        self.folder = Folder(path)
        # Two jobs on one shared file system must not mix their files, even if only one of them is meant to run.
        self._run = uuid.uuid4().hex
        self._begun = self._clean = False
        self._known: tuple[int, dict[str, Any]] | None = None
        self._layout = _layout(self.folder, format, self._run, owner)

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

    def target(self, batch_id: int, *, whole: bool = False) -> Target:
        """Return where the files of a batch go; of one that is ``whole`` already, where nobody sees them."""
        return staged(self.folder, batch_id, self._run) if whole else self._layout.target(batch_id)

    def begin(self) -> None:
        """Clear what crashed attempts left of files that nobody sees; in a store once a run.

        There a reader knows by ``_palearn`` that batches are recorded, and so that one which is not is no whole one.
        """
        if not self.folder.is_store:
            self.folder.discard("_staging")
        elif not self._begun:
            self.folder.discard("_staging")
            self.folder.write({"run": self._run}, "_palearn", "run.json")
        self._begun = True

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
        target = self.target(batch_id)
        self._layout.put(target, files)
        batch = {"batch_id": batch_id, "totals": totals, "offsets": offsets, "seconds": seconds}
        self.folder.write(batch, "_palearn", "batches", f"{batch_id}.json")
        self._known = batch_id, batch
        self._tidy(target, files)
        old = ("_palearn", "batches", f"{batch_id - _KEPT_BATCHES}.json")
        if batch_id >= _KEPT_BATCHES and (self.folder.is_store or self.folder.has(*old)):
            with suppress(FileNotFoundError):
                self.folder.fs.delete_file(self.folder.at(*old))

    def publish(self, batch_id: int, files: Mapping[str, int]) -> None:
        """Make files all that their tables have of a batch: of the models that a job begins with."""
        target = self.target(batch_id)
        self._layout.replace(target, files)
        if not self.folder.is_store:
            self.folder.discard("_staging")

    def _tidy(self, target: Target, files: Mapping[str, int]) -> None:
        if not self.folder.is_store:
            self.folder.discard("_staging")
        if not self._clean:
            self._layout.clean(target, files)
            self._clean = True

    def seconds(self, batch_id: int) -> float | None:
        """Return how long a batch took, if that is written down: of the newest ones it is."""
        found = self._batch(batch_id)
        return None if found is None else found.get("seconds")

    def last_batch(self) -> int | None:
        """Return the number of the newest whole batch."""
        names = self.folder.names("_palearn", "batches")
        return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=None)

    def add(self, batch_id: int, files: Mapping[str, int]) -> None:
        """Add files of other keys to a batch that is whole: all at once, where that can be."""
        self._layout.add(self.target(batch_id), files)
        if not self.folder.is_store:
            self.folder.discard("_staging")

    def _batch(self, batch_id: int) -> dict[str, Any] | None:
        if self._known is not None and self._known[0] == batch_id:
            return self._known[1]
        return self.folder.read("_palearn", "batches", f"{batch_id}.json")


def format_of(folder: Folder, format: TableFormat) -> int:
    """Return the version that is noted of tables of a format in a folder."""
    return _OLDEST_FORMAT if format == "parquet" and not folder.is_store else FORMAT


def _layout(folder: Folder, format: TableFormat, run: str, owner: str) -> Layout:
    if format == "delta":
        from palearn.tables.delta import Delta  # which needs an extra

        return Delta(folder, run, owner or run)
    return Direct(folder) if folder.is_store else Staged(folder, run)
