"""Step sizes: from an example's margin M, V = x' Sigma x and its weight to (tau, r).

The weights move by ``w += tau y Sigma x`` and the covariance by ``Sigma -= Sigma x x' Sigma / (r + V)``, which
adds ``x x' / r`` to its inverse. So a rule is two numbers, whatever the form of the covariance.

Of many constraints at once (multiclass) only the passive-aggressive problem is solved
(Crammer et al. 2006; Matsushima et al. 2010, section 3; Crammer, Kulesza and Dredze 2009, eq. 25-27)::

    minimise over tau >= 0, sum(tau) <= cap:
        1/2 sum_u v_u tau_u^2 + 1/2 q (sum_u tau_u)^2 - sum_u loss_u tau_u

where u runs over the wrong classes that take part, ``loss_u = 1 - (score_y - score_u)`` and
``v_u = x' Sigma_u x``; then ``w_y += (sum tau) Sigma_y x`` and ``w_u -= tau_u Sigma_u x``. The binary problem is
the one with a single constraint: ``tau = min(cap, loss / (v + q))``. The other rules take the strongest wrong
class alone, with M = score_y - score_u and V = v_y + v_u.
"""

from typing import NamedTuple

import numpy as np

from palearn.learners.jit import kernel
from palearn.learners.sparse_ops import NO_LOSS

PASSIVE_AGGRESSIVE, PERCEPTRON, CW, SCW, SCW2, NHERD = 0, 1, 2, 3, 4, 5
#: Formulas that a paper prints and that are not the optimum of the problem it states.
EXACT, PRINTED_PA, PRINTED_SPA1, PRINTED_SPA2 = 0, 1, 2, 3


class Step(NamedTuple):
    """The constants of a rule.

    ``rule``: one of the names above; ``cap``, ``q``: as in the problem above (multiclass adds v_y to q);
    SCW and SCW-II: cap = C and q = 1/(2C), NHERD: q = 1/C; ``phi``: confidence of CW and SCW;
    ``r``: the covariance rule's, where it does not follow from the step; ``weigh_r``: whether an example's weight
    divides r; ``constraints``: how many wrong classes take part; ``covariance``: IDENTITY, DIAGONAL,
    DIAGONAL_PRECISION, FULL or JOINT; ``printed``: EXACT, or whose misprint is repeated;
    ``tie``: a binary score of exactly 0 predicts the positive class.
    """

    rule: int
    cap: float
    q: float
    phi: float
    r: float
    weigh_r: bool
    constraints: int
    covariance: int
    printed: int
    tie: bool


@kernel
def is_active(step, margin, mistake):  # type: ignore[no-untyped-def]
    """Whether the rule may take a step, as far as that is known without V."""
    if step.rule == PERCEPTRON:
        return mistake
    if step.rule == PASSIVE_AGGRESSIVE or step.rule == NHERD:
        return NO_LOSS < 1.0 - margin and margin > -np.inf
    return np.isfinite(margin)


@kernel
def step_size(step, margin, v, weight):  # type: ignore[no-untyped-def]
    """Return (tau, r); tau = 0 is no step. ``v`` is a positive finite number."""
    cap, q = step.cap * weight, step.q / weight
    if step.rule == PASSIVE_AGGRESSIVE:
        return min(cap, (1.0 - margin) / (v + q)), (step.r / weight if step.weigh_r else step.r)
    if step.rule == PERCEPTRON:
        return (weight if weight * np.sqrt(v) < np.inf else 0.0), step.r
    if step.rule == NHERD:
        # (C^2 v + 2C) / (1 + Cv)^2 is 1 / (r + v) for this r.
        return (1.0 - margin) / (v + q), q * (q / (v + 2.0 * q))
    if step.rule == CW:
        tau = _cw(margin, v, step.phi)
        return tau, 1.0 / (2.0 * tau * step.phi) if tau > 0.0 else np.inf
    tau = _scw(margin, v, step.phi, cap) if step.rule == SCW else _scw2(margin, v, step.phi, q)
    if not tau > 0.0:
        return 0.0, np.inf
    # beta = tau phi / (root_u + v tau phi) is 1 / (r + v) for r = root_u / (tau phi).
    pull = tau * v * step.phi
    root_u = 2.0 * v / (pull + np.sqrt(pull * pull + 4.0 * v))
    return tau, root_u / (tau * step.phi)


@kernel
def _cw(margin, v, phi):  # type: ignore[no-untyped-def]
    """CW, variance form (Dredze, Crammer and Pereira 2008, eq. 8-10; PAM section 3.1): alpha.

    The positive root of 2 phi V^2 a^2 ... written so that nothing cancels where 1 + 2 phi M > 0.
    """
    loss = phi * v - margin
    if not loss > NO_LOSS:
        return 0.0
    b = 1.0 + 2.0 * phi * margin
    root = np.sqrt(b * b + 8.0 * phi * loss)
    return 2.0 * loss / (v * (b + root)) if b > 0.0 else (root - b) / (4.0 * phi * v)


