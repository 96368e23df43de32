"""Examples as flat arrays: feature names to numbers, records to runs of entries, entries to a key's slots."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numba import njit

from palearn.errors import RecordError
from palearn.records import BIAS, MAX_NAME, Record, is_utf8, name_too_long, too_many_features
from palearn.types import FloatArray, Int32Array, IntArray


class _Names(dict[str, int]):
    """The names of one view: an unknown name gets the next number of all, and is noted if it is refused.

    It holds the vocabulary's lists and not the vocabulary: a circle of the two would stay in memory until the next
    collection, and a worker makes a vocabulary a bucket.
    """

    def __init__(self, names: list[str], refused: dict[int, RecordError], prefix: str) -> None:
        super().__init__()
        self._names, self._refused, self._prefix = names, refused, prefix

    def __missing__(self, name: str) -> int:
        number = self[name] = len(self._names)
        self._names.append(self._prefix + name)
        fault = name_fault(name)
        if fault is not None:
            self._refused[number] = fault
        return number


class Vocabulary:
    """Feature names of a bucket, numbered; one table a view (views' features are named ``VIEW:NAME``).

    Numbers below ``biases`` are the constant features: one for all features and, with views, one a view.
    """

    def __init__(self, views: Sequence[str] = (), *, bias: bool = True) -> None:
        self.views = tuple(views)
        self.names: list[str] = [BIAS, *(f"{view}:{BIAS}" for view in self.views)] if bias else []
        self.biases = len(self.names)
        self.refused: dict[int, RecordError] = {}
        prefixes = [f"{view}:" for view in self.views] or [""]
        self.tables = [_Names(self.names, self.refused, prefix) for prefix in prefixes]

    def load(self, names: Sequence[str]) -> None:
        """Number names that were stored, in their order, after the biases."""
        numbers = range(self.biases, self.biases + len(names))
        self.names += names
        if not self.views:
            self.tables[0].update(zip(names, numbers, strict=True))
            return
        by_view = dict(zip(self.views, self.tables, strict=True))
        for name, number in zip(names, numbers, strict=True):
            view, _, rest = name.partition(":")
            by_view[view][rest] = number

    def forget(self, number: int) -> None:
        """Drop the names from this number on."""
        tables = dict(zip(self.views, self.tables, strict=False))
        for full in self.names[number:]:
            view, _, rest = full.partition(":")
            if self.views:
                del tables[view][rest]
            else:
                del self.tables[0][full]
        del self.names[number:]
        for at in [at for at in self.refused if at >= number]:
            del self.refused[at]


def name_fault(name: str) -> RecordError | None:
    """Return why a feature may not be named so, or None."""
    if len(name) > MAX_NAME:
        return name_too_long(len(name))
    if not is_utf8(name):
        return RecordError("not_utf8", f"the feature name {name[:60]!r} holds half of a surrogate pair")
    return RecordError("reserved_name", f"the feature name {BIAS!r} is the bias's own") if name == BIAS else None


@dataclass
class Flat:
    """The features of n records, record after record and view after view.

    Entries of view ``v`` of record ``i`` are ``bounds[i * views + v] : bounds[i * views + v + 1]``.
    """

    views: int
    bounds: IntArray
    feature: Int32Array
    value: FloatArray

    def take(self, rows: IntArray) -> "Flat":
        """Return the records in the order of ``rows``."""
        bounds, feature, value = _gather(self.views, self.bounds, self.feature, self.value, rows)
        return Flat(self.views, bounds, feature, value)


def concatenate(parts: Sequence[Flat], views: int) -> Flat:
    """Return the records of parts of one vocabulary, one part after the other."""
    ends = np.cumsum([0, *(part.feature.size for part in parts)]).tolist()
    return Flat(
        views,
        np.concatenate([np.zeros(1, np.int64), *(part.bounds[1:] + at for part, at in zip(parts, ends, strict=False))]),
        np.concatenate([np.zeros(0, np.int32), *(part.feature for part in parts)]),
        np.concatenate([np.zeros(0), *(part.value for part in parts)]),
    )


@njit(cache=True)
def _gather(views, bounds, feature, value, rows):  # type: ignore[no-untyped-def]
    total = 0
    for i in rows:
        total += bounds[(i + 1) * views] - bounds[i * views]
    new_bounds = np.zeros(rows.size * views + 1, np.int64)
    new_feature, new_value = np.empty(total, np.int32), np.empty(total)
    at = 0
    for n in range(rows.size):
        for v in range(views):
            j = rows[n] * views + v
            for e in range(bounds[j], bounds[j + 1]):
                new_feature[at], new_value[at] = feature[e], value[e]
                at += 1
            new_bounds[n * views + v + 1] = at
    return new_bounds, new_feature, new_value


def flatten(records: Sequence[Record], vocabulary: Vocabulary, limit: int) -> tuple[Flat, dict[int, RecordError]]:
    """Number the features of ``records``; return them flat, and the faults of records that cannot be used.

    ``limit`` is the most features a record may have. A record with an id may lack views, or be a label alone. A
    faulty record's entries are in the arrays all the same: leave them out with :meth:`Flat.take`.
    """
    tables = vocabulary.tables
    faults: dict[int, RecordError] = {}
    if vocabulary.views:
        parts = [_whole_views(record, vocabulary.views, faults, i) for i, record in enumerate(records)]
        dicts = list(chain.from_iterable(parts))
    else:
        dicts = _whole(records, faults)
    views = len(tables)
    bounds = np.zeros(len(dicts) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, dicts), np.int64, len(dicts)), out=bounds[1:])
    total = int(bounds[-1])
    if views == 1:
        numbers: Iterable[int] = map(tables[0].__getitem__, chain.from_iterable(dicts))
    else:
        numbers = chain.from_iterable(map(tables[j % views].__getitem__, d) for j, d in enumerate(dicts))
    feature = np.fromiter(numbers, np.int32, total)
    value = np.fromiter(chain.from_iterable(map(dict.values, dicts)), np.float64, total)
    flat = Flat(views, bounds, feature, value)
    _check(flat, vocabulary, limit, faults)
    return flat, faults


def _whole(records: Sequence[Record], faults: dict[int, RecordError]) -> list[dict[str, float]]:
    if any(record.views is not None for record in records):
        detail = "the record carries views, but records.views names none"
        faults.update((i, RecordError("bad_view", detail)) for i, x in enumerate(records) if x.views is not None)
    return [record.features or {} for record in records]


def _whole_views(
    record: Record, names: tuple[str, ...], faults: dict[int, RecordError], row: int
) -> list[dict[str, float]]:
    views = record.views
    if views is not None and len(views) == len(names):
        try:
            return [views[name] for name in names]
        except KeyError:
            pass
    if record.id is not None and record.features is None and (views is None or (views and views.keys() <= {*names})):
        return [views.get(name, {}) if views else {} for name in names]
    seen = ", ".join(sorted(views))[:200] if views else "none"
    must = "may carry the views" if record.id is not None else "must carry the views"
    faults[row] = RecordError("bad_view", f"the record {must} {', '.join(names)}; it has {seen}")
    return [{} for _ in names]


def _check(flat: Flat, vocabulary: Vocabulary, limit: int, faults: dict[int, RecordError]) -> None:
    ends = flat.bounds[:: flat.views]
    sizes = np.diff(ends)
    if sizes.size and sizes.max() > limit:
        for row in np.flatnonzero(sizes > limit).tolist():
            faults.setdefault(row, too_many_features(int(sizes[row]), limit))
    finite = np.isfinite(flat.value)
    if not finite.all():
        for entry in np.flatnonzero(~finite).tolist():
            row = int(np.searchsorted(ends, entry, side="right")) - 1
            name = vocabulary.names[flat.feature[entry]]
            detail = f"feature {name[:60]!r} is {flat.value[entry]}, not a finite number"
            faults.setdefault(row, RecordError("non_finite", detail))
    for row, fault in refused_names(flat, vocabulary).items():
        faults.setdefault(row, fault)


def refused_names(flat: Flat, vocabulary: Vocabulary) -> dict[int, RecordError]:
    """Return the records that have a feature whose name is refused, and why."""
    found: dict[int, RecordError] = {}
    if vocabulary.refused:
        ends = flat.bounds[:: flat.views]
        for entry in np.flatnonzero(np.isin(flat.feature, list(vocabulary.refused))).tolist():
            row = int(np.searchsorted(ends, entry, side="right")) - 1
            found.setdefault(row, vocabulary.refused[int(flat.feature[entry])])
    return found


@njit(cache=True)
def learnable(views, bounds, value, bias):  # type: ignore[no-untyped-def]
    """Whether each record has features and a norm that is a positive finite number (the bias counts as one)."""
    n = (bounds.size - 1) // views
    out = np.zeros(n, np.bool_)
    for i in range(n):
        norm = 1.0 if bias else 0.0
        for e in range(bounds[i * views], bounds[(i + 1) * views]):
            norm += value[e] * value[e]
        out[i] = bounds[(i + 1) * views] > bounds[i * views] and 0.0 < norm < np.inf
    return out


@njit(cache=True)
def assign(views, bounds, feature, key, register, first, run_ptr, run, names, limit, slot):  # type: ignore[no-untyped-def]
    """Find each entry's local slot in its key's run of features; number the features a key has not seen.

    Rows from ``first`` on, grouped by key. ``run_ptr`` and ``run`` are the keys' features, ``names`` the size
    of the vocabulary, ``limit`` the most features of a key. Only rows with ``register`` add features; an
    entry without a slot gets -1. Fills ``slot`` and returns (row where it stopped, new features in order of
    keys, new features a key): it stops before the row whose features would pass the limit.
    """
    rows = key.size
    where = np.full(names, -1, np.int32)
    new = np.empty(bounds[rows * views] - bounds[first * views], np.int32)
    added = np.zeros(run_ptr.size - 1, np.int64)
    at = 0
    i = first
    stopped = False
    while i < rows and not stopped:
        k = key[i]
        size = run_ptr[k + 1] - run_ptr[k]
        for s in range(size):
            where[run[run_ptr[k] + s]] = s
        begin = at
        while i < rows and key[i] == k:
            low, high = bounds[i * views], bounds[(i + 1) * views]
            if register[i]:
                fresh = 0
                for e in range(low, high):
                    fresh += where[feature[e]] < 0
                if size + fresh > limit:
                    stopped = True
                    break
                for e in range(low, high):
                    if where[feature[e]] < 0:
                        where[feature[e]] = size
                        new[at] = feature[e]
                        size += 1
                        at += 1
            for e in range(low, high):
                slot[e] = where[feature[e]]
            i += 1
        added[k] = at - begin
        for s in range(run_ptr[k], run_ptr[k + 1]):
            where[run[s]] = -1
        for s in range(begin, at):
            where[new[s]] = -1
    return i, new[:at], added


@njit(cache=True)
def find(views, bounds, feature, key, run_ptr, run, where, slot):  # type: ignore[no-untyped-def]
    """Find each entry's local slot in its key's run of features, -1 for features that the key has not.

    Rows are grouped by key. ``where`` has -1 for every name of the vocabulary, and has so again at the end.
    """
    i = 0
    while i < key.size:
        k = key[i]
        for s in range(run_ptr[k], run_ptr[k + 1]):
            where[run[s]] = s - run_ptr[k]
        while i < key.size and key[i] == k:
            for e in range(bounds[i * views], bounds[(i + 1) * views]):
                slot[e] = where[feature[e]]
            i += 1
        for s in range(run_ptr[k], run_ptr[k + 1]):
            where[run[s]] = -1


@njit(cache=True)
def select(views, bounds, slot, value, first, stop, view, bias):  # type: ignore[no-untyped-def]
    """Return compressed sparse rows of one view (-1: all), and their squared norms.

    The bias's slot (-1: none) is last in each row. Entries without a slot are left out, but for the norm.
    """
    low_view = 0 if view < 0 else view
    high_view = views if view < 0 else view + 1
    n = stop - first
    ptr = np.zeros(n + 1, np.int64)
    norm = np.zeros(n)
    most = bounds[stop * views] - bounds[first * views] + n
    out_slot, out_value = np.empty(most, np.int32), np.empty(most)
    at = 0
    for i in range(n):
        row = (first + i) * views
        for e in range(bounds[row + low_view], bounds[row + high_view]):
            norm[i] += value[e] * value[e]
            if slot[e] >= 0:
                out_slot[at], out_value[at] = slot[e], value[e]
                at += 1
        if bias >= 0:
            norm[i] += 1.0
            out_slot[at], out_value[at] = bias, 1.0
            at += 1
        ptr[i + 1] = at
    return ptr, out_slot[:at], out_value[:at], norm
