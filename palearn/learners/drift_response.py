"""Learning with a test for drift (:mod:`palearn.learners.drift_test`): what a learner does where one is found."""

from collections.abc import Callable

import numpy as np

from palearn.learners.arrays import Layout, Outcome, Rows, layout_of
from palearn.learners.drift_test import STATE, Drift, test
from palearn.learners.learner import Learner
from palearn.learners.resize import grown
from palearn.types import FloatArray, IntArray

#: So many rows are learned at a time after a drift; twice as many each time that there is none.
_AT_FIRST = 64


def learn(
    learner: Learner,
    views: list[Rows],
    layout: Layout,
    arrays: dict[str, FloatArray],
    out: Outcome,
    recall: Callable[[], None],
) -> IntArray:
    """Score and learn rows as ``learner.run`` does, test after each for a drift, and act on it before the next.

    Most runs have no drift, so all rows are learned at once; the keys that had one are put back and learned again, this
    time with a stop at every drift. What comes of a row depends on the rows of its key before it alone.

    Parameters
    ----------
    recall
        Called when rows were scored; it may put other predictions in their place, and does so whenever it is called.

    Returns
    -------
    array of int
        A row each: 0, or how many labelled examples came since the drift before, where there is one.
    """
    assert learner.drift is not None
    run = _Run(learner, learner.drift, views, layout, arrays, out, recall)
    before = {name: array.copy() for name, array in arrays.items()} if learner.drift.acts else {}
    run.go(0, views[0].key.size)
    if learner.drift.acts:
        for k in np.unique(views[0].key[run.found > 0]).tolist():
            run.again(k, before)
    return run.found


class _Run:
    """A run of rows, parts of which are learned again; the parameters are those of :func:`learn`."""

    def __init__(
        self,
        learner: Learner,
        drift: Drift,
        views: list[Rows],
        layout: Layout,
        arrays: dict[str, FloatArray],
        out: Outcome,
        recall: Callable[[], None],
    ) -> None:
        self._learner, self._drift, self._views, self._recall = learner, drift, views, recall
        self._layout, self._arrays, self._out = layout, arrays, out
        self.found = np.zeros(views[0].key.size, np.int64)

    def go(self, first: int, stop: int) -> None:
        """Score, learn and test the rows from one to before another."""
        part = slice(first, stop)
        rows = [_cut(view, first, stop) for view in self._views]
        self._learner.run(rows, self._layout, self._arrays, Outcome._make(array[part] for array in self._out))
        self._recall()
        key, y, predicted = rows[0].key, rows[0].y, self._out.predicted[part]
        options = (self._drift.threshold, self._drift.delta, self._drift.min_records)
        test(key, y, predicted, *options, self._arrays[STATE.name], self.found[part])

    def again(self, k: int, before: dict[str, FloatArray]) -> None:
        """Learn a key's rows again from its numbers ``before``, and reset the model after each drift."""
        places = {spec.name: slice(*spec.runs(self._layout)[k : k + 2]) for spec in self._learner.arrays}
        rows = np.flatnonzero(self._views[0].key == k)
        at, high = int(rows[0]), int(rows[-1]) + 1
        self._put_back(places, {name: before[name][place] for name, place in places.items()})
        size = 1 + int(np.flatnonzero(self.found[at:high])[0])
        while at < high:
            start = {name: self._arrays[name][place].copy() for name, place in places.items()}
            stop = min(high, at + size)
            self.go(at, stop)
            told = np.flatnonzero(self.found[at:stop])
            size *= 2
            if told.size:
                end = at + int(told[0]) + 1
                if end < stop:  # what came after it was learned as if nothing had been
                    self._put_back(places, start)
                    self.go(at, end)
                reset(self._learner, self._layout, k, self._arrays)
                stop, size = end, _AT_FIRST
            at = stop

    def _put_back(self, places: dict[str, slice], numbers: dict[str, FloatArray]) -> None:
        for name, place in places.items():
            self._arrays[name][place] = numbers[name]


def _cut(rows: Rows, first: int, stop: int) -> Rows:
    """Return some of the rows, as views."""
    own = {name: getattr(rows, name)[first:stop] for name in ("norm", "key", "y", "known", "learn", "weight")}
    return rows._replace(ptr=rows.ptr[first : stop + 1], **own)


def reset(learner: Learner, layout: Layout, k: int, arrays: dict[str, FloatArray]) -> None:
    """Reset a key's numbers: all, or those of the covariance."""
    assert learner.drift is not None
    nothing = np.zeros(0, np.int64)
    mine = layout_of(layout.features[k : k + 1], layout.blocks[k : k + 1])
    for spec in learner.arrays:
        if spec is not STATE and (learner.drift.action == "restart" or spec is learner.covariance):
            place = slice(*spec.runs(layout)[k : k + 2])
            arrays[spec.name][place] = grown(spec, np.zeros(0), layout_of(nothing, nothing), mine)
