"""A bucket's bytes as ASCII text, because Spark hands a state to Python through a pickler that is slow at bytes.

``applyInPandasWithState`` pickles the state row in the JVM. Its pickler turns a byte array into a string a
character at a time and encodes that as UTF-8: a quarter of the JVM's time in this job. A string of ASCII
characters is copied as it is at every step, for an eighth more bytes.

The text of ``n`` bytes is their low seven bits, then ``ceil(n / 7)`` characters that hold the high bits: bit
``k`` of character ``j`` is the high bit of byte ``k * ceil(n / 7) + j``.
"""

import numpy as np

from palearn.errors import StateFormatError


def to_text(data: bytes) -> str:
    """Return the text of some bytes."""
    raw = np.frombuffer(data, np.uint8)
    stripe = -(-raw.size // 7)
    text = np.zeros(raw.size + stripe, np.uint8)
    low, high = text[: raw.size], text[raw.size :]
    np.bitwise_and(raw, 0x7F, out=low)
    for bit in range(7):
        part = raw[bit * stripe : (bit + 1) * stripe]
        high[: part.size] |= (part >> 7) << bit
    return text.tobytes().decode("ascii")


def from_text(text: str) -> bytes:
    """Return the bytes that :func:`to_text` made a text of.

    Raises
    ------
    StateFormatError
        No bytes have this text.
    """
    coded = np.frombuffer(text.encode(), np.uint8)
    size = coded.size * 7 // 8
    stripe = coded.size - size
    if not text.isascii() or stripe != -(-size // 7):
        raise StateFormatError(f"a state of {len(text)} characters is not what this version writes")
    raw, high = coded[:size].copy(), coded[size:]
    for bit in range(7):
        part = raw[bit * stripe : (bit + 1) * stripe]
        part |= (high[: part.size] >> bit & 1) << 7
    return raw.tobytes()
