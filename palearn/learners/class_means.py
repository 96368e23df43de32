"""Passive-aggressive learning with class means (PAm, PAm-1, PAm-2, PAmW).

One step is the exact minimiser of 1/2 |w' - w|^2 + gamma/2 |w' - m|^2 + the penalty of the loss, where m is the
mean of the positive examples less that of the negative ones. The paper's pseudo code prints <m, w>, |w|^2 and y w
where its derivation has <m, x>, |x|^2 and y x.

Kept are the sums and counts of the two classes, so that an example moves only its own features' sums. A step
itself is dense: it costs as much as the key has features.
"""

import numpy as np

from palearn.learners.jit import kernel
from palearn.learners.sparse_ops import NO_LOSS, dot, sign_of, start_outcome, usable

#: Columns of a key's counts: negative and positive examples in the means, steps taken.
COUNTS = ("negative", "positive", "steps")


@kernel
def class_means(rows, layout, w, sums, counts, past, cap, q, gamma, queue, freeze_after, tie, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row.

    ``sums`` has two numbers a weight (negative, positive), ``past`` the last ``queue`` weight vectors that a step
    began from; ``cap`` is C of PAm-1 (else inf), ``q`` is (1 + gamma) / (2C) of PAm-2 (else 0);
    ``freeze_after`` < 0: every labelled example moves the means.
    """
    for i in range(rows.key.size):
        k, y = rows.key[i], rows.y[i]
        start, n = layout.start[k], layout.features[k]
        score = dot(rows, i, w, start, 1, 0)
        start_outcome(out, i, score, sign_of(score, tie))
        if y < 0:
            continue
        sign = 2.0 * y - 1.0
        loss = 1.0 - sign * score
        out.hinge[i] = max(0.0, loss)
        norm = rows.norm[i]
        if not (rows.learn[i] and usable(norm)):
            continue
        count = counts[3 * k : 3 * k + 3]
        if freeze_after < 0 or count[0] + count[1] < freeze_after:
            count[y] += 1.0
            for e in range(rows.ptr[i], rows.ptr[i + 1]):
                sums[2 * (start + rows.slot[e]) + y] += rows.value[e]
        if not NO_LOSS < loss < np.inf:
            continue
        negative, positive = 1.0 / max(count[0], 1.0), 1.0 / max(count[1], 1.0)
        mean_score = begin_score = 0.0
        if queue > 0:
            slot, held = int(count[2]) % queue, min(count[2] + 1.0, float(queue))
            for j in range(n):
                past[(start + j) * queue + slot] = w[start + j]
        for e in range(rows.ptr[i], rows.ptr[i + 1]):
            j, x = start + rows.slot[e], rows.value[e]
            mean_score += (sums[2 * j + 1] * positive - sums[2 * j] * negative) * x
            if queue > 0:
                begin = 0.0
                for p in range(int(held)):
                    begin += past[j * queue + p]
                begin_score += begin / held * x
        if queue == 0:
            begin_score = score
        pull = (1.0 - sign * begin_score) + gamma * (1.0 - sign * mean_score)
        weight = rows.weight[i]
        tau = min(cap * weight, max(0.0, pull / (norm + q / weight)))
        if not np.isfinite(tau):
            continue
        for j in range(start, start + n):
            begin = w[j]
            if queue > 0:
                begin = 0.0
                for p in range(int(held)):
                    begin += past[j * queue + p]
                begin /= held
            mean = sums[2 * j + 1] * positive - sums[2 * j] * negative
            w[j] = (begin + gamma * mean) / (1.0 + gamma)
        for e in range(rows.ptr[i], rows.ptr[i + 1]):
            w[start + rows.slot[e]] += tau * sign * rows.value[e] / (1.0 + gamma)
        count[2] += 1.0
        out.updated[i] = True
        out.tau[i] = tau
