"""The kernel that reads LIBSVM text: lines of bytes to flat arrays, if they are plain; it refuses all others.

A plain line is ASCII: a label that is known and has at most 8 characters; features ``index:value``, the index
written as an integer, each once, the value a decimal number that is certainly finite; perhaps a comment. What a
refused line means, if anything, is for the careful reader (:mod:`palearn.files.libsvm`) to say. So nothing is
decided twice: what is read here is what Python's ``split`` and ``float`` would read.
"""

from typing import NamedTuple

import numpy as np

from palearn.engine.decimal_kernel import (
    EXACT_DIGITS,
    EXACT_POWER,
    begins_exponent,
    digits_from,
    exponent,
    is_digit,
    nearest,
)
from palearn.learners.jit import inlined, kernel
from palearn.types import FloatArray, Int32Array, IntArray

#: Why the kernel stopped: at the end, before a line that is not plain, before one that needs a larger table.
END, REFUSED, CROWDED = range(3)
_BLANK = 3  # a line without a row

#: A label may have this many bytes (they are one integer); an index so many digits (so is it).
LABEL_BYTES, INDEX_DIGITS = 8, 18
#: Spreads keys over a table: 2^64 over the golden ratio, as a signed integer.
SPREAD = -7046029254386353131

# A number is bad, exactly an integer times or over a power of ten, or left to Python.
_BAD, _EXACT, _LATE = range(3)
_TAB, _NEWLINE, _RETURN, _SPACE, _HASH, _PLUS, _MINUS, _POINT, _ZERO, _COLON = b"\t\n\r #+-.0:"
_DELETE = 127

#: At most so many digits with so large an exponent are below 1e300.
_LATE_DIGITS, _LATE_POWER = 50, 250


class Table(NamedTuple):
    """Keys in 2^k places, found by their hash and then one place after the other.

    ``number`` is -1 where a place is free; ``line`` is the last line that named the key.
    """

    key: IntArray
    number: Int32Array
    line: IntArray


class Rows(NamedTuple):
    """Where rows are written: labels, bounds, features, values, and the values (entry, from, to) left to Python."""

    code: Int32Array
    bounds: IntArray
    feature: Int32Array
    value: FloatArray
    late: IntArray


class Place(NamedTuple):
    """How far the reading is: bytes, attempts at a line, lines, rows, entries, late values, new indices."""

    at: int
    attempt: int
    line: int
    row: int
    entry: int
    late: int
    new: int


def table(places: int) -> Table:
    """Return an empty table."""
    return Table(np.zeros(places, np.int64), np.full(places, -1, np.int32), np.zeros(places, np.int64))


def insert(into: Table, key: int, number: int) -> None:
    """Put a new key into a table that has room."""
    last = into.key.size - 1
    place = (key * SPREAD >> 32) & last
    while into.number[place] >= 0:
        place = (place + 1) & last
    into.key[place], into.number[place] = key, number


@inlined
def _find(table, key):  # type: ignore[no-untyped-def]
    """Return the place of a key, or the free one where it would be."""
    last = table.key.size - 1
    place = (key * SPREAD >> 32) & last
    while table.number[place] >= 0 and table.key[place] != key:
        place = (place + 1) & last
    return place


@inlined
def _is_space(byte):  # type: ignore[no-untyped-def]
    return byte == _SPACE or byte == _TAB or byte == _RETURN


@inlined
def _word_ends(byte):  # type: ignore[no-untyped-def]
    return _is_space(byte) or byte == _NEWLINE or byte == _HASH


@inlined
def _after_spaces(data, at):  # type: ignore[no-untyped-def]
    while _is_space(data[at]):
        at += 1
    return at


@inlined
def _label(data, at):  # type: ignore[no-untyped-def]
    """Return the end of a label and its bytes as an integer, 0 where it is none."""
    first = at
    word = np.int64(0)
    while _SPACE < data[at] < _DELETE and data[at] != _COLON and data[at] != _HASH:
        word = (word << 8) | np.int64(data[at])
        at += 1
    return at, word if at - first <= LABEL_BYTES and _word_ends(data[at]) else np.int64(0)


@inlined
def _index(data, at):  # type: ignore[no-untyped-def]
    """Return where the value begins, and the index before it, -1 where it is none."""
    first = at
    index = np.int64(0)
    while is_digit(data[at]) and at - first <= INDEX_DIGITS:
        index = index * 10 + np.int64(data[at] - _ZERO)
        at += 1
    digits = at - first
    as_written = digits == 1 or data[first] != _ZERO
    return at + 1, index if 0 < digits <= INDEX_DIGITS and as_written and data[at] == _COLON else np.int64(-1)


