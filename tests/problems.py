"""The minimisation problems that the learners' steps solve, and slow solvers for them.

Nothing here comes from palearn, and no solver uses a learner's closed form: a dual is searched face by face, a
stationary point is bracketed, or scipy's general solver gets the problem as it is stated.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq, minimize

Vector = NDArray[np.float64]
Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Slack:
    """The price of a missed margin: ``price * xi`` (power 1), ``price * xi**2`` (2), or it is not allowed (0)."""

    power: int = 0
    price: float = 0.0


@dataclass(frozen=True)
class Step:
    """One example's problem, over the weights of all blocks laid end to end.

    minimise  1/2 (w - start)' inv(sigma) (w - start) + pull/2 |w - mean|^2
              + price xi^power + gamma sum_i |(agree w)_i|
    such that margins w >= 1 - xi,  xi >= 0
    """

    start: Vector
    sigma: Matrix
    margins: Matrix
    slack: Slack
    gamma: float = 0.0
    agree: Matrix | None = None
    pull: float = 0.0
    mean: Vector | None = None

    def hinge(self, w: Vector) -> float:
        """Largest hinge loss over the constraints."""
        return max(0.0, float(np.max(1.0 - self.margins @ w)))

    def objective(self, w: Vector) -> float:
        """Value of the problem at `w`, the slack being as small as `w` allows; hard margins: without them."""
        moved = w - self.start
        value = 0.5 * float(moved @ np.linalg.solve(self.sigma, moved))
        if self.slack.power:
            value += self.slack.price * self.hinge(w) ** self.slack.power
        if self.agree is not None:
            value += self.gamma * float(np.abs(self.agree @ w).sum())
        if self.mean is not None:
            value += 0.5 * self.pull * float((w - self.mean) @ (w - self.mean))
        return value

    def violation(self, w: Vector) -> float:
        """By how much `w` misses a hard margin."""
        return 0.0 if self.slack.power else self.hinge(w)

    def bowl(self) -> tuple[Vector, Matrix]:
        """Return where the quadratic part is least, and the inverse of its curvature."""
        if self.mean is None:
            return self.start, self.sigma
        curvature = np.linalg.inv(self.sigma) + self.pull * np.eye(len(self.start))
        slope = np.linalg.solve(self.sigma, self.start) + self.pull * self.mean
        return np.linalg.solve(curvature, slope), np.linalg.inv(curvature)

    def solve_exact(self) -> Vector:
        """Return the minimiser, from the dual: a concave quadratic of tau (a margin each) and delta (a pair each)."""
        start, sigma = self.bowl()
        rows, n = self.margins, len(self.margins)
        gain = 1.0 - rows @ start
        ends = [(0.0, np.inf)] * n
        if self.agree is not None:
            rows = np.vstack([rows, -self.agree])
            gain = np.append(gain, self.agree @ start)
            ends += [(-self.gamma, self.gamma)] * len(self.agree)
        curve = rows @ sigma @ rows.T
        capped = np.array([1.0] * n + [0.0] * (len(rows) - n))
        if self.slack.power == 2:
            curve = curve + np.outer(capped, capped) / (2.0 * self.slack.price)
        cap = self.slack.price if self.slack.power == 1 else np.inf
        if n == 1:  # then the cap is an end like the others
            ends[0], cap = (0.0, cap), np.inf
        dual = minimise_by_faces(curve, gain, ends, capped, cap)
        return np.asarray(start + sigma @ (rows.T @ dual))

    def solve_scipy(self) -> Vector:
        """Return the minimiser as SLSQP finds it on the primal, in w = start + root z, root root' = sigma."""
        start, sigma = self.bowl()
        root, n, m = np.linalg.cholesky(sigma), len(start), len(self.margins)
        price, power = self.slack.price, self.slack.power
        agree = np.zeros((0, n)) if self.agree is None else self.agree
        pairs = len(agree)
        # Unknowns: z, xi, and t >= |agree w|.
        rows = np.vstack([self.margins, agree, -agree]) @ root
        normals = np.zeros((m + 2 * pairs, n + 1 + pairs))
        normals[:, :n], normals[:m, n] = rows, 1.0
        normals[m:, n + 1 :] = np.vstack([np.eye(pairs)] * 2)
        apart = agree @ start
        offsets = np.concatenate([1.0 - self.margins @ start, -apart, apart])

        def value(z: Vector) -> float:
            return float(0.5 * z[:n] @ z[:n] + price * z[n] ** power + self.gamma * z[n + 1 :].sum())

        def slope(z: Vector) -> Vector:
            return np.concatenate([z[:n], [price if power == 1 else 2.0 * price * z[n]], np.full(pairs, self.gamma)])

        first = max(0.0, np.max(offsets[:m])) if power else 0.0
        found = minimize(
            value,
            np.concatenate([np.zeros(n), [first], np.abs(apart)]),
            jac=slope,
            method="SLSQP",
            bounds=[(None, None)] * n + [(0.0, None if power else 0.0)] + [(0.0, None)] * pairs,
            constraints={"type": "ineq", "fun": lambda z: normals @ z - offsets, "jac": lambda _: normals},
            options={"ftol": 1e-16, "maxiter": 500},
        )
        return np.asarray(start + root @ found.x[:n])


