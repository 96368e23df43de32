"""What an Arrow IPC stream takes in memory once it is read, found out before anything is allocated.

A compressed buffer begins with the size that it says it has when it is not, and Arrow allocates that at once. LZ4 makes
at most 255 bytes of one, so a stream whose buffers claim more than that is made up.
"""

import struct
from collections.abc import Iterator

import pyarrow as pa

#: No byte of LZ4 stands for more bytes than this.
MOST_BYTES_A_BYTE = 255
#: Arrow's flatbuffers: kinds of messages, and the numbers of the fields that are read here.
_DICTIONARY, _BATCH = 2, 3
_KIND, _HEADER, _LENGTH = 1, 2, 3
_DATA = 1
_BUFFERS, _COMPRESSION = 2, 3


def check_claims(stream: pa.Buffer, most: float | None = None) -> None:
    """Raise ValueError where the buffers of an IPC stream claim more bytes than ``most``.

    By default that is what LZ4 can make of its bytes. Buffers may share bytes, so it is their sum that counts. Metadata
    that no reader could follow passes, or raises struct.error: Arrow verifies it and refuses it.
    """
    left = most = MOST_BYTES_A_BYTE * stream.size if most is None else most
    for message in pa.ipc.MessageReader.open_stream(stream):
        for claimed in _claims(message):
            left -= claimed
            if left < 0:
                raise ValueError(
                    f"buffers of {stream.size} bytes claim more than {most / stream.size:.0f} times as many"
                )


def body_size(described: memoryview) -> int:
    """Return how many bytes a message says that its body has; struct.error where it says nothing."""
    at = _field(described, _target(described, 0), _LENGTH)
    return int(struct.unpack_from("<q", described, at)[0]) if at else 0


def _claims(message: pa.ipc.Message) -> Iterator[int]:
    """Yield how large each buffer of a message will be."""
    meta, body = memoryview(message.metadata), message.body
    root = _target(meta, 0)
    kind = meta[at] if (at := _field(meta, root, _KIND)) else 0
    if kind not in (_DICTIONARY, _BATCH):
        return
    batch = _target(meta, _field(meta, root, _HEADER))
    if kind == _DICTIONARY:
        batch = _target(meta, _field(meta, batch, _DATA))
    compressed, vector = _field(meta, batch, _COMPRESSION) > 0, _target(meta, _field(meta, batch, _BUFFERS))
    (count,) = struct.unpack_from("<I", meta, vector)
    for number in range(count):
        offset, size = struct.unpack_from("<qq", meta, vector + 4 + 16 * number)
        claimed = struct.unpack_from("<q", body, offset)[0] if compressed and size > 0 else size
        yield size if claimed < 0 else claimed  # -1: it did not shrink, and is as it was


def _field(meta: memoryview, table: int, number: int) -> int:
    """Return where a field of a flatbuffer's table is, 0 where the table does not have it."""
    places = table - struct.unpack_from("<i", meta, table)[0]
    (size,) = struct.unpack_from("<H", meta, places)
    at = 4 + 2 * number
    offset = struct.unpack_from("<H", meta, places + at)[0] if at < size else 0
    return table + int(offset) if offset else 0


def _target(meta: memoryview, at: int) -> int:
    """Return the place that the offset at a place leads to."""
    return at + int(struct.unpack_from("<I", meta, at)[0])
