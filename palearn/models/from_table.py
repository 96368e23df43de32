"""Warm start: models made from the rows of a models table."""

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit

from palearn.errors import ConfigError
from palearn.learners import Learner, drift_test, pointers
from palearn.learners.arrays import Layout
from palearn.learners.families import SIGMA, WEIGHTS
from palearn.models import codec
from palearn.models.counters import CALIBRATION, UPDATED_BATCH
from palearn.models.keyed import Models
from palearn.models.labels import Known, default_labels, texts_of
from palearn.models.state import LearnerState, Settings
from palearn.records import Label, label_text
from palearn.types import IntArray

#: The batch that models which a job begins with stand for.
BEFORE = -1
#: What is read of a models table.
COLUMNS = ("key", "learner", "params", "labels", "features", "weights", "variances", "calibration")


def require_known_format(version: int | None, where: str = "") -> None:
    """Raise a ConfigError if rows of a models table are of a format that only a newer palearn knows; None: no rows."""
    if version is not None and version > codec.VERSION:
        raise ConfigError(f"the models{where} were written by a newer palearn (format {version}): upgrade palearn")


def require_readable(learners: Sequence[Learner]) -> None:
    """Raise a ConfigError for a learner that keeps more than a models table has: weights and their variances."""
    for learner in learners:
        more = [spec.name for spec in learner.arrays if spec.name not in (WEIGHTS.name, SIGMA, drift_test.STATE.name)]
        if more:
            raise ConfigError(
                f"learner {learner.name!r} cannot begin with a models table, which has no {' and no '.join(more)}: "
                "give the checkpoint of a stopped job to --warm-start, or give the learner a name that the table "
                "does not have, and it starts at zero"
            )


def from_table(rows: pa.Table, settings: Settings, learners: Sequence[Learner]) -> Models:
    """Return the models of a models table's rows, one a key and learner (matched by its name).

    Weights, variances and labels are the rows'; counts, metrics and tests for drift begin at 0. A learner that a key
    has no row of, and the variances of one that had none, begin as they do for a new key.

    Raises
    ------
    ConfigError
        The rows do not fit the settings, or contradict themselves.
    """
    models = _columnwise(rows, settings, learners)
    if models is None:
        models = _row_by_row(rows, settings, learners)
    models.counts[:, UPDATED_BATCH] = BEFORE
    return models


def _row_by_row(rows: pa.Table, settings: Settings, learners: Sequence[Learner]) -> Models:
    """Return the models of any rows: learners may lack some keys, or know only some of a key's features."""
    table: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows.select(COLUMNS).to_pylist():
        table[row["key"], row["learner"]] = row
    models = Models(settings, learners)
    keys = sorted({key for key, _ in table})
    models.add_keys(keys)
    biases = {name: j for j, name in enumerate(models.vocabulary.names)}
    number, new, slots = dict(biases), list[int](), list[dict[str, int]]()
    for k, key in enumerate(keys):
        slot = dict(biases)
        for row in (table[key, x.name] for x in learners if (key, x.name) in table):
            _require_same(row["params"], settings)
            models.labels[k] = _known(row["labels"], settings)
            for name in row["features"]:
                if name not in slot:
                    slot[name] = len(slot)
                    new.append(number.setdefault(name, len(number)))
        slots.append(slot)
    names = list(number)[len(biases) :]
    _require_views(names, settings)
    models.vocabulary.load(names)
    models.hold_keys(np.array(new, np.int32), np.array([len(slot) - len(biases) for slot in slots], np.int64))
    for k, key in enumerate(keys):
        for learner, state in zip(learners, models.states, strict=True):
            if (key, learner.name) in table:
                row = table[key, learner.name]
                if row["calibration"] is not None:
                    _calibrate(row, state.sums[k])
                at = [slots[k][name] for name in row["features"]]
                for array, column in ((WEIGHTS.name, "weights"), (SIGMA, "variances")):
                    if array in state.arrays and (column == "weights" or row[column] is not None):
                        _put(models, k, state.arrays[array], at, row, column)
    return models


