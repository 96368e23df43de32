"""The short way of one example into one model: no record, no batch, only what can be new in it.

What a model has found once, it need not search for again: the places of its features and the classes of its labels.
An example of plain numbers with a label that is known is a row at once. Any other, and any that something may be
wrong with, goes the long way of a batch of one record, where all is checked and said.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numba import njit

from palearn.learners import Outcome, Rows, empty_outcome
from palearn.models.keyed import Models
from palearn.models.vectorize import learnable, name_fault, select
from palearn.records import LabelValue
from palearn.types import BoolArray, FloatArray, Int32Array, IntArray

#: Types of values that are numbers as they are.
_NUMBERS = frozenset((float, int, bool, np.float64, np.float32, np.int64, np.int32, np.bool_))
#: Parts of a row that never change: its key, no label, whether it is learned, no weight of its own.
_KEY, _NO_LABEL, _ONE = np.zeros(1, np.int64), np.full(1, -1, np.int64), np.ones(1)
_LEARN, _SCORE = np.ones(1, np.bool_), np.zeros(1, np.bool_)


class FastPath:
    """Examples to rows of a model of one key, one learner and no views.

    Parameters
    ----------
    models
        The model; it has at most one key.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._slots: dict[str, int] = {}
        self._classes: dict[tuple[type, LabelValue], IntArray] = {}
        self._bias = 0 if models.settings.bias else -1
        self._known = np.zeros(1, np.int64)
        self._evicted = models.features_evicted
        self._outcome = empty_outcome(1)
        self._find()

    def found(self, label: LabelValue, number: IntArray) -> None:
        """Take up what the model found when it learned an example: its features, and the label's class number."""
        self._find()
        if self._known[0]:
            self._classes[type(label), label] = number

    def learn(self, x: Mapping[str, Any], label: LabelValue, weight: float | None) -> bool:
        """Learn an example with a checked label; returns whether it could, else nothing has changed."""
        number = self._classes.get((type(label), label))
        if number is None:
            return False
        row = self._row(x, number, _LEARN, _ONE if weight is None else np.array([weight]))
        if row is None:
            return False
        self._models.learn_row(row, [self._outcome])
        return True

    def score(self, x: Mapping[str, Any]) -> Outcome | None:
        """Score features; None where they have to go the long way."""
        row = self._row(x, _NO_LABEL, _SCORE, _ONE) if self._known[0] else None
        if row is None:
            return None
        models = self._models
        out = empty_outcome(1, int(self._known[0]))
        models.learners[0].run([row], models.layout, models.states[0].arrays, out)
        return out

    def _find(self) -> None:
        models, vocabulary = self._models, self._models.vocabulary
        if not models.keys or vocabulary.views:
            return
        if models.features_evicted != self._evicted:
            self._slots, self._evicted = {}, models.features_evicted
        held = vocabulary.biases + len(self._slots)
        names = [vocabulary.names[j] for j in models.feature[held:].tolist()]
        self._slots.update(zip(names, range(held, held + len(names)), strict=True))
        self._known = np.full(1, len(models.labels[0]))
        if models.settings.task == "multiclass":  # calibration wants every class's score
            self._outcome = empty_outcome(1, len(models.labels[0]))

    def _row(self, x: Mapping[str, Any], y: IntArray, learn: BoolArray, weight: FloatArray) -> Rows | None:
        try:
            numbers, size = x.values(), len(x)
            if not {*map(type, numbers)} <= _NUMBERS:
                return None
            value = np.fromiter(numbers, np.float64, size)
        except (AttributeError, TypeError, OverflowError):  # no mapping, or an integer beyond all floats
            return None
        try:
            slot = np.fromiter(map(self._slots.__getitem__, x), np.int32, size)
        except KeyError:
            new = self._places(x, value, add=learn is _LEARN)
            if new is None:
                return None
            slot = new
        fits, ptr, slot, value, norm = _compress(slot, value, self._bias)
        return Rows(ptr, slot, value, norm, _KEY, y, self._known, learn, weight) if fits else None

    def _places(self, x: Mapping[Any, Any], value: FloatArray, *, add: bool) -> Int32Array | None:
        """Return the features' places, -1 for those that have none, or None where a name may not be one.

        With ``add`` all get one, if the example will be learned.
        """
        slots, models, vocabulary = self._slots, self._models, self._models.vocabulary
        fresh = [name for name in x if name not in slots]
        if not all(isinstance(name, str) and name_fault(name) is None for name in fresh):
            return None
        if add:  # a name that is only scored is not taken up: a model that only predicts must not grow
            fits = learnable(1, np.array([0, value.size]), value, models.settings.bias)[0]
            if not fits or len(models.feature) + len(fresh) > models.limit:
                return None
            models.add_features(np.array([vocabulary.tables[0][name] for name in fresh], np.int32))
            self._find()
        return np.fromiter((slots.get(name, -1) for name in x), np.int32, value.size)


@njit(cache=True)
def _compress(slot, value, bias):  # type: ignore[no-untyped-def]
    """Return whether an example may be learned, and it as compressed sparse rows with their norms."""
    bounds = np.array([0, value.size])
    ptr, slots, values, norm = select(1, bounds, slot, value, 0, 1, -1, bias)
    return learnable(1, bounds, value, bias >= 0)[0], ptr, slots, values, norm