def minimise_by_faces(
    curve: Matrix, gain: Vector, ends: list[tuple[float, float]], capped: Vector, cap: float
) -> Vector:
    """Minimise 1/2 z'curve z - gain'z over low <= z <= high, capped'z <= cap, by trying every face.

    The minimum is the stationary point of the face it lies on. So of all stationary points that are allowed, the
    lowest is the answer. Each variable is at one of its ends or free; the cap holds with room or not. Faces with the
    same free variables differ in their right-hand sides alone. Where the free variables' curve is singular the
    minimum, moved along a direction without curvature, reaches a smaller face; what rounding makes of a singular
    face does no harm, as no allowed point is lower than the minimum.
    """
    low, high = np.array(ends).T
    corners = [[end for end in pair if np.isfinite(end)] for pair in ends]
    rank = int(np.linalg.matrix_rank(curve))
    best, best_value = low, np.inf
    for choice in itertools.product((False, True), repeat=len(gain)):
        free = np.array(choice)
        if sum(choice) > rank + 1:  # singular, with a tight cap or without
            continue
        fixed = [[0.0] if is_free else corner for is_free, corner in zip(choice, corners, strict=True)]
        points = np.array(list(itertools.product(*fixed)))
        for tight in (False, True) if np.isfinite(cap) and capped[free].any() else (False,):
            if free.any() and not _stationary(curve, gain, points, free, capped if tight else None, cap):
                continue
            room = 1e-12 * np.maximum(1.0, np.abs(points).max(axis=1))
            inside = ((points >= low - room[:, None]) & (points <= high + room[:, None])).all(axis=1)
            inside &= points @ capped <= cap + room
            values = np.where(inside, (0.5 * points @ curve * points).sum(axis=1) - points @ gain, np.inf)
            least = int(np.argmin(values))
            if values[least] < best_value:
                best, best_value = np.clip(points[least], low, high), values[least]
    return np.asarray(best)


def _stationary(
    curve: Matrix, gain: Vector, points: Matrix, free: NDArray[np.bool_], tight: Vector | None, cap: float
) -> bool:
    """Write the free variables at which the quadratic is stationary, on tight'z = cap if given; False: none are."""
    system, right = curve[free][:, free], gain[free] - points[:, ~free] @ curve[~free][:, free]
    if tight is not None:
        border = tight[free][:, None]
        system = np.block([[system, border], [border.T, np.zeros((1, 1))]])
        right = np.column_stack([right, cap - points[:, ~free] @ tight[~free]])
    try:
        found = np.linalg.solve(system, right.T).T
    except np.linalg.LinAlgError:
        return False
    points[:, free] = found[:, : int(free.sum())]
    return bool(np.isfinite(found).all())


