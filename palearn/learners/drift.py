"""Drift: a test on a learner's mistakes, key by key, and what a learner does when it tells of one.

The Page-Hinkley test (Page 1954, Continuous inspection schemes, Biometrika 41; for learners on streams: Gama, Sebastiao
and Rodrigues 2013, On evaluating stream learning algorithms, Machine Learning 90, section 5.1) on x_t = 1 for a mistake
and 0 for none::

    m_t = sum_{i <= t} (x_i - mean(x_1 .. x_i) - delta),   M_t = min(m_1 .. m_t),   drift where m_t - M_t > threshold

It begins anew after each drift. It needs four numbers a key, which are an array of the learner like its weights.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from palearn.errors import LearnerError
from palearn.learners.arrays import KEY, ArraySpec, Layout, Outcome, Rows, layout_of
from palearn.learners.compiled import kernel
from palearn.learners.growth import grown
from palearn.learners.parameters import Parameter, resolve
from palearn.types import FloatArray, IntArray

if TYPE_CHECKING:
    from palearn.learners.table import Learner

#: Labelled examples since the last drift, their mean of mistakes, m_t and M_t.
STATE = ArraySpec("drift", KEY, 0.0, width=4)
ACTIONS = ("note", "restart", "relax")
PARAMETERS = (
    Parameter(
        "action",
        "note",
        "What the learner does: nothing, begin anew, or (second order) begin its variances anew.",
        words=ACTIONS,
    ),
    Parameter("threshold", 50.0, "How much more than before must go wrong, in mistakes.", above=0),
    Parameter("delta", 0.005, "A rise of the error that is none.", at_least=0),
    Parameter("min_records", 30, "Labelled examples before the test may tell of a drift.", at_least=1, integer=True),
)


@dataclass(frozen=True)
class Drift:
    """A learner's test for drift, and what it does; the fields are :data:`PARAMETERS`."""

    action: str
    threshold: float
    delta: float
    min_records: int

    @property
    def acts(self) -> bool:
        """Whether a drift changes what is learned after it."""
        return self.action != "note"


def drift_of(owner: str, given: object) -> Drift | None:
    """Return the test that an action or a mapping of :data:`PARAMETERS` asks for; None: none.

    Raises
    ------
    LearnerError
        It is neither, or an option is unknown or outside its domain.
    """
    if given is None or isinstance(given, Drift):
        return given
    options: Mapping[str, Any]
    if isinstance(given, str):
        options = {"action": given}
    elif isinstance(given, Mapping):
        options = given
    else:
        raise LearnerError(f"{owner}: drift must be one of {', '.join(ACTIONS)}, or its options, got {given!r:.80}")
    values: dict[str, Any] = resolve(f"{owner}: drift", PARAMETERS, options)
    return Drift(**values)


@kernel
def test(key, y, predicted, threshold, delta, least, state, found):  # type: ignore[no-untyped-def]
    """Go on with the keys' tests over a run of rows; write how many labelled examples a drift ends, 0 for no drift."""
    for i in range(key.size):
        found[i] = 0
        if y[i] < 0:
            continue
        at = 4 * key[i]
        mistake = 1.0 if predicted[i] != y[i] else 0.0
        state[at] += 1.0
        state[at + 1] += (mistake - state[at + 1]) / state[at]
        state[at + 2] += mistake - state[at + 1] - delta
        if state[at] == 1.0 or state[at + 2] < state[at + 3]:
            state[at + 3] = state[at + 2]
        if state[at] >= least and state[at + 2] - state[at + 3] > threshold:
            found[i] = np.int64(state[at])
            state[at : at + 4] = 0.0


#: So many rows are learned at a time after a drift; twice as many each time that there is none.
_AT_FIRST = 64


def learn(
    learner: "Learner",
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
    drift, key, y = learner.drift, views[0].key, views[0].y
    assert drift is not None
    found = np.zeros(key.size, np.int64)

    def go(first: int, stop: int) -> None:
        part = slice(first, stop)
        rows = [
            view._replace(
                ptr=view.ptr[first : stop + 1],
                **{name: getattr(view, name)[part] for name in Rows._fields if name not in ("ptr", "slot", "value")},
            )
            for view in views
        ]
        learner.run(rows, layout, arrays, Outcome._make(array[part] for array in out))
        recall()
        threshold, delta, least = drift.threshold, drift.delta, drift.min_records
        test(key[part], y[part], out.predicted[part], threshold, delta, least, arrays[STATE.name], found[part])

    before = {name: array.copy() for name, array in arrays.items()} if drift.acts else {}
    go(0, key.size)
    for k in np.unique(key[found > 0]) if drift.acts else ():
        places = {spec.name: slice(*spec.runs(layout)[k : k + 2]) for spec in learner.arrays}
        rows = np.flatnonzero(key == k)
        at, high = int(rows[0]), int(rows[-1]) + 1
        size = int(np.flatnonzero(found[at:high])[0]) + 1
        for name, place in places.items():
            arrays[name][place] = before[name][place]
        while at < high:
            start = {name: arrays[name][place].copy() for name, place in places.items()}
            stop = min(high, at + size)
            go(at, stop)
            told = np.flatnonzero(found[at:stop])
            size *= 2
            if told.size:
                if at + told[0] + 1 < stop:  # what came after it was learned as if nothing had been
                    stop = at + int(told[0]) + 1
                    for name, place in places.items():
                        arrays[name][place] = start[name]
                    go(at, stop)
                begin_anew(learner, layout, int(k), arrays)
                size = _AT_FIRST
            at = stop
    return found


def begin_anew(learner: "Learner", layout: Layout, k: int, arrays: dict[str, FloatArray]) -> None:
    """Let a key's numbers begin anew: all, or those of the covariance."""
    assert learner.drift is not None
    nothing = np.zeros(0, np.int64)
    mine = layout_of(layout.features[k : k + 1], layout.blocks[k : k + 1])
    for spec in learner.arrays:
        if spec is not STATE and (learner.drift.action == "restart" or spec is learner.covariance):
            place = slice(*spec.runs(layout)[k : k + 2])
            arrays[spec.name][place] = grown(spec, np.zeros(0), layout_of(nothing, nothing), mine)
