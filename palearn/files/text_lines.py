"""Lines of text: from plain or compressed files, one at a time or many at once, and what may be wrong with them."""

import bz2
import codecs
import gzip
import io
import lzma
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias, TypeVar, cast

from palearn.errors import FileFormatError, RecordError
from palearn.records import Record

Row: TypeAlias = tuple[int, Record | RecordError]
#: A row of a table: its number, its key if one is asked for, and its record.
Keyed: TypeAlias = tuple[int, tuple[str | None, Record | RecordError]]
_T = TypeVar("_T")

#: Standard input.
STDIN = Path("-")
COMPRESSIONS = (".gz", ".bz2", ".xz", ".zst")

#: A longer line is bad, and is skipped without being held in memory.
MAX_LINE_BYTES = 16 * 2**20
#: Many lines at once are about so many bytes.
BLOCK_BYTES = 2**20
_BUFFER_BYTES = 2**16
#: What xz may take to read a file; ``xz -9`` needs 65 MiB.
XZ_BYTES = 100 * 2**20
_XZ_MAGIC = b"\xfd7zXZ\0"
_BOM = b"\xef\xbb\xbf"
#: What reading a damaged file raises.
DAMAGE = (EOFError, OSError, lzma.LZMAError, zlib.error)


def guarded(
    path: Path, opened: BinaryIO | None, rows: Callable[[BinaryIO], Iterator[tuple[int, _T]]]
) -> Iterator[tuple[int, _T]]:
    """Yield the rows; a file that turns out to be damaged is named, with the last line that was whole."""
    number = 0
    try:
        with opened_stream(path, opened) as stream:
            for number, row in rows(stream):
                yield number, row
    except DAMAGE as error:
        what = "damaged, or not what its suffix says," if number else "cannot be read"
        message = f"{path}: {what} after line {number}: {error}"
        raise FileFormatError(message) from error


def opened_file(path: Path) -> AbstractContextManager[BinaryIO]:
    """Open a file; :data:`STDIN` stays open afterwards."""
    return nullcontext(sys.stdin.buffer) if path == STDIN else path.open("rb", _BUFFER_BYTES)


@contextmanager
def opened_stream(path: Path, opened: BinaryIO | None = None) -> Iterator[BinaryIO]:
    """Open a file's plain bytes, those of ``opened`` if the caller has opened it."""
    with nullcontext(opened) if opened else opened_file(path) as raw, _decompressed(path, raw) as stream:
        yield stream


def _decompressed(path: Path, raw: BinaryIO) -> AbstractContextManager[BinaryIO]:
    """Return a stream of the file's plain bytes; to close it leaves ``raw`` open."""
    match path.suffix.lower():
        case ".gz":
            return cast(BinaryIO, gzip.GzipFile(fileobj=raw))
        case ".bz2":
            return cast(BinaryIO, bz2.BZ2File(raw))
        case ".xz":
            return io.BufferedReader(_Xz(raw), _BUFFER_BYTES)
        case ".zst":
            import pyarrow as pa  # not needed, and slow to import, for anything else but Parquet

            return io.BufferedReader(pa.input_stream(raw, compression="zstd"))
    return nullcontext(raw)