@kernel
def _scw(margin, v, phi, cap):  # type: ignore[no-untyped-def]
    """SCW-I (Wang, Zhao and Hoi 2012, proposition 1); with cap = inf CW's standard-deviation form."""
    deviation = np.sqrt(v)
    loss = phi * deviation - margin
    if not loss > NO_LOSS:
        return 0.0
    square = phi * phi
    psi, zeta = 1.0 + 0.5 * square, 1.0 + square
    half = 0.5 * margin * square
    root = np.sqrt(half * half + v * square * zeta)
    if margin > 0.0:  # the same, multiplied by the conjugate: nothing cancels
        return min(cap, loss * (phi * deviation + margin) / (v * (margin * psi + root)))
    return min(cap, (root - margin * psi) / (v * zeta))


@kernel
def _scw2(margin, v, phi, q):  # type: ignore[no-untyped-def]
    """SCW-II (Wang, Zhao and Hoi 2012, proposition 2), q = 1/(2C)."""
    deviation = np.sqrt(v)
    loss = phi * deviation - margin
    if not loss > NO_LOSS:
        return 0.0
    square = phi * phi
    n = v + q
    share = square * (v / n)  # all is divided by n: its square would overflow long before v does
    outer, part = 2.0 + share, share * margin
    root = np.sqrt(part * part + 4.0 * square * (1.0 + share) * v)
    if margin > 0.0:
        return 2.0 * (loss / n) * ((phi * deviation + margin) / (root + margin * outer))
    return (root - margin * outer) / (2.0 * n * (1.0 + share))


@kernel
def support_classes(loss, v, order, count, q, cap, tau):  # type: ignore[no-untyped-def]
    """Solve the step's problem exactly; the losses of ``order[:count]`` are in decreasing order.

    Writes ``tau`` for the classes of ``order[:count]`` and returns their sum. O(count): add classes while
    their loss is above a threshold theta, then take ``tau = max(0, (loss - theta) / v)``.
    """
    total = _fill(loss, v, order, count, q, np.inf, tau)
    return total if total <= cap else _fill(loss, v, order, count, q, cap, tau)


@kernel
def _fill(loss, v, order, count, q, cap, tau):  # type: ignore[no-untyped-def]
    """Take the tau whose sum is ``cap``, or with cap = inf those that q holds back.

    With A = sum(loss / v) and B = sum(1 / v) theta is (A - cap) / B, or q A / (1 + q B). Where v is small beside q, or
    cap beside loss / v, loss - theta would be all rounding. So it is built up from the least loss of the support, l,
    as (cap - D) / B, or (l - q D) / (1 + q B), with D = sum((loss - l) / v): here all in units that cannot overflow.
    """
    least = np.inf
    for j in range(count):
        least = min(least, v[order[j]])
    own, held = (least / (least + q), q / (least + q)) if cap == np.inf else (0.0, 1.0)
    b = d = above = 0.0
    last, support = loss[order[0]], 0
    for j in range(count):
        u = order[j]
        tau[u] = 0.0
        if support < j:
            continue
        more = d + (last - loss[u]) * b
        room = (loss[u] * own if cap == np.inf else cap * least) - held * more
        if room > 0.0:
            b += least / v[u]
            above = room / (own + held * b)
            d, last, support = more, loss[u], j + 1
    total = 0.0
    for j in range(support):
        u = order[j]
        tau[u] = (above + (loss[u] - last)) / v[u]
        total += tau[u]
    return total


@kernel
def printed_support_classes(printed, loss, norm, order, count, q, cap, tau):  # type: ignore[no-untyped-def]
    """Like :func:`support_classes` for first-order learners, with the formulas as table 2 of SPA prints them.

    ``q`` is 1/(2C) of SPA-II, ``cap`` C of SPA-I. PA-I is capped at C/2, PA-II divides by 2|x|^2 + 1/C; SPA-I has
    the wrong sign in theta and a wrong support condition, SPA-II a wrong denominator.
    """
    if printed == PRINTED_PA:
        u = order[0]
        tau[u] = min(0.5 * cap, 0.5 * loss[u] / (norm + q))
        return tau[u]
    total = sum_of_support = theta = 0.0
    for j in range(count):
        k, own = j + 1, loss[order[j]]
        if printed == PRINTED_SPA1:
            support = total < min((k + 1) * cap / norm - own, k * own)
        else:
            support = total < (k * norm + (k - 1) * q) / (norm + q) * own
        total += own
        if support:
            sum_of_support = total
            if printed == PRINTED_SPA1:
                theta = max((sum_of_support + cap * norm) / k, sum_of_support / (k + 1))
            else:
                theta = (norm + q) / ((k + 1) * norm + q) * sum_of_support
    if sum_of_support == 0.0:
        for j in range(count):
            tau[order[j]] = 0.0
        return 0.0
    v = np.full(loss.size, norm)
    return _take(loss, v, order, count, theta, tau)


@kernel
def _take(loss, v, order, count, theta, tau):  # type: ignore[no-untyped-def]
    total = 0.0
    for j in range(count):
        u = order[j]
        tau[u] = max(0.0, (loss[u] - theta) / v[u])
        total += tau[u]
    return total


@kernel
def rank_wrong(loss, classes, y, constraints, least, order):  # type: ignore[no-untyped-def]
    """Fill ``order`` with the wrong classes of the ``constraints`` largest losses > least, stably; return how many.

    Insertion into a sorted prefix: ties go to the earlier class, and nothing is sorted that is not used
    (for passive-aggressive steps ``least`` is 0: theta is never negative, so a class without a loss takes no part).
    """
    count = 0
    for c in range(classes):
        if c == y or not loss[c] > least:
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
