"""Reading the output tables: plain Parquet or Delta's, on a disk or in an object store.

On a disk anything else that reads Parquet does as well. In a store plain Parquet is read up to the last batch that is
recorded as whole; a pattern of files may find a part of the next one.
"""

from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from palearn.errors import FileFormatError
from palearn.tables.folder import Folder
from palearn.tables.forgotten import forgotten
from palearn.tables.listing import Tables

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Tables", "batches", "columns", "latest_models", "metrics", "newest", "read"]


def read(path: str | Path, table: str, where: ds.Expression | None = None) -> "pd.DataFrame":
    """Return the rows of a table of an output folder, all or those ``where`` is true, with their ``batch_id``.

    Raises
    ------
    FileFormatError
        The folder has no such table.
    """
    tables = Tables(path)

    def attempt() -> pa.Table:
        found = tables.dataset(table)
        if found is None:
            raise FileFormatError(f"{path} holds no table {table!r}: is it the output of a palearn job?")
        return found.to_table(filter=where)

    return tables.patiently(attempt).to_pandas()


def batches(path: str | Path, table: str) -> list[int]:
    """Return the numbers of a table's batches, in their order; none if there is no such table."""
    return Tables(path).batches(table)


def columns(
    path: str | Path, table: str, schema: pa.Schema, *, batch: int | None = None, where: pc.Expression | None = None
) -> pa.Table:
    """Return some columns of a table, of one batch or of all; a file without a column has nulls there.

    Parameters
    ----------
    schema
        The columns; their ``batch_id`` too, if it is asked for.
    where
        The rows that are wanted.
    """
    return Tables(path).columns(table, schema, batch=batch, where=where)


def latest_models(path: str | Path, *, key: str | None = None, batch: int | None = None) -> "pd.DataFrame":
    """Return the newest snapshot of every key and learner: the row of its highest ``batch_id``.

    A key that was forgotten later has none.

    Parameters
    ----------
    path
        Output folder of a job.
    key
        The models of this key alone.
    batch
        As of this batch: rows of later ones are not looked at.
    """
    where = [ds.field("key") == key] * (key is not None) + [ds.field("batch_id") <= batch] * (batch is not None)
    frame = newest(read(path, "models", reduce(and_, where) if where else None))
    gone = forgotten(Folder(str(path)), batch)
    return _since(frame, gone) if gone else frame


def _since(frame: "pd.DataFrame", gone: dict[str, int]) -> "pd.DataFrame":
    """Return the rows that are not older than their key's being forgotten."""
    return frame[frame["batch_id"] >= frame["key"].map(gone).fillna(-(2**31))].reset_index(drop=True)


def metrics(path: str | Path, *, latest: bool = False) -> "pd.DataFrame":
    """Return the metrics rows, all or the newest a key and learner; rows over all keys have no key."""
    frame = read(path, "metrics")
    return newest(frame) if latest else frame


def newest(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the row of the highest ``batch_id`` of every key and learner."""
    ordered = frame.sort_values(["key", "learner", "batch_id"], kind="stable")
    return ordered.drop_duplicates(["key", "learner"], keep="last").reset_index(drop=True)
