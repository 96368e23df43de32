"""The numerical core: loops over a run of examples, compiled by numba, arrays changed in place.

For one example every passive-aggressive learner solves (Crammer et al. 2006; Matsushima et al. 2010,
section 3; Crammer, Kulesza and Dredze 2009, eq. 25-27)::

    minimise over tau >= 0, sum(tau) <= cap:
        1/2 sum_u v_u tau_u^2 + 1/2 q (sum_u tau_u)^2 - sum_u loss_u tau_u

where u runs over the wrong classes that take part, ``loss_u = 1 - (score_y - score_u)`` and
``v_u = x' Sigma_u x``; then ``w_y += (sum tau) Sigma_y x`` and ``w_u -= tau_u Sigma_u x``.
The binary problem is the one with a single constraint: ``tau = min(cap, loss / (v + q))``.

Layout of the arrays (all flat, float64 unless said otherwise):

* a *weights* array holds, key after key, ``features x blocks`` numbers, feature-major: weight of local
  feature ``f`` and block ``b`` of key ``k`` is at ``start[k] + f * blocks[k] + b``. A binary learner has one
  block, a multiclass learner one a class.
* a *packed* array holds, key after key and block after block, the lower triangle of a symmetric
  ``features x features`` matrix, row after row, so that a new feature is appended without moving any other.

No fastmath and no parallel loops: the same rows in the same order give the same bits everywhere.
Sums run in the record's own order of features.
"""

from typing import NamedTuple

import numpy as np
from numba import njit

from palearn.types import BoolArray, FloatArray, Int32Array, IntArray

#: A loss of at most this is no loss: PA lands on its margin exactly, and rounding must not decide
#: whether the same example is learned again.
NO_LOSS = 1e-10
#: Smallest variance of a diagonal covariance; keeps it positive whatever is subtracted.
SMALLEST_VARIANCE = 1e-300

IDENTITY, DIAGONAL, DIAGONAL_PRECISION, FULL = 0, 1, 2, 3


class Rows(NamedTuple):
    """A run of n examples: compressed sparse rows over each key's local features.

    ``ptr`` (n + 1), ``slot`` and ``value`` (non-zeros) are the features; ``norm`` (n) is |x|^2, which counts
    also features that the model has not seen and that have no slot; ``key`` (n) the model of each row;
    ``y`` (n) its class number (binary: 0 negative, 1 positive), -1 where there is no label;
    ``known`` (n) how many classes the model knew before the row; ``learn`` (n) whether it may be learned;
    ``weight`` (n) the example's weight, > 0.
    """

    ptr: IntArray
    slot: Int32Array
    value: FloatArray
    norm: FloatArray
    key: IntArray
    y: IntArray
    known: IntArray
    learn: BoolArray
    weight: FloatArray


class Layout(NamedTuple):
    """Where each key's numbers are: feature and block counts, first index in weights and packed arrays."""

    features: IntArray
    blocks: IntArray
    start: IntArray
    packed: IntArray


class Outcome(NamedTuple):
    """What happened to each of n rows.

    ``score``: binary score, or the highest class score; ``predicted``: class number, -1 before any class is
    known; ``hinge``: max(0, loss), 0 where there is no label; ``updated``: weights moved;
    ``difference``: |score of view A - score of view B|, -1 where it does not apply;
    ``scores``: (n, classes) all class scores, filled only if it has rows.
    """

    score: FloatArray
    predicted: IntArray
    hinge: FloatArray
    updated: BoolArray
    difference: FloatArray
    scores: FloatArray


class Step(NamedTuple):
    """The constants of one step.

    ``cap``, ``q``: as in the problem above (multiclass adds v_y to q); ``r``: the covariance rule
    ``Sigma -= Sigma x x' Sigma / (r + v)``; ``weigh_r``: whether an example's weight divides r;
    ``constraints``: how many wrong classes take part; ``covariance``: IDENTITY, DIAGONAL, DIAGONAL_PRECISION
    or FULL; ``tie``: a binary score of exactly 0 predicts the positive class.
    """

    cap: float
    q: float
    r: float
    weigh_r: bool
    constraints: int
    covariance: int
    tie: bool


