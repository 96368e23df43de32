"""Probabilities: a learner's scores calibrated online, one key and learner at a time (Platt 1999).

Binary: the positive class has probability 1 / (1 + exp(-(slope * score + offset))). Many classes: softmax of slope
times the scores of the classes that are known. Each labelled example is first given its probability, and then moves
slope and offset by one Newton step of its log loss::

    H <- fading * H + W z z',   W = max(p (1 - p), (y - p)^2)
    (slope, offset) <- (slope, offset) + (H + I)^-1 z (y - p),   z = (score, 1)

Both begin at 0, where everything is equally likely. H is the curvature of the log loss with exponential forgetting, so
that scores whose size changes, as weights grow, are followed; W is raised where an example is a surprise, without which
a large score with a wrong sign would move everything (its p (1 - p) is 0); the identity keeps the first steps small.
Where a learner restarts at a drift, its calibration does too. On UCI Adult, test-then-train, perceptron, pa1, arow, cw
and adagrad_rda come within 0.03 of the log loss of a logistic regression fitted afterwards to 300 scores, and within
0.003 of one fitted to 5,000.

What is kept stands among the sums of :mod:`palearn.models.counters`, zeros for a key not yet calibrated.
"""

import numpy as np
from numba import njit

from palearn.models.counters import (
    BRIER,
    CALIBRATION,
    CURVATURE_BOTH,
    CURVATURE_OFFSET,
    CURVATURE_SLOPE,
    LOG_LOSS,
    OFFSET,
    PROBABILITY_N,
    SLOPE,
)
from palearn.types import FloatArray, IntArray

#: Factor of the curvature from one labelled example to the next.
FADING = 0.999
#: A probability is no closer to 0 or 1 than this, as in scikit-learn's log loss, so that no single one is infinite.
LEAST = 2.0**-52
#: Scores beyond this are as sure as this.
MOST_SCORE = 1e6


@njit(cache=True)
def _positive(score, slope, offset):  # type: ignore[no-untyped-def]
    """Return the probability of the positive class."""
    t = slope * min(max(score, -MOST_SCORE), MOST_SCORE) + offset
    p = 1.0 / (1.0 + np.exp(-t)) if t >= 0.0 else np.exp(t) / (1.0 + np.exp(t))
    return min(max(p, LEAST), 1.0 - LEAST)


@njit(cache=True)
def _classes(scores, known, slope, p):  # type: ignore[no-untyped-def]
    """Write the probability of each class that is known."""
    most, total = -np.inf, 0.0
    for c in range(known):
        p[c] = slope * min(max(scores[c], -MOST_SCORE), MOST_SCORE)
        most = max(most, p[c])
    for c in range(known):
        p[c] = np.exp(p[c] - most)
        total += p[c]
    for c in range(known):
        p[c] = min(max(p[c] / total, LEAST), 1.0)


@njit(cache=True)
def binary(key, y, score, predicted, restart, counts, sums, out):  # type: ignore[no-untyped-def]
    """Write the probability of each row's predicted label, count its loss, and calibrate by labelled rows."""
    for i in range(key.size):
        own = sums[key[i]]
        p = _positive(score[i], own[SLOPE], own[OFFSET])
        out[i] = p if predicted[i] == 1 else 1.0 - p
        if y[i] >= 0:
            g = y[i] - p
            counts[key[i], PROBABILITY_N] += 1
            own[LOG_LOSS] -= np.log(p if y[i] == 1 else 1.0 - p)
            own[BRIER] += g * g
            s = min(max(score[i], -MOST_SCORE), MOST_SCORE)
            weight = max(p * (1.0 - p), g * g)
            own[CURVATURE_SLOPE] = FADING * own[CURVATURE_SLOPE] + weight * s * s
            own[CURVATURE_BOTH] = FADING * own[CURVATURE_BOTH] + weight * s
            own[CURVATURE_OFFSET] = FADING * own[CURVATURE_OFFSET] + weight
            a, b, c = own[CURVATURE_SLOPE] + 1.0, own[CURVATURE_BOTH], own[CURVATURE_OFFSET] + 1.0
            determinant = a * c - b * b
            own[SLOPE] += (c * s - b) * g / determinant
            own[OFFSET] += (a - b * s) * g / determinant
        if restart[i]:
            own[SLOPE : CURVATURE_OFFSET + 1] = 0.0


@njit(cache=True)
def multiclass(key, y, known, scores, predicted, restart, counts, sums, out):  # type: ignore[no-untyped-def]
    """As :func:`binary`; the loss of a label that was not known yet, which has no probability, is not counted."""
    p = np.empty(scores.shape[1])
    for i in range(key.size):
        own = sums[key[i]]
        _classes(scores[i], known[i], own[SLOPE], p)
        out[i] = p[predicted[i]] if predicted[i] >= 0 else np.nan
        if 0 <= y[i] < known[i]:
            mean = square = 0.0
            counts[key[i], PROBABILITY_N] += 1
            own[LOG_LOSS] -= np.log(p[y[i]])
            for c in range(known[i]):
                s = min(max(scores[i, c], -MOST_SCORE), MOST_SCORE)
                own[BRIER] += (p[c] - (c == y[i])) ** 2
                mean += p[c] * s
                square += p[c] * s * s
            g = min(max(scores[i, y[i]], -MOST_SCORE), MOST_SCORE) - mean
            weight = max(square - mean * mean, g * g)
            own[CURVATURE_SLOPE] = FADING * own[CURVATURE_SLOPE] + weight
            own[SLOPE] = max(own[SLOPE] + g / (own[CURVATURE_SLOPE] + 1.0), 0.0)
        if restart[i]:
            own[SLOPE : CURVATURE_OFFSET + 1] = 0.0


@njit(cache=True)
def of_labels(key, binary, score, scores, known, sums):  # type: ignore[no-untyped-def]
    """Return the probability of each label of rows, n x classes, in class order; beyond those known 0."""
    out = np.zeros((key.size, 2 if binary else scores.shape[1]))
    for i in range(key.size):
        own = sums[key[i]]
        if binary:
            p = _positive(score[i], own[SLOPE], own[OFFSET])
            out[i, 0], out[i, 1] = 1.0 - p, p
        else:
            _classes(scores[i], known[i], own[SLOPE], out[i])
    return out


def stored(sums: FloatArray, keys: IntArray) -> FloatArray:
    """Return what calibrates the scores of keys, n x :data:`CALIBRATION`, as the models table has it."""
    return np.ascontiguousarray(sums[keys][:, CALIBRATION])