@inlined
def _number(data, at):  # type: ignore[no-untyped-def]
    """Return the end of a number, which of _BAD, _EXACT, _LATE it is, and its value if it is exact."""
    negative = data[at] == _MINUS
    if negative or data[at] == _PLUS:
        at += 1
    first = at
    at, integer, digits = digits_from(data, at, np.int64(0), 0)
    written, power = at - first, 0
    if data[at] == _POINT:
        first = at + 1
        at, integer, digits = digits_from(data, first, integer, digits)
        power = first - at
        written -= power
    if begins_exponent(data[at]):
        at, tens = exponent(data, at + 1)
        power += tens
    if written == 0 or digits > _LATE_DIGITS or abs(power) > _LATE_POWER:
        return at, _BAD, 0.0
    if digits > EXACT_DIGITS or abs(power) > EXACT_POWER:
        return at, _LATE, 0.0
    value, certain = nearest(integer, power)
    return at, _EXACT if certain else _LATE, -value if negative else value


@inlined
def _after_comment(data, at):  # type: ignore[no-untyped-def]
    """Return the end of the line, -1 where it holds anything but ASCII."""
    while data[at] != _NEWLINE:
        if data[at] > _DELETE:
            return -1
        at += 1
    return at


@inlined
def _line(data, here, most, add, labels, indices, fresh, first_number, rows):  # type: ignore[no-untyped-def]
    """Read one line; return how it went, its end, and the counts of entries, late values and new indices."""
    entry, late, new = here.entry, here.late, here.new
    at = _after_spaces(data, here.at)
    if data[at] == _NEWLINE:
        return _BLANK, at, entry, late, new
    at, word = _label(data, at)
    label = labels.number[_find(labels, word)]
    if label < 0:
        return REFUSED, at, entry, late, new
    rows.code[here.row] = label
    while True:
        at = _after_spaces(data, at)
        if data[at] == _HASH:
            at = _after_comment(data, at)
            return END if at >= 0 else REFUSED, at, entry, late, new
        if data[at] == _NEWLINE:
            return END, at, entry, late, new
        at, index = _index(data, at)
        place = _find(indices, index)
        if indices.number[place] < 0:
            if index < 0 or not add:
                return REFUSED, at, entry, late, new
            if 2 * (first_number + new) >= indices.number.size:
                return CROWDED, at, entry, late, new
            indices.key[place], indices.number[place] = index, first_number + new
            fresh[new] = index
            new += 1
        begin = at
        at, kind, value = _number(data, at)
        twice = indices.line[place] == here.attempt
        if kind == _BAD or twice or not _word_ends(data[at]) or entry - here.entry == most:
            return REFUSED, at, entry, late, new
        indices.line[place] = here.attempt
        rows.feature[entry], rows.value[entry] = indices.number[place], value
        if kind == _LATE:
            rows.late[3 * late], rows.late[3 * late + 1], rows.late[3 * late + 2] = entry, begin, at
            late += 1
        entry += 1


@kernel
def scan(data, size, here, longest, most, add, labels, indices, fresh, first_number, rows):  # type: ignore[no-untyped-def]
    """Read lines until one is not plain; return why it stopped, and where.

    ``data`` ends with a newline, which may be one more byte than its ``size``. ``longest`` are the bytes of a
    line and ``most`` the features of a row that are allowed. With ``add``, indices that are new are numbered from
    ``first_number`` and put into ``indices`` and ``fresh``; numbers below it may be anyone's.
    """
    at, attempt, line, row, entry, late, new = here
    while at < size:
        attempt += 1
        now = Place(at, attempt, line, row, entry, late, new)
        how, end, last, last_late, new = _line(data, now, most, add, labels, indices, fresh, first_number, rows)
        if (how == END or how == _BLANK) and end + 1 - at > longest:
            how = REFUSED
        if how == REFUSED or how == CROWDED:
            return how, Place(at, attempt, line, row, entry, late, new)
        at = end + 1
        line += 1
        if how == END:
            row += 1
            entry, late = last, last_late
            rows.bounds[row] = entry
    return END, Place(min(at, size), attempt, line, row, entry, late, new)
