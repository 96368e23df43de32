"""What every kernel does with one sparse example: score it, measure it, move weights, shrink variances.

Sums run in the record's own order of features, bias last; no fastmath and no parallel loops, so the same rows
in the same order give the same bits everywhere.
"""

import numpy as np

from palearn.learners.jit import inlined

#: A loss of at most this is no loss: PA lands on its margin exactly, and rounding must not decide
#: whether the same example is learned again.
NO_LOSS = 1e-10
#: Smallest variance of a diagonal covariance; keeps it positive whatever is subtracted.
SMALLEST_VARIANCE = 1e-300

IDENTITY, DIAGONAL, DIAGONAL_PRECISION, FULL, JOINT = 0, 1, 2, 3, 4


@inlined
def usable(v):  # type: ignore[no-untyped-def]
    """Whether a norm or a step is a positive finite number; otherwise the example is not learned."""
    return v > 0.0 and v < np.inf


@inlined
def finite(score):  # type: ignore[no-untyped-def]
    """Return the score; opposite overflows can add up to NaN, which says nothing about either class."""
    return 0.0 if np.isnan(score) else score


@inlined
def dot(rows, i, w, start, blocks, block):  # type: ignore[no-untyped-def]
    """Return w.x of one block."""
    total = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        total += w[start + rows.slot[e] * blocks + block] * rows.value[e]
    return finite(total)


@inlined
def square(rows, i, sigma, start, blocks, block, covariance):  # type: ignore[no-untyped-def]
    """Return x' Sigma x for the identity or a diagonal."""
    if covariance == IDENTITY:
        return rows.norm[i]
    total = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        total += sigma[start + rows.slot[e] * blocks + block] * rows.value[e] * rows.value[e]
    return total


@inlined
def move(rows, i, w, sigma, start, blocks, block, covariance, amount):  # type: ignore[no-untyped-def]
    """w += amount * Sigma x for the identity or a diagonal."""
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j = start + rows.slot[e] * blocks + block
        if covariance == IDENTITY:
            w[j] += amount * rows.value[e]
        else:
            w[j] += amount * sigma[j] * rows.value[e]


@inlined
def shrink(rows, i, sigma, start, blocks, block, covariance, v, r):  # type: ignore[no-untyped-def]
    """Diagonal of Sigma - Sigma x x' Sigma / (r + v), or of the inverse of Sigma^-1 + x x'/r.

    The first is sigma (r + v - sigma x^2) / (r + v): what one large feature takes from v is taken before r is
    added, so that a variance does not become the rounding error of a difference.
    """
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j = start + rows.slot[e] * blocks + block
        own = sigma[j] * rows.value[e] * rows.value[e]
        if covariance == DIAGONAL:
            sigma[j] *= (r + max(v - own, 0.0)) / (r + v)
        else:
            sigma[j] /= 1.0 + own / r
        sigma[j] = max(sigma[j], SMALLEST_VARIANCE)


@inlined
def start_outcome(out, i, score, predicted):  # type: ignore[no-untyped-def]
    """Write a row's prediction; nothing is learned yet."""
    out.score[i] = score
    out.predicted[i] = predicted
    out.hinge[i] = 0.0
    out.updated[i] = False
    out.tau[i] = 0.0
    out.difference[i] = -1.0


@inlined
def sign_of(score, tie):  # type: ignore[no-untyped-def]
    """Return the binary class of a score: 0 negative, 1 positive; ``tie``: 0 is positive."""
    return 1 if score > 0.0 or (score == 0.0 and tie) else 0


@inlined
def start_classes(out, i, scores, known):  # type: ignore[no-untyped-def]
    """Write a row's prediction: the earliest of the classes known with the highest score; returns it."""
    top = -1
    for c in range(known):
        if top < 0 or scores[c] > scores[top]:
            top = c
    start_outcome(out, i, scores[top] if top >= 0 else 0.0, top)
    if out.scores.shape[0] > 0:
        out.scores[i, :known] = scores[:known]
    return top
