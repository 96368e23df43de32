"""The second-order perceptron (Cesa-Bianchi, Conconi and Gentile 2005, figure 3.1).

It keeps v and A = aI + sum of x x' over its mistakes, predicts by v'(A + x x')^-1 x, and on a mistake, and only
then, takes v += y x and A += x x'. Kept here are Sigma = A^-1 and w = A^-1 v, which say the same:
the score is w.x / (1 + x'Sigma x), and the step is w += y (1 - y w.x) / (1 + x'Sigma x) Sigma x.
With a diagonal A each coordinate is divided by itself: the score is the sum of w_j x_j / (1 + sigma_j x_j^2).
"""

import numpy as np

from palearn.learners import factored_covariance
from palearn.learners.jit import kernel
from palearn.learners.sparse_ops import FULL, SMALLEST_VARIANCE, dot, finite, sign_of, start_outcome, usable


@kernel
def _diagonal_score(rows, i, start, w, sigma):  # type: ignore[no-untyped-def]
    score = v = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j, x = start + rows.slot[e], rows.value[e]
        own = sigma[j] * x * x
        score += w[j] * x / (1.0 + own)
        v += own
    return finite(score), v


@kernel
def _unseen(rows, i):  # type: ignore[no-untyped-def]
    """Return |x|^2 of the features without a slot: in A they have a on the diagonal, and weight 0."""
    seen = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        seen += rows.value[e] * rows.value[e]
    return max(rows.norm[i] - seen, 0.0)


@kernel
def second_order_perceptron(rows, layout, w, sigma, a, covariance, tie, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row; ``sigma`` is the diagonal or the triangle of A^-1, which began as 1/a."""
    full = covariance == FULL
    most = layout.features.max() if full and layout.features.size else 0
    f, g, b = np.empty(most), np.empty(most), np.empty(most)
    for i in range(rows.key.size):
        k = rows.key[i]
        start, at, n = layout.start[k], layout.packed[k], layout.features[k]
        straight = 0.0
        if full:
            straight = dot(rows, i, w, start, 1, 0)
            factored_covariance.times(sigma, at, n, rows.slot, rows.value, rows.ptr[i], rows.ptr[i + 1], 1, 0, f)
            v = factored_covariance.project(sigma, at, n, f, g) + _unseen(rows, i) / a
            score = finite(straight / (1.0 + v))
        else:
            score, v = _diagonal_score(rows, i, start, w, sigma)
        start_outcome(out, i, score, sign_of(score, tie))
        if rows.y[i] < 0:
            continue
        sign = 2.0 * rows.y[i] - 1.0
        out.hinge[i] = max(0.0, 1.0 - sign * score)
        if not (rows.learn[i] and out.predicted[i] != rows.y[i] and usable(v)):
            continue
        if full:
            tau = (1.0 - sign * straight) / (1.0 + v)
            if not usable(tau):
                continue
            factored_covariance.shrink(sigma, at, n, f, g, 1.0, b)
            for j in range(n):
                w[start + j] += tau * sign * b[j]
            out.tau[i] = tau
        else:
            for e in range(rows.ptr[i], rows.ptr[i + 1]):
                j, x = start + rows.slot[e], rows.value[e]
                grown = 1.0 + sigma[j] * x * x
                w[j] = (w[j] + sign * sigma[j] * x) / grown
                sigma[j] = max(sigma[j] / grown, SMALLEST_VARIANCE)
        out.updated[i] = True
