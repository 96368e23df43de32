"""Runs of items, one a key, that stand one after the other in one array.

Pointers (:func:`palearn.learners.pointers`) say where each run begins, and where the last one ends.
"""

from collections.abc import Sequence

import numpy as np
from numba import njit

from palearn.learners import pointers
from palearn.types import IntArray


def joined(pointers_: Sequence[IntArray]) -> IntArray:
    """Return the pointers of runs that stand one after the other."""
    return pointers(np.concatenate([np.diff(ptr) for ptr in pointers_]))


def extended(ptr: IntArray, keys: int) -> IntArray:
    """Return pointers with empty runs for keys that are new."""
    return np.concatenate([ptr, np.full(keys + 1 - ptr.size, ptr[-1])])


@njit(cache=True)
def spread(old, old_ptr, new_ptr):  # type: ignore[no-untyped-def]
    """Copy each run to the start of its new, longer run; the rest is 0."""
    out = np.zeros(new_ptr[-1], old.dtype)
    for k in range(new_ptr.size - 1):
        for j in range(old_ptr[k + 1] - old_ptr[k]):
            out[new_ptr[k] + j] = old[old_ptr[k] + j]
    return out


@njit(cache=True)
def take(old, old_ptr, keep, new_ptr):  # type: ignore[no-untyped-def]
    """Copy the runs of the keys kept."""
    out = np.empty(new_ptr[-1], old.dtype)
    for i in range(keep.size):
        for j in range(new_ptr[i + 1] - new_ptr[i]):
            out[new_ptr[i] + j] = old[old_ptr[keep[i]] + j]
    return out


@njit(cache=True)
def append(old, old_ptr, new, added_ptr, new_ptr):  # type: ignore[no-untyped-def]
    """Copy each run and append its key's new items."""
    out = np.empty(new_ptr[-1], old.dtype)
    for k in range(new_ptr.size - 1):
        at = new_ptr[k]
        for j in range(old_ptr[k], old_ptr[k + 1]):
            out[at] = old[j]
            at += 1
        for j in range(added_ptr[k], added_ptr[k + 1]):
            out[at] = new[j]
            at += 1
    return out


@njit(cache=True)
def ranges(start, size):  # type: ignore[no-untyped-def]
    """Return the pointers and the positions of runs that begin at ``start`` and have ``size`` items."""
    out = np.zeros(start.size + 1, np.int32)
    for i in range(start.size):
        out[i + 1] = out[i] + size[i]
    at = np.empty(out[-1], np.int64)
    for i in range(start.size):
        for j in range(size[i]):
            at[out[i] + j] = start[i] + j
    return out, at
