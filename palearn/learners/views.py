"""Passive-aggressive learning on views that must agree (Nguyen, Chang and Hui 2012, section 3; "Two-view ...").

Each view has its own weights; the score is the mean of the scores of the P views that have features. With m_v the
margin of view v, one step solves

    minimise 1/2 sum_v |dw_v|^2 + gamma sum_{u<v} |m_u - m_v| + C xi,   xi >= 1 - mean of m_v, xi >= 0

Binary, m_v = y s_v. With many classes (ours) m_v is the score of y less that of the wrong class with the highest
mean score. More than two views, where all pairs must agree, are ours too: both from the papers' open problems.

The dual is concave in tau and delta_uv over the box 0 <= tau <= C, |delta_uv| <= gamma; view v moves by
``c_v = tau/P - sum_{v<u} delta_vu + sum_{u<v} delta_uv`` times its features. Two views have a closed form, more
are solved by an active set.

The paper's algorithm 1 is not the optimum (a factor 2 in tau, a spurious factor in alpha and beta);
``printed`` repeats it. Like the paper, a step is taken only where the mean has a loss. A view of norm 0 is
left out; one view alone is PA-I.
"""

import numpy as np

from palearn.learners.jit import kernel
from palearn.learners.sparse_ops import (
    IDENTITY,
    NO_LOSS,
    dot,
    finite,
    move,
    sign_of,
    start_classes,
    start_outcome,
    usable,
)

#: The active set is right when no multiplier's slope is more than this part of the largest;
TOLERANCE = 1e-13
#: a pivot is at least this part of the largest curve;
SMALLEST_PIVOT = 1e-15
#: and steps at most.
STEPS = 1_000


@kernel
def _clip(x, low, high):  # type: ignore[no-untyped-def]
    return min(max(x, low), high)


@kernel
def _dual(tau, delta, a, b, loss, gap):  # type: ignore[no-untyped-def]
    low, high = delta - 0.5 * tau, delta + 0.5 * tau
    return -0.5 * low * low * a - 0.5 * high * high * b + tau * loss + delta * gap


@kernel
def solve_two(a, b, loss_a, loss_b, cap, gamma):  # type: ignore[no-untyped-def]
    """Return the (tau, delta) that maximise the dual of two views.

    It is -1/2 (delta - tau/2)^2 a - 1/2 (delta + tau/2)^2 b + tau loss + delta (loss_b - loss_a), with
    ``a``, ``b`` the squared norms, > 0, ``cap`` > 0 and ``gamma`` >= 0.
    """
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


@kernel
def printed_two(a, b, loss_a, loss_b, cap, gamma):  # type: ignore[no-untyped-def]
    """Return (tau, alpha - beta) as algorithm 1 prints them."""
    lean = (loss_b / b - loss_a / a) / (a + b)
    alpha = _clip(0.5 * (gamma + lean), 0.0, gamma)
    beta = _clip(0.5 * (gamma - lean), 0.0, gamma)
    return min(cap, ((alpha - beta) * (a - b) + (loss_a + loss_b)) / (a + b)), alpha - beta


@kernel
def _newton(curve, slope, face, least, root, step):  # type: ignore[no-untyped-def]
    """Write Newton's step of the variables ``face``: their curve is L D L', D at least ``least``."""
    for i in range(face.size):
        total = slope[face[i]]
        for j in range(i):
            part = curve[face[i], face[j]]
            for m in range(j):
                part -= root[i, m] * root[j, m] * root[m, m]
            root[i, j] = part / root[j, j]
            total -= root[i, j] * step[j]
        pivot = curve[face[i], face[i]]
        for m in range(i):
            pivot -= root[i, m] * root[i, m] * root[m, m]
        root[i, i] = max(pivot, least)
        step[i] = total
    for i in range(face.size - 1, -1, -1):
        step[i] /= root[i, i]
        for j in range(i + 1, face.size):
            step[i] -= root[j, i] * step[j]


@kernel
def solve_box(curve, gain, low, high, z):  # type: ignore[no-untyped-def]
    """Minimise 1/2 z'curve z - gain'z over low <= z <= high, from a z inside, by an active set.

    Newton's step on the free variables, as far as the box lets it go: the first that meets its end is held there.
    At the minimum over the free ones, that held one is freed which gains most. Where the curve is singular the
    smallest pivot makes the step along the direction without curvature long, and the box ends it.
    """
    n = gain.size
    slope, step, root = gain.copy(), np.zeros(n), np.zeros((n, n))
    free = np.zeros(n, np.bool_)
    most_curve = largest = 1e-300
    for i in range(n):
        most_curve, largest = max(most_curve, curve[i, i]), max(largest, abs(gain[i]))
    settled = True
    for _ in range(STEPS):
        for i in range(n):
            slope[i] = gain[i]
            for j in range(n):
                slope[i] -= curve[i, j] * z[j]
        if settled:
            best, most = -1, 0.0
            for i in range(n):
                gains = slope[i] * slope[i] / curve[i, i]
                room = z[i] < high[i] if slope[i] > 0.0 else z[i] > low[i]
                if room and abs(slope[i]) > TOLERANCE * largest and gains > most:
                    best, most = i, gains
            if best < 0:
                break
            free[best] = True
        face = np.nonzero(free)[0]
        _newton(curve, slope, face, SMALLEST_PIVOT * most_curve, root, step)
        share, hit = 1.0, -1
        for i in range(face.size):
            k = face[i]
            room_left = (high[k] if step[i] > 0.0 else low[k]) - z[k]
            if abs(step[i]) * share > abs(room_left):
                share, hit = room_left / step[i], i
        for i in range(face.size):
            z[face[i]] += share * step[i]
        settled = hit < 0
        if not settled:
            k = face[hit]
            z[k] = high[k] if step[hit] > 0.0 else low[k]
            free[k] = False


