"""Tables in Delta's format: files that tasks wrote become a table's by one commit of the driver, once a batch.

The commit carries the checkpoint's id and the batch's number (a transaction in Delta's sense), so a batch that is done
again is known. The store decides which of two drivers has it: both name the same next version of the log, and the
second one is refused.
"""

import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from palearn.errors import ConfigError, MissingExtraError, StreamError, missing_extra
from palearn.tables import object_stores
from palearn.tables.folder import Folder
from palearn.tables.layouts import Target, Written, remove_others, tables_of
from palearn.tables.schemas import BATCHES, TABLES

if TYPE_CHECKING:
    import deltalake

#: Every so many commits the log is summed up; a reader, and each new run, reads what came after.
_CHECKPOINT_INTERVAL = "10"
#: Files that no version of the table has any more are kept so long for readers that began before.
RETENTION_HOURS = 168
LOG = "_delta_log"


def require_deltalake(what: str) -> None:
    """Raise a MissingExtraError if the package that knows Delta's log is not installed."""
    try:
        import deltalake  # noqa: F401
    except ModuleNotFoundError as error:
        missing = missing_extra(error)
        assert missing is not None
        raise MissingExtraError(f"{what} is of Delta tables: {missing}", name=error.name) from None


def is_delta(folder: Folder, table: str) -> bool:
    """Whether a table is one of Delta's."""
    return folder.has(table, LOG)


def opened(folder: Folder, table: str) -> "deltalake.DeltaTable":
    """Return a table as it is now.

    Raises
    ------
    MissingExtraError
        ``deltalake`` is not installed.
    StreamError
        The store refuses.
    """
    require_deltalake(f"{folder.path}/{table}")
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    uri = _uri(folder, table)
    try:
        return DeltaTable(uri, storage_options=object_stores.delta_options(uri))
    except (DeltaError, OSError) as error:
        raise _told(error, uri) from error


def files(folder: Folder, table: str) -> dict[int, list[str]]:
    """Return the paths below the table's folder of its files, batch by batch."""
    return by_batch(opened(folder, table))


class Delta:
    """Delta tables of an output; ``owner`` is the id of the checkpoint that its batches are counted in."""

    def __init__(self, folder: Folder, run: str, owner: str) -> None:
        require_deltalake("output.format: delta")
        self._folder, self._run, self._owner = folder, run[:12], owner
        self._tables: dict[str, deltalake.DeltaTable] = {}
        self._done: dict[tuple[str, str], int | None] = {}

    def target(self, batch_id: int) -> Target:
        """Return where the files of a batch go; no other run, and no other try of a task, gives files their names."""
        return Target(self._folder.path, batch_id, None, self._run)

    def put(self, target: Target, files: Written) -> None:
        """Commit each table's files, unless this batch of it was committed before."""
        self._commit(target, files, self._owner, target.batch_id)

    def replace(self, target: Target, files: Written) -> None:
        """Commit files in place of all that their tables have of the batch."""
        from deltalake import Schema
        from deltalake.exceptions import DeltaError

        for table in tables_of(files):
            adds = _adds(target, table, files)
            schema = Schema.from_arrow(schema_of(table))
            try:
                if is_delta(self._folder, table):
                    which = [("batch_id", "=", str(target.batch_id))]
                    known = opened(self._folder, table)
                    known.create_write_transaction(
                        adds, "overwrite", schema, partition_by=["batch_id"], partition_filters=which
                    )
                else:
                    self._create(table, adds, schema, {})
            except (DeltaError, OSError) as error:
                raise _told(error, f"{self._folder.path}/{table}") from error

    def add(self, target: Target, files: Written) -> None:
        """Commit files of other keys to a batch that is whole: the last one before a stop."""
        self._commit(target, files, f"{self._owner}/stop", target.batch_id)

    def clean(self, target: Target, files: Written) -> None:
        """Remove the batch's files that no log knows: a killed run's, and this one's where a batch was there before.

        Only once the batch is committed: of two jobs the one that lost would delete what the other is about to commit.
        """
        known = set()
        for table in (*TABLES, "batches"):
            if table in self._tables or self._folder.names(table, f"batch_id={target.batch_id}"):
                there = by_batch(self._tables[table] if table in self._tables else opened(self._folder, table))
                known |= {f"{table}/{path}" for path in there.get(target.batch_id, ())}
        remove_others(self._folder, target, known)

    def _commit(self, target: Target, written: Written, owner: str, batch_id: int) -> None:
        from deltalake import CommitProperties, PostCommitHookProperties, Transaction
        from deltalake.exceptions import DeltaError

        how: dict[str, Any] = {
            "commit_properties": CommitProperties(
                custom_metadata={"batch_id": str(batch_id)}, app_transactions=[Transaction(owner, batch_id)]
            ),
            # palearn compact does it; at each commit it would be a list of the log for nothing.
            "post_commithook_properties": PostCommitHookProperties(cleanup_expired_logs=False),
        }
        for table in tables_of(written):
            adds = _adds(target, table, written)
            try:
                self._commit_table(table, adds, owner, batch_id, how)
            except (DeltaError, OSError) as error:
                raise _told(error, f"{self._folder.path}/{table}") from error

    def _commit_table(self, table: str, adds: list[Any], owner: str, batch_id: int, how: dict[str, Any]) -> None:
        from deltalake import Schema

        schema = Schema.from_arrow(schema_of(table))
        if table not in self._tables:
            if not is_delta(self._folder, table):
                self._create(table, adds, schema, how)
                return
            self._tables[table] = opened(self._folder, table)
        known = self._tables[table]
        if (table, owner) not in self._done:  # asked once a run: it reads the log
            self._done[table, owner] = known.transaction_version(owner)
        done = self._done[table, owner]
        if done is None or done < batch_id:
            known.create_write_transaction(adds, "append", schema, partition_by=["batch_id"], **how)
            known.update_incremental()
            self._done[table, owner] = batch_id

    def _create(self, table: str, adds: list[Any], schema: Any, how: dict[str, Any]) -> None:
        from deltalake.transaction import create_table_with_add_actions

        uri = _uri(self._folder, table)
        create_table_with_add_actions(
            uri,
            schema,
            adds,
            mode="error",
            partition_by=["batch_id"],
            configuration={"delta.checkpointInterval": _CHECKPOINT_INTERVAL},
            storage_options=object_stores.delta_options(uri),
            **how,
        )