@njit(cache=True)
def support_classes(loss, v, order, count, q, cap, tau):  # type: ignore[no-untyped-def]
    """Solve the step's problem exactly; the losses of ``order[:count]`` are in decreasing order.

    Writes ``tau`` for the classes of ``order[:count]`` and returns their sum. O(count): add classes while
    their loss is above the threshold theta, then take ``tau = max(0, (loss - theta) / v)``.
    """
    a = b = theta = 0.0
    for j in range(count):
        u = order[j]
        if loss[u] <= theta:
            break
        a += loss[u] / v[u]
        b += 1.0 / v[u]
        theta = q * a / (1.0 + q * b)
    if a - theta * b > cap:
        a = b = 0.0
        theta = -np.inf
        for j in range(count):
            u = order[j]
            if loss[u] <= theta:
                break
            a += loss[u] / v[u]
            b += 1.0 / v[u]
            theta = (a - cap) / b
    total = 0.0
    for j in range(count):
        u = order[j]
        tau[u] = max(0.0, (loss[u] - theta) / v[u])
        total += tau[u]
    return total


@njit(cache=True)
def _usable(v):  # type: ignore[no-untyped-def]
    return v > 0.0 and v < np.inf


@njit(cache=True)
def _finite(score):  # type: ignore[no-untyped-def]
    """Opposite overflows can add up to NaN, which says nothing about either class."""
    return 0.0 if np.isnan(score) else score


@njit(cache=True)
def _score(rows, i, w, start, blocks, block):  # type: ignore[no-untyped-def]
    total = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        total += w[start + rows.slot[e] * blocks + block] * rows.value[e]
    return _finite(total)


@njit(cache=True)
def _square(rows, i, sigma, start, blocks, block, covariance):  # type: ignore[no-untyped-def]
    """x' Sigma x for the identity or a diagonal."""
    if covariance == IDENTITY:
        return rows.norm[i]
    total = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        total += sigma[start + rows.slot[e] * blocks + block] * rows.value[e] * rows.value[e]
    return total


@njit(cache=True)
def _move(rows, i, w, sigma, start, blocks, block, covariance, amount):  # type: ignore[no-untyped-def]
    """w += amount * Sigma x for the identity or a diagonal."""
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j = start + rows.slot[e] * blocks + block
        if covariance == IDENTITY:
            w[j] += amount * rows.value[e]
        else:
            w[j] += amount * sigma[j] * rows.value[e]


@njit(cache=True)
def _shrink(rows, i, sigma, start, blocks, block, covariance, v, r):  # type: ignore[no-untyped-def]
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


@njit(cache=True)
def _packed_product(rows, i, sigma, start, features, u):  # type: ignore[no-untyped-def]
    """u = Sigma x and x' Sigma x for a packed lower triangle that starts at ``start``."""
    u[:features] = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        f = rows.slot[e]
        x = rows.value[e]
        row = start + f * (f + 1) // 2
        for g in range(f + 1):
            u[g] += sigma[row + g] * x
        at = row + f
        for g in range(f + 1, features):
            at += g
            u[g] += sigma[at] * x
    v = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        v += rows.value[e] * u[rows.slot[e]]
    return v


@njit(cache=True)
def _packed_shrink(sigma, start, features, u, beta):  # type: ignore[no-untyped-def]
    """Sigma -= beta u u' on a packed lower triangle; symmetric because there is no other half."""
    for f in range(features):
        pull = beta * u[f]
        if pull != 0.0:
            row = start + f * (f + 1) // 2
            for g in range(f + 1):
                sigma[row + g] -= pull * u[g]


