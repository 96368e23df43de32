"""Keys that were forgotten: their rows of earlier batches are read no more, until ``palearn forget`` removes them."""

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq

from palearn.tables.folder import Folder
from palearn.tables.listing import Tables


def forgotten(folder: Folder, up_to: int | None = None) -> dict[str, int]:
    """Return key -> the last batch in which it was forgotten; rows of batches before are of the past.

    Parameters
    ----------
    folder
        A job's output folder.
    up_to
        As of this batch; None: all.
    """
    found: dict[str, int] = {}
    for batch, names in _keys(folder):
        if up_to is None or batch <= up_to:
            for name in names:
                found[name] = max(batch, found.get(name, batch))
    return found


def _keys(folder: Folder) -> Iterator[tuple[int, list[str]]]:
    tables = Tables(folder.path)
    for path in tables.files("forgotten"):
        batch = path.split("/")[1].removeprefix("batch_id=")
        table: pa.Table = pq.read_table(folder.at(path), columns=["key"], filesystem=folder.fs)
        yield int(batch), table.column("key").to_pylist()