class _Lists(NamedTuple):
    """A column of lists: where each begins, the numbers or texts of all, and how many lists are null."""

    ptr: IntArray
    values: pa.Array
    nulls: int

    def same(self, other: "_Lists") -> bool:
        """Whether the lists are equal."""
        return np.array_equal(self.ptr, other.ptr) and bool(self.values.equals(other.values))


def _columnwise(rows: pa.Table, settings: Settings, learners: Sequence[Learner]) -> Models | None:
    """Return the models of rows that have the same features for all learners of a key, without a loop over them.

    None: the rows are not so, or something is wrong with them, which :func:`_row_by_row` says.
    """
    parts = [_sorted(rows.filter(pc.equal(rows.column("learner"), learner.name))) for learner in learners]
    if not parts or not parts[0].num_rows or rows.num_rows != len(parts) * parts[0].num_rows:
        return None
    keys, features = parts[0].column("key"), _lists(parts[0], "features")
    if any(not part.column("key").equals(keys) or not features.same(_lists(part, "features")) for part in parts[1:]):
        return None
    models, names = Models(settings, learners), features.values.dictionary_encode()
    known, biases = names.dictionary.to_pylist(), models.vocabulary.biases
    number = np.asarray(names.indices).astype(np.int32) if not names.null_count else np.zeros(0, np.int32)
    regular = known[:biases] == models.vocabulary.names and number.size == features.ptr[-1]
    if not regular or not _is_regular(features.ptr, number, len(known), biases) or len(pc.unique(keys)) != len(keys):
        return None
    for part in parts:
        for params in part.column("params").unique().to_pylist():
            _require_same(params, settings)
    models.add_keys(keys.to_pylist())
    labels = [tuple(texts) for texts in parts[-1].column("labels").to_pylist()]
    meaning = {texts: _known(list(texts), settings) for texts in dict.fromkeys(labels)}
    models.labels = [meaning[texts] for texts in labels]
    _require_views(known[biases:], settings)
    models.vocabulary.load(known[biases:])
    models.hold_keys(number[number >= biases], np.diff(features.ptr) - biases)
    return models if all(map(partial(_filled, models.layout), parts, models.states)) else None


def _filled(layout: Layout, rows: pa.Table, state: LearnerState) -> bool:
    """Put a learner's rows, one a key, into its arrays; False: they do not fit."""
    for array, column in ((WEIGHTS.name, "weights"), (SIGMA, "variances")):
        if array not in state.arrays:
            continue
        ptr, values, nulls = _lists(rows, column)
        if nulls == rows.num_rows and column == "variances":
            continue
        if nulls or values.null_count or not np.array_equal(ptr, layout.start):
            return False
        numbers = np.asarray(values)
        if not np.isfinite(numbers).all():
            return False
        state.arrays[array] = _feature_major(numbers, layout.start, layout.blocks)
    ptr, values, nulls = _lists(rows, "calibration")
    if nulls == rows.num_rows:
        return True
    numbers, width = np.asarray(values), state.sums[:, CALIBRATION].shape[1]
    if nulls or values.null_count or (np.diff(ptr) != width).any() or not np.isfinite(numbers).all():
        return False
    state.sums[:, CALIBRATION] = numbers.reshape(-1, width)
    return True


def _sorted(rows: pa.Table) -> pa.Table:
    """Return rows in the order of their keys."""
    return rows.take(pc.sort_indices(rows.column("key")))


def _lists(rows: pa.Table, name: str) -> _Lists:
    column = rows.column(name)
    sizes = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
    values = pc.list_flatten(column)
    return _Lists(pointers(sizes), values.combine_chunks(), column.null_count)


@njit(cache=True)
def _is_regular(ptr, feature, names, biases):  # type: ignore[no-untyped-def]
    """Whether each key has the biases first, and no feature twice."""
    seen = np.full(names, -1, np.int64)
    for k in range(ptr.size - 1):
        if ptr[k + 1] - ptr[k] < biases:
            return False
        for i in range(ptr[k], ptr[k + 1]):
            at = i - ptr[k]
            if seen[feature[i]] == k or (at < biases and feature[i] != at) or (at >= biases and feature[i] < biases):
                return False
            seen[feature[i]] = k
    return True


