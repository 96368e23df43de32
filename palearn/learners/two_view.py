"""Two-view passive-aggressive learning (Nguyen, Chang and Hui 2012, section 3; "Two-view online learning").

Each view has its own weights; the score is the mean of the views' scores. For one example the step solves

    minimise 1/2 |dw_A|^2 + 1/2 |dw_B|^2 + gamma |y s_A - y s_B| + C xi,   xi >= 1 - y score, xi >= 0

The paper's algorithm 1 is not its optimum (a factor 2 in tau, a spurious factor in alpha and beta); this is
the exact solution of the dual, which is concave in (tau, delta) over the box 0 <= tau <= C, |delta| <= gamma::

    D(tau, delta) = -1/2 (delta - tau/2)^2 a - 1/2 (delta + tau/2)^2 b + tau loss + delta (loss_B - loss_A)

with a = |x_A|^2, b = |x_B|^2; then w_A -= (delta - tau/2) y x_A and w_B += (delta + tau/2) y x_B.
Like the paper, it acts only where the mean score has a loss. A view of norm 0 is left out: the score is the
mean over the views that have features, and one view alone is PA-I.
"""

import numpy as np
from numba import njit

from palearn.learners.steps import IDENTITY, NO_LOSS, _finite, _move, _score, _usable


@njit(cache=True)
def _clip(x, low, high):  # type: ignore[no-untyped-def]
    return min(max(x, low), high)


@njit(cache=True)
def _dual(tau, delta, a, b, loss, gap):  # type: ignore[no-untyped-def]
    low, high = delta - 0.5 * tau, delta + 0.5 * tau
    return -0.5 * low * low * a - 0.5 * high * high * b + tau * loss + delta * gap


@njit(cache=True)
def solve(a, b, loss_a, loss_b, cap, gamma):  # type: ignore[no-untyped-def]
    """Return the (tau, delta) that maximise the dual; ``a``, ``b`` > 0, ``cap`` > 0, ``gamma`` >= 0."""
    loss = 0.5 * (loss_a + loss_b)
    gap = loss_b - loss_a
    delta = 0.5 * (loss_b / b - loss_a / a)
    tau = 2.0 * (2.0 * loss + delta * (a - b)) / (a + b)
    if 0.0 <= tau <= cap and -gamma <= delta <= gamma:
        return tau, delta
    best, best_tau, best_delta = -np.inf, 0.0, 0.0
    for edge in range(4):
        if edge < 2:
            delta = gamma if edge == 0 else -gamma
            tau = _clip(2.0 * (2.0 * loss + delta * (a - b)) / (a + b), 0.0, cap)
        else:
            tau = cap if edge == 2 else 0.0
            delta = _clip((gap + 0.5 * tau * (a - b)) / (a + b), -gamma, gamma)
        value = _dual(tau, delta, a, b, loss, gap)
        if value > best:
            best, best_tau, best_delta = value, tau, delta
    return best_tau, best_delta


@njit(cache=True)
def two_view(rows_a, rows_b, layout, w, cap, gamma, tie, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row; ``rows_a`` and ``rows_b`` are the two views of the same examples."""
    for i in range(rows_a.key.size):
        start = layout.start[rows_a.key[i]]
        a, b = rows_a.norm[i], rows_b.norm[i]
        score_a = _score(rows_a, i, w, start, 1, 0)
        score_b = _score(rows_b, i, w, start, 1, 0)
        both = a > 0.0 and b > 0.0
        score = _finite(0.5 * (score_a + score_b)) if both else score_a + score_b
        out.score[i] = score
        out.predicted[i] = 1 if score > 0.0 or (score == 0.0 and tie) else 0
        out.updated[i] = False
        out.hinge[i] = 0.0
        out.difference[i] = abs(score_a - score_b) if both else -1.0
        if rows_a.y[i] < 0:
            continue
        sign = 2.0 * rows_a.y[i] - 1.0
        loss = 1.0 - sign * score
        out.hinge[i] = max(0.0, loss)
        if not (rows_a.learn[i] and NO_LOSS < loss < np.inf and _usable(a + b)):
            continue
        limit = cap * rows_a.weight[i]
        if both:
            tau, delta = solve(a, b, 1.0 - sign * score_a, 1.0 - sign * score_b, limit, gamma)
            move_a, move_b = 0.5 * tau - delta, 0.5 * tau + delta
        else:
            move_a = move_b = min(limit, loss / (a + b))
        if not (np.isfinite(move_a) and np.isfinite(move_b)):
            continue
        out.updated[i] = move_a != 0.0 or move_b != 0.0
        _move(rows_a, i, w, w, start, 1, 0, IDENTITY, move_a * sign)
        _move(rows_b, i, w, w, start, 1, 0, IDENTITY, move_b * sign)
