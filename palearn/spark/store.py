"""The output folder: whose it is, which batches it holds whole, and how a batch gets there.

A batch is written under ``_staging`` and moved to ``TABLE/batch_id=N`` when all its files are there, so a
reader sees a table's batch whole or not at all, and a batch that is written twice stands there once. What
begins with ``_`` is not read by Spark, DuckDB or pyarrow.

::

    OUT/_palearn/owner.json        id of the checkpoint that owns this folder
    OUT/_palearn/batches/N.json    batch N is whole; totals of all batches up to N
    OUT/_staging/N/TABLE/…         batch N on its way
    OUT/TABLE/batch_id=N/*.parquet
"""

import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from palearn.config import Config
from palearn.errors import ConfigError, StreamError

#: This many records of whole batches are kept; Spark itself retries only the last one.
_KEPT_BATCHES = 100


class Folder:
    """A folder on any file system that pyarrow knows (a path, or a URI such as ``hdfs://…``)."""

    def __init__(self, path: str) -> None:
        if "://" in path:
            self.path = path
            self.fs, self.root = pafs.FileSystem.from_uri(path)
        else:
            # Executors have working folders of their own.
            self.path = self.root = str(Path(path).expanduser().absolute())
            self.fs = pafs.LocalFileSystem()

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a disk of this machine, or mounted like one."""
        return isinstance(self.fs, pafs.LocalFileSystem)

    @property
    def uri(self) -> str:
        """What Spark calls the folder. Without a scheme it would look on its default file system; it takes no %20."""
        return f"file://{self.root}" if self.is_local else self.path

    def at(self, *parts: str) -> str:
        """Return the path of something in the folder."""
        return "/".join((self.root, *parts))

    def names(self, *parts: str) -> list[str]:
        """Return the names in a folder below; none if it is not there."""
        selector = pafs.FileSelector(self.at(*parts), allow_not_found=True)
        return [info.base_name for info in self.fs.get_file_info(selector)]

    def read(self, *parts: str) -> Any | None:
        """Return a JSON file's content, or None if it is not there."""
        try:
            with self.fs.open_input_stream(self.at(*parts)) as stream:
                return msgspec.json.decode(stream.read())
        except FileNotFoundError:
            return None

    def lines(self, *parts: str) -> list[str]:
        """Return a text file's lines, none if it is not there."""
        try:
            with self.fs.open_input_stream(self.at(*parts)) as stream:
                return str(stream.read(), "utf-8").splitlines()
        except FileNotFoundError:
            return []

    def write(self, content: Any, *parts: str) -> None:
        """Write a JSON file whole or not at all."""
        path = self.at(*parts)
        self.fs.create_dir(path.rpartition("/")[0], recursive=True)
        with self.fs.open_output_stream(path + ".part") as stream:
            stream.write(msgspec.json.encode(content))
        self.fs.move(path + ".part", path)

    def write_table(self, table: pa.Table, *parts: str) -> None:
        """Write a Parquet file whole or not at all: two attempts of one task may write the same file."""
        path = self.at(*parts)
        self.fs.create_dir(path.rpartition("/")[0], recursive=True)
        head, _, tail = path.rpartition("/")
        draft = f"{head}/.{tail}.{uuid.uuid4().hex}"
        texts = [name for name, kind in _columns(table.schema).items() if pa.types.is_string(kind)]
        # Weights neither compress nor repeat: trying costs half of the writing.
        compression = {name: "zstd" if name in texts else "none" for name in _columns(table.schema)}
        pq.write_table(table, draft, filesystem=self.fs, compression=compression, use_dictionary=texts)
        self.fs.move(draft, path)

    def delete(self, *parts: str) -> None:
        """Delete a folder below, if it is there."""
        if self.fs.get_file_info(self.at(*parts)).type == pafs.FileType.Directory:
            self.fs.delete_dir(self.at(*parts))


def _columns(schema: pa.Schema) -> dict[str, pa.DataType]:
    """Return Parquet's own columns of a schema of plain, list and map columns: path -> type."""
    out = {}
    for field in schema:
        if pa.types.is_map(field.type):
            out[f"{field.name}.key_value.key"] = field.type.key_type
            out[f"{field.name}.key_value.value"] = field.type.item_type
        elif pa.types.is_list(field.type):
            out[f"{field.name}.list.element"] = field.type.value_type
        else:
            out[field.name] = field.type
    return out


def staged(batch_id: int, table: str) -> tuple[str, str, str]:
    """Return the place of a table's files while batch ``batch_id`` is being written."""
    return "_staging", str(batch_id), table


