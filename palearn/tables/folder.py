"""A folder on any file system that pyarrow knows, and files in it that are there whole or not at all.

On a disk a file is written beside its place and renamed; in an object store it is there when its upload ends.
"""

import ctypes
import errno
import os
import sys
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from palearn.errors import StreamError
from palearn.tables import object_stores


class Folder:
    """A folder on any file system that pyarrow knows (a path, or a URI such as ``hdfs://…`` or ``s3://…``).

    Raises
    ------
    ConfigError
        The URI is of an object store that palearn does not know, or that may not be reached as it is described.
    """

    def __init__(self, path: str) -> None:
        path = object_stores.known_uri(path)
        if object_stores.is_store(path):
            self.path = path
            self.fs, self.root = object_stores.filesystem(path)
        elif "://" in path:
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
    def is_store(self) -> bool:
        """Whether the folder is in an object store: nothing can be renamed there."""
        return isinstance(self.fs, pafs.S3FileSystem)

    @property
    def uri(self) -> str:
        """What Spark calls the folder. Without a scheme it would look on its default file system; it takes no %20."""
        if self.is_store:
            return f"s3a://{self.root}"
        return f"file://{self.root}" if self.is_local else self.path

    @property
    def pattern(self) -> str:
        """What Spark's readers call the folder: a pattern, whose special characters a backslash makes plain."""
        return "".join(f"\\{x}" if x in "\\*?[]{}" else x for x in self.uri)

    def at(self, *parts: str) -> str:
        """Return the path of something in the folder."""
        return "/".join((self.root, *parts))

    def has(self, *parts: str) -> bool:
        """Whether there is a file or folder of that name."""
        return bool(self.fs.get_file_info(self.at(*parts)).type != pafs.FileType.NotFound)

    def names(self, *parts: str) -> list[str]:
        """Return the names in a folder below; none if it is not there."""
        selector = pafs.FileSelector(self.at(*parts), allow_not_found=True)
        return [info.base_name for info in self.fs.get_file_info(selector)]

    def sizes(self, *parts: str) -> dict[str, int]:
        """Return the size of every file below a folder, by its path from there; none if it is not there."""
        top = self.at(*parts)
        found = self.fs.get_file_info(pafs.FileSelector(top, allow_not_found=True, recursive=True))
        return {info.path[len(top) + 1 :]: info.size for info in found if info.type == pafs.FileType.File}

    def read_bytes(self, *parts: str) -> bytes | None:
        """Return a file's content, or None if it is not there."""
        try:
            with self.fs.open_input_stream(self.at(*parts)) as stream:
                return bytes(stream.read())
        except FileNotFoundError:
            return None

    def read(self, *parts: str) -> Any | None:
        """Return a JSON file's content, or None if it is not there.

        Raises
        ------
        StreamError
            It is no JSON.
        """
        content = self.read_bytes(*parts)
        try:
            return None if content is None else msgspec.json.decode(content)
        except msgspec.DecodeError as error:
            raise StreamError(
                f"{self.at(*parts)} is damaged ({error}): restore an older copy of checkpoint and output, or start "
                "over with two new folders (palearn stream --warm-start MODELS, palearn replay)"
            ) from None

    def lines(self, *parts: str) -> list[str]:
        """Return a text file's lines, none if it is not there."""
        return str(self.read_bytes(*parts) or b"", "utf-8").splitlines()

    def write_bytes(self, content: bytes, *parts: str) -> None:
        """Write a file whole or not at all."""
        draft, path = self._draft(*parts)
        with self.fs.open_output_stream(draft) as stream:
            stream.write(content)
        if draft != path:
            self.fs.move(draft, path)

    def write(self, content: Any, *parts: str) -> None:
        """Write a JSON file whole or not at all."""
        self.write_bytes(msgspec.json.encode(content), *parts)

    def table_file(self, schema: pa.Schema, *parts: str) -> "TableFile":
        """Return a Parquet file to be written in pieces."""
        return TableFile(self, schema, *self._draft(*parts))

    def write_table(self, table: pa.Table, *parts: str) -> int:
        """Write a Parquet file whole or not at all; return its size in bytes."""
        file = self.table_file(table.schema, *parts)
        file.add(table)
        return file.close()

    def discard(self, *parts: str) -> None:
        """Delete a folder below, if it is there. It is renamed first, so that nobody moves a part of it elsewhere."""
        if self.is_store:
            with suppress(FileNotFoundError):
                self.fs.delete_dir(self.at(*parts))
        elif self.has(*parts):
            doomed = self.at(*parts[:-1], f".{uuid.uuid4().hex}")
            with suppress(FileNotFoundError):  # another job, where no lock keeps it out, was quicker
                self.fs.move(self.at(*parts), doomed)
                self.fs.delete_dir(doomed)

    def exchange(self, first: tuple[str, ...], second: tuple[str, ...]) -> None:
        """Let two folders below change places in one step.

        Raises
        ------
        OSError
            The file system or operating system cannot.
        """
        if not self.is_local:
            raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP), self.path)
        libc = ctypes.CDLL(None, use_errno=True)
        names = [os.fsencode(self.at(*parts)) for parts in (first, second)]
        if sys.platform == "darwin":
            failed = libc.renamex_np(*names, 2)  # RENAME_SWAP
        elif hasattr(libc, "renameat2"):
            failed = libc.renameat2(-100, names[0], -100, names[1], 2)  # AT_FDCWD, RENAME_EXCHANGE
        else:
            failed = True
            ctypes.set_errno(errno.ENOSYS)
        if failed:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), self.at(*second))

    def _draft(self, *parts: str) -> tuple[str, str]:
        """Return the path of a file's draft and its own; two attempts of one task may write the same file."""
        path = self.at(*parts)
        if self.is_store:
            return path, path
        head, _, tail = path.rpartition("/")
        self.fs.create_dir(head, recursive=True)
        return f"{head}/.{tail}.{uuid.uuid4().hex}", path


class TableFile:
    """A Parquet file that is written in pieces, and is there when it is closed."""

    def __init__(self, folder: Folder, schema: pa.Schema, draft: str, path: str) -> None:
        self._folder, self._draft, self._path = folder, draft, path
        columns = _columns(schema)
        texts = [name for name, kind in columns.items() if pa.types.is_string(kind)]
        # Weights neither compress nor repeat: trying costs half of the writing.
        compression = {name: "zstd" if name in texts else "none" for name in columns}
        self._sink = folder.fs.open_output_stream(draft)
        self._writer = pq.ParquetWriter(self._sink, schema, compression=compression, use_dictionary=texts)

    def add(self, table: pa.Table) -> None:
        """Write further rows."""
        self._writer.write_table(table)

    def close(self) -> int:
        """Put the file in its place; return its size in bytes."""
        self._writer.close()
        size = int(self._sink.tell())
        self._sink.close()
        if self._draft != self._path:
            self._folder.fs.move(self._draft, self._path)
        return size


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
