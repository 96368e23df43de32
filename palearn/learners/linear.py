"""The kernels of most learners: score and learn rows with a rule of :mod:`palearn.learners.step_sizes`.

``binary`` and ``multiclass`` keep one covariance a block (none, a diagonal or a full one), ``joint`` one over the
weights of all classes. Arrays are changed in place.
"""

import numpy as np

from palearn.learners import factored_covariance
from palearn.learners.jit import inlined, kernel
from palearn.learners.sparse_ops import (
    FULL,
    IDENTITY,
    JOINT,
    dot,
    move,
    shrink,
    sign_of,
    square,
    start_classes,
    start_outcome,
    usable,
)
from palearn.learners.step_sizes import (
    EXACT,
    PASSIVE_AGGRESSIVE,
    is_active,
    printed_support_classes,
    rank_wrong,
    step_size,
    support_classes,
)

#: The joint problem is solved until no multiplier moves its constraint by more than this part of the largest loss.
TOLERANCE = 1e-13
#: Passes over the multipliers, at most.
SWEEPS = 10_000


@kernel
def binary(rows, layout, w, sigma, step, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row with one block of weights."""
    full = step.covariance == FULL
    most = layout.features.max() if full and layout.features.size else 0
    f, g, b = np.empty(most), np.empty(most), np.empty(most)
    for i in range(rows.key.size):
        k = rows.key[i]
        start = layout.start[k]
        score = dot(rows, i, w, start, 1, 0)
        start_outcome(out, i, score, sign_of(score, step.tie))
        if rows.y[i] < 0:
            continue
        sign = 2.0 * rows.y[i] - 1.0
        margin = sign * score
        out.hinge[i] = max(0.0, 1.0 - margin)
        if not (rows.learn[i] and is_active(step, margin, out.predicted[i] != rows.y[i])):
            continue
        n = layout.features[k]
        if full:
            factored_covariance.times(
                sigma, layout.packed[k], n, rows.slot, rows.value, rows.ptr[i], rows.ptr[i + 1], 1, 0, f
            )
            v = factored_covariance.project(sigma, layout.packed[k], n, f, g)
        else:
            v = square(rows, i, sigma, start, 1, 0, step.covariance)
        if not usable(v):
            continue
        tau, r = step_size(step, margin, v, rows.weight[i])
        if not usable(tau):
            continue
        out.updated[i] = True
        out.tau[i] = tau
        learns = usable(r) and r + v < np.inf
        if full:
            if learns:
                factored_covariance.shrink(sigma, layout.packed[k], n, f, g, r, b)
            else:
                factored_covariance.spread(sigma, layout.packed[k], n, g, b)
            for j in range(n):
                w[start + j] += tau * sign * b[j]
        else:
            move(rows, i, w, sigma, start, 1, 0, step.covariance, tau * sign)
            if step.covariance != IDENTITY and learns:
                shrink(rows, i, sigma, start, 1, 0, step.covariance, v, r)


@kernel
def _score_classes(rows, i, layout, w, scores, out):  # type: ignore[no-untyped-def]
    """Score every class the row may have; returns how many. Writes the prediction, of the classes known before."""
    k, known = rows.key[i], rows.known[i]
    classes = max(known, rows.y[i] + 1)
    for c in range(classes):
        scores[c] = dot(rows, i, w, layout.start[k], layout.blocks[k], c)
    start_classes(out, i, scores, known)
    return classes


@kernel
def _rank(rows, i, step, classes, scores, loss, order, out):  # type: ignore[no-untyped-def]
    """Rank the wrong classes that take part by their loss; returns how many, 0 where nothing is learned."""
    y = rows.y[i]
    if y < 0:
        return 0
    for c in range(classes):
        loss[c] = 1.0 - (scores[y] - scores[c])
    # With a joint covariance a step for one class can cost another its margin, so those without a loss take part too.
    alone = step.rule == PASSIVE_AGGRESSIVE and step.covariance != JOINT
    least = 0.0 if alone else -np.inf
    count = rank_wrong(loss, classes, y, min(step.constraints, classes), least, order)
    if count == 0:
        return 0
    top = loss[order[0]]
    out.hinge[i] = max(0.0, top)
    return count if rows.learn[i] and is_active(step, 1.0 - top, out.predicted[i] != y) else 0


@kernel
def multiclass(rows, layout, w, sigma, step, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row with one block of weights, and one covariance, a class."""
    most = layout.blocks.max() if layout.blocks.size else 0
    scores, loss, v, tau = np.zeros(most), np.zeros(most), np.zeros(most), np.zeros(most)
    order, changed = np.zeros(most, np.int64), np.zeros(most, np.int64)
    full = step.covariance == FULL
    shape = (most if full else 0, layout.features.max() if full and most else 0)
    f, g, b = np.empty(shape), np.empty(shape), np.empty(shape[1])
    for i in range(rows.key.size):
        classes = _score_classes(rows, i, layout, w, scores, out)
        count = _rank(rows, i, step, classes, scores, loss, order, out)
        if count == 0:
            continue
        y = rows.y[i]
        blocks = changed[: _changed(step, classes, y, order[0], changed)]
        total_v = _project_classes(rows, i, layout, sigma, step, blocks, f, g, v)
        if not usable(total_v):
            continue
        total, r = _class_steps(step, rows.weight[i], loss, v, y, order, count, total_v, tau)
        if not usable(total):
            continue
        out.updated[i] = True
        tau[y] = -total
        _move_classes(rows, i, layout, w, sigma, step, y, order[:count], tau, g, b)
        if step.covariance != IDENTITY and usable(r) and r + total_v < np.inf:
            _shrink_classes(rows, i, layout, sigma, step, blocks, v, total_v, r, f, g, b)


@inlined
def _changed(step, classes, y, wrong, changed):  # type: ignore[no-untyped-def]
    """Write the classes whose blocks a step changes, ascending; returns how many.

    With one constraint only the label's block and that of the wrong class are involved, else all of them.
    """
    count = 0
    for c in range(classes):
        if step.constraints > 1 or c == y or c == wrong:
            changed[count] = c
            count += 1
    return count


@inlined
def _project_classes(rows, i, layout, sigma, step, blocks, f, g, v):  # type: ignore[no-untyped-def]
    """Write v_c = x' Sigma_c x of the blocks; returns their sum, NaN where one of them is of no use."""
    k = rows.key[i]
    features = layout.features[k]
    usable_all = True
    total = 0.0
    for c in blocks:
        if step.covariance == FULL:
            at = layout.packed[k] + c * (features * (features + 1) // 2)
            low, high = rows.ptr[i], rows.ptr[i + 1]
            factored_covariance.times(sigma, at, features, rows.slot, rows.value, low, high, 1, 0, f[c])
            v[c] = factored_covariance.project(sigma, at, features, f[c], g[c])
        else:
            v[c] = square(rows, i, sigma, layout.start[k], layout.blocks[k], c, step.covariance)
        usable_all = usable_all and usable(v[c])
        total += v[c]
    return total if usable_all else np.nan


@inlined
def _class_steps(step, weight, loss, v, y, order, count, total_v, tau):  # type: ignore[no-untyped-def]
    """Write the steps of the wrong classes in ``order``; returns their sum and r, the noise of the shrinking."""
    if step.rule != PASSIVE_AGGRESSIVE:
        total, r = step_size(step, 1.0 - loss[order[0]], total_v, weight)
        tau[order[0]] = total
        return total, r
    cap, q = step.cap * weight, step.q / weight
    if step.printed == EXACT:
        total = support_classes(loss, v, order, count, v[y] + q, cap, tau)
    else:
        total = printed_support_classes(step.printed, loss, v[y], order, count, q, cap, tau)
    return total, step.r / weight if step.weigh_r else step.r


@inlined
def _move_classes(rows, i, layout, w, sigma, step, y, wrong, tau, g, b):  # type: ignore[no-untyped-def]
    """Move the weights of the label's class, then of the wrong ones, each against its ``tau``."""
    k = rows.key[i]
    start, blocks, features = layout.start[k], layout.blocks[k], layout.features[k]
    for j in range(-1, wrong.size):
        c = y if j < 0 else wrong[j]
        if tau[c] == 0.0:
            continue
        if step.covariance == FULL:
            at = layout.packed[k] + c * (features * (features + 1) // 2)
            factored_covariance.spread(sigma, at, features, g[c], b)
            for m in range(features):
                w[start + m * blocks + c] -= tau[c] * b[m]
        else:
            move(rows, i, w, sigma, start, blocks, c, step.covariance, -tau[c])


@inlined
def _shrink_classes(rows, i, layout, sigma, step, blocks, v, total_v, r, f, g, b):  # type: ignore[no-untyped-def]
    """Shrink the covariances of the blocks by what one constraint over all of them says."""
    k = rows.key[i]
    features = layout.features[k]
    for c in blocks:
        if step.covariance == FULL:
            # The others' share of total_v counts as noise: r + v of this block is r + total_v.
            others = 0.0
            for d in blocks:
                if d != c:
                    others += v[d]
            at = layout.packed[k] + c * (features * (features + 1) // 2)
            factored_covariance.shrink(sigma, at, features, f[c], g[c], r + others, b)
        else:
            shrink(rows, i, sigma, layout.start[k], layout.blocks[k], c, step.covariance, total_v, r)


@kernel
def solve_joint(gram, loss, count, q, cap, tau):  # type: ignore[no-untyped-def]
    """Maximise loss'tau - 1/2 tau'(gram + q 11')tau over tau >= 0, sum(tau) <= cap, by coordinate ascent.

    Hildreth's method. Pairs are moved too, one up and the other down: a step along one coordinate is not enough
    where the cap binds, and all but blocked by q where that is much more than gram. Writes tau and returns the sum.
    """
    tau[:count] = 0.0
    slope = loss[:count].copy()
    total = 0.0
    enough = TOLERANCE * loss[:count].max()
    for _ in range(SWEEPS):
        worst = 0.0
        for u in range(count):
            curve = gram[u, u] + q
            new = min(max(tau[u] + slope[u] / curve, 0.0), max(cap - (total - tau[u]), 0.0))
            change = new - tau[u]
            if change != 0.0:
                tau[u] = new
                total += change
                worst = max(worst, abs(change) * curve)
                for t in range(count):
                    slope[t] -= change * (gram[u, t] + q)
        for u in range(count):
            for t in range(u):
                curve = gram[u, u] + gram[t, t] - 2.0 * gram[u, t]
                if not curve > 0.0:
                    continue
                change = min(max((slope[u] - slope[t]) / curve, -tau[u]), tau[t])
                if change != 0.0:
                    tau[u] += change
                    tau[t] -= change
                    worst = max(worst, abs(change) * curve)
                    for s in range(count):
                        slope[s] -= change * (gram[u, s] - gram[t, s])
        if worst <= enough:
            break
    total = 0.0
    for u in range(count):
        total += tau[u]
    return total


@kernel
def joint(rows, layout, w, sigma, step, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row with one covariance over the weights of all classes (AROW, eq. 25-30)."""
    most = layout.blocks.max() if layout.blocks.size else 0
    size = (layout.features * layout.blocks).max() if most else 0
    scores, loss, ranked, tau = np.zeros(most), np.zeros(most), np.zeros(most), np.zeros(most)
    order = np.zeros(most, np.int64)
    f, g = np.empty((most, size)), np.empty((most, size))
    all_f, all_g, b = np.empty(size), np.empty(size), np.empty(size)
    gram = np.empty((most, most))
    for i in range(rows.key.size):
        k = rows.key[i]
        classes = _score_classes(rows, i, layout, w, scores, out)
        count = _rank(rows, i, step, classes, scores, loss, order, out)
        if count == 0:
            continue
        n, at, weight = layout.features[k] * layout.blocks[k], layout.joint[k], rows.weight[i]
        if not _project_constraints(rows, i, layout, sigma, order[:count], f, g):
            continue
        for j in range(count):
            ranked[j] = loss[order[j]]
        _fill_gram(gram, f[:count, :n], g[:count, :n])
        total = solve_joint(gram, ranked, count, step.q / weight, step.cap * weight, tau)
        if not usable(total):
            continue
        out.updated[i] = True
        all_g[:n] = 0.0
        for u in range(count):
            for m in range(n):
                all_g[m] += tau[u] * g[u, m]
        factored_covariance.spread(sigma, at, n, all_g, b)
        for m in range(n):
            w[layout.start[k] + m] += b[m]
        if step.constraints > 1:
            v = _project_example(rows, i, layout, sigma, classes, all_f, all_g)
        else:
            all_f[:n], all_g[:n] = f[0, :n], g[0, :n]
            v = gram[0, 0]
        r = step.r / weight if step.weigh_r else step.r
        if usable(v) and r + v < np.inf:
            factored_covariance.shrink(sigma, at, n, all_f, all_g, r, b)


@inlined
def _project_constraints(rows, i, layout, sigma, wrong, f, g):  # type: ignore[no-untyped-def]
    """Write f = U'a and g = D f for a = f(x, y) - f(x, u) of every wrong class u; returns whether all are usable."""
    k, y = rows.key[i], rows.y[i]
    blocks, low, high = layout.blocks[k], rows.ptr[i], rows.ptr[i + 1]
    n, at = layout.features[k] * blocks, layout.joint[k]
    usable_all = True
    for j in range(wrong.size):
        factored_covariance.times(sigma, at, n, rows.slot, rows.value, low, high, blocks, y, f[j])
        factored_covariance.add_times(sigma, at, n, rows.slot, rows.value, low, high, blocks, wrong[j], -1.0, f[j])
        usable_all = usable_all and usable(factored_covariance.project(sigma, at, n, f[j], g[j]))
    return usable_all


@inlined
def _project_example(rows, i, layout, sigma, classes, f, g):  # type: ignore[no-untyped-def]
    """Write f = U'a and g = D f for a, the sum of f(x, c) over all classes; returns a' Sigma a."""
    k = rows.key[i]
    blocks, low, high = layout.blocks[k], rows.ptr[i], rows.ptr[i + 1]
    n, at = layout.features[k] * blocks, layout.joint[k]
    f[:n] = 0.0
    for c in range(classes):
        factored_covariance.add_times(sigma, at, n, rows.slot, rows.value, low, high, blocks, c, 1.0, f)
    return factored_covariance.project(sigma, at, n, f, g)


@inlined
def _fill_gram(gram, f, g):  # type: ignore[no-untyped-def]
    """Write gram[u, t] = a_u' Sigma a_t = f[u].g[t]."""
    for u in range(f.shape[0]):
        for t in range(u + 1):
            total = 0.0
            for m in range(f.shape[1]):
                total += f[u, m] * g[t, m]
            gram[u, t] = gram[t, u] = total
