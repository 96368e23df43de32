"""The kernel that reads plain JSON records: bytes to flat arrays, without an object a record; it refuses all others.

A plain record is ASCII without escapes: an object of ``features``, names to numbers, each name once, and perhaps a
``label``; blanks are its only white space. What a refused record holds is for :mod:`palearn.records` to say, so nothing
is decided twice: what is read here is what the decoder there reads.
"""

from typing import NamedTuple

import numpy as np

from palearn.engine.decimal_kernel import (
    EXACT_DIGITS,
    EXACT_POWER,
    begins_exponent,
    digits_from,
    exponent,
    nearest,
)
from palearn.learners.jit import inlined, kernel
from palearn.types import FloatArray, Int32Array, IntArray

_SPACE, _QUOTE, _COMMA, _MINUS, _POINT, _ZERO, _COLON, _BACKSLASH, _OPEN, _CLOSE = b' ",-.0:\\{}'
_DELETE = 127
_LABEL, _FEATURES = (np.frombuffer(name, np.uint8) for name in (b"label", b"features"))
#: A text is hashed a byte at a time (Fowler, Noll and Vo), and looked for in so many places.
_OFFSET, _PRIME, _MOST_PROBES = -3750763034362895579, 1099511628211, 64
#: How a record went, where it is not the count of its features.
_REFUSED, _CROWDED = -1, -2


class Texts(NamedTuple):
    """Different texts in bytes, numbered in their order: an open hash table of 2^k places, at most half of them taken.

    ``place`` holds numbers, -1 where it is free; ``hash``, ``begin`` and ``size`` are a text's, ``last``
    the record that named it last.
    """

    place: Int32Array
    hash: IntArray
    begin: IntArray
    size: Int32Array
    last: IntArray


class Rows(NamedTuple):
    """Where records are written: whether each is plain, its label's number, where its features end, these."""

    plain: Int32Array
    label: Int32Array
    bounds: IntArray
    feature: Int32Array
    value: FloatArray


def texts(places: int) -> Texts:
    """Return an empty table of so many places, a power of two."""
    room = places // 2
    return Texts(
        np.full(places, -1, np.int32),
        np.empty(room, np.int64),
        np.empty(room, np.int64),
        np.empty(room, np.int32),
        np.full(room, -1),
    )


@kernel
def enlarge(old, new, count):  # type: ignore[no-untyped-def]
    """Copy a table of ``count`` texts into a larger one that is empty."""
    last = new.place.size - 1
    for number in range(count):
        new.hash[number], new.begin[number] = old.hash[number], old.begin[number]
        new.size[number], new.last[number] = old.size[number], old.last[number]
        place = (old.hash[number] ^ (old.hash[number] >> 32)) & last
        while new.place[place] >= 0:
            place = (place + 1) & last
        new.place[place] = number


@inlined
def _spaces(data, at):  # type: ignore[no-untyped-def]
    while data[at] == _SPACE:
        at += 1
    return at


@inlined
def _text(data, at):  # type: ignore[no-untyped-def]
    """Return where the quote after a text stands, -1 if it is not plain, and the text's hash."""
    hashed = np.int64(_OFFSET)
    while data[at] != _QUOTE:
        byte = data[at]
        if byte < _SPACE or byte > _DELETE or byte == _BACKSLASH:
            return -1, hashed
        hashed = (hashed ^ np.int64(byte)) * np.int64(_PRIME)
        at += 1
    return at, hashed


@inlined
def _word(data, at):  # type: ignore[no-untyped-def]
    """Return the end of a label that is no text, and its hash."""
    hashed = np.int64(_OFFSET)
    while _SPACE < data[at] <= _DELETE and data[at] != _COMMA and data[at] != _CLOSE:
        hashed = (hashed ^ np.int64(data[at])) * np.int64(_PRIME)
        at += 1
    return at, hashed


@inlined
def _is(data, begin, end, name):  # type: ignore[no-untyped-def]
    if end - begin != name.size:
        return False
    for i in range(name.size):
        if data[begin + i] != name[i]:
            return False
    return True


@inlined
def _number_of(table, count, data, begin, end, hashed):  # type: ignore[no-untyped-def]
    """Return a text's number, ``count`` if it is new, or -1 where it would take too long to find."""
    last = table.place.size - 1
    place = (hashed ^ (hashed >> 32)) & last
    for _ in range(_MOST_PROBES):
        number = table.place[place]
        if number < 0:
            table.place[place] = count
            table.hash[count], table.begin[count], table.size[count] = hashed, begin, end - begin
            table.last[count] = -1
            return count
        if table.hash[number] == hashed and table.size[number] == end - begin:
            first, same = table.begin[number], True
            for i in range(end - begin):
                if data[first + i] != data[begin + i]:
                    same = False
                    break
            if same:
                return number
        place = (place + 1) & last
    return -1


