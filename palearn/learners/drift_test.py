"""Drift: a test on a learner's mistakes, key by key; what a learner does then: :mod:`palearn.learners.drift_response`.

The Page-Hinkley test (Page 1954, Continuous inspection schemes, Biometrika 41; for learners on streams: Gama, Sebastiao
and Rodrigues 2013, On evaluating stream learning algorithms, Machine Learning 90, section 5.1) on x_t = 1 for a mistake
and 0 for none::

    m_t = sum_{i <= t} (x_i - mean(x_1 .. x_i) - delta),   M_t = min(m_1 .. m_t),   drift where m_t - M_t > threshold

It is reset after each drift. It needs four numbers a key, which are an array of the learner like its weights.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from palearn.errors import LearnerError
from palearn.learners.arrays import KEY, ArraySpec
from palearn.learners.hyperparameters import Parameter, resolve
from palearn.learners.jit import kernel

#: Labelled examples since the last drift, their mean of mistakes, m_t and M_t.
STATE = ArraySpec("drift", KEY, 0.0, width=4)
ACTIONS = ("note", "restart", "relax")
PARAMETERS = (
    Parameter(
        "action",
        "note",
        "Reaction: record the drift only, reset the model, or (second order) reset its covariance.",
        words=ACTIONS,
    ),
    Parameter("threshold", 50.0, "Threshold of the test (λ), in mistakes above the mean so far.", above=0),
    Parameter("delta", 0.005, "Tolerated change of the error (δ).", at_least=0),
    Parameter("min_records", 30, "Labelled examples before a drift can be detected.", at_least=1, integer=True),
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
