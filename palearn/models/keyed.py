"""The models of many keys, which score, learn and count; what is kept of them is :mod:`palearn.models.state`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import numpy as np

from palearn.errors import LearnerError
from palearn.learners import Outcome, Rows, drift_response, empty_outcome
from palearn.models import calibration, counters
from palearn.models.state import State
from palearn.models.vectorize import Flat, assign, find, learnable, select
from palearn.types import BoolArray, FloatArray, Int32Array, IntArray

#: A learner's number, the row at which a drift was detected, and how many labelled examples came since the one before.
Drift: TypeAlias = tuple[int, int, int]
#: The last five fields of :class:`Rows`, the same for every selection of features.
_Tail: TypeAlias = tuple[IntArray, IntArray, IntArray, BoolArray, FloatArray]


@dataclass
class Earlier:
    """Rows that were scored before their label came, and count with the score they had.

    ``origin`` is the row of the same examples that scored it, or -1: then ``predicted`` and ``score`` (learners x
    rows) hold it. ``known`` is what labels the key knew at that time (:func:`palearn.models.labels.classify`).
    """

    row: IntArray
    origin: IntArray
    predicted: IntArray
    score: FloatArray
    known: IntArray


@dataclass
class Examples:
    """Checked examples, grouped by key and in order within each; see :class:`palearn.learners.Rows`."""

    flat: Flat
    key: IntArray
    y: IntArray
    known: IntArray
    weight: FloatArray
    earlier: Earlier | None = None


class Models(State):
    """The models of many keys: one a key and learner."""

    def learn(self, examples: Examples) -> tuple[list[Outcome], BoolArray, list[Drift], list[FloatArray]]:
        """Score, learn and count examples.

        Returns
        -------
        outcomes : what happened, a row an example, for each learner
        learned : whether each example was shown to the learners with its label; not so where it has no label,
            no features, or a norm that is no positive finite number
        drifts : detected ones

        Raises
        ------
        LearnerError
            A full covariance would have to hold more features than it may, and ``max_features`` is None.
        """
        flat, n = examples.flat, examples.key.size
        outcomes = [empty_outcome(n, self._scored_classes(examples.key)) for _ in self.learners]
        probabilities = [np.zeros(n) for _ in self.learners]
        learn = learnable(flat.views, flat.bounds, flat.value, self.settings.bias) & (examples.y >= 0)
        again = np.zeros(n, np.bool_)
        if examples.earlier is not None:
            again[examples.earlier.row] = True
        drifts: list[Drift] = []
        slot = np.empty(flat.feature.size, np.int32)
        first = 0
        while first < n:
            stop, new, added = assign(
                flat.views, flat.bounds, flat.feature, examples.key, learn, first,
                self.feature_ptr, self.feature, len(self.vocabulary.names), self.limit, slot,
            )  # fmt: skip
            if stop < n and self.settings.max_features is None:
                raise LearnerError(
                    f"a full covariance holds at most {self.max_features} features (max_full_features), and the key "
                    f"{self.keys[examples.key[stop]]!r:.80} has more; covariance='diagonal' has no such limit"
                )
            key, y = examples.key[first:stop], examples.y[first:stop]
            self._grow(new, added, key, y)
            tail = (key, y, examples.known[first:stop], learn[first:stop], examples.weight[first:stop])
            pieces = [_part(out, first, stop) for out in outcomes]
            rows = self._rows(flat, slot, first, stop, tail)
            for i, views in enumerate(rows):
                recall = partial(_recall, examples.earlier, i, outcomes[i], first, stop)
                drifts += [(i, first + row, n) for row, n in self._learn(i, views, pieces[i], recall)]
            restart = np.zeros((len(self.learners), stop - first), np.bool_)
            for i, row, _ in drifts:
                if row >= first:
                    restart[i, row - first] = self._restarts(i)
            found = self._count(rows[0][0], again[first:stop], pieces, restart)
            for probability, part in zip(probabilities, found, strict=True):
                probability[first:stop] = part
            if stop < n:
                wanted = flat.feature[flat.bounds[stop * flat.views] : flat.bounds[(stop + 1) * flat.views]]
                self._forget_features(int(examples.key[stop]), wanted)
            first = stop
        return outcomes, learn, drifts, probabilities

    def learn_row(self, row: Rows, outcomes: list[Outcome]) -> None:
        """Score, learn and count a row of the only key, whose features and label the key has."""
        n = int(self.counts[0, counters.N])
        if n < self.settings.window and n % 8 == 0:  # the window's bits begin a byte
            self._grow_window(row.key, row.y)
        restart = np.zeros((len(self.learners), 1), np.bool_)
        for i, out in enumerate(outcomes):
            restart[i] = bool([*self._learn(i, [row], out, lambda: None)]) and self._restarts(i)
        self._count(row, np.zeros(1, np.bool_), outcomes, restart)

    def _scored_classes(self, key: IntArray) -> int:
        """Return how many classes' scores calibration needs; 0: the score of a binary model is enough."""
        if self.settings.task == "binary":
            return 0
        return max((len(self.labels[k]) for k in set(key.tolist())), default=0)

    def _restarts(self, i: int) -> bool:
        drift = self.learners[i].drift
        return drift is not None and drift.action == "restart"

    def _learn(self, i: int, views: list[Rows], out: Outcome, recall: Callable[[], None]) -> Iterable[tuple[int, int]]:
        """Let a learner score and learn rows; return those where a drift was detected, and after how many examples."""
        learner, arrays = self.learners[i], self.states[i].arrays
        if learner.drift is None:
            learner.run(views, self.layout, arrays, out)
            recall()
            return ()
        found = drift_response.learn(learner, views, self.layout, arrays, out, recall)
        rows = np.flatnonzero(found)
        self.drifts[i] += rows.size
        return zip(rows.tolist(), found[rows].tolist(), strict=True)

    def score(self, examples: Examples) -> list[Outcome]:
        """Score examples without learning or counting; ``Outcome.scores`` holds every class's score."""
        n = examples.key.size
        classes = int((self.class_ptr[examples.key + 1] - self.class_ptr[examples.key]).max(initial=0))
        outcomes = [empty_outcome(n, classes) for _ in self.learners]
        for learner, state, views, out in zip(self.learners, self.states, self.rows(examples), outcomes, strict=True):
            learner.run(views, self.layout, state.arrays, out)
        return outcomes

    def rows(self, examples: Examples) -> list[list[Rows]]:
        """Return what each learner sees of examples that are only scored: all features, those of its view, or views."""
        flat, n = examples.flat, examples.key.size
        slot = np.empty(flat.feature.size, np.int32)
        if self._where.size < len(self.vocabulary.names):
            self._where = np.full(len(self.vocabulary.names), -1, np.int32)
        find(flat.views, flat.bounds, flat.feature, examples.key, self.feature_ptr, self.feature, self._where, slot)
        tail = (examples.key, np.full(n, -1), examples.known, np.zeros(n, np.bool_), examples.weight)
        return self._rows(flat, slot, 0, n, tail)

    def _rows(self, flat: Flat, slot: Int32Array, first: int, stop: int, tail: _Tail) -> list[list[Rows]]:
        """Return what each learner sees of a run of rows: one selection of features, or one a view."""
        selections: dict[tuple[int, int], Rows] = {}

        def rows(view: int, bias: int) -> Rows:
            if (view, bias) not in selections:
                ptr, slots, value, norm = select(flat.views, flat.bounds, slot, flat.value, first, stop, view, bias)
                selections[view, bias] = Rows(ptr, slots, value, norm, *tail)
            return selections[view, bias]

        bias, views = self.settings.bias, self.settings.views
        out = []
        for learner in self.learners:
            if learner.row.views:
                out.append([rows(v, v + 1 if bias else -1) for v in range(len(views))])
            else:
                view = -1 if learner.view is None else views.index(learner.view)
                out.append([rows(view, 0 if bias else -1)])
        return out

    def probabilities(self, examples: Examples, outcomes: list[Outcome]) -> list[FloatArray]:
        """Return the probability of every label of examples that were scored, n x classes, an array a learner."""
        is_binary = self.settings.task == "binary"
        return [
            calibration.of_labels(examples.key, is_binary, out.score, out.scores, examples.known, state.sums)
            for state, out in zip(self.states, outcomes, strict=True)
        ]

    def _count(self, rows: Rows, again: BoolArray, outcomes: list[Outcome], restart: BoolArray) -> list[FloatArray]:
        """Count rows and calibrate by them; return the probability of each predicted label, an array a learner."""
        n = self.counts[:, counters.N].copy()
        key, y, found = rows.key, rows.y, []
        for i, (state, out) in enumerate(zip(self.states, outcomes, strict=True)):
            counters.count_learner(
                key, y, out, n, self.settings.window, self.settings.fading, self.class_ptr, self.ring_ptr,
                state.counts, state.sums, state.hits, state.predictions, state.ring,
            )  # fmt: skip
            probability = np.zeros(key.size)
            own = (out.predicted, restart[i], state.counts, state.sums, probability)
            if self.settings.task == "binary":
                calibration.binary(key, y, out.score, *own)
            else:
                calibration.multiclass(key, y, rows.known, out.scores, *own)
            found.append(probability)
        counters.count_keys(key, y, rows.learn, again, self.class_ptr, self.counts, self.label_counts)
        return found


def _recall(earlier: Earlier | None, learner: int, out: Outcome, first: int, stop: int) -> None:
    """Put the score that rows from ``first`` to ``stop`` had in place of the one they would have now."""
    if earlier is None:
        return
    part = np.flatnonzero((earlier.row >= first) & (earlier.row < stop))
    row, origin = earlier.row[part], earlier.origin[part]
    out.predicted[row] = np.where(origin < 0, earlier.predicted[learner, part], out.predicted[origin])
    out.score[row] = np.where(origin < 0, earlier.score[learner, part], out.score[origin])


def _part(out: Outcome, first: int, stop: int) -> Outcome:
    """Return the rows from ``first`` to ``stop`` as views."""
    part = slice(first, stop)
    return Outcome._make(array[part] for array in out)