@dataclass(frozen=True)
class ConfidenceStep:
    """One example's problem over the normal distributions of weights.

    minimise  KL(N(w, S) || N(start, sigma)) + price xi^power
    such that margin'w >= phi spread(margin'S margin) - xi,  xi >= 0

    where ``spread`` is the identity (``form`` "variance") or the root ("stdev"). In the Cholesky factor of S both
    forms are convex.
    """

    start: Vector
    sigma: Matrix
    margin: Vector
    slack: Slack
    phi: float
    form: str

    def spread(self, variance: float) -> float:
        """Return what phi multiplies."""
        return variance if self.form == "variance" else float(np.sqrt(variance))

    def hinge(self, w: Vector, sigma: Matrix) -> float:
        """By how much the weights miss the margin that their confidence asks for."""
        return max(0.0, self.phi * self.spread(float(self.margin @ sigma @ self.margin)) - float(self.margin @ w))

    def objective(self, w: Vector, sigma: Matrix) -> float:
        """Value of the problem, the slack being as small as possible; hard margins: without them."""
        moved, size = w - self.start, len(w)
        share = np.linalg.solve(self.sigma, sigma)
        value = 0.5 * float(moved @ np.linalg.solve(self.sigma, moved) + np.trace(share) - size)
        value -= 0.5 * float(np.linalg.slogdet(sigma)[1] - np.linalg.slogdet(self.sigma)[1])
        return value + (self.slack.price * self.hinge(w, sigma) ** self.slack.power if self.slack.power else 0.0)

    def violation(self, w: Vector, sigma: Matrix) -> float:
        """By how much a hard margin is missed."""
        return 0.0 if self.slack.power else self.hinge(w, sigma)

    def solve_margin(self) -> tuple[Vector, float]:
        """Return the best weights, and s, the margin's variance after the step, from the optimality conditions.

        A divergence is that of the margin's own distribution plus that of the weights given the margin. The problem
        asks for the former alone, so the latter stays 0: what is left is two numbers, s and the margin's mean. With
        the multiplier alpha of the constraint, (mean - M) / V = alpha and (1/s - 1/V) / 2 = alpha phi spread'(s).
        """
        column = self.sigma @ self.margin
        v, mean = float(self.margin @ column), float(self.margin @ self.start)
        price, power = self.slack.price, self.slack.power

        def alpha(s: float) -> float:
            slope = 1.0 if self.form == "variance" else 0.5 / np.sqrt(s)
            return float(0.5 * (v - s) / (s * v * self.phi * slope))

        def excess(s: float) -> float:
            missed = self.phi * self.spread(s) - (mean + alpha(s) * v)
            return missed - alpha(s) / (2.0 * price) if power == 2 else missed

        s = _root(excess, v)
        if power == 1 and alpha(s) > price:
            s = _root(lambda s: price - alpha(s), v)
        return self.start + alpha(s) * column, s

    def solve_exact(self) -> tuple[Vector, Matrix]:
        """Return the minimiser: along the margin the variance becomes s, given the margin all stays."""
        w, s = self.solve_margin()
        column = self.sigma @ self.margin
        v = float(self.margin @ column)
        return w, self.sigma - np.outer(column, column) * (v - s) / v**2

    def solve_scipy(self) -> tuple[Vector, Matrix]:
        """Return the minimiser as SLSQP finds it over all weights and all Cholesky factors.

        Unknowns: z, the lower triangle of a factor F, and xi; w = start + root z, S = root F F' root'.
        """
        root, n = np.linalg.cholesky(self.sigma), len(self.start)
        lower = np.tril_indices(n)
        diagonal = lower[0] == lower[1]
        side, mean = root.T @ self.margin, float(self.margin @ self.start)
        price, power = self.slack.price, self.slack.power

        def factor(z: Vector) -> Matrix:
            full = np.zeros((n, n))
            full[lower] = z[n:-1]
            return full

        def value(z: Vector) -> float:
            logs = np.log(np.abs(z[n:-1][diagonal])).sum()
            return float(0.5 * (z[:n] @ z[:n] + z[n:-1] @ z[n:-1] - n) - logs + price * z[-1] ** power)

        def slope(z: Vector) -> Vector:
            part = z[n:-1].copy()
            part[diagonal] -= 1.0 / z[n:-1][diagonal]
            return np.concatenate([z[:n], part, [price if power == 1 else 2.0 * price * z[-1]]])

        def room(z: Vector) -> float:
            along = factor(z).T @ side
            return float(side @ z[:n] + mean - self.phi * self.spread(along @ along) + z[-1])

        def room_slope(z: Vector) -> Vector:
            along = factor(z).T @ side
            scale = 2.0 if self.form == "variance" else 1.0 / np.sqrt(along @ along)
            return np.concatenate([side, -self.phi * scale * np.outer(side, along)[lower], [1.0]])

        first = np.concatenate([np.zeros(n), np.eye(n)[lower], [self.hinge(self.start, self.sigma) if power else 0.0]])
        smallest = np.where(diagonal, 1e-9, -np.inf)
        found = minimize(
            value,
            first,
            jac=slope,
            method="SLSQP",
            bounds=[(None, None)] * n + [(low, None) for low in smallest] + [(0.0, None if power else 0.0)],
            constraints={"type": "ineq", "fun": room, "jac": room_slope},
            options={"ftol": 1e-16, "maxiter": 1000},
        )
        half = root @ factor(found.x)
        return self.start + root @ found.x[:n], half @ half.T