def compact(table: "deltalake.DeltaTable", batches: list[int]) -> dict[int, list[str]]:
    """Make one file of each batch's files, delete what no version of the last week has; return the files there are."""
    if batches:
        table.optimize.compact(partition_filters=[("batch_id", "in", [str(number) for number in batches])])
    table.vacuum(retention_hours=RETENTION_HOURS, dry_run=False)
    table.cleanup_metadata()
    return by_batch(table)


def rewrite(folder: Folder, table: str, batch: int, rows: pa.Table) -> None:
    """Make rows all that a table has of a batch."""
    run = uuid.uuid4().hex
    target = Target(folder.path, batch, None, run)
    if not rows.num_rows:
        opened(folder, table).delete(f"batch_id = {batch}")
        return
    name = target.name("compacted")
    size = folder.write_table(rows, *target.place(table), name)
    Delta(folder, run, "").replace(target, {f"{table}/{name}": size})


def schema_of(table: str) -> pa.Schema:
    """Return the columns of a table; Delta's have the batch's number among them."""
    columns = BATCHES if table == "batches" else TABLES[table]
    return columns.append(pa.field("batch_id", pa.int64()))


def by_batch(table: "deltalake.DeltaTable") -> dict[int, list[str]]:
    """Return the paths of a table's files, batch by batch."""
    added = pa.table(table.get_add_actions(flatten=True))
    found: dict[int, list[str]] = {}
    for path, batch in zip(added["path"].to_pylist(), added["partition.batch_id"].to_pylist(), strict=True):
        found.setdefault(int(batch), []).append(path)
    return found


def _adds(target: Target, table: str, files: Written) -> list[Any]:
    """Return what a commit says of a table's files."""
    from deltalake.transaction import AddAction

    batch = str(target.batch_id)
    names = sorted((path.partition("/")[2], size) for path, size in files.items() if path.startswith(f"{table}/"))
    # The time of a file is for people; the log has that of its commit.
    return [AddAction(f"batch_id={batch}/{name}", size, {"batch_id": batch}, 0, True, "{}") for name, size in names]


def _uri(folder: Folder, table: str) -> str:
    return f"{folder.path}/{table}"


def _told(error: Exception, path: str) -> StreamError | ConfigError:
    """Return what Delta's library says as a sentence."""
    text = str(error)
    known = object_stores.sentence(text, path)
    if known is None and ("oncurrent" in text or "already exists" in text):
        known = f"another job has written to the table {path} meanwhile; stop one of the two. This one changed nothing"
    return StreamError(known or f"the Delta table {path} cannot be used: {text.splitlines()[0]:.300}")
