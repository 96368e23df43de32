"""Reading the output tables: plain Parquet, one folder a batch; anything else that reads Parquet does as well."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds

from palearn.errors import FileFormatError

if TYPE_CHECKING:
    import pandas as pd


#: How often a table is listed anew while files go away.
_ATTEMPTS = 10


def read(path: str | Path, table: str) -> "pd.DataFrame":
    """Return all rows of a table of an output folder, with their ``batch_id``.

    Raises
    ------
    FileFormatError
        The folder has no such table.
    """
    folder = Path(path) / table
    if not folder.is_dir():
        raise FileFormatError(f"{path} holds no table {table!r}: is it the output of a palearn job?")
    for _ in range(_ATTEMPTS - 1):
        with suppress(FileNotFoundError):  # palearn compact has exchanged a folder since it was listed
            return _rows(folder)
    return _rows(folder)


def _rows(folder: Path) -> "pd.DataFrame":
    return ds.dataset(folder, partitioning="hive").to_table().to_pandas()


def latest_models(path: str | Path) -> "pd.DataFrame":
    """Return the newest snapshot of every key and learner: the row of its highest ``batch_id``."""
    return newest(read(path, "models"))


def metrics(path: str | Path, *, latest: bool = False) -> "pd.DataFrame":
    """Return the metrics rows, all or the newest a key and learner; rows over all keys have no key."""
    frame = read(path, "metrics")
    return newest(frame) if latest else frame


def newest(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return the row of the highest ``batch_id`` of every key and learner."""
    ordered = frame.sort_values(["key", "learner", "batch_id"], kind="stable")
    return ordered.drop_duplicates(["key", "learner"], keep="last").reset_index(drop=True)
