"""A key's rows removed from an output: each file that has some is rewritten without them.

A batch's folder of a table is exchanged for its copy in one step, as ``palearn compact`` does.
"""

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from palearn.errors import ConfigError
from palearn.tables.folder import Folder
from palearn.tables.schemas import TABLES

_WORK = "_forget"
#: The table that says that a key was forgotten keeps saying it.
_KEPT = ("forgotten",)


def erase(folder: Folder, key: str) -> dict[str, int]:
    """Remove a key's rows from all tables of an output folder; return how many there were, by table.

    Raises
    ------
    ConfigError
        The folder is not on a disk that can exchange folders, or holds Delta tables.
    """
    if not folder.is_local:
        raise ConfigError(f"{folder.path} is not on a local disk: its files cannot be exchanged for others in one step")
    if delta := sorted(table for table in TABLES if folder.has(table, "_delta_log")):
        raise ConfigError(
            f"{', '.join(delta)} in {folder.path} are Delta tables: delete the key's rows there "
            "(DELETE FROM … WHERE key = …, then VACUUM); nothing was changed"
        )
    folder.discard(_WORK)
    found = {}
    for table in sorted(TABLES.keys() - {*_KEPT}):
        batches = [name for name in folder.names(table) if name.startswith("batch_id=")]
        found[table] = sum(_of_batch(folder, (table, batch), key) for batch in batches)
    folder.discard(_WORK)
    return {table: rows for table, rows in found.items() if rows}


def _of_batch(folder: Folder, place: tuple[str, ...], key: str) -> int:
    names = sorted(name for name in folder.names(*place) if name[0] not in "_.")
    tables = {name: pq.ParquetFile(folder.at(*place, name)).read() for name in names}
    kept = {name: table.filter(pc.invert(_is(table, key))) for name, table in tables.items()}
    gone: int = sum(table.num_rows - kept[name].num_rows for name, table in tables.items())
    if not gone:
        return 0
    for name, table in kept.items():
        if table.num_rows:
            folder.write_table(table, _WORK, *place, name)
    if any(table.num_rows for table in kept.values()):
        try:
            folder.exchange((_WORK, *place), place)
        except OSError as error:
            raise ConfigError(f"{folder.at(*place)} cannot be exchanged for its copy: {error.strerror}") from None
        folder.discard(_WORK, *place)
    else:
        folder.discard(*place)
    return gone


def _is(table: pa.Table, key: str) -> pa.ChunkedArray:
    column = table.column("key")
    wanted = key.encode() if pa.types.is_binary(column.type) else key
    return pc.fill_null(pc.equal(column, pa.scalar(wanted, column.type)), False)
