"""A bucket's bytes as ASCII text, because Spark hands a state to Python through a pickler that is slow at bytes.

``applyInPandasWithState`` pickles the state row in the JVM. Its pickler turns a byte array into a string a
character at a time and encodes that as UTF-8: a quarter of the JVM's time in this job. A string of ASCII
characters is copied as it is at every step, for an eighth more bytes.

The text of ``n`` bytes is their low seven bits, then ``ceil(n / 7)`` characters that hold the high bits: bit
``k`` of character ``j`` is the high bit of byte ``7 j + k``.
"""

import numpy as np
from numba import njit

from palearn.errors import StateFormatError


def to_text(data: bytes) -> str:
    """Return the text of some bytes."""
    return str(_coded(np.frombuffer(data, np.uint8)).data, "ascii")


def from_text(text: str) -> bytes:
    """Return the bytes that :func:`to_text` made a text of.

    Raises
    ------
    StateFormatError
        No bytes have this text.
    """
    size = len(text) * 7 // 8
    if not text.isascii() or len(text) != size + -(-size // 7):
        raise StateFormatError(f"a state of {len(text)} characters is not what this version writes")
    raw: bytes = _decoded(np.frombuffer(text.encode(), np.uint8), size).tobytes()
    return raw


@njit(cache=True)
def _coded(raw):  # type: ignore[no-untyped-def]
    n = raw.size
    out = np.empty(n + (n + 6) // 7, np.uint8)
    for i in range(n):
        out[i] = raw[i] & 0x7F
    for j in range(out.size - n):
        bits = 0
        for k in range(min(7, n - 7 * j)):
            bits |= (raw[7 * j + k] >> 7) << k
        out[n + j] = bits
    return out


@njit(cache=True)
def _decoded(coded, n):  # type: ignore[no-untyped-def]
    out = np.empty(n, np.uint8)
    for j in range(coded.size - n):
        bits = coded[n + j]
        for k in range(min(7, n - 7 * j)):
            out[7 * j + k] = coded[7 * j + k] | ((bits >> k) & 1) << 7
    return out