def _root(rising: Callable[[float], float], high: float) -> float:
    """Return the root of a rising function that goes to -inf at 0 and is positive at `high`."""
    low = 0.5 * high
    while rising(low) > 0.0:
        low *= 0.5
    return float(brentq(rising, low, high, xtol=1e-300, rtol=1e-15, maxiter=500))


@dataclass(frozen=True)
class DualAveragingStep:
    """The problem of which AdaGrad-RDA's weights are the answer, after t examples and these gradients.

    minimise  sum(gradients)'w + l1 t |w|_1 + w' (delta I + diag(root of the gradients' squares)) w / (2 eta)
    """

    gradients: Matrix
    t: int
    eta: float
    delta: float
    l1: float

    def curvature(self) -> Vector:
        """Return the diagonal of the quadratic part."""
        return np.asarray((self.delta + np.sqrt((self.gradients**2).sum(axis=0))) / self.eta)

    def objective(self, w: Vector) -> float:
        """Value of the problem."""
        linear = float(self.gradients.sum(axis=0) @ w + self.l1 * self.t * np.abs(w).sum())
        return linear + 0.5 * float(self.curvature() @ w**2)

    def violation(self, w: Vector) -> float:
        """Nothing is asked of the weights."""
        return 0.0

    def solve_exact(self) -> Vector:
        """Return the minimiser: of each weight, the best of 0 and the stationary points on either side of it."""
        curvature, slope, price = self.curvature(), self.gradients.sum(axis=0), self.l1 * self.t
        w = np.zeros(len(slope))
        for sign in (-1.0, 1.0):
            bent = curvature > 0.0
            point = np.zeros(len(slope))
            point[bent] = -(slope[bent] + sign * price) / curvature[bent]
            value = slope * point + price * np.abs(point) + 0.5 * curvature * point**2
            w = np.where((sign * point > 0.0) & (value < 0.0), point, w)
        return w

    def solve_scipy(self) -> Vector:
        """Return the minimiser as L-BFGS-B finds it, in w = p - q with p, q >= 0."""
        curvature, slope, price = self.curvature(), self.gradients.sum(axis=0), self.l1 * self.t
        n = len(slope)

        def value(z: Vector) -> tuple[float, Vector]:
            w = z[:n] - z[n:]
            side = slope + curvature * w
            total = float(slope @ w + price * z.sum() + 0.5 * curvature @ w**2)
            return total, np.concatenate([side + price, price - side])

        options = {"ftol": 1e-15, "gtol": 1e-12, "maxiter": 2000, "maxfun": 50_000}
        found = minimize(
            value, np.zeros(2 * n), jac=True, method="L-BFGS-B", bounds=[(0.0, None)] * (2 * n), options=options
        )
        return np.asarray(found.x[:n] - found.x[n:])
