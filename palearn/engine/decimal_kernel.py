"""Decimal numbers in bytes to the nearest float64, where a few operations are certain to give it.

What is not certain is left to another reader, so nothing is decided twice: a number that is read here is the one that
Python's ``float`` reads.
"""

import numpy as np

from palearn.learners.jit import inlined

_PLUS, _MINUS, _ZERO, _NINE, _LOWER, _E = *b"+-09", 32, ord("e")

#: Powers of ten that are float64 numbers: an integer of at most 53 bits times or over one is rounded once.
_POWERS = np.array([float(f"1e{k}") for k in range(23)])
EXACT_DIGITS, EXACT_POWER, _EXACT_INTEGER = 18, 22, 2**53
#: Splits a float64 into two of half its bits; the error that a quotient of the integer and its rest surely is below.
_HALVES, _ERROR = 2.0**27 + 1.0, 2.0**-100


@inlined
def begins_exponent(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is ``e`` or ``E``."""
    return byte | _LOWER == _E


@inlined
def is_digit(byte):  # type: ignore[no-untyped-def]
    """Whether a byte is one of 0 to 9."""
    return _ZERO <= byte <= _NINE


@inlined
def digits_from(data, at, integer, digits):  # type: ignore[no-untyped-def]
    """Return the end of a run of digits, the integer that they continue, and its digits without leading zeros."""
    while is_digit(data[at]):
        integer = integer * 10 + np.int64(data[at] - _ZERO)
        digits += digits > 0 or integer != 0  # it may overflow to 0, when it is of no use any more
        at += 1
    return at, integer, digits


@inlined
def exponent(data, at):  # type: ignore[no-untyped-def]
    """Return the end and the value of what follows an ``e``; a value too large for any number where it is none."""
    sign = -1 if data[at] == _MINUS else 1
    if data[at] == _MINUS or data[at] == _PLUS:
        at += 1
    first, value = at, np.int64(0)
    while is_digit(data[at]) and at - first <= 3:
        value = value * 10 + np.int64(data[at] - _ZERO)
        at += 1
    return at, sign * value if 0 < at - first <= 3 else 10_000


@inlined
def _halves(x):  # type: ignore[no-untyped-def]
    high = _HALVES * x - (_HALVES * x - x)
    return high, x - high


@inlined
def _quotient(integer, power):  # type: ignore[no-untyped-def]
    """Return an integer of up to 18 digits over a power of ten, and whether it is certainly the nearest number.

    The remainder of a division is a float64 number; it is found by Dekker's product, and divided in its turn. If
    both ends of what the two quotients can be together are rounded to one number, that is the nearest one.
    """
    whole = float(integer)
    first = whole / power
    product = first * power
    (a, b), (c, d) = _halves(first), _halves(power)
    error = ((a * c - product) + a * d + b * c) + b * d
    second = (((whole - product) - error) + float(integer - np.int64(whole))) / power
    low, high = first + (second - _ERROR * first), first + (second + _ERROR * first)
    return low, low == high


@inlined
def nearest(integer, power):  # type: ignore[no-untyped-def]
    """Return an integer times a power of ten, and whether it is certainly the nearest number."""
    if power == 0 or (power > 0 and integer <= _EXACT_INTEGER):
        return integer * _POWERS[power], True
    if power > 0:
        return 0.0, False
    if integer <= _EXACT_INTEGER:
        return integer / _POWERS[-power], True
    return _quotient(integer, _POWERS[-power])