class Store:
    """The driver's side of an output folder."""

    def __init__(self, config: Config) -> None:
        self.folder = Folder(config.output.path)

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

    def is_whole(self, batch_id: int) -> bool:
        """Whether all tables of a batch are in place."""
        return self._batch(batch_id) is not None

    def begin(self, batch_id: int) -> None:
        """Clear what a crashed attempt at the batch left."""
        self.folder.delete("_staging", str(batch_id))

    def commit(self, batch_id: int, totals: dict[str, dict[str, int]]) -> None:
        """Move the batch's tables into place, then record that it is whole."""
        folder, staging = self.folder, ("_staging", str(batch_id))
        for table in sorted(folder.names(*staging)):
            place = (table, f"batch_id={batch_id}")
            folder.delete(*place)
            folder.fs.create_dir(folder.at(table), recursive=True)
            folder.fs.move(folder.at(*staging, table), folder.at(*place))
        folder.write({"batch_id": batch_id, "totals": totals}, "_palearn", "batches", f"{batch_id}.json")
        folder.delete("_staging")
        old = folder.at("_palearn", "batches", f"{batch_id - _KEPT_BATCHES}.json")
        if folder.fs.get_file_info(old).type == pafs.FileType.File:
            folder.fs.delete_file(old)

    def last_batch(self) -> int | None:
        """Return the number of the newest whole batch."""
        names = self.folder.names("_palearn", "batches")
        return max((int(name.removesuffix(".json")) for name in names if name.endswith(".json")), default=None)

    def add(self, batch_id: int, table: str) -> None:
        """Move files that were staged later into a batch that is already whole."""
        folder = self.folder
        folder.fs.create_dir(folder.at(table, f"batch_id={batch_id}"), recursive=True)
        for name in sorted(folder.names(*staged(batch_id, table))):
            source = folder.at(*staged(batch_id, table), name)
            folder.fs.move(source, folder.at(table, f"batch_id={batch_id}", name))
        folder.delete("_staging")

    def _batch(self, batch_id: int) -> dict[str, Any] | None:
        return self.folder.read("_palearn", "batches", f"{batch_id}.json")


def taken(checkpoint: Folder, batch_id: int) -> list[dict[str, Any]]:
    """Return the offsets that a batch takes, as the checkpoint planned them: a row a topic's partition.

    Spark forgets the plans of old batches; the accounts table keeps these rows.
    """
    ends = _offsets(checkpoint.lines("offsets", str(batch_id)))
    if batch_id:
        starts = _offsets(checkpoint.lines("offsets", str(batch_id - 1)))
    else:
        starts = _offsets(checkpoint.lines("sources", "0", "0"))
    return [
        {"topic": topic, "partition": int(part), "start": starts.get(topic, {}).get(part, 0), "end": end}
        for topic, parts in ends.items()
        for part, end in parts.items()
    ]


def _offsets(lines: list[str]) -> dict[str, dict[str, int]]:
    """Return topic -> partition -> offset of one of Spark's files; the last line is the only source's."""
    found: dict[str, dict[str, int]] = msgspec.json.decode(lines[-1]) if lines else {}
    return found


def batches_of(path: str) -> list[list[dict[str, Any]]]:
    """Return what every batch of a checkpoint took (:func:`taken`), in order.

    Raises
    ------
    ConfigError
        There is no checkpoint of a streaming job, or its output has no accounts.
    """
    known = Folder(path).read("palearn.json")
    if known is None:
        raise ConfigError(
            f"{path} is not the checkpoint of a streaming job; give the folder that its configuration calls checkpoint"
        )
    output = Folder(known["output"])
    selector = pafs.FileSelector(output.at("accounts"), allow_not_found=True, recursive=True)
    files = [info.path for info in output.fs.get_file_info(selector) if info.path.endswith(".parquet")]
    if not files:
        raise ConfigError(
            f"{output.path}, the output of {path}, has no accounts, which tell what each batch took; was "
            "output.accounts false, or the folder moved?"
        )
    table = ds.dataset(files, filesystem=output.fs, partitioning=ds.partitioning(flavor="hive")).to_table()
    rows = dict(zip(table["batch_id"].to_pylist(), table["offsets"].to_pylist(), strict=True))
    done = [int(name) for name in Folder(path).names("commits") if name.isdecimal()]
    found = [rows.get(number) for number in range(max([*rows, *done]) + 1)]
    if None in found:
        raise ConfigError(
            f"the accounts of {output.path} do not tell what batch {found.index(None)} took, so the batches of {path} "
            "cannot be repeated; was output.accounts false for a while?"
        )
    return found  # type: ignore[return-value]


def claim(config: Config) -> None:
    """Tie checkpoint and output to each other, or refuse a pair that do not belong together.

    Raises
    ------
    ConfigError
        The checkpoint began with another configuration, or the output is another checkpoint's.
    """
    checkpoint, output = Folder(config.checkpoint), Folder(config.output.path)
    known = checkpoint.read("palearn.json")
    owner = output.read("_palearn", "owner.json")
    if known is None:
        if checkpoint.names("offsets"):
            raise ConfigError(f"{config.checkpoint} is the checkpoint of another Spark query; choose a new folder")
        if owner is not None or output.names():
            raise ConfigError(
                f"{config.output.path} is not empty and {config.checkpoint} is new: its history would be overwritten; "
                "choose a new output, or the checkpoint that wrote it"
            )
        known = {"id": uuid.uuid4().hex, "fingerprint": config.fingerprint, "output": output.path}
        checkpoint.write(known, "palearn.json")
    differing = [name for name, part in config.fingerprint.items() if known["fingerprint"].get(name) != part]
    if differing:
        raise ConfigError(
            f"{config.checkpoint} began with other {' and '.join(differing)}; restore them, or choose a new checkpoint "
            "and output (palearn replay learns a topic's history under a new configuration)"
        )
    if owner is None and not checkpoint.names("commits"):
        output.write({"checkpoint_id": known["id"]}, "_palearn", "owner.json")
    elif owner is None or owner["checkpoint_id"] != known["id"]:
        raise ConfigError(
            f"{config.output.path} was not written by the checkpoint {config.checkpoint}; "
            "give the pair that belongs together, or two new folders"
        )