@kernel
def solve_views(norm, margin, present, cap, gamma, moves):  # type: ignore[no-untyped-def]
    """Write the moves c_v of the views ``present`` (their numbers) that maximise the dual."""
    views = present.size
    n = 1 + views * (views - 1) // 2
    # How tau, and the delta of each two views, move the views.
    ways = np.zeros((n, views))
    ways[0] = 1.0 / views
    at = 1
    for s in range(views):
        for t in range(s + 1, views):
            ways[at, s], ways[at, t] = -1.0, 1.0
            at += 1
    curve, gain, z = np.zeros((n, n)), np.zeros(n), np.zeros(n)
    gain[0] = 1.0
    for s in range(views):
        v = present[s]
        for i in range(n):
            gain[i] -= ways[i, s] * margin[v]
            for j in range(n):
                curve[i, j] += ways[i, s] * norm[v] * ways[j, s]
    low, high = np.full(n, -gamma), np.full(n, gamma)
    low[0], high[0] = 0.0, cap
    solve_box(curve, gain, low, high, z)
    for s in range(views):
        moves[present[s]] = 0.0
        for i in range(n):
            moves[present[s]] += ways[i, s] * z[i]


@kernel
def _moves(norm, margin, present, cap, gamma, printed, moves):  # type: ignore[no-untyped-def]
    """Write how far each present view moves along its features."""
    if present.size == 1:
        v = present[0]
        moves[v] = min(cap, (1.0 - margin[v]) / norm[v])
    elif present.size == 2:
        a, b = present[0], present[1]
        loss_a, loss_b = 1.0 - margin[a], 1.0 - margin[b]
        if printed:
            tau, lean = printed_two(norm[a], norm[b], loss_a, loss_b, cap, gamma)
        else:
            tau, lean = solve_two(norm[a], norm[b], loss_a, loss_b, cap, gamma)
        moves[a], moves[b] = 0.5 * tau - lean, 0.5 * tau + lean
    else:
        solve_views(norm, margin, present, cap, gamma, moves)


@kernel
def _disagreement(scores, present, c):  # type: ignore[no-untyped-def]
    """Return the mean over pairs of |score of one view - score of the other|, -1 without a pair."""
    pairs, total = 0, 0.0
    for s in range(present.size):
        for t in range(s + 1, present.size):
            total += abs(scores[present[s], c] - scores[present[t], c])
            pairs += 1
    return finite(total / pairs) if pairs else -1.0


@kernel
def agreeing_views(views, layout, w, cap, gamma, multiclass, printed, tie, out):  # type: ignore[no-untyped-def]
    """Score, then learn, each row; ``views`` is a tuple of the views' rows of the same examples."""
    count = len(views)
    most = layout.blocks.max() if layout.blocks.size else 0
    scores, mean = np.zeros((count, most)), np.zeros(most)
    norm, margin, moves = np.zeros(count), np.zeros(count), np.zeros(count)
    order = np.zeros(count, np.int64)
    first = views[0]
    for i in range(first.key.size):
        k, y, known = first.key[i], first.y[i], first.known[i]
        start, blocks = layout.start[k], layout.blocks[k]
        classes = max(known, y + 1) if multiclass else 1
        held = 0
        for v in range(count):
            norm[v] = views[v].norm[i]
            if norm[v] > 0.0:
                order[held] = v
                held += 1
        present = order[:held]
        for c in range(classes):
            total = 0.0
            for v in present:
                scores[v, c] = dot(views[v], i, w, start, blocks, c)
                total += scores[v, c]
            mean[c] = finite(total / held) if held else 0.0
        if multiclass:
            compared = start_classes(out, i, mean, known)
        else:
            compared = 0
            start_outcome(out, i, mean[0], sign_of(mean[0], tie))
        if compared >= 0:
            out.difference[i] = _disagreement(scores, present, compared)
        if y < 0:
            continue
        wrong = -1
        sign = 1.0
        if multiclass:
            for c in range(classes):
                if c != y and (wrong < 0 or mean[c] > mean[wrong]):
                    wrong = c
            if wrong < 0:
                continue
            loss = 1.0 - (mean[y] - mean[wrong])
        else:
            sign = 2.0 * y - 1.0
            loss = 1.0 - sign * mean[0]
        out.hinge[i] = max(0.0, loss)
        usable_all = True
        for v in present:
            usable_all = usable_all and usable(norm[v])
        if not (first.learn[i] and NO_LOSS < loss < np.inf and usable_all and held > 0):
            continue
        for v in present:
            # A step along f(x, y) - f(x, wrong) has twice the squared norm of x.
            margin[v] = scores[v, y] - scores[v, wrong] if multiclass else sign * scores[v, 0]
            norm[v] *= 2.0 if multiclass else 1.0
        _moves(norm, margin, present, cap * first.weight[i], gamma, printed, moves)
        moved = False
        for v in present:
            moved = moved or moves[v] != 0.0
            usable_all = usable_all and np.isfinite(moves[v])
        if not usable_all:
            continue
        out.updated[i] = moved
        for v in present:
            if multiclass:
                move(views[v], i, w, w, start, blocks, y, IDENTITY, moves[v])
                move(views[v], i, w, w, start, blocks, wrong, IDENTITY, -moves[v])
            else:
                move(views[v], i, w, w, start, 1, 0, IDENTITY, moves[v] * sign)