class _Xz(io.RawIOBase):
    """The plain bytes of xz: Python's own reader takes all the memory that a file's header asks for, up to 4 GiB."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw, self._stream = raw, lzma.LZMADecompressor(memlimit=XZ_BYTES)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any) -> int:
        """Read some bytes; 0 is the end."""
        plain = b""
        while not plain:
            if self._stream.eof:
                rest = (self._stream.unused_data + self._raw.read(_BUFFER_BYTES)).lstrip(b"\0")
                if not rest.startswith(_XZ_MAGIC):  # what stands behind the last stream is not read, as xz does
                    return 0
                self._stream = lzma.LZMADecompressor(memlimit=XZ_BYTES)
            elif not self._stream.needs_input:
                rest = b""
            elif not (rest := self._raw.read(_BUFFER_BYTES)):
                raise EOFError("the compressed file ends too early")
            plain = self._stream.decompress(rest, len(into))
        into[: len(plain)] = plain
        return len(plain)


def opened_text(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    """Return a file's text as UTF-8; bytes that are none in its encoding are none in UTF-8 either.

    Raises
    ------
    FileFormatError
        There is no such encoding.
    """
    if encoding is None:
        return stream
    try:
        if codecs.lookup(encoding).name in ("utf-8", "utf-8-sig"):
            return stream
        return cast(BinaryIO, io.BufferedReader(_Recoded(stream, encoding), _BUFFER_BYTES))
    except LookupError:
        raise FileFormatError(
            f"encoding {encoding!r:.80} is not known; utf-8, cp1252, latin-1 and utf-16 are"
        ) from None


_BAD_BYTE = "palearn.bad_byte"
codecs.register_error(_BAD_BYTE, lambda error: ("\udcff", error.end))  # type: ignore[attr-defined]


class _Recoded(io.RawIOBase):
    """Text of another encoding as UTF-8; what is no text stays a byte that is none."""

    def __init__(self, stream: BinaryIO, encoding: str) -> None:
        self._stream, self._left, self._ended = stream, memoryview(b""), False
        self._decoder = codecs.getincrementaldecoder(encoding)(errors=_BAD_BYTE)

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, into: Any) -> int:
        """Read some bytes; 0 is the end."""
        while not self._left and not self._ended:
            part = self._stream.read(_BUFFER_BYTES)
            self._ended = not part
            text = self._decoder.decode(part, final=self._ended)
            self._left = memoryview(text.encode(errors="surrogateescape"))
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def numbered(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the numbered lines; of one that is too long only the beginning, MAX_LINE_BYTES + 1 bytes."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
            _skip_line(stream)
        yield number, without_mark(line) if number == 1 else line


def blocks(stream: BinaryIO) -> Iterator[bytes]:
    """Yield many whole lines at once; of one that is too long at least MAX_LINE_BYTES + 1 bytes.

    The lines before a damaged place come before the exception, as they do one at a time.
    """
    read = cast(io.BufferedReader, stream).read1
    held: list[bytes] = []
    size = 0
    damage: Exception | None = None
    while True:
        try:
            part = read()
        except DAMAGE as error:
            part, damage = b"", error
        held.append(part)
        size += len(part)
        if part and size < BLOCK_BYTES:
            continue
        whole, newline, rest = b"".join(held).rpartition(b"\n")
        if newline:
            yield whole + newline
        if damage is not None:
            raise damage
        if len(rest) > MAX_LINE_BYTES:
            _skip_line(stream)
            yield rest
            rest = b""
        elif rest and not part:
            yield rest
        if not part:
            return
        held, size = [rest], 0


def _skip_line(stream: BinaryIO) -> None:
    rest = b"-"
    while rest and not rest.endswith(b"\n"):
        rest = stream.readline(MAX_LINE_BYTES + 1)


def without_mark(line: bytes) -> bytes:
    """Return a file's first line without the mark that some programs begin UTF-8 with."""
    return line if len(line) > MAX_LINE_BYTES else line.removeprefix(_BOM)


def too_long() -> RecordError:
    """Return what is wrong with a line of more than MAX_LINE_BYTES."""
    return RecordError("too_large", f"the line has more than {MAX_LINE_BYTES} bytes")


def decoded(line: bytes) -> str:
    """Return a line's text, or raise a RecordError."""
    if len(line) > MAX_LINE_BYTES:
        raise too_long()
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RecordError("not_utf8", f"the line is not UTF-8 at byte {error.start}") from None


def parsed(line: bytes, parse: Callable[[str], Record | None]) -> Record | RecordError | None:
    """Return what ``parse`` makes of a line, or what is wrong with it; a blank line is None."""
    try:
        text = decoded(line).strip()
        return parse(text) if text else None
    except RecordError as error:
        return error


def each_line(stream: BinaryIO, encoding: str | None, parse: Callable[[str], Record | None]) -> Iterator[Row]:
    """Yield what ``parse`` makes of every line; blank lines, and those it gives None for, are no records."""
    for number, line in numbered(opened_text(stream, encoding)):
        row = parsed(line, parse)
        if row is not None:
            yield number, row
