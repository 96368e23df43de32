"""Why a record has its score: what each of its features, and the bias, adds to it.

A score is a sum: of weight times value over the features that the model knows. ``two_view_pa`` takes the mean of the
views that have features, so each part is divided by how many they are; ``sop`` with a diagonal divides each part by
1 + variance times value squared. The parts of one score sum up to it but for rounding.
"""

import math
from typing import NamedTuple

import numpy as np

from palearn.errors import LearnerError
from palearn.learners import Learner, Rows
from palearn.models.keyed import Models
from palearn.records import BIAS


class Contribution(NamedTuple):
    """What a feature adds to a score.

    ``value`` is the example's, ``weight`` the model's of the class that the score is of; ``variance`` is the learner's
    of that weight and ``z_score`` the weight over its root, both None for a first-order learner.
    """

    feature: str
    contribution: float
    value: float
    weight: float
    variance: float | None
    z_score: float | None

    @property
    def is_bias(self) -> bool:
        """Whether this is a constant feature's."""
        return self.feature == BIAS or self.feature.endswith(f":{BIAS}")


def contributions(models: Models, i: int, rows: list[Rows], row: int, block: int) -> list[Contribution]:
    """Return what each feature adds to the score of a row, largest first; features that add nothing are left out.

    Parameters
    ----------
    models, i
        The models, and the number of the learner.
    rows, row
        What the learner sees (:meth:`palearn.models.keyed.Models.rows_of`), and the row.
    block
        The class whose score it is; 0 of a binary model.
    """
    learner, state, layout = models.learners[i], models.states[i], models.layout
    k = int(rows[0].key[row])
    low, blocks = int(layout.start[k]), int(layout.blocks[k])
    part = slice(low, int(layout.start[k + 1]))
    weight = learner.weights(layout, state.arrays)[part].reshape(-1, blocks)[:, block]
    variances = learner.variances(layout, state.arrays, np.array([k]))
    variance = None if variances is None else variances[part].reshape(-1, blocks)[:, block]
    names = models.vocabulary.names
    share = 1.0 / max(sum(int(view.norm[row] > 0.0) for view in rows), 1) if learner.row.views else 1.0
    found = []
    for view in rows:
        for e in range(int(view.ptr[row]), int(view.ptr[row + 1])):
            slot, value = int(view.slot[e]), float(view.value[e])
            own = None if variance is None else float(variance[slot])
            w = float(weight[slot])
            added = _part(learner, w, value, own) * share
            if added:
                z_score = None if own is None else w / math.sqrt(own)
                name = names[models.feature[models.feature_ptr[k] + slot]]
                found.append(Contribution(name, added, value, w, own, z_score))
    return sorted(found, key=lambda x: (-abs(x.contribution), x.feature))


def _part(learner: Learner, weight: float, value: float, variance: float | None) -> float:
    if learner.algorithm == "sop":
        if variance is None or learner.params["covariance"] == "full":
            raise LearnerError("the score of sop with a full covariance is no sum over features")
        return weight * value / (1.0 + variance * value * value)
    return weight * value