@njit(cache=True)
def binary(rows, layout, w, sigma, step, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row with a binary learner of the table in the module docstring."""
    u = np.empty(layout.features.max() if step.covariance == FULL and layout.features.size else 0)
    for i in range(rows.key.size):
        k = rows.key[i]
        start = layout.start[k]
        score = _score(rows, i, w, start, 1, 0)
        out.score[i] = score
        out.predicted[i] = 1 if score > 0.0 or (score == 0.0 and step.tie) else 0
        out.updated[i] = False
        out.hinge[i] = 0.0
        out.difference[i] = -1.0
        if rows.y[i] < 0:
            continue
        sign = 2.0 * rows.y[i] - 1.0
        loss = 1.0 - sign * score
        out.hinge[i] = max(0.0, loss)
        if not (rows.learn[i] and NO_LOSS < loss < np.inf):
            continue
        if step.covariance == FULL:
            v = _packed_product(rows, i, sigma, layout.packed[k], layout.features[k], u)
        else:
            v = _square(rows, i, sigma, start, 1, 0, step.covariance)
        tau = min(step.cap * rows.weight[i], loss / (v + step.q / rows.weight[i])) if _usable(v) else 0.0
        if not _usable(tau):
            continue
        out.updated[i] = True
        r = step.r / rows.weight[i] if step.weigh_r else step.r
        if step.covariance == FULL:
            for f in range(layout.features[k]):
                w[start + f] += tau * sign * u[f]
            _packed_shrink(sigma, layout.packed[k], layout.features[k], u, 1.0 / (r + v))
        else:
            _move(rows, i, w, sigma, start, 1, 0, step.covariance, tau * sign)
            if step.covariance != IDENTITY:
                _shrink(rows, i, sigma, start, 1, 0, step.covariance, v, r)


@njit(cache=True)
def _rank_wrong(loss, classes, y, constraints, order):  # type: ignore[no-untyped-def]
    """Fill ``order`` with the wrong classes of the ``constraints`` largest losses > 0, stably; return how many.

    Insertion into a sorted prefix: ties go to the earlier class, and nothing is sorted that is not used
    (theta is never negative, so a class without a loss takes no part in the solution).
    """
    count = 0
    for c in range(classes):
        if c == y or not loss[c] > 0.0:
            continue
        if count == constraints and loss[c] <= loss[order[count - 1]]:
            continue
        at = count if count < constraints else count - 1
        while at > 0 and loss[order[at - 1]] < loss[c]:
            order[at] = order[at - 1]
            at -= 1
        order[at] = c
        if count < constraints:
            count += 1
    return count


@njit(cache=True)
def multiclass(rows, layout, w, sigma, step, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row with a multiclass learner (one block of weights and variances a class)."""
    most = layout.blocks.max() if layout.blocks.size else 0
    full = step.covariance == FULL
    scores, loss, v, tau = np.zeros(most), np.zeros(most), np.zeros(most), np.zeros(most)
    order = np.zeros(most, np.int64)
    u = np.empty((most if full else 0, layout.features.max() if full and most else 0))
    for i in range(rows.key.size):
        k = rows.key[i]
        start, blocks, features = layout.start[k], layout.blocks[k], layout.features[k]
        y = rows.y[i]
        known = rows.known[i]
        classes = max(known, y + 1)
        top = -1
        for c in range(classes):
            scores[c] = _score(rows, i, w, start, blocks, c)
            if c < known and (top < 0 or scores[c] > scores[top]):
                top = c
        out.predicted[i] = top
        out.score[i] = scores[top] if top >= 0 else 0.0
        out.updated[i] = False
        out.hinge[i] = 0.0
        out.difference[i] = -1.0
        if out.scores.shape[0] > 0:
            out.scores[i, :known] = scores[:known]
        if y < 0:
            continue
        for c in range(classes):
            loss[c] = 1.0 - (scores[y] - scores[c])
        count = _rank_wrong(loss, classes, y, min(step.constraints, classes), order)
        if count == 0:
            continue
        out.hinge[i] = loss[order[0]]
        if not (rows.learn[i] and NO_LOSS < loss[order[0]] < np.inf):
            continue
        # With one constraint only the two classes' blocks are involved, else all of them.
        usable = True
        spread = 0.0
        for c in range(classes):
            if step.constraints > 1 or c == y or c == order[0]:
                if full:
                    triangle = features * (features + 1) // 2
                    v[c] = _packed_product(rows, i, sigma, layout.packed[k] + c * triangle, features, u[c])
                else:
                    v[c] = _square(rows, i, sigma, start, blocks, c, step.covariance)
                usable = usable and _usable(v[c])
                spread += v[c]
        if not (usable and _usable(spread)):
            continue
        weight = rows.weight[i]
        total = support_classes(loss, v, order, count, v[y] + step.q / weight, step.cap * weight, tau)
        if not _usable(total):
            continue
        out.updated[i] = True
        tau[y] = -total
        r = step.r / weight if step.weigh_r else step.r
        for j in range(-1, count):
            c = y if j < 0 else order[j]
            if tau[c] == 0.0:
                continue
            if full:
                for f in range(features):
                    w[start + f * blocks + c] -= tau[c] * u[c, f]
            else:
                _move(rows, i, w, sigma, start, blocks, c, step.covariance, -tau[c])
        if step.covariance == IDENTITY:
            continue
        for c in range(classes):
            if step.constraints > 1 or c == y or c == order[0]:
                if full:
                    triangle = features * (features + 1) // 2
                    _packed_shrink(sigma, layout.packed[k] + c * triangle, features, u[c], 1.0 / (r + spread))
                else:
                    _shrink(rows, i, sigma, start, blocks, c, step.covariance, spread, r)
