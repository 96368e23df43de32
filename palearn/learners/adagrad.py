"""AdaGrad with regularised dual averaging and L1 (Duchi, Hazan and Singer 2011, eq. 24; AROW's baseline).

Kept are the sum u of the gradients of the hinge loss, that of their squares G, and the number t of examples. A
weight is computed when it is read: w = -sign(u) max(0, |u| - l1 t) eta / (delta + sqrt(G)).
"""

import numpy as np

from palearn.learners.jit import kernel
from palearn.learners.sparse_ops import NO_LOSS, finite, sign_of, start_classes, start_outcome, usable
from palearn.learners.step_sizes import rank_wrong


@kernel
def _weight(gradient, squares, t, eta, delta, l1):  # type: ignore[no-untyped-def]
    """Return the weight of one feature."""
    size, scale = abs(gradient) - l1 * t, delta + np.sqrt(squares)
    if not (size > 0.0 and scale > 0.0):  # a gradient whose square underflows is none
        return 0.0
    amount = size * eta / scale
    return -amount if gradient > 0.0 else amount


@kernel
def weights(gradients, squares, t, start, eta, delta, l1):  # type: ignore[no-untyped-def]
    """Return the weights of all keys; ``t`` is one number a key."""
    out = np.empty(gradients.size)
    for k in range(t.size):
        for j in range(start[k], start[k + 1]):
            out[j] = _weight(gradients[j], squares[j], t[k], eta, delta, l1)
    return out


@kernel
def _score(rows, i, start, blocks, c, u, squares, t, eta, delta, l1):  # type: ignore[no-untyped-def]
    total = 0.0
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j = start + rows.slot[e] * blocks + c
        total += _weight(u[j], squares[j], t, eta, delta, l1) * rows.value[e]
    return finite(total)


@kernel
def _add(rows, i, start, blocks, c, u, squares, amount):  # type: ignore[no-untyped-def]
    """Add the gradient amount * x."""
    for e in range(rows.ptr[i], rows.ptr[i + 1]):
        j = start + rows.slot[e] * blocks + c
        g = amount * rows.value[e]
        u[j] += g
        squares[j] += g * g


@kernel
def adagrad(rows, layout, u, squares, t, eta, delta, l1, multiclass, tie, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row."""
    most = layout.blocks.max() if layout.blocks.size else 0
    scores, loss, order = np.zeros(most), np.zeros(most), np.zeros(most, np.int64)
    for i in range(rows.key.size):
        k, y, known = rows.key[i], rows.y[i], rows.known[i]
        start, blocks = layout.start[k], layout.blocks[k]
        classes = max(known, y + 1) if multiclass else 1
        for c in range(classes):
            scores[c] = _score(rows, i, start, blocks, c, u, squares, t[k], eta, delta, l1)
        if multiclass:
            start_classes(out, i, scores, known)
        else:
            start_outcome(out, i, scores[0], sign_of(scores[0], tie))
        if y < 0:
            continue
        amount = rows.weight[i]
        learns = rows.learn[i] and usable(rows.norm[i])
        steps = learns and usable(amount * amount * rows.norm[i])  # the squared gradient
        if multiclass:
            for c in range(classes):
                loss[c] = 1.0 - (scores[y] - scores[c])
            if rank_wrong(loss, classes, y, 1, 0.0, order):
                wrong = order[0]
                out.hinge[i] = loss[wrong]
                if steps and NO_LOSS < loss[wrong] < np.inf:
                    _add(rows, i, start, blocks, y, u, squares, -amount)
                    _add(rows, i, start, blocks, wrong, u, squares, amount)
                    out.updated[i] = True
        else:
            sign = 2.0 * y - 1.0
            lost = 1.0 - sign * scores[0]
            out.hinge[i] = max(0.0, lost)
            if steps and NO_LOSS < lost < np.inf:
                _add(rows, i, start, 1, 0, u, squares, -sign * amount)
                out.updated[i] = True
                out.tau[i] = amount
        t[k] += learns