@inlined
def _number(data, at):  # type: ignore[no-untyped-def]
    """Return the end of a number, -1 where it is none or its nearest float64 is not certain, and its value."""
    negative = data[at] == _MINUS
    first = at + 1 if negative else at
    at, integer, digits = digits_from(data, first, np.int64(0), 0)
    if at == first or (data[first] == _ZERO and at - first > 1):
        return -1, 0.0
    power = 0
    if data[at] == _POINT:
        first = at + 1
        at, integer, digits = digits_from(data, first, integer, digits)
        power = first - at
        if power == 0:
            return -1, 0.0
    if begins_exponent(data[at]):
        at, tens = exponent(data, at + 1)
        power += tens
    if digits > EXACT_DIGITS or abs(power) > EXACT_POWER or (negative and integer == 0):
        return -1, 0.0
    value, certain = nearest(integer, power)
    return at if certain else -1, -value if negative else value


@inlined
def _features(data, at, row, most, names, count, rows, entry):  # type: ignore[no-untyped-def]
    """Read features after their brace; return where they end (or how it went), how many, and the count of names."""
    first = entry
    while True:
        at = _spaces(data, at)
        if data[at] != _QUOTE or entry - first == most:
            return _REFUSED, 0, count
        if 2 * (count + 1) > names.place.size:
            return _CROWDED, 0, count
        end, hashed = _text(data, at + 1)
        if end < 0:
            return _REFUSED, 0, count
        number = _number_of(names, count, data, at + 1, end, hashed)
        if number < 0 or names.last[number] == row:
            return _REFUSED, 0, count
        count += number == count
        names.last[number] = row
        at = _spaces(data, end + 1)
        if data[at] != _COLON:
            return _REFUSED, 0, count
        at, value = _number(data, _spaces(data, at + 1))
        if at < 0:
            return _REFUSED, 0, count
        rows.feature[entry], rows.value[entry] = number, value
        entry += 1
        at = _spaces(data, at)
        if data[at] == _CLOSE:
            return at + 1, entry - first, count
        if data[at] != _COMMA:
            return _REFUSED, 0, count
        at += 1


@inlined
def _label(data, at, labels, count):  # type: ignore[no-untyped-def]
    """Read a label; return its end (or how it went), its number, and the count of labels."""
    if 2 * (count + 1) > labels.place.size:
        return _CROWDED, -1, count
    if data[at] == _QUOTE:
        end, hashed = _text(data, at + 1)
        end += end >= 0
    else:
        end, hashed = _word(data, at)
    if end <= at:
        return _REFUSED, -1, count
    number = _number_of(labels, count, data, at, end, hashed)
    return end if number >= 0 else _REFUSED, number, count + (number == count)


@inlined
def _record(data, at, stop, row, most, names, n_names, labels, n_labels, rows, entry):  # type: ignore[no-untyped-def]
    """Read one record; return the count of its features (or how it went), its label, the counts of names and labels."""
    size, label = 0, -1
    at = _spaces(data, at)
    if data[at] != _OPEN:
        return _REFUSED, label, n_names, n_labels
    while True:
        at = _spaces(data, at + 1)
        if data[at] != _QUOTE:
            return _REFUSED, label, n_names, n_labels
        begin = at + 1
        end, _ = _text(data, begin)
        if end < 0:
            return _REFUSED, label, n_names, n_labels
        at = _spaces(data, end + 1)
        if data[at] != _COLON:
            return _REFUSED, label, n_names, n_labels
        at = _spaces(data, at + 1)
        if label < 0 and _is(data, begin, end, _LABEL):
            at, label, n_labels = _label(data, at, labels, n_labels)
        elif size == 0 and data[at] == _OPEN and _is(data, begin, end, _FEATURES):
            at, size, n_names = _features(data, at + 1, row, most, names, n_names, rows, entry)
        else:
            return _REFUSED, label, n_names, n_labels
        if at < 0:
            return at, label, n_names, n_labels
        at = _spaces(data, at)
        if data[at] == _CLOSE:
            whole = size > 0 and _spaces(data, at + 1) == stop
            return size if whole else _REFUSED, label, n_names, n_labels
        if data[at] != _COMMA:
            return _REFUSED, label, n_names, n_labels


@kernel
def scan(data, begin, stop, row, most, names, n_names, labels, n_labels, rows):  # type: ignore[no-untyped-def]
    """Read records ``begin[i] : stop[i]`` from ``row`` on; return where it stopped, and the counts of names and labels.

    A byte below the blank follows each record. It stops at the end, or where a table is full. ``most`` are the features
    of a record that are allowed.
    """
    while row < begin.size:
        entry = rows.bounds[row]
        size, label, n_names, n_labels = _record(
            data, begin[row], stop[row], row, most, names, n_names, labels, n_labels, rows, entry
        )
        if size == _CROWDED:
            # Its names are read once more.
            for i in range(n_names):
                if names.last[i] == row:
                    names.last[i] = -1
            return row, n_names, n_labels
        rows.plain[row] = size > 0
        rows.label[row] = label if size > 0 else -1
        row += 1
        rows.bounds[row] = entry + max(size, 0)
    return row, n_names, n_labels