@njit(cache=True)
def _feature_major(values, start, blocks):  # type: ignore[no-untyped-def]
    """Return each key's values, which are label after label, feature after feature."""
    out = np.empty(values.size)
    for k in range(blocks.size):
        low, labels = start[k], blocks[k]
        features = (start[k + 1] - low) // labels if labels else 0
        for b in range(labels):
            for f in range(features):
                out[low + f * labels + b] = values[low + b * features + f]
    return out


def _calibrate(row: dict[str, Any], sums: Any) -> None:
    """Take what calibrates a key's scores, if it can."""
    numbers = np.array(row["calibration"], np.float64)
    if numbers.shape != sums[CALIBRATION].shape or not np.isfinite(numbers).all():
        raise ConfigError(f"the calibration of key {row['key']!r:.80} and learner {row['learner']!r} cannot be")
    sums[CALIBRATION] = numbers


def _put(models: Models, k: int, array: Any, at: list[int], row: dict[str, Any], column: str) -> None:
    """Write label-major values of some of a key's features into an array of the shape of the weights."""
    blocks = int(models.layout.blocks[k])
    values = np.array(row[column], np.float64)
    if values.size != blocks * len(set(at)) or len(set(at)) != len(at) or not np.isfinite(values).all():
        raise ConfigError(
            f"the {column} of key {row['key']!r:.80} and learner {row['learner']!r} are not one finite number for each "
            "label and feature of their row"
        )
    run = array[models.layout.start[k] : models.layout.start[k + 1]].reshape(-1, blocks)
    run[at] = values.reshape(blocks, len(at)).T


def _known(labels: list[str | None], settings: Settings) -> Known:
    """Return the labels that a key knows; they are compared as texts, so that numbers may stay texts."""
    if settings.task == "multiclass":
        return tuple(labels)
    negative, positive = labels
    if settings.positive is not None:
        if positive != label_text(settings.positive):
            raise ConfigError(
                f"the models' positive class is {positive!r:.80}, records.positive is {settings.positive!r:.80}"
            )
        return negative, settings.positive
    known: list[Label] = [_signed(label) for label in labels]
    for side in (0, 1):
        # What no record has named yet stands in the table by its default; the next record may name it otherwise.
        unnamed = [None if i == side else label for i, label in enumerate(known)]
        if texts_of(default_labels(unnamed)) == labels:
            known = unnamed
    return tuple(known)


def _signed(text: str | None) -> Label:
    """Return the number or boolean that a text of the table stands for."""
    label: Label = text
    if text in ("true", "false"):
        return text == "true"
    try:
        label = float(str(text))
        if label.is_integer() and -(2**63) <= int(str(text)) < 2**63:
            label = int(str(text))
    except (ValueError, OverflowError):
        pass
    if isinstance(label, str) or label is None or not math.isfinite(label) or label_text(label) != text:
        raise ConfigError(f"the models' labels are text ({text!r:.80}): set records.positive, the positive class")
    return label


def _require_same(params: str, settings: Settings) -> None:
    """Raise a ConfigError if the models were learned on another task, or with or without a bias."""
    theirs = msgspec.json.decode(params)
    for name in ("task", "bias"):
        mine = getattr(settings, name)
        if theirs[name] != mine:
            raise ConfigError(
                f"the models were learned with records.{name} {theirs[name]}, the configuration has {mine}"
            )


def _require_views(names: Sequence[str], settings: Settings) -> None:
    """Raise a ConfigError if a feature is of none of the views."""
    for name in names if settings.views else ():
        if name.partition(":")[0] not in settings.views or ":" not in name:
            views = ", ".join(settings.views)
            raise ConfigError(f"the models have a feature {name!r:.80}, which is of none of records.views ({views})")
